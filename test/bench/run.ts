// `npm run bench [-- --only PART] [--quick] [--write]`: measures, prints tables, holds them against the targets.
// `--write` puts them into test/bench/RESULTS.md. Exits 1 on a miss. Give it a machine that does nothing else.
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { parseArgs } from 'node:util';
import { LONG_LINES, MIXED_LINES, POLICY, writeLong, writeMixed } from './corpus-generator.js';
import { met, show } from './measure.js';
import type { Part } from './measure.js';
import { memory } from './memory.js';
import { pipes } from './pipes.js';
import { scan } from './scan.js';
import type { Setting } from './setting.js';
import { startUp } from './start-up.js';
import { verdicts } from './verdicts.js';

const PARTS: Readonly<Record<string, (setting: Setting) => Promise<Part[]>>> = { scan, verdicts, pipes, 'start-up': startUp, memory };

const { values: options } = parseArgs({
  options: { only: { type: 'string' }, quick: { type: 'boolean', default: false }, write: { type: 'boolean', default: false } },
});
const chosen = options.only === undefined ? Object.keys(PARTS) : [options.only];
for (const name of chosen) {
  if (!Object.hasOwn(PARTS, name)) throw new Error(`no part is called ${name}; there are ${Object.keys(PARTS).join(', ')}`);
}

const machine = (): string => {
  const processors = cpus();
  return `${processors[0]?.model.trim()}, ${processors.length} cores, ${Math.round(totalmem() / 2 ** 30)} GiB, ${process.platform} ${process.arch}, Node ${process.version}`;
};

const folder = mkdtempSync(join(tmpdir(), 'sluice-bench-'));
try {
  const setting: Setting = {
    folder,
    mixed: join(folder, 'mixed.jsonl'),
    long: join(folder, 'long.jsonl'),
    policy: join(folder, 'bench.yaml'),
    rounds: options.quick ? 3 : 5,
  };
  writeFileSync(setting.policy, POLICY);
  writeMixed(setting.mixed);
  writeLong(setting.long);

  const command = ['npm run bench --', ...process.argv.slice(2)].join(' ');
  const head = [
    '# Bench results',
    '',
    `${new Date().toISOString().slice(0, 10)}, \`${command}\`: ${machine()}.`,
    '',
    `Sessions: ${MIXED_LINES} mixed lines and ${LONG_LINES} lines of 1 MB, made by \`corpus-generator.ts\`, the same every time. Contenders of a table`,
    `run by turns in the same minutes, ${setting.rounds} rounds or more; compare within a table, not across tables or machines.`,
    '',
  ].join('\n');
  console.log(head);
  const parts: Part[] = [];
  for (const name of chosen) {
    for (const part of (await PARTS[name]?.(setting)) ?? []) {
      parts.push(part);
      console.log(show(part));
    }
  }
  if (options.write) writeFileSync(fileURLToPath(new URL('../../../test/bench/RESULTS.md', import.meta.url)), [head, ...parts.map(show)].join('\n'));
  if (!parts.every((part) => part.targets.every(met))) process.exitCode = 1;
} finally {
  rmSync(folder, { recursive: true });
}
