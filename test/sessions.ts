// Seeds, messages, policies, sinks and random sessions that several tests share, and one way to drive a leg.
// Owns how a test is fed. Must not assert anything.
import fc from 'fast-check';
import { once } from 'node:events';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import type { AuditRecord } from '../lib/audit/record.js';
import type { Sink } from '../lib/audit/sink.js';
import { verdict } from '../lib/errors.js';
import type { Leg } from '../lib/leg.js';
import { Message } from '../lib/message.js';
import type { Direction, Limits, Policy, RateLimit, Redaction, Verdict } from '../lib/message.js';
import { loadPolicy } from '../lib/policy/load.js';

/** SLUICE_SEED repeats a run, SLUICE_RUNS multiplies its length. fast-check prints the seed of a failure. */
export const SEED = Number(process.env['SLUICE_SEED'] ?? Math.floor(Math.random() * 2 ** 31));
const LENGTH = Number(process.env['SLUICE_RUNS'] ?? 1);
export const settings = (numRuns: number): { seed: number; numRuns: number } => ({ seed: SEED, numRuns: Math.ceil(numRuns * LENGTH) });

// Messages and policies by hand

export const messageOf = (line: string | Uint8Array, seq = 1, dir: Direction = 'c2s'): Message => {
  const text = Buffer.from(line as Uint8Array);
  const message = new Message(dir, Buffer.concat([text, Buffer.from('\n')]), 0, text.length, text.length);
  message.seq = seq;
  return message;
};

export const ALLOWED: Verdict = verdict('allowed', { rule: 'allow:test', reason: 'the test allows it' });
export const DENIED: Verdict = verdict('tool_denied', { rule: 'deny:test', reason: 'the test denies it', hint: 'nothing' });

export const limitsOf = (parts: Partial<Limits> = {}): Limits =>
  ({ maxBytes: 100_000, maxDepth: 128, flagDepth: null, ids: 'any', rates: [], ...parts });

/** A policy that allows everything, but for what is given. */
export const policyOf = (parts: Partial<Policy> = {}): Policy => ({
  name: 'test',
  hash: '0'.repeat(64),
  mode: 'enforce',
  flags: [],
  limits: limitsOf(),
  redaction: null,
  tool: () => ALLOWED,
  method: () => ALLOWED,
  ...parts,
});

export const rateOf = (parts: Partial<RateLimit> = {}): RateLimit =>
  ({ id: 'rate:test', limit: 2, windowMs: 1000, counts: 'calls', tools: null, ...parts });

export const redactionOf = (...names: string[]): Redaction => ({ mask: '«redacted»', depth: Infinity, masks: (name) => names.includes(name) });

export const callOf = (tool: string, args: unknown, id: unknown = 1): string =>
  JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: tool, arguments: args } });

// Driving a leg

/** Keeps what it is given; fails at the `failAt`th write, counted from 1. */
export class MemorySink implements Sink {
  readonly writes: string[] = [];
  readonly #failAt: number;
  readonly #seen: (text: string) => void;

  constructor(failAt = 0, seen: (text: string) => void = () => undefined) {
    this.#failAt = failAt;
    this.#seen = seen;
  }

  write(bytes: Uint8Array, done: (error?: Error) => void): void {
    if (this.writes.length + 1 === this.#failAt) {
      done(new Error('disk full'));
      return;
    }
    const text = Buffer.from(bytes).toString('latin1');
    this.writes.push(text);
    this.#seen(text);
    done();
  }

  close(): void {
    // Nothing is held.
  }

  get text(): string {
    return this.writes.join('');
  }

  get records(): AuditRecord[] {
    return recordsOf(this.text);
  }
}

export const recordsOf = (text: string): AuditRecord[] =>
  text.split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as AuditRecord);

export interface Outcome {
  readonly forwarded: Buffer;
  readonly replies: string;
  readonly error: Error | null;
}

