// Golden cases: each is a folder below fixtures/, fed through a leg; what comes out must be its golden files.
// Owns the session format, the ways to cut a session, and the goldens. Must not judge a message: the product does that.
//
// As a program it checks the cases named (default: all); with --write it rewrites their goldens and shows what changed.
import { existsSync, readdirSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { dirname, join, relative, sep } from 'node:path';
import { buffer } from 'node:stream/consumers';
import { setImmediate as turn } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { packageFolder } from '../bin/policy-source.js';
import type { Sink } from '../lib/audit/sink.js';
import { createChain, createLeg } from '../lib/leg.js';
import type { Leg, LegOptions } from '../lib/leg.js';
import type { Policy } from '../lib/message.js';
import { loadPolicy } from '../lib/policy/load.js';

const script = fileURLToPath(import.meta.url);
const root = packageFolder(script);
if (root === null) throw new Error(`${script} does not lie in the package`);
const fixtures = join(root, 'fixtures');

/** Cases in a format of their own, run by another program. */
const FOREIGN = 'corpus';

const SESSIONS = ['session.txt', 'session.jsonl'] as const;
const POLICIES = ['policy.yaml', 'policy.policy', 'policy.txt'] as const;
const GOLDENS = ['to-server.jsonl', 'to-client.jsonl', 'audit.jsonl'] as const;

/** The three files of a case as one byte a character (latin1), so that any bytes can be compared and shown. */
export type Output = Readonly<Record<(typeof GOLDENS)[number], string>>;

/** Bytes that are written while the clock shows `at`, in ms. */
export interface Segment {
  readonly at: number;
  readonly bytes: Buffer;
}

const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', 0: '\0', '\\': '\\', '"': '"' };

const unescape = (text: string, repetition: number | null): string =>
  text.replace(/\\(x[0-9a-fA-F]{2}|.|$)/g, (found: string, escape: string) => {
    if (escape.length === 3) return String.fromCharCode(Number.parseInt(escape.slice(1), 16));
    const character = escape === '#' && repetition !== null ? String(repetition) : ESCAPES[escape];
    if (character === undefined) throw new Error(`unknown escape ${found}`);
    return character;
  });

const repeated = (rest: string): string => {
  const parts = /^([1-9][0-9]*) (.+)$/.exec(rest);
  if (parts === null) throw new Error('expected `>* COUNT TEXT`');
  const [, count = '', text = ''] = parts;
  if (!text.includes('\\')) return text.repeat(Number(count));
  return Array.from({ length: Number(count) }, (_, index) => unescape(text, index)).join('');
};

/** Reads a session.txt, given as latin1 so that its bytes stay what they are. The format stands in fixtures/README.md. */
export const parseSession = (source: string, file: string): Segment[] => {
  const segments: Array<{ at: number; text: string }> = [{ at: 0, text: '' }];
  const lines = source.split('\n');
  if (!/^# ./.test(source)) throw new Error(`${file}:1: a session opens with \`# what it proves\``);
  lines.forEach((line, index) => {
    if (line === '' || line.startsWith('#')) return;
    const space = line.indexOf(' ');
    const mark = space < 0 ? line : line.slice(0, space);
    const rest = space < 0 ? '' : line.slice(space + 1);
    const segment = segments[segments.length - 1] as { text: string };
    try {
      if (mark === '>') segment.text += `${rest}\n`;
      else if (mark === '>\\') segment.text += unescape(rest, null);
      else if (mark === '>*') segment.text += repeated(rest);
      else if (mark === '@' && /^[0-9]+$/.test(rest)) segments.push({ at: Number(rest), text: '' });
      else if (/^[<!]/.test(mark)) throw new Error(`\`${mark}\` speaks for the server; cases have the client's side only`);
      else throw new Error('expected `# note`, `> line`, `>\\ bytes`, `>* COUNT TEXT` or `@ MS`');
    } catch (error) {
      throw new Error(`${file}:${index + 1}: ${(error as Error).message}`, { cause: error });
    }
  });
  return segments.map(({ at, text }) => ({ at, bytes: Buffer.from(text, 'latin1') }));
};

const foldersIn = (folder: string): string[] =>
  readdirSync(folder, { withFileTypes: true }).filter((entry) => entry.isDirectory()).map((entry) => entry.name).sort();

const leaves = (folder: string): string[] => {
  const inner = foldersIn(folder);
  if (inner.length === 0) return [folder];
  const stray = GOLDENS.find((name) => existsSync(join(folder, name)));
  if (stray !== undefined) throw new Error(`${join(folder, stray)}: a folder with folders in it is no case`);
  return inner.flatMap((name) => leaves(join(folder, name)));
};

/** Names of all cases: the folders below fixtures/ that hold no further folder. */
export const findCases = (): string[] =>
  foldersIn(fixtures)
    .filter((name) => name !== FOREIGN)
    .flatMap((name) => leaves(join(fixtures, name)))
    .map((folder) => relative(fixtures, folder).replaceAll(sep, '/'));

/** The case's own file of one of these names, else the nearest one in a folder above it. */
const nearest = (name: string, candidates: readonly string[]): string => {
  for (let folder = join(fixtures, name); folder.startsWith(fixtures); folder = dirname(folder)) {
    const found = candidates.filter((candidate) => existsSync(join(folder, candidate)));
    if (found.length > 1) throw new Error(`${folder} holds ${found.join(' and ')}; one must go`);
    if (found[0] !== undefined) return join(folder, found[0]);
  }
  throw new Error(`${name}: neither it nor a folder above holds ${candidates.join(' or ')}`);
};

const sessionOf = (name: string): Segment[] => {
  const file = nearest(name, SESSIONS);
  const bytes = readFileSync(file);
  return file.endsWith('.txt') ? parseSession(bytes.toString('latin1'), relative(root, file)) : [{ at: 0, bytes }];
};

const policyOf = (name: string): Policy => {
  let file = nearest(name, POLICIES);
  if (file.endsWith('.txt')) {
    const shipped = readFileSync(file, 'utf8').trim();
    file = join(root, 'policies', shipped.includes('.') ? shipped : `${shipped}.yaml`);
  }
  return loadPolicy(readFileSync(file, 'utf8'), { file: relative(root, file) });
};

const inPieces = (length: number) => (bytes: Buffer): Buffer[] =>
  Array.from({ length: Math.ceil(bytes.length / length) }, (_, index) => bytes.subarray(index * length, (index + 1) * length));

const inLines = (bytes: Buffer): Buffer[] => {
  const lines: Buffer[] = [];
  for (let from = 0; from < bytes.length; ) {
    const newline = bytes.indexOf(0x0a, from);
    const to = newline < 0 ? bytes.length : newline + 1;
    lines.push(bytes.subarray(from, to));
    from = to;
  }
  return lines;
};

type Form = (options: LegOptions) => Leg;

const FORMS: ReadonlyArray<readonly [string, Form]> = [['leg', createLeg], ['chain', createChain]];

/** A way to cut a segment into the pieces that are written, with its name. */
export type Cut = readonly [string, (bytes: Buffer) => Buffer[]];

const CUTS: readonly Cut[] = [
  ['coalesced', (bytes) => [bytes]],
  ['line by line', inLines],
  ['7 bytes', inPieces(7)],
  ['1 byte', inPieces(1)],
];

// Wording is for people and may change; what a program reads of a reply stays.
const MESSAGE = /(,"error":\{"code":-?[0-9]+,"message":)"(?:[^"\\]|\\.)*"/g;
const ANY_WORDS = '$1"..."';
const REASON = /(,"severity":"[a-z]+"(?:,"rule":"(?:[^"\\]|\\.)*")?,"reason":)"(?:[^"\\]|\\.)*"/g;

const feed = async (leg: Leg, session: readonly Segment[], cut: Cut[1], clock: (at: number) => void): Promise<void> => {
  for (const { at, bytes } of session) {
    clock(at);
    const pieces = cut(bytes);
    for (const piece of pieces.slice(0, -1)) leg.stream.write(piece);
    const last = pieces[pieces.length - 1];
    if (last === undefined) continue;
    await new Promise<void>((resolve, reject) => {
      leg.stream.write(last, (error) => {
        if (error) reject(error);
        else resolve();
      });
    });
    await turn(); // a chain calls back when its first stage is done; streams hand on within one turn of the event loop
  }
  leg.stream.end();
};

const run = async (form: Form, policy: Policy, session: readonly Segment[], cut: Cut[1]): Promise<Output> => {
  let now = 0;
  const records: Buffer[] = [];
  const sink: Sink = {
    write: (bytes, done) => {
      records.push(Buffer.from(bytes)); // the leg writes its next records into the same memory
      done();
    },
    close: () => undefined,
  };
  const leg = form({ policy, sink, session: '00000000', now: () => now, wall: () => 0 });
  const clock = (at: number): void => {
    now = at;
  };
  const [forwarded, replies] = await Promise.all([buffer(leg.stream), buffer(leg.replies), feed(leg, session, cut, clock)]);
  return {
    'to-server.jsonl': forwarded.toString('latin1'),
    'to-client.jsonl': replies.toString('latin1').replace(MESSAGE, ANY_WORDS),
    'audit.jsonl': Buffer.concat(records).toString('latin1').replace(REASON, ANY_WORDS),
  };
};

/** One byte a character, as it may stand on a terminal. */
const shown = (line: string): string => {
  const text = line.replace(/[^ -~]/g, (byte) => `\\x${byte.charCodeAt(0).toString(16).padStart(2, '0')}`);
  return text.length > 2_000 ? `${text.slice(0, 2_000)}… (${line.length} bytes)` : text;
};

/** What changed from one text to another, by lines; empty where nothing did. */
const diff = (title: string, before: string, after: string): string => {
  if (before === after) return '';
  const split = (text: string): string[] => text.match(/[^\n]*\n|[^\n]+$/g) ?? [];
  const [a, b] = [split(before), split(after)];
  let head = 0;
  while (head < a.length && head < b.length && a[head] === b[head]) head++;
  let tail = 0;
  while (tail < a.length - head && tail < b.length - head && a[a.length - 1 - tail] === b[b.length - 1 - tail]) tail++;
  const side = (sign: string, lines: string[]): string[] =>
    lines
      .slice(head, lines.length - tail)
      .map((line) => `${sign}${shown(line.replace(/\n$/, ''))}${line.endsWith('\n') ? '' : ' (no newline)'}`);
  return [`${title}, line ${head + 1}`, ...side('-', a), ...side('+', b), ''].join('\n');
};

const differences = (title: (file: string) => string, before: Output, after: Output): string =>
  GOLDENS.map((file) => diff(title(file), before[file], after[file])).join('');

const goldenOf = (name: string): Output => {
  const read = (file: string): string => {
    const path = join(fixtures, name, file);
    return existsSync(path) ? readFileSync(path, 'latin1') : '';
  };
  return { 'to-server.jsonl': read('to-server.jsonl'), 'to-client.jsonl': read('to-client.jsonl'), 'audit.jsonl': read('audit.jsonl') };
};

export interface Checked {
  /** What came out; the same for both forms and all cuts where `disagreement` is empty. */
  readonly output: Output;
  /** Where a form or a cut gave something else than the first did. */
  readonly disagreement: string;
  /** From the goldens (`-`) to what came out (`+`). */
  readonly changes: string;
}

/** Runs a case in both forms and in each way of cutting its session. */
export const checkCase = async (name: string, cuts: readonly Cut[] = CUTS): Promise<Checked> => {
  const policy = policyOf(name);
  const session = sessionOf(name);
  const runs: Array<{ title: string; output: Output }> = [];
  for (const [form, make] of FORMS) {
    for (const [cut, pieces] of cuts) runs.push({ title: `${form}, ${cut}`, output: await run(make, policy, session, pieces) });
  }
  const [first, ...others] = runs as [(typeof runs)[number], ...typeof runs];
  const disagreements = others.map(({ title, output }) =>
    differences((file) => `${name}/${file}: ${first.title} (-), ${title} (+)`, first.output, output));
  return {
    output: first.output,
    disagreement: disagreements.join(''),
    changes: differences((file) => `${name}/${file}`, goldenOf(name), first.output),
  };
};

const writeGoldens = (name: string, output: Output): void => {
  for (const file of GOLDENS) {
    const path = join(fixtures, name, file);
    // Absent means empty, except for the records, which show that the case was run.
    if (output[file] === '' && file !== 'audit.jsonl') rmSync(path, { force: true });
    else writeFileSync(path, output[file], 'latin1');
  }
};

const main = async (args: readonly string[]): Promise<number> => {
  const write = args.includes('--write');
  const wanted = args.filter((argument) => argument !== '--write').map((argument) => argument.replace(/^fixtures\/|\/+$/g, ''));
  const all = findCases();
  const isIn = (name: string, folder: string): boolean => name === folder || name.startsWith(`${folder}/`);
  const unknown = wanted.filter((folder) => !all.some((name) => isIn(name, folder)));
  if (unknown.length > 0) {
    console.error(`no such case: ${unknown.join(', ')}`);
    return 2;
  }
  const names = wanted.length === 0 ? all : all.filter((name) => wanted.some((folder) => isIn(name, folder)));
  let changed = 0;
  let broken = 0;
  for (const name of names) {
    try {
      const { output, disagreement, changes } = await checkCase(name);
      const unwritten = !existsSync(join(fixtures, name, 'audit.jsonl'));
      process.stdout.write(disagreement + changes);
      if (disagreement !== '') broken++;
      else if (changes !== '' || unwritten) {
        changed++;
        if (write) writeGoldens(name, output);
      }
    } catch (error) {
      broken++;
      console.error(`${name}: ${(error as Error).message}`);
    }
  }
  console.log(`${names.length} cases, ${changed} ${write ? 'rewritten' : 'differ from their goldens'}, ${broken} broken`);
  return broken > 0 || (changed > 0 && !write) ? 1 : 0;
};

if (process.argv[1] !== undefined && realpathSync(process.argv[1]) === realpathSync(script)) {
  process.exitCode = await main(process.argv.slice(2));
}
