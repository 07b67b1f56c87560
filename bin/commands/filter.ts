// `sluice [filter]`: standard input through one leg to standard output.
// Owns the process around a leg: files, signals, exit codes. Must not judge, and must not write anything but forwarded lines to stdout.
import { fstatSync } from 'node:fs';
import type { Readable, Writable } from 'node:stream';
import { parseArgs } from 'node:util';
import { lineBytes } from '../../lib/audit/record-writer.js';
import { fileSink, streamSink } from '../../lib/audit/sink.js';
import type { Sink } from '../../lib/audit/sink.js';
import { DEFAULTS } from '../../lib/defaults.js';
import { Fault, PolicyError } from '../../lib/errors.js';
import { createLeg, newSession } from '../../lib/leg.js';
import type { Leg } from '../../lib/leg.js';
import type { Policy } from '../../lib/message.js';
import { loadPolicy } from '../../lib/policy/load.js';
import { noPolicy } from '../../lib/policy/no-policy.js';
import { formatProblems } from '../../lib/policy/problems.js';
import { drained, errorsPlace, isNull, openErrors, openPipe, sharedWith } from '../outputs.js';
import type { Place } from '../outputs.js';
import { readPolicySource, SHIPPED_POLICIES } from '../policy-source.js';
import { escapeForTerminal, progressLine } from '../terminal.js';
import { VERSION } from '../version.js';
import { collectYoungGarbage } from '../young-garbage.js';

const HELP = `Usage: sluice [filter] --policy POLICY [options] < session.jsonl > forwarded.jsonl

Reads newline-delimited JSON-RPC from standard input, judges every message by the policy and writes what passes,
byte for byte as it came, to standard output. Each message gets one audit record before it leaves.

POLICY is a file, or a policy that ships with Sluice: ${SHIPPED_POLICIES.join(', ')}.

Options:
  --policy POLICY    required; SLUICE_ALLOW_NO_POLICY=1 in the environment is the only way to run without one
  --set NAME=VALUE   value of a variable of the policy, in place of the one in \`vars\` (repeatable)
  --audit FILE       where the records go (created fresh); default: standard error; none: keep no records
  --audit-append     add to the audit file instead
  --errors FILE      where refusals are answered with JSON-RPC errors; fd:N for an open descriptor; default: only counted
  --stats            end the audit log with a summary line
  --epoch-ms N       freeze the clock of the records and zero the session id, so that two runs can be compared
  --no-color         no colours on standard error
  --help             this text

Exit: 0 done, 2 wrong usage or a policy that does not load (nothing is forwarded), 3 a fault (nothing is forwarded
after it), 128+N ended by signal N.
`;

export interface FilterIo {
  readonly stdin: Readable & { readonly isTTY?: boolean; readonly fd?: number };
  readonly stdout: Writable;
  readonly stderr: Writable & { readonly isTTY?: boolean };
  readonly env: NodeJS.ProcessEnv;
  /** May `stderr` be coloured? */
  readonly color: boolean;
  /** The running script, from which the shipped policies are found. */
  readonly script: string;
}

/** What was asked for cannot be done; said before any byte is read. */
class UsageError extends Error {}