/** Feeds the chunks and reads both outputs to their end. `seen` is called for each forwarded piece as it comes. */
export const drive = async (leg: Leg, chunks: readonly Uint8Array[], seen: (piece: Uint8Array) => void = () => undefined): Promise<Outcome> => {
  const forwarded: Uint8Array[] = [];
  let replies = '';
  leg.replies.on('data', (bytes: Buffer) => {
    replies += bytes.toString();
  });
  const ended = once(leg.replies, 'end');
  let error: Error | null = null;
  try {
    await pipeline(
      Readable.from(chunks),
      leg.stream,
      new Writable({
        write(piece: Uint8Array, _encoding, callback) {
          forwarded.push(Uint8Array.from(piece));
          seen(piece);
          callback();
        },
      }),
    );
  } catch (cause) {
    error = cause as Error;
  }
  await ended;
  return { forwarded: Buffer.concat(forwarded), replies, error };
};

// Random sessions

/** A line as it is sent. `id` is the JSON text of its id where it is present once and valid, else null. */
export interface Line {
  readonly bytes: Buffer;
  readonly end: string;
  readonly id: string | null;
  readonly blank: boolean;
}

const TOOLS = ['read_file', 'write_file', 'search_web', 'shell.exec', 'fs.delete', 'deploy', 'no such tool', ''];
const METHODS = ['initialize', 'ping', 'tools/list', 'prompts/get', 'resources/read', 'logging/setLevel', 'vendor/custom'];
const EVENTS = ['notifications/initialized', 'notifications/progress', 'notifications/cancelled', 'vendor/event'];
const NAMES = ['path', 'token', 'api_key', 'Secret', 'to\u212aen', 'note', 'list', 'é', 'k e y', 'cfg'];

const TEXTS = fc.oneof(
  fc.constantFrom('', 'x', '{brace}', '"quoted"', '[1]', ' {"token":"inner"}', '\u2028', 'a\u0085b', '\ud83d\ude00', 'back\\slash', '\u0007', '\ud800'),
  fc.string({ maxLength: 12 }),
);

const withNames = (value: fc.Arbitrary<unknown>): fc.Arbitrary<unknown> => fc.dictionary(fc.constantFrom(...NAMES), value, { maxKeys: 4 });

/** JSON values with names that policies mask, and JSON quoted in strings. */
export const jsonValue: fc.Arbitrary<unknown> = fc.letrec<{ value: unknown; quoted: unknown }>((tie) => ({
  value: fc.oneof(
    { depthSize: 'small', withCrossShrink: true },
    TEXTS, fc.integer(), fc.boolean(), fc.constant(null),
    fc.array(tie('value'), { maxLength: 4 }), withNames(tie('value')), tie('quoted'),
  ),
  quoted: fc.oneof(withNames(tie('value')), fc.array(tie('value'), { maxLength: 3 })).map((value) => JSON.stringify(value)),
})).value;

export const jsonArguments = withNames(jsonValue);

