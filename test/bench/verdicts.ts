// What one message costs in this process: through a whole leg, and by the number of rules.
import { readFileSync } from 'node:fs';
import { createLeg, loadPolicy } from '../../lib/index.js';
import type { Policy, Sink } from '../../lib/index.js';
import { find, interleave } from './measure.js';
import type { Part } from './measure.js';
import type { Setting } from './setting.js';

const CHUNK = 65_536;
/** Enough of the mixed session for a steady figure, little enough for many rounds. */
const BYTES = 16_000_000;

/** Takes the records and throws them away: what is measured is ours, not a disk's. */
const nowhere: Sink = { write: (_bytes, done) => done(), close: () => undefined };

const leg = async (policy: Policy, sink: Sink | null, bytes: Buffer): Promise<void> => {
  const { stream } = createLeg({ policy, sink, answer: false });
  stream.resume();
  const ended = new Promise((resolve, reject) => stream.once('end', resolve).once('error', reject));
  for (let at = 0; at < bytes.length; at += CHUNK) {
    if (!stream.write(bytes.subarray(at, at + CHUNK))) await new Promise((resolve) => stream.once('drain', resolve));
  }
  stream.end();
  await ended;
};

/** Half allow, half deny, none of them about the tools of the session, so that none can be left out. */
const policyOf = (rules: number): Policy => {
  const names = (effect: string): string => Array.from({ length: rules / 2 }, (_, index) => `${effect}_${index}_*`).join(', ');
  return loadPolicy(`version: 1\nname: bench\ndefault: allow\nallow: [${names('allowed')}]\ndeny: [${names('denied')}]\n`, { file: 'bench.yaml' });
};

export const verdicts = async (setting: Setting): Promise<Part[]> => {
  const whole = readFileSync(setting.mixed);
  const bytes = whole.subarray(0, whole.lastIndexOf(10, BYTES) + 1);
  const lines = bytes.toString('latin1').split('\n').length - 1;
  const time = (policy: Policy, sink: Sink | null) => async (): Promise<number> => {
    const started = performance.now();
    await leg(policy, sink, bytes);
    return ((performance.now() - started) * 1e6) / lines;
  };

  const policy = loadPolicy(readFileSync(setting.policy, 'utf8'), { file: 'bench.yaml' });
  const stages = await interleave(setting.rounds, { 'no audit': time(policy, null), 'audit': time(policy, nowhere) });
  const [few, many] = [policyOf(10), policyOf(1_000)];
  const rules = await interleave(setting.rounds * 2, { '10 rules': time(few, null), '1 000 rules': time(many, null) });
  return [
    {
      title: 'One message through all stages, in process',
      caveat: `${lines} mixed messages in chunks of 64 KiB through one leg; records are built and thrown away.`,
      unit: 'ns',
      samples: stages,
      targets: [],
    },
    {
      title: 'By the number of rules',
      caveat: 'The same messages, no audit. A verdict on a name is made once and kept, so this is the cost of a session, not of a first call.',
      unit: 'ns',
      samples: rules,
      targets: [
        {
          what: 'cost with 1 000 rules over cost with 10',
          value: (find(rules, '1 000 rules').best / find(rules, '10 rules').best - 1) * 100,
          unit: ' %',
          limit: 15,
          better: 'less',
        },
      ],
    },
  ];
};
