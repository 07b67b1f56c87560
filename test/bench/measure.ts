// Numbers and how they are shown: rounds interleaved, best and median with their spread, targets with PASS or MISS.
// Starts and measures child processes. Knows nothing of what is measured.
import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { fileURLToPath } from 'node:url';

export interface Sample {
  readonly name: string;
  /** One a round, in their order. */
  readonly values: readonly number[];
  readonly best: number;
  readonly median: number;
  readonly worst: number;
}

export interface Target {
  readonly what: string;
  readonly value: number;
  readonly unit: string;
  readonly limit: number;
  readonly better: 'more' | 'less';
}

export interface Part {
  readonly title: string;
  /** How it was measured, and what it does not say. */
  readonly caveat: string;
  readonly unit: string;
  readonly samples: readonly Sample[];
  readonly targets: readonly Target[];
}

const median = (values: readonly number[]): number => {
  const sorted = [...values].sort((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? (sorted[middle] ?? 0) : ((sorted[middle - 1] ?? 0) + (sorted[middle] ?? 0)) / 2;
};

export const sampleOf = (name: string, values: readonly number[]): Sample => ({
  name, values, best: Math.min(...values), median: median(values), worst: Math.max(...values),
});

/**
 * Every contender once a round, so that a slow minute of the machine slows all of them; every other round backwards,
 * so that none always comes after the same one. One round before is thrown away.
 */
export const interleave = async (rounds: number, contenders: Record<string, () => number | Promise<number>>): Promise<Sample[]> => {
  const results = new Map(Object.keys(contenders).map((name): [string, number[]] => [name, []]));
  for (let round = 0; round <= rounds; round++) {
    const order = Object.entries(contenders);
    if (round % 2 === 1) order.reverse();
    for (const [name, run] of order) {
      const value = await run();
      if (round > 0) results.get(name)?.push(value);
    }
  }
  return [...results].map(([name, values]) => sampleOf(name, values));
};

export const find = (samples: readonly Sample[], name: string): Sample => {
  const sample = samples.find((one) => one.name === name);
  if (sample === undefined) throw new Error(`nothing was measured under ${name}`);
  return sample;
};

/** How many times faster: the median over the rounds, each compared within itself, since a machine is slow by the minute. */
export const timesFaster = (samples: readonly Sample[], one: string, than: string): number => {
  const ours = find(samples, one).values;
  return median(find(samples, than).values.map((value, round) => value / (ours[round] ?? NaN)));
};

export const met = ({ value, limit, better }: Target): boolean => (better === 'more' ? value >= limit : value <= limit);

const digits = (value: number): string => value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2);

const table = (head: readonly string[], rows: readonly (readonly string[])[]): string => {
  const widths = head.map((title, column) => Math.max(title.length, ...rows.map((row) => row[column]?.length ?? 0)));
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell, column) => (column === 0 ? cell.padEnd(widths[column] ?? 0) : cell.padStart(widths[column] ?? 0))).join(' | ')} |`;
  return [line(head), `|${widths.map((width, column) => (column === 0 ? '-'.repeat(width + 2) : `${'-'.repeat(width + 1)}:`)).join('|')}|`, ...rows.map(line)].join('\n');
};

const samplesTable = ({ unit, samples }: Part): string =>
  table(['', `best (${unit})`, 'median', 'worst'], samples.map((one) => [one.name, digits(one.best), digits(one.median), digits(one.worst)]));

const targetsTable = ({ targets }: Part): string =>
  table(
    ['target', 'measured', 'wanted', ''],
    targets.map((one) => [
      one.what, `${digits(one.value)}${one.unit}`, `${one.better === 'more' ? '≥' : '≤'} ${one.limit}${one.unit}`, met(one) ? 'PASS' : 'MISS',
    ]),
  );

/** Markdown, which reads well on a terminal too. */
export const show = (part: Part): string =>
  [`## ${part.title}`, part.caveat, samplesTable(part), ...(part.targets.length === 0 ? [] : [targetsTable(part)])].join('\n\n') + '\n';

export const COMMAND = fileURLToPath(new URL('../../sluice.cjs', import.meta.url));
/** Plain JavaScript beside the sources: not compiled, so that what is measured is what is read. */
const source = (name: string): string => fileURLToPath(new URL(`../../../test/bench/${name}`, import.meta.url));
export const RELAY = source('relay.mjs');
const PEAK = source('peak.cjs');

type Stream = 'pipe' | 'ignore' | 'inherit' | number;

/** One node process whose descriptor 3 gives its peak memory as it exits. */
export const startNode = (args: readonly string[], stdio: [Stream, Stream, Stream]): ChildProcess =>
  spawn(process.execPath, args, { stdio: [...stdio, 'pipe'], env: { ...process.env, NODE_OPTIONS: `--require ${JSON.stringify(PEAK)}` } });

/** Peak resident memory in MB that a child of `startNode` reported; its exit is awaited. */
export const peakOf = async (child: ChildProcess): Promise<number> => {
  const report: Buffer[] = [];
  child.stdio[3]?.on('data', (bytes: Buffer) => report.push(bytes));
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  if (code !== 0) throw new Error(`the child ended with ${code}`);
  return Number(Buffer.concat(report).toString()) / 1024;
};

/** A living process's peak so far, in MB. */
export const peakNow = (pid: number): number => Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'latin1'))?.[1]) / 1024;

/** Seconds that a shell pipeline takes. Words of the script are given as `$1`, `$2` and so on, never pasted into it. */
export const timePipeline = async (script: string, words: readonly string[]): Promise<number> => {
  const started = performance.now();
  const child = spawn('sh', ['-c', script, 'sh', ...words], { stdio: ['ignore', 'ignore', 'inherit'] });
  const code = await new Promise<number | null>((resolve) => child.on('close', resolve));
  if (code !== 0) throw new Error(`the pipeline ended with ${code}: ${script}`);
  return (performance.now() - started) / 1000;
};
