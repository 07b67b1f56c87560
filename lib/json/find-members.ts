// Finds members by their decoded name in JSON that the strict scan has proven, also in JSON that is quoted in strings.
// Owns the search alone. Must not validate the line, decide what a name means, or change a byte.
import { DEFAULTS } from '../defaults.js';
import { spellingKey } from './name-cache.js';
import type { NameWatch, Where } from './name-watch.js';
import { opensJson } from './scan.js';
import { decodeString, view } from './strings.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;

const MAX_DEPTH = 1_100; // above what a policy can allow; JSON quoted in a string is not bounded by the scan

/** One value to replace. Offsets are into the line; `level` counts the strings it is quoted in. */
export interface Hit {
  readonly start: number;
  readonly end: number;
  readonly level: number;
  readonly path: string;
}

const PLAIN_NAME = /^[A-Za-z0-9_$-]{1,64}$/;

const LONGEST_STEP = 64;

/** One step of a path as people read it: plain names as they are, any other quoted, a long one cut with its length. */
export const pathStep = (name: string): string => {
  if (PLAIN_NAME.test(name)) return name;
  if (name.length <= LONGEST_STEP) return JSON.stringify(name);
  const kept = name.slice(0, LONGEST_STEP).replace(/[\ud800-\udbff]$/, ''); // never half a pair
  return JSON.stringify(`${kept}… (${name.length} characters)`);
};

/** Bytes of one text, and where each of them stands in the line; no map where that is the line itself. */
interface Text {
  readonly bytes: Uint8Array;
  readonly map: Int32Array | null;
  readonly level: number;
}

const PAIR = /^\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F]/;

const SIMPLE_ESCAPES: Readonly<Record<number, number>> = { 0x62: 0x08, 0x66: 0x0c, 0x6e: 0x0a, 0x72: 0x0d, 0x74: 0x09 };

/** Decodes string content and keeps, for each byte of the result, the offset in the line that it came from. */
const decodeMapped = (text: Text, start: number, end: number): Text => {
  const bytes = text.bytes;
  const out = new Uint8Array(end - start + 1);
  const map = new Int32Array(end - start + 1);
  const at = (offset: number): number => (text.map === null ? offset : (text.map[offset] as number));
  let length = 0;
  let p = start;
  while (p < end) {
    const from = p;
    if (bytes[p] !== BACKSLASH) {
      map[length] = at(from);
      out[length++] = bytes[p++] as number;
      continue;
    }
    const kind = bytes[p + 1] as number;
    if (kind !== 0x75) {
      map[length] = at(from);
      out[length++] = SIMPLE_ESCAPES[kind] ?? kind;
      p += 2;
      continue;
    }
    // A pair of escapes is one character; half of a pair alone, which JSON in a string may hold, stays alone.
    const pair = PAIR.test(view(bytes).toString('latin1', p, p + 12));
    const units = view(bytes).toString('latin1', p, p + (pair ? 12 : 6));
    p += units.length;
    for (const byte of Buffer.from(JSON.parse(`"${units}"`) as string)) {
      map[length] = at(from);
      out[length++] = byte;
    }
  }
  map[length] = at(end);
  return { bytes: out.subarray(0, length), map, level: text.level + 1 };
};

const isJson = (text: Uint8Array): boolean => {
  const { stackTraceLimit } = Error;
  Error.stackTraceLimit = 0; // a trace for each string of prose would cost more than all the rest
  try {
    // Python reads these words as numbers, and a server written in it would find the members behind them.
    JSON.parse(view(text).toString().replace(STRING_OR_WORD, (found) => (found.startsWith('"') ? found : '0')));
    return true;
  } catch {
    return false; // prose that begins with a bracket
  } finally {
    Error.stackTraceLimit = stackTraceLimit;
  }
};

// The closing quote is optional: without it each unclosed one would be looked for to the end of the text, again and again.
const STRING_OR_WORD = /"(?:[^"\\]|\\.)*"?|-?Infinity|NaN/gs;

