// Reads an audit log line by line in constant memory. The one importer of stream-json.
// Owns what counts as a line of ours. Must not open files, count, print or decide anything.
import { isUtf8 } from 'node:buffer';
import { jsonlParser } from 'stream-json/core/jsonl/parser.js';
import type { Decision, Direction, Kind, Severity } from '../message.js';
import { RECORD_VERSION } from './record.js';
import type { AuditRecord, FaultLine, LogLine, SessionLine, SummaryLine } from './record.js';

/** Bytes of one line that are held; a longer one is skipped to its end. Our own records stay far below. */
const MAX_LINE = 1024 * 1024;

/** Characters of one name or id. A record cuts them at far less; more would let a foreign log fill memory. */
const MAX_NAME = 1024;

/** Milliseconds that a Date can hold. */
const MAX_TIME = 8.64e15;

/** One line of a log: what it says, or why it is none of ours. `line` counts from 1, blank lines included. */
export type LogEntry =
  | { readonly line: number; readonly value: LogLine }
  | { readonly line: number; readonly problem: string };

type Check = (value: unknown) => boolean;

/** A check for every field of `T`, in the order in which mistakes are told. */
const checksOf = <T>(checks: { readonly [Field in keyof Required<T>]: Check }): ReadonlyArray<readonly [string, Check]> =>
  Object.entries<Check>(checks);

const text: Check = (value) => typeof value === 'string';
const name: Check = (value) => typeof value === 'string' && value.length <= MAX_NAME;
const nameOrNull: Check = (value) => value === null || name(value);
const count: Check = (value) => Number.isSafeInteger(value) && (value as number) >= 0;
const time: Check = (value) => count(value) && (value as number) <= MAX_TIME;
const version: Check = (value) => value === RECORD_VERSION;
const exactly = (wanted: string): Check => (value) => value === wanted;
const optional = (check: Check): Check => (value) => value === undefined || check(value);
const list = (check: Check): Check => (value) => Array.isArray(value) && value.every(check);
const oneOf = <Word extends string>(words: Readonly<Record<Word, true>>): Check =>
  (value) => typeof value === 'string' && Object.hasOwn(words, value);

const decision = oneOf<Decision>({ forward: true, deny: true, drop: true, hold: true, error: true });
const edit: Check = (value) =>
  typeof value === 'object' && value !== null &&
  'kind' in value && text(value.kind) && 'path' in value && text(value.path);

const RECORD = checksOf<AuditRecord>({
  v: version,
  event: name,
  ts_ms: time,
  seq: count,
  dir: oneOf<Direction>({ c2s: true, s2c: true }),
  kind: oneOf<Kind>({ request: true, notification: true, response: true, invalid: true }),
  decision,
  code: name,
  severity: oneOf<Severity>({ info: true, low: true, medium: true, high: true, critical: true }),
  rule: optional(name),
  reason: text,
  method: nameOrNull,
  tool: nameOrNull,
  target: nameOrNull,
  rpc_id: nameOrNull,
  bytes_in: count,
  bytes_out: count,
  redacted: optional(list(text)),
  edits: optional(list(edit)),
  max_depth: count,
  flags: optional(list(text)),
  would: optional(decision),
});

const SESSION = checksOf<SessionLine>({
  v: version,
  type: exactly('session'),
  session: name,
  ts_ms: time,
  version: text,
  policy: text,
  policy_sha256: text,
  mode: oneOf<SessionLine['mode']>({ enforce: true, observe: true }),
  flags: optional(list(text)),
});

const SUMMARY = checksOf<SummaryLine>({
  v: version,
  type: exactly('summary'),
  ts_ms: time,
  messages: count,
  forward: count,
  deny: count,
  drop: count,
  hold: count,
  error: count,
  bytes_in: count,
  bytes_out: count,
  redacted: count,
  blank: count,
  replies: count,
  replies_unwritten: count,
  sent: count,
});

const FAULT = checksOf<FaultLine>({
  v: version,
  type: exactly('fault'),
  ts_ms: time,
  where: text,
  reason: text,
});

const BESIDE_RECORDS: Readonly<Record<Exclude<LogLine, AuditRecord>['type'], typeof RECORD>> =
  { session: SESSION, summary: SUMMARY, fault: FAULT };