const OPTIONS = {
  policy: { type: 'string' },
  set: { type: 'string', multiple: true },
  audit: { type: 'string' },
  'audit-append': { type: 'boolean' },
  errors: { type: 'string' },
  stats: { type: 'boolean' },
  'epoch-ms': { type: 'string' },
  'no-color': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

const reasonOf = (error: unknown): string => escapeForTerminal(error instanceof Error ? error.message : String(error));

const readSets = (pairs: readonly string[]): Record<string, string> => {
  const set: Record<string, string> = Object.create(null) as Record<string, string>;
  for (const pair of pairs) {
    const at = pair.indexOf('=');
    if (at < 1) throw new UsageError(`--set ${escapeForTerminal(pair)}: write NAME=VALUE.`);
    set[pair.slice(0, at)] = pair.slice(at + 1);
  }
  return set;
};

const choosePolicy = (name: string | undefined, set: Record<string, string>, io: FilterIo): Policy => {
  if (name === undefined) {
    if (io.env['SLUICE_ALLOW_NO_POLICY'] !== '1') {
      throw new UsageError(`no policy. Give --policy FILE, or one of ${SHIPPED_POLICIES.join(', ')}. SLUICE_ALLOW_NO_POLICY=1 in the environment is the only way to run without one.`);
    }
    io.stderr.write('sluice: WARNING: SLUICE_ALLOW_NO_POLICY=1 and no --policy: every well-formed message passes.\n');
    return noPolicy();
  }
  const { file, source } = readPolicySource(name, io.script);
  return loadPolicy(source, { file, set });
};

/** Nothing is written where something else is read or written: not even a file cut to nothing before its time. */
const checkPlaces = (values: { policy?: string | undefined; audit?: string | undefined; errors?: string | undefined }): void => {
  const taken: Place[] = [{ what: 'standard input', at: 0 }, { what: 'standard output', at: 1 }];
  if (values.policy !== undefined && !SHIPPED_POLICIES.includes(values.policy)) taken.push({ what: 'the policy', at: values.policy });
  const targets: Place[] = [];
  if (values.audit === undefined) {
    // Also what a closed standard error becomes. Records that nobody keeps have to be asked for.
    if (isNull(2)) throw new UsageError('the audit records would be thrown away with standard error; give --audit FILE, or --audit none.');
    targets.push({ what: 'the audit log', at: 2 });
  }
  if (values.audit !== undefined && values.audit !== 'none') targets.push({ what: 'the audit log', at: values.audit });
  if (values.errors !== undefined) targets.push(errorsPlace(values.errors));
  for (const target of targets) {
    const same = target.what === 'the errors' && values.audit === values.errors ? 'the audit log' : sharedWith(target, taken);
    if (same !== null) throw new UsageError(`${target.what} would be written to ${target.at === 2 ? 'standard error' : typeof target.at === 'number' ? `fd:${target.at}` : escapeForTerminal(target.at)}, which is ${same}; give it a place of its own.`);
    taken.push(target);
  }
};

const openSink = (audit: string | undefined, append: boolean, io: FilterIo): Sink | null => {
  if (audit === undefined) return streamSink(io.stderr, 'standard error');
  if (audit === 'none') {
    io.stderr.write('sluice: WARNING: --audit none: no audit record is kept.\n');
    return null;
  }
  try {
    const pipe = openPipe(audit);
    return pipe === null ? fileSink(audit, { append }) : streamSink(pipe, 'the audit pipe');
  } catch (error) {
    throw new UsageError(`cannot write the audit log ${escapeForTerminal(audit)}: ${reasonOf(error)}.`);
  }
};

const openErrorsOf = async (errors: string): Promise<Writable> => {
  try {
    return await openErrors(errorsPlace(errors));
  } catch (error) {
    throw new UsageError(`cannot write errors to ${escapeForTerminal(errors)}: ${reasonOf(error)}.`);
  }
};

const readEpoch = (text: string | undefined): number | null => {
  if (text === undefined) return null;
  if (!/^\d{1,15}$/.test(text)) throw new UsageError(`--epoch-ms ${escapeForTerminal(text)}: give milliseconds since 1970 as digits.`);
  return Number(text);
};

interface Plan {
  readonly policy: Policy;
  readonly sink: Sink | null;
  readonly errors: Writable | null;
  readonly stats: boolean;
  readonly epoch: number | null;
  readonly progress: boolean;
}

const plan = async (argv: string[], io: FilterIo): Promise<Plan | null> => {
  const { values, tokens } = parseArgs({ args: argv, options: OPTIONS, strict: true, allowPositionals: false, tokens: true });
  const named = tokens.flatMap((token) => (token.kind === 'option' && token.name !== 'set' ? [token.name] : []));
  const twice = named.find((name, index) => named.indexOf(name) !== index);
  if (twice !== undefined) throw new UsageError(`--${twice} is given twice; which one counts would be a guess.`);
  if (values.help === true) return null;
  const epoch = readEpoch(values['epoch-ms']);
  if (values['audit-append'] === true && (values.audit === undefined || values.audit === 'none')) {
    throw new UsageError('--audit-append adds to a file; name it with --audit FILE.');
  }
  const policy = choosePolicy(values.policy, readSets(values.set ?? []), io);
  if (isFolder(io.stdin.fd)) throw new UsageError('standard input is a folder; give it a session.');
  checkPlaces(values);
  const errors = values.errors === undefined ? null : await openErrorsOf(values.errors);
  const sink = openSink(values.audit, values['audit-append'] === true, io);
  return { policy, sink, errors, stats: values.stats === true, epoch, progress: values.audit !== undefined };
};

const written = (sink: Sink, bytes: Uint8Array): Promise<void> =>
  new Promise((resolve, reject) => {
    sink.write(bytes, (error) => (error ? reject(error) : resolve()));
  });

const isFolder = (fd: number | undefined): boolean => {
  try {
    return fstatSync(fd ?? 0).isDirectory();
  } catch {
    return false; // no descriptor behind it
  }
};

/** Size of standard input where it is a file, for the bar; null where it is not known. */
const inputSize = (io: FilterIo): number | null => {
  try {
    const stat = fstatSync(io.stdin.fd ?? 0);
    return stat.isFile() ? stat.size : null;
  } catch {
    return null; // no descriptor behind it
  }
};

const SKIPPED = 8 * 1024 * 1024; // bytes without a message: a line is being skipped

/** How a run ended. */
type End = { readonly kind: 'done' } | { readonly kind: 'signal'; readonly number: number } | { readonly kind: 'fault'; readonly fault: Fault };

/** Moves bytes until the input ends, a signal comes or something fails; resolves when all that may leave has left. */
const move = (leg: Leg, io: FilterIo, errors: Writable | null, onBytes: (count: number) => void): Promise<{ end: End; sent: number }> =>
  new Promise((resolve) => {
    const { stdin, stdout } = io;
    let writing = 0;
    let taken = 0;
    let legEnded = false;
    let end: End | null = null;
    let deadline: NodeJS.Timeout | undefined;

    const finish = (): void => {
      clearTimeout(deadline);
      for (const name of ['SIGINT', 'SIGTERM'] as const) process.removeAllListeners(name);
      stdin.unpipe(leg.stream);
      stdin.destroy();
      if (!leg.stream.destroyed) leg.stream.destroy();
      resolve({ end: end ?? { kind: 'done' }, sent: leg.sent(taken) });
    };
    const settle = (): void => {
      if (writing > 0) return;
      if (legEnded || end !== null) finish();
    };
    /** Nothing more goes in; what was decided may still leave, within a time limit. */
    const stop = (how: End): void => {
      if (end !== null) return;
      end = how;
      stdin.unpipe(leg.stream);
      deadline = setTimeout(finish, DEFAULTS.exitMs);
      if (how.kind === 'fault') settle();
      else leg.stream.write(Buffer.alloc(0), settle); // an empty chunk comes back when all before it went through
    };
    const fail = (fault: Fault): void => stop({ kind: 'fault', fault });

    leg.stream.on('data', (bytes: Uint8Array) => {
      if (end?.kind === 'fault') return;
      writing++;
      const more = stdout.write(bytes, (error) => {
        writing--;
        if (error) fail(new Fault('output', 'the reader of standard output went away', error));
        else taken += bytes.length;
        settle();
      });
      if (!more) leg.stream.pause();
    });
    stdout.on('drain', () => leg.stream.resume());
    stdout.on('error', (error) => fail(new Fault('output', 'the reader of standard output went away', error)));
    leg.stream.on('end', () => {
      legEnded = true;
      settle();
    });
    leg.stream.on('error', (error) => fail(error instanceof Fault ? error : new Fault('stage', error.message, error)));
    stdin.on('error', (error) => fail(new Fault('input', `standard input cannot be read: ${error.message}`, error)));
    stdin.on('data', (chunk: Uint8Array) => onBytes(chunk.length));
    if (errors !== null) {
      leg.replies.pipe(errors);
      errors.on('error', (error) => fail(new Fault('replies', `the errors cannot be written: ${error.message}`, error)));
    }
    process.once('SIGINT', () => stop({ kind: 'signal', number: 2 }));
    process.once('SIGTERM', () => stop({ kind: 'signal', number: 15 }));
    stdin.pipe(leg.stream);
  });

const run = async ({ policy, sink, errors, stats, epoch, progress }: Plan, io: FilterIo): Promise<number> => {
  const wall = (): number => epoch ?? Date.now();
  const session = epoch === null ? newSession() : '00000000';
  const tell = (text: string): void => {
    // With records on stderr, a person's line there would be a foreign one in the log.
    if (progress) io.stderr.write(`sluice: ${text}\n`);
  };
  const complain = (fault: Fault): number => {
    tell(`fault: ${escapeForTerminal(fault.message)}; nothing more was forwarded.`);
    return 3;
  };
  try {
    if (sink !== null) {
      await written(sink, lineBytes({
        v: 1, type: 'session', session, ts_ms: wall(), version: VERSION, policy: policy.name, policy_sha256: policy.hash,
        mode: policy.mode, ...(policy.flags.length > 0 ? { flags: policy.flags } : {}),
      }));
    }
  } catch (error) {
    return complain(error as Fault);
  }

  const leg = createLeg({ policy, sink, session, wall, answer: errors !== null });
  const bar = progress ? progressLine(io.stderr, inputSize(io)) : null;
  let read = 0;
  let collected = 0; // bytes read at the last look, and messages seen by then
  let messages = 0;
  const { end, sent } = await move(leg, io, errors, (count) => {
    read += count;
    bar?.update(read);
    if (read - collected < SKIPPED) return;
    const now = leg.stats().messages;
    if (now === messages) collectYoungGarbage();
    collected = read;
    messages = now;
  });
  bar?.end();
  let fault = end.kind === 'fault' ? end.fault : null;
  if (errors !== null) {
    const waiting = (): number => leg.replies.readableLength + errors.writableLength;
    const all = await drained(errors, waiting, end.kind === 'done' ? DEFAULTS.errorsMs : DEFAULTS.exitMs);
    if (!all && end.kind === 'done') fault = new Fault('replies', 'nobody reads the errors');
    errors.destroy();
  }

  try {
    if (sink !== null && fault?.where !== 'sink') {
      if (fault !== null) await written(sink, lineBytes({ v: 1, type: 'fault', ts_ms: wall(), where: fault.where, reason: fault.message }));
      if (stats) await written(sink, lineBytes({ v: 1, type: 'summary', ts_ms: wall(), ...leg.stats(), sent }));
    }
  } catch (error) {
    return complain(error as Fault);
  } finally {
    sink?.close();
  }
  if (fault !== null) return complain(fault);
  return end.kind === 'signal' ? 128 + end.number : 0;
};

/** Runs the filter; resolves to the exit code. */
export const filterCommand = async (argv: string[], io: FilterIo): Promise<number> => {
  let made: Plan | null;
  try {
    made = await plan(argv, io);
  } catch (error) {
    if (error instanceof PolicyError) io.stderr.write(formatProblems(error.problems, io.color));
    else if (error instanceof UsageError || (error as NodeJS.ErrnoException).code?.startsWith('ERR_PARSE_ARGS') === true) {
      io.stderr.write(`sluice: ${error instanceof UsageError ? error.message : reasonOf(error)}\nTry: sluice filter --help\n`);
    } else throw error;
    return 2;
  }
  if (made === null) {
    io.stdout.write(HELP);
    return 0;
  }
  return run(made, io);
};