// JSON.stringify never leaves these raw; senders in other languages do.
const rawBreaks = (text: string): string => text.replace(/\\u(0085|2028|2029)/g, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
// Lone surrogates come out of JSON.stringify as escapes: the line is refused, as it should be.

const IDS = fc.oneof(fc.nat(30), fc.constantFrom('a', 'b', 'é', '\u2028', 'q"uote')).map((id) => JSON.stringify(id));

const request = fc.record({ id: IDS, tool: fc.constantFrom(...TOOLS), args: jsonArguments, last: fc.boolean() }).map(({ id, tool, args, last }) => {
  const params = rawBreaks(JSON.stringify({ name: tool, arguments: args }));
  return last
    ? { text: `{"jsonrpc":"2.0","method":"tools/call","params":${params},"id":${id}}`, id }
    : { text: `{"jsonrpc":"2.0", "id":${id} ,"method":"tools/call","params":${params}}`, id };
});
const other = fc.record({ id: IDS, method: fc.constantFrom(...METHODS) }).map(({ id, method }) =>
  ({ text: `{"jsonrpc":"2.0","id":${id},"method":"${method}","params":{"uri":"file:///x","token":"s"}}`, id }));
const notification = fc.constantFrom(...EVENTS).map((method) => ({ text: `{"jsonrpc":"2.0","method":"${method}"}`, id: null }));
const response = fc.tuple(IDS, fc.boolean()).map(([id, fails]) =>
  ({ text: `{"jsonrpc":"2.0","id":${id},${fails ? '"error":{"code":-1,"message":"m"}' : '"result":{}'}}`, id }));

// Refused for form, with an id that a reply can bear, or with none.
const MISSHAPEN: ReadonlyArray<readonly [line: string, id: string | null]> = [
  ['{"jsonrpc":"2.0","id":7,"method":"ping","method":"ping"}', '7'],
  ['{"jsonrpc":"1.0","id":8,"method":"ping"}', '8'],
  ['{"jsonrpc":"2.0","id":9,"Method":"ping","method":"ping"}', '9'],
  ['{"jsonrpc":"2.0","id":10,"id":11,"method":"ping"}', null],
  ['{"jsonrpc":"2.0","id":1.5,"method":"ping"}', null],
  ['{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"arguments":{}}}', '12'],
  ['{"jsonrpc":"2.0","id":13,"method":"tools/call","params":{"name":"read_file","arguments":[]}}', '13'],
  ['{"jsonrpc":"2.0","id":14,"method":"tools/call","params":{"name":5}}', '14'],
  ['{"jsonrpc":"2.0","id":15,"method":"notifications/initialized"}', '15'],
  ['{"jsonrpc":"2.0","method":"ping"}', null],
  ['{"jsonrpc":"2.0","id":16,"method":"ping","params":{"a":"\u0001"}}', '16'],
  ['{"jsonrpc":"2.0","id":17,"method":"ping"}}', '17'],
  ['{"jsonrpc":"2.0","id":18,"method":"ping"}\r{"jsonrpc":"2.0","id":19,"method":"ping"}', null],
  ['[{"jsonrpc":"2.0","id":20,"method":"ping"}]', null],
  ['\ufeff{"jsonrpc":"2.0","id":21,"method":"ping"}', '21'],
  ['{"jsonrpc":"2.0","id":22,"method":"pi', '22'],
  ['hello', null], ['"', null], ['{', null], ['}', null], ['[[[[', null], ['\u0000', null], ['{"id":', null],
];
const misshapen = fc.constantFrom(...MISSHAPEN).map(([text, id]) => ({ text, id }));

/** Longer than the `max_bytes` of every policy below. */
export const LONGEST_LINE = 2_000;
const oversize = fc.nat(60).map((id) =>
  ({ text: `{"jsonrpc":"2.0","id":${id},"method":"tools/call","params":{"name":"read_file","arguments":{"pad":"${'x'.repeat(LONGEST_LINE)}"}}}`, id: String(id) }));

const SPACE = fc.constantFrom('', '', '', ' ', '\t', '  \t');
const END = fc.constantFrom('\n', '\n', '\r\n');

const message = fc
  .tuple(fc.oneof({ weight: 8, arbitrary: request }, { weight: 3, arbitrary: other }, notification, response, misshapen, oversize), SPACE, SPACE, END)
  .map(([{ text, id }, before, after, end]): Line => ({ bytes: Buffer.from(`${before}${text}${after}`), end, id, blank: false }));
const invalidUtf8 = END.map((end): Line => ({ bytes: Buffer.from('{"jsonrpc":"2.0","id":5,"method":"\xff"}', 'latin1'), end, id: '5', blank: false }));
const blank = fc.tuple(fc.constantFrom('', ' ', '\t', ' \r ', '\r'), END).map(([text, end]): Line => ({ bytes: Buffer.from(text), end, id: null, blank: true }));

/** Lines of every sort; the last one may lack its newline. */
export const session: fc.Arbitrary<Line[]> = fc
  .tuple(fc.array(fc.oneof({ weight: 12, arbitrary: message }, invalidUtf8, blank), { maxLength: 14 }), fc.boolean())
  .map(([lines, open]) => lines.map((line, i) => (open && i === lines.length - 1 ? { ...line, end: '' } : line)));

export const bytesOf = (lines: readonly Line[]): Buffer => Buffer.concat(lines.flatMap((line) => [line.bytes, Buffer.from(line.end)]));

/** The line as it may be forwarded: without outer blanks and tabs. */
export const trimmed = (line: Line): Buffer => Buffer.from(line.bytes.toString('latin1').replace(/^[ \t]+|[ \t]+$/g, ''), 'latin1');

export const inSteps = (bytes: Buffer, step: number): Buffer[] => {
  const chunks: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += step) chunks.push(bytes.subarray(at, at + step));
  return chunks;
};

