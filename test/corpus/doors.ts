// The two ways into the built product: the command in its own process, and the library's leg in this one.
// Feeds pieces and gathers everything that comes out. Must not judge it.
import { spawn } from 'node:child_process';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as pause } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { createLeg, loadPolicy, PolicyError } from '../../lib/index.js';
import type { Policy, Sink } from '../../lib/index.js';

export interface Session {
  /** Text of the policy file. */
  readonly policy: string;
  /** The input, cut as it must be written. */
  readonly pieces: readonly Buffer[];
  /** What the leg's clock shows, in ms, as each piece is written; the command has only its own clock. */
  readonly times?: readonly number[];
}

/** An audit record, as far as the cases look at it. */
export interface SeenRecord {
  readonly decision: string;
  readonly code: string;
}

export interface Seen {
  /** 0 done, 2 the policy was refused, 3 fault. */
  readonly exit: number;
  readonly forwarded: Buffer;
  readonly replies: readonly unknown[];
  readonly records: readonly SeenRecord[];
  /** The audit log as written. */
  readonly audit: Buffer;
  readonly stderr: string;
  /** From the first write to the last output. */
  readonly ms: number;
}

export type Door = (session: Session) => Promise<Seen>;

const COMMAND = fileURLToPath(new URL('../../sluice.cjs', import.meta.url));

const jsonLines = (bytes: Buffer): unknown[] =>
  bytes
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line): unknown => JSON.parse(line));

const isRecord = (line: unknown): line is SeenRecord =>
  typeof line === 'object' && line !== null && 'event' in line && 'decision' in line;

const contents = (path: string): Buffer => {
  try {
    return readFileSync(path);
  } catch {
    return Buffer.alloc(0); // a policy that does not load leaves no log
  }
};

/** One process a session: what a shell pipe sees. */
export const command: Door = async ({ policy, pieces }) => {
  const folder = mkdtempSync(join(tmpdir(), 'sluice-corpus-'));
  try {
    const file = (name: string): string => join(folder, name);
    writeFileSync(file('policy'), policy);
    const started = performance.now();
    const child = spawn(process.execPath, [
      COMMAND, 'filter', '--policy', file('policy'), '--audit', file('audit.jsonl'), '--errors', file('errors.jsonl'),
    ]);
    const stdout: Buffer[] = [];
    const stderr: Buffer[] = [];
    child.stdout.on('data', (bytes: Buffer) => stdout.push(bytes));
    child.stderr.on('data', (bytes: Buffer) => stderr.push(bytes));
    child.stdin.on('error', () => {}); // a policy error ends the child before it reads
    const exit = new Promise<number>((resolve) => child.on('close', (code) => resolve(code ?? -1)));
    for (const [index, piece] of pieces.entries()) {
      if (index > 0) await pause(1); // else the pipe joins the pieces again
      child.stdin.write(piece);
    }
    child.stdin.end();
    const code = await exit;
    const audit = contents(file('audit.jsonl'));
    return {
      exit: code,
      forwarded: Buffer.concat(stdout),
      replies: jsonLines(contents(file('errors.jsonl'))),
      records: jsonLines(audit).filter(isRecord),
      audit,
      stderr: Buffer.concat(stderr).toString('utf8'),
      ms: performance.now() - started,
    };
  } finally {
    rmSync(folder, { recursive: true });
  }
};

const REFUSED: Seen = { exit: 2, forwarded: Buffer.alloc(0), replies: [], records: [], audit: Buffer.alloc(0), stderr: '', ms: 0 };

const load = (text: string): Policy | PolicyError => {
  try {
    return loadPolicy(text, { file: 'policy' });
  } catch (error) {
    if (error instanceof PolicyError) return error;
    throw error;
  }
};

/** The leg in this process, on a clock of its own: what an embedder sees. */
export const library: Door = async ({ policy: text, pieces, times }) => {
  const policy = load(text);
  if (policy instanceof PolicyError) return { ...REFUSED, stderr: policy.message };
  const forwarded: Buffer[] = [];
  const replies: Buffer[] = [];
  const records: Buffer[] = [];
  const sink: Sink = {
    write: (bytes, done) => {
      records.push(Buffer.from(bytes)); // the leg writes its next records into the same memory
      done();
    },
    close: () => undefined,
  };
  let now = 0;
  const leg = createLeg({ policy, sink, ...(times === undefined ? {} : { now: () => now }) });
  leg.stream.on('data', (bytes: Buffer) => forwarded.push(bytes));
  leg.replies.on('data', (bytes: Buffer) => replies.push(bytes));
  let fault = '';
  leg.stream.on('error', (error) => (fault = error.message));
  const closed = new Promise((resolve) => leg.stream.on('close', resolve));
  const started = performance.now();
  for (const [index, piece] of pieces.entries()) {
    now = times?.[index] ?? now;
    await new Promise((resolve) => leg.stream.write(piece, resolve));
  }
  leg.stream.end();
  await closed;
  const ms = performance.now() - started;
  await new Promise(setImmediate); // the last replies
  const audit = Buffer.concat(records);
  return {
    exit: fault === '' ? 0 : 3,
    forwarded: Buffer.concat(forwarded),
    replies: jsonLines(Buffer.concat(replies)),
    records: jsonLines(audit).filter(isRecord),
    audit,
    stderr: fault,
    ms,
  };
};