/** What is wrong with a parsed line, or null where it is a line of ours. */
const problemOf = (value: unknown): string | null => {
  if (typeof value !== 'object' || value === null || Array.isArray(value)) return 'not a JSON object';
  const fields = value as Readonly<Record<string, unknown>>;
  if (fields['v'] !== RECORD_VERSION) return `not a line of an audit log of version ${RECORD_VERSION}`;
  let checks = RECORD;
  if (!('event' in fields)) {
    const type = fields['type'];
    if (typeof type !== 'string' || !Object.hasOwn(BESIDE_RECORDS, type)) return 'neither a record nor a line of a known type';
    checks = BESIDE_RECORDS[type as keyof typeof BESIDE_RECORDS];
  }
  for (const [key, check] of checks) {
    if (!check(fields[key])) return `\`${key}\` is ${key in fields ? 'not what an audit log writes there' : 'missing'}`;
  }
  return null;
};

const NOT_JSON = Symbol('not JSON');

const LF = 0x0a;
const isBlank = (bytes: Uint8Array): boolean =>
  bytes.every((byte) => byte === 0x20 || byte === 0x09 || byte === 0x0d);

/**
 * Yields each line of a log, in order, as what it says or as a problem; a bad line never ends the reading. Blank lines
 * are counted and skipped. A last line without newline counts where it is whole; else it is told as torn.
 * Holds one chunk and at most `maxLine` bytes (default 1 MiB) of a line. Rejects only as `source` does.
 */
export async function* readLog(
  source: AsyncIterable<Uint8Array | string>,
  { maxLine = MAX_LINE }: { maxLine?: number } = {},
): AsyncGenerator<LogEntry, void, undefined> {
  // Line by line, so that numbers are those of the file and no line outgrows its bound: the package's own
  // line-splitting front numbers only lines with text, and holds any length.
  const parse = jsonlParser({ errorIndicator: NOT_JSON });
  let line = 0;
  let held = Buffer.alloc(0);
  let heldBytes = 0;
  let tooLong = false;

  const hold = (bytes: Uint8Array): void => {
    if (tooLong || heldBytes + bytes.length > maxLine) {
      tooLong = true;
      heldBytes = 0;
      return;
    }
    if (heldBytes + bytes.length > held.length) {
      const larger = Buffer.alloc(Math.min(maxLine, 2 * (heldBytes + bytes.length)));
      larger.set(held.subarray(0, heldBytes));
      held = larger;
    }
    held.set(bytes, heldBytes);
    heldBytes += bytes.length;
  };

  /** The entry of the line that ends with `rest`, or null where the line is blank. */
  const take = (rest: Buffer, whole: boolean): LogEntry | null => {
    line += 1;
    let bytes = rest;
    if (heldBytes > 0 || tooLong || rest.length > maxLine) {
      hold(rest);
      bytes = held.subarray(0, heldBytes);
      heldBytes = 0;
    }
    if (tooLong) {
      tooLong = false;
      return { line, problem: `longer than ${maxLine} bytes` };
    }
    if (isBlank(bytes)) return null;
    if (!isUtf8(bytes)) return { line, problem: 'not UTF-8' };
    const parsed = parse(bytes.toString('utf8'));
    const value = typeof parsed === 'symbol' ? NOT_JSON : parsed.value;
    if (value === NOT_JSON) return { line, problem: whole ? 'not JSON' : 'torn: the log ends inside this line' };
    const problem = problemOf(value);
    return problem === null ? { line, value: value as LogLine } : { line, problem };
  };

  for await (const piece of source) {
    const chunk = typeof piece === 'string' ? Buffer.from(piece) : Buffer.from(piece.buffer, piece.byteOffset, piece.length);
    let start = 0;
    for (let end = chunk.indexOf(LF); end !== -1; end = chunk.indexOf(LF, start)) {
      const entry = take(chunk.subarray(start, end), true);
      start = end + 1;
      if (entry !== null) yield entry;
    }
    if (start < chunk.length) hold(chunk.subarray(start));
  }
  if (heldBytes > 0 || tooLong) {
    const entry = take(Buffer.alloc(0), false);
    if (entry !== null) yield entry;
  }
}
