// The filter end to end in a shell's pipe, beside a bare pipe and beside a relay that parses and writes again.
import { rmSync } from 'node:fs';
import { join } from 'node:path';
import { COMMAND, interleave, RELAY, timePipeline, timesFaster } from './measure.js';
import type { Part } from './measure.js';
import type { Setting } from './setting.js';

const BARE_PIPE = 'process.stdin.pipe(process.stdout)';

const measureSink = async (setting: Setting, file: string, title: string, end: string): Promise<Part> => {
  const node = process.execPath;
  const run = (script: string, ...words: string[]) => (): Promise<number> => timePipeline(`cat "$1" | ${script} ${end}`, [file, node, ...words]);
  const audit = join(setting.folder, 'audit.jsonl');
  const audited = run('"$2" "$3" --policy "$4" --audit "$5"', COMMAND, setting.policy, audit);
  const samples = await interleave(setting.rounds, {
    'bare pipe': run('"$2" -e "$3"', BARE_PIPE),
    'relay (parse + stringify)': run('"$2" "$3"', RELAY),
    'sluice, no audit': run('"$2" "$3" --policy "$4" --audit none', COMMAND, setting.policy),
    'sluice, audit to a file': async () => {
      rmSync(audit, { force: true }); // a log is new; emptying an old one of 100 MB is not what is measured
      return audited();
    },
  });
  const target = (what: string, name: string, limit: number) =>
    ({ what, value: timesFaster(samples, name, 'relay (parse + stringify)'), unit: 'x', limit, better: 'more' }) as const;
  return {
    title,
    caveat: 'Wall time of the whole pipeline, start of the processes included. A ratio is the median over the rounds, each compared within itself.',
    unit: 's',
    samples,
    targets: [
      target('faster than the relay, no audit', 'sluice, no audit', 1.8),
      target('faster than the relay, audit to a file', 'sluice, audit to a file', 1.4),
    ],
  };
};

export const pipes = async (setting: Setting): Promise<Part[]> => [
  await measureSink(setting, setting.mixed, 'Mixed session, to the null device', '> /dev/null'),
  await measureSink(setting, setting.mixed, 'Mixed session, to a reader', '| cat > /dev/null'),
  await measureSink(setting, setting.long, 'Lines of 1 MB, to a reader', '| cat > /dev/null'),
];
