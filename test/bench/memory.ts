// Peak memory of the command: a whole session, a line without end, a reader that stops reading. Needs Linux's /proc.
import { once } from 'node:events';
import { openSync, readFileSync } from 'node:fs';
import type { ChildProcess } from 'node:child_process';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { COMMAND, peakNow, peakOf, sampleOf, startNode } from './measure.js';
import type { Part, Sample } from './measure.js';
import type { Setting } from './setting.js';

const ROUNDS = 3;
const ENDLESS_BYTES = 1_000_000_000;
const STALL_MS = 3_000;
/** What the reader takes before it stops, so that growth is the stall's and not the start's. */
const WARM_BYTES = 16_000_000;

const repeat = async (name: string, run: () => Promise<number>): Promise<Sample> => {
  const values: number[] = [];
  for (let round = 0; round < ROUNDS; round++) values.push(await run());
  return sampleOf(name, values);
};

const idle = (): Promise<number> => peakOf(startNode(['-e', ''], ['ignore', 'ignore', 'inherit']));

const session = (args: readonly string[], file: string): Promise<number> =>
  peakOf(startNode([COMMAND, ...args], [openSync(file, 'r'), openSync('/dev/null', 'w'), 'inherit']));

/** Writes until the child takes no more within `patience`; returns the bytes it took. */
const feed = async (child: ChildProcess, pieces: () => Buffer | null, patience: number): Promise<number> => {
  const input = child.stdin;
  if (input === null) return 0;
  let taken = 0;
  for (let piece = pieces(); piece !== null; piece = pieces()) {
    if (!input.write(piece)) {
      const drained = await Promise.race([once(input, 'drain').then(() => true), pause(patience, false)]);
      if (!drained) return taken;
    }
    taken += piece.length;
  }
  return taken;
};

const endless = async (args: readonly string[]): Promise<number> => {
  const child = startNode([COMMAND, ...args], ['pipe', 'ignore', 'inherit']);
  const peak = peakOf(child);
  const piece = Buffer.alloc(65_536, 'x');
  let left = ENDLESS_BYTES;
  child.stdin?.write('{"jsonrpc":"2.0","id":1,"method":"');
  await feed(child, () => ((left -= piece.length) > 0 ? piece : null), 60_000);
  child.stdin?.end();
  return peak;
};

/** Growth of the peak between a reader that reads and the same reader after it has stopped. */
const stalled = async (args: readonly string[], file: string): Promise<number> => {
  const child = startNode([COMMAND, ...args], ['pipe', 'pipe', 'inherit']);
  const ended = peakOf(child);
  const bytes = readFileSync(file);
  let at = 0;
  const next = (): Buffer => {
    const piece = bytes.subarray(at, at + 65_536);
    at = (at + piece.length) % bytes.length;
    return piece;
  };
  let left = WARM_BYTES;
  child.stdout?.resume();
  await feed(child, () => ((left -= 65_536) > 0 ? next() : null), 60_000);
  await pause(200);
  const before = peakNow(child.pid ?? 0);
  child.stdout?.pause();
  await feed(child, next, STALL_MS);
  const growth = peakNow(child.pid ?? 0) - before;
  child.stdout?.resume();
  child.stdin?.end();
  await ended;
  return growth;
};

export const memory = async (setting: Setting): Promise<Part[]> => {
  const args = ['--policy', setting.policy, '--audit', join(setting.folder, 'memory.jsonl')];
  const nothing = await repeat('node -e \'\'', idle);
  const whole = await repeat('mixed session', () => session(args, setting.mixed));
  const long = await repeat('lines of 1 MB', () => session(args, setting.long));
  const line = await repeat('a line of 1 GB without end', () => endless(args));
  const short = await repeat('growth, reader stalled, short lines', () => stalled(args, setting.mixed));
  const big = await repeat('growth, reader stalled, lines of 1 MB', () => stalled(args, setting.long));
  const less = (what: string, value: number, limit: number) => ({ what, value, unit: ' MB', limit, better: 'less' }) as const;
  return [
    {
      title: 'Peak memory',
      caveat: `Peak resident set (VmHWM) of the process, audit to a file. A stalled reader stops after ${WARM_BYTES / 1e6} MB; growth is from there. Targets are held against the worst run.`,
      unit: 'MB',
      samples: [nothing, whole, long, line, short, big],
      targets: [
        less('mixed session, over an empty node', whole.worst - nothing.best, 60),
        less('endless line, over an empty node', line.worst - nothing.best, 40),
        less('reader stalled, short lines', short.worst, 20),
        less('reader stalled, lines of 1 MB', big.worst, 20),
      ],
    },
  ];
};
