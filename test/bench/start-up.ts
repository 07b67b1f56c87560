// From starting the command to its first forwarded message, beside an empty node.
import { spawn } from 'node:child_process';
import { join } from 'node:path';
import { COMMAND, find, interleave } from './measure.js';
import type { Part } from './measure.js';
import type { Setting } from './setting.js';

const emptyNode = async (): Promise<number> => {
  const started = performance.now();
  const child = spawn(process.execPath, ['-e', ''], { stdio: ['pipe', 'ignore', 'inherit'] });
  await new Promise((resolve) => child.on('exit', resolve));
  return performance.now() - started;
};

const firstMessage = async (args: readonly string[]): Promise<number> => {
  const started = performance.now();
  const child = spawn(process.execPath, [COMMAND, ...args], { stdio: ['pipe', 'pipe', 'inherit'] });
  // Standard input stays open: a client that waits for its answer sends no end.
  child.stdin.write('{"jsonrpc":"2.0","id":1,"method":"ping"}\n');
  await new Promise((resolve) => child.stdout.once('data', resolve));
  const elapsed = performance.now() - started;
  child.stdin.end();
  await new Promise((resolve) => child.on('close', resolve));
  return elapsed;
};

export const startUp = async (setting: Setting): Promise<Part[]> => {
  const audit = join(setting.folder, 'start-up.jsonl');
  const samples = await interleave(setting.rounds * 5, {
    'node -e \'\'': emptyNode,
    'first message, a policy file': () => firstMessage(['--policy', setting.policy, '--audit', audit]),
    'first message, the shipped default': () => firstMessage(['--policy', 'default', '--audit', audit]),
  });
  const over = (name: string): number => find(samples, name).median - find(samples, 'node -e \'\'').median;
  return [
    {
      title: 'Start-up',
      caveat: 'The empty node is timed from spawn to exit, the command from spawn to the first byte it forwards. Differences are of the medians.',
      unit: 'ms',
      samples,
      targets: ['first message, a policy file', 'first message, the shipped default'].map((name) =>
        ({ what: `${name}, over an empty node`, value: over(name), unit: ' ms', limit: 70, better: 'less' })),
    },
  ];
};