export const cutAt = (bytes: Buffer, cuts: readonly number[]): Buffer[] => {
  const edges = [0, ...cuts.map((cut) => cut % (bytes.length + 1)).sort((a, b) => a - b), bytes.length];
  return edges.slice(1).map((end, i) => bytes.subarray(edges[i], end)).filter((chunk) => chunk.length > 0);
};

// Random policies

export interface PolicyParts {
  readonly fallback: 'allow' | 'deny';
  readonly allow: readonly string[];
  readonly deny: readonly string[];
  readonly redact: boolean;
  readonly depth: 'any' | 1;
  readonly observe: boolean;
  readonly unique: boolean;
  readonly rate: number | null;
}

const quoted = (patterns: readonly string[]): string => `[${patterns.map((pattern) => (pattern.includes('{') ? pattern : `'${pattern}'`)).join(', ')}]`;

/** Patterns of the two lists are chosen so that no deny covers a whole allow, which would be an error. */
export const DENY_PATTERNS = ['shell.exec', '*delete*', 'write_file', 'x*', '{ methods: ["prompts/*", ping] }', '{ methods: "vendor/c*" }'];
export const policyParts: fc.Arbitrary<PolicyParts> = fc.record({
  fallback: fc.constantFrom<'allow' | 'deny'>('allow', 'deny'),
  allow: fc.subarray(['read_*', 'search_*', '*_file', 'deploy', 'shell.*', '{ methods: ["@lifecycle", "@discovery"] }']),
  deny: fc.subarray(DENY_PATTERNS, { maxLength: 3 }),
  redact: fc.boolean(),
  depth: fc.constantFrom<'any' | 1>('any', 1),
  observe: fc.boolean(),
  unique: fc.boolean(),
  rate: fc.option(fc.integer({ min: 0, max: 4 })),
});

export const policyFrom = (parts: PolicyParts): Policy =>
  loadPolicy(
    [
      'version: 1',
      `default: ${parts.fallback}`,
      `mode: ${parts.observe ? 'observe' : 'enforce'}`,
      ...(parts.allow.length > 0 ? [`allow: ${quoted(parts.allow)}`] : []),
      ...(parts.deny.length > 0 ? [`deny: ${quoted(parts.deny)}`] : []),
      ...(parts.redact ? [`redact: { arguments: ['*token*', api_key, secret], depth: ${parts.depth} }`] : []),
      'limits:',
      '  max_bytes: 1500',
      '  max_depth: 9',
      `  ids: ${parts.unique ? 'unique' : 'any'}`,
      ...(parts.rate === null ? [] : [`  rate: [{ limit: ${parts.rate}, per: 1s }, { limit: 1, per: 1s, tools: 'search_*' }]`]),
    ].join('\n'),
    { file: 'generated.yaml' },
  );

/** A line for the name of an assertion: in ASCII, since the reports of tests are lines themselves. */
export const shown = (line: string): string => JSON.stringify(line.slice(0, 100)).replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);
