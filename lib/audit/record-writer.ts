// Writes audit records as bytes: one preallocated buffer, what repeats is kept ready, digits are written by hand.
// Owns the exact bytes of a record. Must not decide anything, and must never write an argument's value.
import { createHash } from 'node:crypto';
import { DEFAULTS } from '../defaults.js';
import { encodeAscii, escapeNonAscii, view } from '../json/strings.js';
import type { Direction, Kind, Message, Verdict } from '../message.js';
import { RECORD_VERSION } from './record.js';
import type { FaultLine, SessionLine, SummaryLine } from './record.js';

const QUOTE = 0x22;
const ZERO = 0x30;

/** An attacker-held string, cut so that a record stays short; length and hash tell cut ones apart. */
export const cut = (text: string): string => {
  if (text.length <= DEFAULTS.maxRecorded) return text;
  const hash = createHash('sha256').update(text).digest('hex').slice(0, 16);
  const kept = text.slice(0, DEFAULTS.maxRecorded).replace(/[\ud800-\udbff]$/, ''); // never half a pair
  return `${kept}… (${text.length} characters, sha256 ${hash})`;
};

const quoted = (text: string | null): string => (text === null ? 'null' : encodeAscii(cut(text)));

/** Paths are cut a step at a time at their source; here the whole is bounded once more. */
const quotedPath = (path: string): string => encodeAscii(cut(path));

export const eventId = (session: string, dir: Direction, seq: number): string =>
  `${session}.${dir === 'c2s' ? 'c' : 's'}.${String(seq).padStart(6, '0')}`;

/** The part of a record that depends on what was said alone, not on when or under which id. */
const middle = (message: Message, verdict: Verdict): Buffer =>
  Buffer.from(
    `,"dir":"${message.dir}","kind":"${message.kind}","decision":"${verdict.decision}","code":"${verdict.code}"` +
      `,"severity":"${verdict.severity}"` +
      (verdict.rule === null ? '' : `,"rule":${quoted(verdict.rule)}`) +
      `,"reason":${encodeAscii(verdict.reason)},"method":${quoted(message.method)},"tool":${quoted(message.tool)},"target":null,"rpc_id":`,
    'latin1',
  );

const BYTES_IN = Buffer.from(',"bytes_in":');
const BYTES_OUT = Buffer.from(',"bytes_out":');
const MAX_DEPTH = Buffer.from(',"max_depth":');
const SEQ = Buffer.from(',"seq":');
const NULL = Buffer.from('null');

const KINDS: readonly Kind[] = ['request', 'notification', 'response', 'invalid'];

// Bytes that a JSON string may hold as they are inside another JSON string.
const SAFE = new Uint8Array(128).fill(1, 0x20, 0x7f);
SAFE[QUOTE] = 0;
SAFE[0x5c] = 0;

type Middles = Map<Verdict, Map<string | null, Array<Buffer | undefined>>>;

export class RecordWriter {
  readonly #prefixes: Readonly<Record<Direction, Buffer>>;
  // Calls and other messages apart: a tool may bear the name of a method.
  readonly #byTool: Middles = new Map();
  readonly #byMethod: Middles = new Map();
  #middles = 0;
  #buffer: Buffer = Buffer.allocUnsafe(64 * 1024);
  #length = 0;
  #time: Buffer = NULL;
  #timeMs = NaN;

  constructor(session: string) {
    const prefix = (dir: Direction): Buffer => Buffer.from(`{"v":${RECORD_VERSION},"event":"${session}.${dir === 'c2s' ? 'c' : 's'}.`);
    this.#prefixes = { c2s: prefix('c2s'), s2c: prefix('s2c') };
  }