/** A look at the last byte of string content: JSON ends with a bracket or a quote, white space aside, however spelled. */
const mayEndJson = (bytes: Uint8Array, end: number): boolean => {
  const byte = bytes[end - 1] as number;
  if (byte === CLOSE_OBJECT || byte === CLOSE_ARRAY || byte === QUOTE || byte <= 0x20) return true;
  return bytes.subarray(Math.max(0, end - 6), end).includes(BACKSLASH); // an escape, which may stand for one of these
};

/** A member that the watch wants is a hit, and is not searched further. */
export class MemberFinder {
  readonly #watch: NameWatch;
  readonly #maxLevels: number;
  readonly #intoStrings: boolean;
  #text: Text = { bytes: new Uint8Array(1), map: null, level: 0 };
  #hits: Hit[] | null = null;
  // The way to the value at hand: member names as offsets into their text, elements as their index. Spelled out on a hit only.
  #root: readonly string[] = [];
  readonly #stepTexts: Text[] = [];
  readonly #stepStarts: number[] = [];
  readonly #stepEnds: number[] = [];
  #steps = 0;
  /** True where the last search could not go on to the end: what it found is not all. */
  tooDeep = false;

  /** `maxLevels`: objects and arrays that are entered below the one `find` is given. `intoStrings`: also JSON quoted in strings. */
  constructor(watch: NameWatch, maxLevels: number, intoStrings: boolean) {
    this.#watch = watch;
    this.#maxLevels = maxLevels;
    this.#intoStrings = intoStrings;
  }

  /**
   * Hits below the object at `bytes[start]`, in the order they stand; null where there is none. `path` is that object's
   * own; hits beyond the first `DEFAULTS.maxPaths` have no path. Look at `tooDeep` afterwards.
   */
  find(bytes: Uint8Array, start: number, where: Where, path: readonly string[]): Hit[] | null {
    this.#text = { bytes, map: null, level: 0 };
    this.#hits = null;
    this.#root = path;
    this.#steps = 0;
    this.tooDeep = this.#value(start, 1, where) < 0;
    return this.#hits;
  }

  #hit(start: number, end: number): void {
    const { map, level } = this.#text;
    const hits = (this.#hits ??= []);
    hits.push({
      start: map === null ? start : (map[start] as number),
      end: map === null ? end : (map[end] as number),
      level,
      path: hits.length < DEFAULTS.maxPaths ? this.#path() : '',
    });
  }

