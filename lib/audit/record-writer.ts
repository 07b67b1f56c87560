// Writes audit records as bytes: one preallocated buffer, what repeats is kept ready, digits are written by hand.
// Owns the exact bytes of a record. Must not decide anything, and must never write an argument's value.
import { createHash } from 'node:crypto';
import { DEFAULTS } from '../defaults.js';
import { encodeAscii, escapeNonAscii, view } from '../json/strings.js';
import type { Direction, Edit, Kind, Message, Verdict } from '../message.js';
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
const NULL = Buffer.from('null');

const KINDS: readonly Kind[] = ['request', 'notification', 'response', 'invalid'];

// Bytes that a JSON string may hold as they are inside another JSON string.
const SAFE = new Uint8Array(128).fill(1, 0x20, 0x7f);
SAFE[QUOTE] = 0;
SAFE[0x5c] = 0;

interface Head {
  readonly bytes: Uint8Array;
  /** Where the number in the event's id ends. */
  readonly seqAt: number;
  /** The numbers it fits: those with as many digits. */
  readonly from: number;
  readonly below: number;
}

type Middles = Map<Verdict, Map<string | null, Array<Buffer | undefined>>>;

export class RecordWriter {
  // Apart by direction, and calls from other messages: a tool may bear the name of a method.
  readonly #middles: readonly Middles[] = Array.from({ length: 4 }, (): Middles => new Map());
  #middleCount = 0;
  #buffer: Buffer = Buffer.allocUnsafe(64 * 1024);
  #length = 0;
  readonly #session: string;
  #timeMs = NaN;
  readonly #heads: Record<Direction, Head | null> = { c2s: null, s2c: null };

  constructor(session: string) {
    this.#session = session;
  }

  /** Starts a new batch at this wall clock, in milliseconds. What `take` gave out before is written over. */
  start(timeMs: number): void {
    this.#length = 0;
    if (timeMs === this.#timeMs) return;
    this.#timeMs = timeMs;
    this.#heads.c2s = this.#heads.s2c = null;
  }

  /** The records of this batch, valid until the next `start`. */
  take(): Uint8Array {
    return this.#buffer.subarray(0, this.#length);
  }

  append(message: Message, verdict: Verdict): void {
    const middle = this.#middle(message, verdict);
    // Everything but paths and flags is bounded; those are added by the slow road below.
    this.#room(middle.length + 1_024);
    const head = this.#head(message.dir, message.seq);
    this.#buffer.set(head.bytes, this.#length);
    this.#length += head.seqAt;
    this.#digitsBackwards(message.seq, this.#length);
    this.#length = this.#length - head.seqAt + head.bytes.length;
    this.#digitsBackwards(message.seq, this.#length);
    this.#buffer.set(middle, this.#length);
    this.#length += middle.length;
    this.#id(message);
    this.#bytes(BYTES_IN);
    this.#digits(message.bytesIn);
    this.#bytes(BYTES_OUT);
    this.#digits(verdict.decision === 'forward' ? bytesOut(message) : 0);
    if (message.edits !== null && verdict.decision === 'forward') this.#text(editText(message));
    this.#bytes(MAX_DEPTH);
    this.#digits(message.maxDepth);
    if (message.flags !== null || (message.policy !== null && message.policy.flags.length > 0)) this.#text(flagText(message));
    if (verdict.would !== undefined) this.#text(`,"would":"${verdict.would}"`);
    this.#room(2);
    this.#buffer[this.#length++] = 0x7d;
    this.#buffer[this.#length++] = 0x0a;
  }

  /** What a batch's records begin with; only the digits of the number differ while it has as many of them. */
  #head(dir: Direction, seq: number): Head {
    const known = this.#heads[dir];
    if (known !== null && seq >= known.from && seq < known.below) return known;
    const digits = String(seq).length;
    const event = eventId(this.#session, dir, seq);
    const bytes = Buffer.from(`{"v":${RECORD_VERSION},"event":"${event}","ts_ms":${this.#timeMs},"seq":${seq}`);
    const seqAt = bytes.indexOf('","ts_ms"');
    return (this.#heads[dir] = { bytes, seqAt, from: 10 ** (digits - 1), below: 10 ** digits });
  }

  #middle(message: Message, verdict: Verdict): Buffer {
    const named = this.#middles[(message.dir === 'c2s' ? 0 : 1) + (message.tool === null ? 0 : 2)] as Middles;
    const name = message.tool ?? message.method;
    const kind = KINDS.indexOf(message.kind);
    const known = named.get(verdict)?.get(name)?.[kind];
    if (known !== undefined) return known;
    const made = middle(message, verdict);
    if (name !== null && name.length > DEFAULTS.maxRecorded) return made;
    if (this.#middleCount++ === DEFAULTS.cachedNames) {
      for (const middles of this.#middles) middles.clear();
      this.#middleCount = 1;
    }
    let byName = named.get(verdict);
    if (byName === undefined) named.set(verdict, (byName = new Map<string | null, Array<Buffer | undefined>>()));
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

  /** Short constant bytes; there is room. */
  #bytes(bytes: Uint8Array): void {
    const out = this.#buffer;
    const from = this.#length;
    const length = bytes.length;
    for (let i = 0; i < length; i++) out[from + i] = bytes[i] as number;
    this.#length = from + length;
  }

  /** ASCII text. */
  #text(text: string): void {
    this.#room(text.length + 512);
    this.#length += this.#buffer.write(text, this.#length, 'latin1');
  }

  #digits(value: number): void {
    let count = 1;
    for (let bound = 10; value >= bound; bound *= 10) count++;
    this.#length += count;
    this.#digitsBackwards(value, this.#length);
  }

  /** Digits that end right before `end`, over what stands there. */
  #digitsBackwards(value: number, end: number): void {
    const out = this.#buffer;
    let left = value;
    do {
      // Integer arithmetic while it fits, since V8 divides by a constant without a division then.
      const rest = left <= 0x7fffffff ? (left / 10) | 0 : Math.floor(left / 10);
      out[--end] = ZERO + (left - rest * 10);
      left = rest;
    } while (left > 0);
  }
}

/** Bytes of the line as it leaves, newline not counted. */
export const bytesOut = (message: Message): number => message.output?.length ?? message.end - message.start;

const editText = (message: Message): string => {
  const edits = message.edits ?? [];
  const masked = edits.filter((edit) => edit.kind === 'mask');
  const others = edits.filter((edit) => edit.kind !== 'mask');
  return (
    (masked.length > 0 ? `,"redacted":[${places(masked, quotedPath)}]` : '') +
    (others.length > 0 ? `,"edits":[${places(others, (path) => `{"kind":"line_break","path":${quotedPath(path)}}`)}]` : '')
  );
};

/** Each place once, the first few by path and the others by number, so that no message can make its record long. */
const places = (edits: readonly Edit[], show: (path: string) => string): string => {
  const named = edits.slice(0, DEFAULTS.maxPaths).filter((edit) => edit.path !== '');
  const shown = [...new Set(named.map((edit) => edit.path))].map(show);
  const more = edits.length - named.length;
  return [...shown, ...(more > 0 ? [show(`(${more} more)`)] : [])].join(',');
};

const flagText = (message: Message): string =>
  `,"flags":${JSON.stringify([...new Set([...(message.policy?.flags ?? []), ...(message.flags ?? [])])])}`;

/** A line beside the records, as ASCII with its line feed. */
export const lineBytes = (line: SessionLine | SummaryLine | FaultLine): Uint8Array =>
  Buffer.from(`${escapeNonAscii(JSON.stringify(line))}\n`, 'latin1');