  /** Starts a new batch at this wall clock, in milliseconds. What `take` gave out before is written over. */
  start(timeMs: number): void {
    this.#length = 0;
    if (timeMs === this.#timeMs) return;
    this.#timeMs = timeMs;
    this.#time = Buffer.from(`","ts_ms":${timeMs}`);
  }

  /** The records of this batch, valid until the next `start`. */
  take(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  append(message: Message, verdict: Verdict): void {
    // Everything but paths and flags is bounded; those are added by the slow road below.
    this.#room(1_024);
    this.#bytes(this.#prefixes[message.dir]);
    this.#padded(message.seq);
    this.#bytes(this.#time);
    this.#bytes(SEQ);
    this.#digits(message.seq);
    this.#bytes(this.#middle(message, verdict));
    this.#id(message);
    this.#bytes(BYTES_IN);
    this.#digits(message.bytesIn);
    this.#bytes(BYTES_OUT);
    this.#digits(verdict.decision === 'forward' ? bytesOut(message) : 0);
    const edited = message.edits !== null && verdict.decision === 'forward';
    if (edited) this.#text(editText(message));
    this.#bytes(MAX_DEPTH);
    this.#digits(message.maxDepth);
    if (message.flags !== null || (message.policy !== null && message.policy.flags.length > 0)) this.#text(flagText(message));
    if (verdict.would !== undefined) this.#text(`,"would":"${verdict.would}"`);
    this.#room(2);
    this.#buffer[this.#length++] = 0x7d;
    this.#buffer[this.#length++] = 0x0a;
  }

  #middle(message: Message, verdict: Verdict): Buffer {
    const named = message.tool === null ? this.#byMethod : this.#byTool;
    const name = message.tool ?? message.method;
    const kind = KINDS.indexOf(message.kind);
    const known = named.get(verdict)?.get(name)?.[kind];
    if (known !== undefined) return known;
    const made = middle(message, verdict);
    if (name !== null && name.length > DEFAULTS.maxRecorded) return made;
    if (this.#middles++ === DEFAULTS.cachedNames) {
      this.#byMethod.clear();
      this.#byTool.clear();
      this.#middles = 1;
    }
    let byName = named.get(verdict);
    if (byName === undefined) named.set(verdict, (byName = new Map()));
    let byKind = byName.get(name);
    if (byKind === undefined) byName.set(name, (byKind = []));
    byKind[kind] = made;
    return made;
  }

  #id(message: Message): void {
    const start = message.idStart;
    const end = message.idEnd;
    if (start < 0) {
      this.#bytes(NULL);
      return;
    }
    const bytes = message.bytes;
    const isString = bytes[start] === QUOTE;
    const from = isString ? start + 1 : start;
    const to = isString ? end - 1 : end;
    let plain = end - start <= DEFAULTS.maxRecorded;
    for (let i = from; plain && i < to; i++) if (SAFE[bytes[i] as number] !== 1) plain = false;
    if (!plain) {
      this.#text(quoted(view(bytes).toString('utf8', start, end)));
      return;
    }
    const out = this.#buffer;
    let p = this.#length;
    out[p++] = QUOTE;
    if (isString) {
      out[p++] = 0x5c;
      out[p++] = QUOTE;
    }
    for (let i = from; i < to; i++) out[p++] = bytes[i] as number;
    if (isString) {
      out[p++] = 0x5c;
      out[p++] = QUOTE;
    }
    out[p++] = QUOTE;
    this.#length = p;
  }

  #room(bytes: number): void {
    if (this.#length + bytes <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(2 * (this.#length + bytes));
    this.#buffer.copy(larger, 0, 0, this.#length);
    this.#buffer = larger;
  }

  #bytes(bytes: Buffer): void {
    const out = this.#buffer;
    const length = bytes.length;
    let p = this.#length;
    if (length > 48) {
      this.#room(length + 512);
      this.#buffer.set(bytes, p);
      this.#length += length;
      return;
    }
    for (let i = 0; i < length; i++) out[p++] = bytes[i] as number;
    this.#length = p;
  }

  /** ASCII text. */
  #text(text: string): void {
    this.#room(text.length + 512);
    this.#length += this.#buffer.write(text, this.#length, 'latin1');
  }

  #digits(value: number): void {
    let divisor = 1;
    while (value / divisor >= 10) divisor *= 10;
    for (; divisor >= 1; divisor /= 10) this.#buffer[this.#length++] = ZERO + (Math.floor(value / divisor) % 10);
  }

  #padded(seq: number): void {
    for (let floor = 100_000; floor > seq && floor > 1; floor /= 10) this.#buffer[this.#length++] = ZERO;
    this.#digits(seq);
  }
}

/** Bytes of the line as it leaves, newline not counted. */
export const bytesOut = (message: Message): number => message.output?.length ?? message.end - message.start;

const editText = (message: Message): string => {
  const edits = message.edits ?? [];
  const masked = edits.filter((edit) => edit.kind === 'mask').map((edit) => quotedPath(edit.path));
  const others = edits.filter((edit) => edit.kind !== 'mask').map((edit) => `{"kind":"${edit.kind}","path":${quotedPath(edit.path)}}`);
  return (
    (masked.length > 0 ? `,"redacted":[${[...new Set(masked)].join(',')}]` : '') + (others.length > 0 ? `,"edits":[${others.join(',')}]` : '')
  );
};

const flagText = (message: Message): string =>
  `,"flags":${JSON.stringify([...new Set([...(message.policy?.flags ?? []), ...(message.flags ?? [])])])}`;

/** A line beside the records, as ASCII with its line feed. */
export const lineBytes = (line: SessionLine | SummaryLine | FaultLine): Uint8Array =>
  Buffer.from(`${escapeNonAscii(JSON.stringify(line))}\n`, 'latin1');