  /** `end` -1 marks an element of an array, `start` then being its index. */
  #enter(start: number, end: number): void {
    this.#stepTexts[this.#steps] = this.#text;
    this.#stepStarts[this.#steps] = start;
    this.#stepEnds[this.#steps++] = end;
  }

  #path(): string {
    const path = [...this.#root];
    for (let i = 0; i < this.#steps; i++) {
      const start = this.#stepStarts[i] as number;
      const end = this.#stepEnds[i] as number;
      path.push(end < 0 ? String(start) : pathStep(decodeString((this.#stepTexts[i] as Text).bytes, start, end)));
    }
    return path.join('.');
  }

  /** Returns the offset after the value at `p`, or -1 where it is nested too deep to be searched. */
  #value(p: number, depth: number, where: Where): number {
    switch (this.#text.bytes[p]) {
      case OPEN_OBJECT:
        return this.#object(p, depth, where);
      case OPEN_ARRAY:
        return this.#array(p, depth);
      case QUOTE: {
        const close = this.#closingQuote(p + 1);
        if (this.#intoStrings) this.#inner(p + 1, close, depth);
        return close + 1;
      }
      default:
        return this.#skipScalar(p);
    }
  }

  #object(p: number, depth: number, where: Where): number {
    if (depth > this.#maxLevels) return this.#skip(p);
    if (depth > MAX_DEPTH) return -1;
    const bytes = this.#text.bytes;
    const names = this.#watch[where];
    p = this.#space(p + 1);
    if (bytes[p] === CLOSE_OBJECT) return p + 1;
    for (;;) {
      const nameStart = p + 1;
      const nameEnd = this.#closingQuote(nameStart);
      p = this.#space(this.#space(nameEnd + 1) + 1);
      const key = spellingKey(bytes, nameStart, nameEnd);
      const valueStart = p;
      if (names.lookup(bytes, nameStart, nameEnd, key)) {
        p = this.#skip(p);
        this.#enter(nameStart, nameEnd);
        this.#hit(valueStart, p);
        this.#steps--;
      } else {
        const first = bytes[p];
        if (first === OPEN_OBJECT || first === OPEN_ARRAY || (first === QUOTE && this.#intoStrings && opensJson(bytes, p + 1))) {
          const meta = where === 'params' && decodeString(bytes, nameStart, nameEnd) === '_meta';
          this.#enter(nameStart, nameEnd);
          p = this.#value(p, depth + 1, meta ? 'meta' : 'elsewhere');
          this.#steps--;
          if (p < 0) return -1;
        } else p = this.#skip(p);
      }
      p = this.#space(p);
      if (bytes[p] !== COMMA) return p + 1;
      p = this.#space(p + 1);
    }
  }

  #array(p: number, depth: number): number {
    if (depth > this.#maxLevels) return this.#skip(p);
    if (depth > MAX_DEPTH) return -1;
    const bytes = this.#text.bytes;
    p = this.#space(p + 1);
    if (bytes[p] === CLOSE_ARRAY) return p + 1;
    for (let index = 0; ; index++) {
      this.#enter(index, -1);
      p = this.#value(p, depth + 1, 'elsewhere');
      this.#steps--;
      if (p < 0) return -1;
      p = this.#space(p);
      if (bytes[p] !== COMMA) return p + 1;
      p = this.#space(p + 1);
    }
  }

  #inner(start: number, end: number, depth: number): void {
    const outer = this.#text;
    if (!opensJson(outer.bytes, start) || !mayEndJson(outer.bytes, end)) return;
    const inner = decodeMapped(outer, start, end);
    let p = 0;
    while (p < inner.bytes.length && (inner.bytes[p] as number) <= 0x20) p++;
    const first = inner.bytes[p];
    if ((first !== OPEN_OBJECT && first !== OPEN_ARRAY && first !== QUOTE) || !isJson(inner.bytes)) return;
    if (outer.level >= DEFAULTS.maxInnerJson) {
      this.#hit(start - 1, end + 1); // quoted deeper than is followed: what it holds is not known
      return;
    }
    const before = this.#hits?.length ?? 0;
    this.#text = inner;
    const searched = this.#value(p, depth, 'elsewhere') >= 0;
    this.#text = outer;
    if (searched) return;
    // Too deep to search is not a reason to let it pass: the whole string goes.
    this.#hits?.splice(before);
    this.#hit(start - 1, end + 1);
  }

  #space(p: number): number {
    const bytes = this.#text.bytes;
    while (bytes[p] === 0x20 || bytes[p] === 0x09 || bytes[p] === 0x0a || bytes[p] === 0x0d) p++;
    return p;
  }

  #closingQuote(p: number): number {
    const bytes = this.#text.bytes;
    for (;;) {
      const byte = bytes[p];
      if (byte === QUOTE) return p;
      p += byte === BACKSLASH ? 2 : 1;
    }
  }

  #skipScalar(p: number): number {
    const bytes = this.#text.bytes;
    while (p < bytes.length) {
      const byte = bytes[p] as number;
      if (byte === COMMA || byte === CLOSE_OBJECT || byte === CLOSE_ARRAY || byte <= 0x20) break;
      p++;
    }
    return p;
  }

  /** The offset after the value at `p`, without looking inside. */
  #skip(p: number): number {
    const bytes = this.#text.bytes;
    const first = bytes[p];
    if (first === QUOTE) return this.#closingQuote(p + 1) + 1;
    if (first !== OPEN_OBJECT && first !== OPEN_ARRAY) return this.#skipScalar(p);
    let open = 0;
    for (;;) {
      const byte = bytes[p];
      if (byte === QUOTE) p = this.#closingQuote(p + 1);
      else if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) open++;
      else if ((byte === CLOSE_OBJECT || byte === CLOSE_ARRAY) && --open === 0) return p + 1;
      p++;
    }
  }
}
