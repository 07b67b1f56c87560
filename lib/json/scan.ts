// The strict scan: one pass over a line's bytes that proves it is one unambiguous JSON-RPC message, and finds its parts.
// Owns what well-formed means. Must not decide policy, copy bytes or allocate for a message that passes.
//
// Accepts RFC 8259 in UTF-8 (which the caller has checked) and refuses what two parsers may read differently.
import { DEFAULTS } from '../defaults.js';
import type { CodeName } from '../errors.js';
import type { Kind } from '../message.js';
import { methodFacts } from './methods.js';
import type { MethodFacts } from './methods.js';
import { hashBytes, NameCache } from './name-cache.js';
import type { NameWatch } from './name-watch.js';
import { decodeString, foldName, view } from './strings.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;
const SPACE = 0x20;
const TAB = 0x09;
const CR = 0x0d;
const MINUS = 0x2d;
const ZERO = 0x30;

// Classes of the bytes inside a string; 0 is plain text.
const END = 1;
const ESCAPE = 2;
const CONTROL = 3;
const LEAD_C2 = 4; // may begin U+0085
const LEAD_E2 = 5; // may begin U+2028 or U+2029
const TEXT = new Uint8Array(256);
TEXT.fill(CONTROL, 0, 0x20);
TEXT[QUOTE] = END;
TEXT[BACKSLASH] = ESCAPE;
TEXT[0xc2] = LEAD_C2;
TEXT[0xe2] = LEAD_E2;

const HEX = new Int8Array(256).fill(-1);
for (let digit = 0; digit < 16; digit++) {
  HEX[digit.toString(16).charCodeAt(0)] = digit;
  HEX[digit.toString(16).toUpperCase().charCodeAt(0)] = digit;
}

// Where an object stands: decides which of its members are protocol members.
const PLAIN = 0;
const TOP = 1;
const PARAMS = 2;
const META = 3;
const RESULT = 4;
const ERROR = 5;
const CONSTRUCTOR = 6;
type Place = 0 | 1 | 2 | 3 | 4 | 5 | 6;

// Protocol members, as the caches know them.
const OTHER = 0;
const VARIANT = 1;
const KNOWN = 2;
const JSONRPC = 3;
const ID = 4;
const METHOD = 5;
const PARAMS_MEMBER = 6;
const RESULT_MEMBER = 7;
const ERROR_MEMBER = 8;
const NAME = 9;
const ARGUMENTS = 10;
const META_MEMBER = 11;
const PROGRESS_TOKEN = 12;
const CODE = 13;
const MESSAGE = 14;

const members = (known: Readonly<Record<string, number>>, alone: readonly string[] = []): NameCache<number> => {
  const exact = new Map<string, number>([...Object.entries(known), ...alone.map((name): [string, number] => [name, KNOWN])]);
  const folded = new Set([...exact.keys()].map(foldName));
  return new NameCache((name) => exact.get(name) ?? (folded.has(foldName(name)) ? VARIANT : OTHER));
};

const exactMembers = (known: Readonly<Record<string, number>>): NameCache<number> =>
  new NameCache((name) => (Object.hasOwn(known, name) ? (known[name] as number) : OTHER));

/** Members that stand directly in `params` in some revision; only these have variants there. */
const PARAMS_NAMES = [
  'uri', 'cursor', 'requestState', 'inputResponses', 'requestId', 'taskId', 'task', 'ref', 'argument', 'context',
  'level', 'protocolVersion', 'capabilities', 'clientInfo', 'notifications',
];

const INTEGER_START = new Uint8Array(256);
INTEGER_START.fill(1, ZERO, ZERO + 10);
INTEGER_START[MINUS] = 1;

/** A cheap look at the first byte of string content: JSON of an object or array, after white space, however spelled. */
export const mayBeJson = (first: number | undefined): boolean =>
  first === OPEN_OBJECT || first === OPEN_ARRAY || first === BACKSLASH || first === SPACE;

const PAIRWISE = 16; // above it a Set tells duplicates apart: pairwise on a 1 MB object takes seconds

/**
 * Reusable; each `scan` overwrites what the one before found. Precondition of `scan`: the line is valid UTF-8,
 * `bytes[end]` exists, and from there to the next line feed within `bytes` there is nothing but JSON white space:
 * that byte stops every loop, so none has to test for the end.
 */
export class Scanner {
  readonly #maxMembers: number;
  #maxDepth: number;
  #bytes: Uint8Array = new Uint8Array(1);
  #end = 0;
  #names: Int32Array;
  #namesTop = 0;
  #escaped = false;
  #watch: NameWatch | null = null;
  /** The watch, while the scan is below `params` and nothing was seen yet. */
  #looking: NameWatch | null = null;
  readonly #top = members({ jsonrpc: JSONRPC, id: ID, method: METHOD, params: PARAMS_MEMBER, result: RESULT_MEMBER, error: ERROR_MEMBER });
  readonly #params = members({ name: NAME, arguments: ARGUMENTS, _meta: META_MEMBER, progressToken: PROGRESS_TOKEN }, PARAMS_NAMES);
  readonly #meta = exactMembers({ progressToken: PROGRESS_TOKEN });
  readonly #result = exactMembers({ _meta: META_MEMBER });
  readonly #error = exactMembers({ code: CODE, message: MESSAGE });
  readonly #methods = new NameCache<MethodFacts>(methodFacts);
  readonly #tools = new NameCache<string>((name) => name);

  /** Why the last line was refused, and at which offset; null when it passed. */
  code: CodeName | null = null;
  at = -1;
  kind: Kind = 'invalid';
  /** JSON text of the id. */
  idStart = -1;
  idEnd = -1;
  method: string | null = null;
  /** Decoded `params.name` where it is a string and the method is `tools/call`. */
  tool: string | null = null;
  paramsStart = -1;
  paramsEnd = -1;
  argumentsStart = -1;
  argumentsEnd = -1;
  maxDepth = 0;
  /** True where a string holds a raw U+0085, U+2028 or U+2029. */
  hasLineBreaks = false;
  /** True where below `params` a watched name occurs, or a string that may quote JSON; also where nothing is watched. */
  watched = true;

  #jsonrpcStart = -1;
  #methodStart = -1;
  #methodEnd = -1;
  #nameStart = -1;
  #nameEnd = -1;
  #resultStart = -1;
  #errorStart = -1;
  #errorCode = -1;
  #errorCodeEnd = -1;
  #errorMessage = -1;
  #metaStart = -1;
  #tokenStart = -1;
  #tokenEnd = -1;

  constructor(maxDepth: number = DEFAULTS.maxDepth, maxMembers: number = DEFAULTS.maxMembers) {
    this.#maxDepth = maxDepth;
    this.#maxMembers = maxMembers;
    this.#names = new Int32Array((maxDepth + 1) * (PAIRWISE + 1) * 3);
  }

  /** Takes a policy's limit; objects deeper than it are refused from now on. */
  limitDepth(maxDepth: number): void {
    if (maxDepth === this.#maxDepth) return;
    this.#maxDepth = maxDepth;
    this.#names = new Int32Array((maxDepth + 1) * (PAIRWISE + 1) * 3);
  }

  /** From now on `watched` tells whether one of these names occurs; null: it is always true. */
  watch(names: NameWatch | null): void {
    this.#watch = names;
  }

  /** Proves `bytes[start, end)`. True: the fields hold its parts. False: `code` says why not. */
  scan(bytes: Uint8Array, start: number, end: number): boolean {
    this.#bytes = bytes;
    this.#end = end;
    this.#namesTop = 0;
    this.code = null;
    this.at = -1;
    this.kind = 'invalid';
    this.idStart = this.idEnd = -1;
    this.method = null;
    this.tool = null;
    this.paramsStart = this.paramsEnd = -1;
    this.argumentsStart = this.argumentsEnd = -1;
    this.maxDepth = 0;
    this.hasLineBreaks = false;
    this.watched = this.#watch === null;
    this.#looking = null;
    this.#jsonrpcStart = this.#methodStart = this.#methodEnd = -1;
    this.#nameStart = this.#nameEnd = -1;
    this.#resultStart = this.#errorStart = this.#errorCode = this.#errorCodeEnd = this.#errorMessage = -1;
    this.#metaStart = this.#tokenStart = this.#tokenEnd = -1;

    const first = bytes[start];
    if (first !== OPEN_OBJECT) {
      this.#refuseOther(first, start);
      return false;
    }
    const after = this.#object(start + 1, 1, TOP);
    if (after < 0) return false;
    if (after !== end) {
      this.#fail(bytes[after] === CR ? 'bare_cr' : 'trailing_bytes', after);
      return false;
    }
    return this.#shape();
  }

  /**
   * True when `bytes[start, end)` is one JSON value by the same strict grammar, whatever its shape; `maxDepth` is set.
   * Same precondition as `scan`.
   */
  proves(bytes: Uint8Array, start: number, end: number): boolean {
    this.#bytes = bytes;
    this.#end = end;
    this.#namesTop = 0;
    this.code = null;
    this.maxDepth = 0;
    return this.#value(start, 0, PLAIN) === end;
  }

  #seen(): void {
    this.watched = true;
    this.#looking = null;
  }

  #fail(code: CodeName, at: number): -1 {
    this.code = code;
    this.at = at;
    return -1;
  }

  #refuseOther(first: number | undefined, start: number): void {
    if (first === 0xef && this.#bytes[start + 1] === 0xbb && this.#bytes[start + 2] === 0xbf) {
      this.#fail('byte_order_mark', start);
      return;
    }
    if (first === CR) {
      this.#fail('bare_cr', start);
      return;
    }
    const after = this.#value(start, 0, PLAIN);
    if (after < 0) return;
    if (after !== this.#end) this.#fail(this.#bytes[after] === CR ? 'bare_cr' : 'trailing_bytes', after);
    else this.#fail(first === OPEN_ARRAY ? 'batch' : 'not_an_object', start);
  }

  /** What stands at `p` is not what JSON wants there. */
  #unexpected(p: number): -1 {
    const byte = this.#bytes[p];
    if (p >= this.#end) return this.#fail('unterminated', p);
    return this.#fail(byte === CR ? 'bare_cr' : 'not_json', p);
  }

  /** `p` is at the value's first byte; returns the offset after it, or -1. `depth` counts the containers around it. */
  #value(p: number, depth: number, place: Place): number {
    const bytes = this.#bytes;
    switch (bytes[p]) {
      case QUOTE: {
        if (this.#looking !== null && mayBeJson(bytes[p + 1])) this.#seen();
        const close = this.#string(p + 1);
        return close < 0 ? -1 : close + 1;
      }
      case OPEN_OBJECT:
        return this.#object(p + 1, depth + 1, place);
      case OPEN_ARRAY:
        return this.#array(p + 1, depth + 1);
      case 0x74: // true
        return bytes[p + 1] === 0x72 && bytes[p + 2] === 0x75 && bytes[p + 3] === 0x65 ? p + 4 : this.#unexpected(p);
      case 0x66: // false
        return bytes[p + 1] === 0x61 && bytes[p + 2] === 0x6c && bytes[p + 3] === 0x73 && bytes[p + 4] === 0x65
          ? p + 5
          : this.#unexpected(p);
      case 0x6e: // null
        return bytes[p + 1] === 0x75 && bytes[p + 2] === 0x6c && bytes[p + 3] === 0x6c ? p + 4 : this.#unexpected(p);
      case MINUS: case 0x30: case 0x31: case 0x32: case 0x33: case 0x34: case 0x35: case 0x36: case 0x37: case 0x38: case 0x39:
        return this.#number(p);
      default:
        return this.#unexpected(p);
    }
  }

  /** `p` is after the opening quote; returns the offset of the closing one, or -1. */
  #string(p: number): number {
    const bytes = this.#bytes;
    for (;;) {
      while (TEXT[bytes[p] as number] === 0) p++;
      switch (TEXT[bytes[p] as number]) {
        case END:
          return p;
        case ESCAPE:
          p = this.#escape(p);
          if (p < 0) return -1;
          break;
        case LEAD_C2:
          if (bytes[p + 1] === 0x85) this.hasLineBreaks = true;
          p += 2;
          break;
        case LEAD_E2:
          if (bytes[p + 1] === 0x80 && (bytes[p + 2] === 0xa8 || bytes[p + 2] === 0xa9)) this.hasLineBreaks = true;
          p += 3;
          break;
        default:
          if (p >= this.#end) return this.#fail('unterminated', p);
          return this.#fail(bytes[p] === CR ? 'bare_cr' : 'control_character', p);
      }
    }
  }

  /** `p` is at a backslash; returns the offset after the escape, or -1. */
  #escape(p: number): number {
    this.#escaped = true;
    switch (this.#bytes[p + 1]) {
      case QUOTE: case BACKSLASH: case 0x2f: case 0x62: case 0x66: case 0x6e: case 0x72: case 0x74:
        return p + 2;
      case 0x75: {
        const unit = this.#hex(p + 2);
        if (unit < 0) return this.#badEscape(p);
        if ((unit & 0xf800) !== 0xd800) return p + 6;
        if (unit >= 0xdc00 || this.#bytes[p + 6] !== BACKSLASH || this.#bytes[p + 7] !== 0x75) return this.#fail('lone_surrogate', p);
        const low = this.#hex(p + 8);
        if (low < 0) return this.#badEscape(p + 6);
        return (low & 0xfc00) === 0xdc00 ? p + 12 : this.#fail('lone_surrogate', p);
      }
      default:
        return this.#badEscape(p);
    }
  }

  #badEscape(p: number): -1 {
    return this.#fail(p + 1 >= this.#end ? 'unterminated' : 'bad_escape', p);
  }

  #hex(p: number): number {
    const bytes = this.#bytes;
    const a = HEX[bytes[p] as number] as number;
    const b = HEX[bytes[p + 1] as number] as number;
    const c = HEX[bytes[p + 2] as number] as number;
    const d = HEX[bytes[p + 3] as number] as number;
    return (a | b | c | d) < 0 ? -1 : (a << 12) | (b << 8) | (c << 4) | d;
  }

  #number(p: number): number {
    const bytes = this.#bytes;
    const start = p;
    let byte = bytes[p] as number;
    if (byte === MINUS) byte = bytes[++p] as number;
    if (byte === ZERO) byte = bytes[++p] as number;
    else if (byte > ZERO && byte <= 0x39) {
      do byte = bytes[++p] as number;
      while (byte >= ZERO && byte <= 0x39);
    } else return this.#fail(p >= this.#end ? 'unterminated' : 'bad_number', p);
    let overflow = p - start > 300; // a double ends near 1.8e308
    if (byte === 0x2e) {
      byte = bytes[++p] as number;
      if (byte < ZERO || byte > 0x39) return this.#fail(p >= this.#end ? 'unterminated' : 'bad_number', p);
      do byte = bytes[++p] as number;
      while (byte >= ZERO && byte <= 0x39);
    }
    if (byte === 0x65 || byte === 0x45) {
      byte = bytes[++p] as number;
      if (byte === 0x2b || byte === MINUS) byte = bytes[++p] as number;
      if (byte < ZERO || byte > 0x39) return this.#fail(p >= this.#end ? 'unterminated' : 'bad_number', p);
      do byte = bytes[++p] as number;
      while (byte >= ZERO && byte <= 0x39);
      overflow = true;
    }
    if (overflow && !Number.isFinite(Number(view(bytes).toString('latin1', start, p)))) return this.#fail('number_overflow', start);
    return p;
  }

  #array(p: number, depth: number): number {
    const bytes = this.#bytes;
    if (depth > this.#maxDepth) return this.#fail('too_deep', p - 1);
    if (depth > this.maxDepth) this.maxDepth = depth;
    while (bytes[p] === SPACE || bytes[p] === TAB) p++;
    if (bytes[p] === CLOSE_ARRAY) return p + 1;
    for (;;) {
      p = this.#value(p, depth, PLAIN);
      if (p < 0) return -1;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
      const byte = bytes[p];
      if (byte === CLOSE_ARRAY) return p + 1;
      if (byte !== COMMA) return this.#unexpected(p);
      p++;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
    }
  }

  #object(p: number, depth: number, place: Place): number {
    const bytes = this.#bytes;
    if (depth > this.#maxDepth) return this.#fail('too_deep', p - 1);
    if (depth > this.maxDepth) this.maxDepth = depth;
    const names = this.#names;
    const base = this.#namesTop;
    let count = 0;
    let seen: Set<string> | null = null;
    while (bytes[p] === SPACE || bytes[p] === TAB) p++;
    if (bytes[p] === CLOSE_OBJECT) return p + 1;
    for (;;) {
      if (bytes[p] !== QUOTE) return this.#unexpected(p);
      const nameStart = p + 1;
      p = nameStart;
      let hash = 0;
      let byte = bytes[p] as number;
      while (TEXT[byte] === 0) {
        hash = (Math.imul(hash, 31) + byte) | 0;
        byte = bytes[++p] as number;
      }
      let escaped = false;
      if (byte !== QUOTE) {
        this.#escaped = false;
        p = this.#string(p);
        if (p < 0) return -1;
        escaped = this.#escaped;
        hash = hashBytes(bytes, nameStart, p);
      }
      const nameEnd = p;

      // Duplicates are told apart as they decode, whatever their spelling.
      const identity = escaped ? this.#decodedHash(nameStart, nameEnd) : hash;
      if (seen === null) {
        for (let i = base; i < this.#namesTop; i += 3) {
          if (names[i + 2] === identity && this.#sameName(names[i] as number, names[i + 1] as number, nameStart, nameEnd)) {
            return this.#fail('duplicate_name', nameStart);
          }
        }
        if (count < PAIRWISE) {
          const top = this.#namesTop;
          names[top] = nameStart;
          names[top + 1] = nameEnd;
          names[top + 2] = identity;
          this.#namesTop = top + 3;
        } else {
          seen = new Set();
          for (let i = base; i < this.#namesTop; i += 3) seen.add(decodeString(bytes, names[i] as number, names[i + 1] as number));
          seen.add(decodeString(bytes, nameStart, nameEnd));
        }
      } else {
        const size = seen.size;
        if (seen.add(decodeString(bytes, nameStart, nameEnd)).size === size) return this.#fail('duplicate_name', nameStart);
      }
      if (++count > this.#maxMembers) return this.#fail('too_many_members', nameStart);

      let member = OTHER;
      let innerPlace: Place = PLAIN;
      const length = nameEnd - nameStart;
      if (escaped || length === 9 || length === 11) {
        const inner = this.#prototypeName(nameStart, nameEnd, place);
        if (inner < 0) return -1;
        innerPlace = inner as Place;
      }
      if (place !== PLAIN && place !== CONSTRUCTOR) {
        member = this.#member(place, nameStart, nameEnd, hash);
        if (member === VARIANT) return this.#fail('name_variant', nameStart);
        if (member === PARAMS_MEMBER) {
          innerPlace = PARAMS;
          if (!this.watched) this.#looking = this.#watch;
        } else if (member === META_MEMBER) innerPlace = META;
        else if (member === RESULT_MEMBER) innerPlace = RESULT;
        else if (member === ERROR_MEMBER) innerPlace = ERROR;
      }

      const looking = this.#looking;
      if (looking !== null && place !== TOP) {
        const names = place === PARAMS ? looking.params : place === META ? looking.meta : looking.elsewhere;
        if (names.lookup(bytes, nameStart, nameEnd, hash)) this.#seen();
      }

      p++;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
      if (bytes[p] !== COLON) return this.#unexpected(p);
      p++;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
      const valueStart = p;
      if (bytes[p] === QUOTE) {
        // The commonest value, without a call where it is plain text.
        byte = bytes[++p] as number;
        if (looking !== null && mayBeJson(byte)) this.#seen();
        while (TEXT[byte] === 0) byte = bytes[++p] as number;
        if (byte !== QUOTE) p = this.#string(p);
        if (p < 0) return -1;
        p++;
      } else {
        p = this.#value(p, depth, innerPlace);
        if (p < 0) return -1;
      }
      if (member > KNOWN) {
        this.#note(place, member, valueStart, p);
        if (member === PARAMS_MEMBER) this.#looking = null;
      }

      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
      byte = bytes[p] as number;
      if (byte === CLOSE_OBJECT) {
        this.#namesTop = base;
        return p + 1;
      }
      if (byte !== COMMA) return this.#unexpected(p);
      p++;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
    }
  }

  #decodedHash(start: number, end: number): number {
    const decoded = Buffer.from(decodeString(this.#bytes, start, end));
    return hashBytes(decoded, 0, decoded.length);
  }

  #sameName(aStart: number, aEnd: number, bStart: number, bEnd: number): boolean {
    return decodeString(this.#bytes, aStart, aEnd) === decodeString(this.#bytes, bStart, bEnd);
  }

  /** -1 where the name would change a prototype; else the place of an object that is its value. */
  #prototypeName(start: number, end: number, place: Place): number {
    const bytes = this.#bytes;
    const first = bytes[start];
    if (first !== 0x5f && first !== 0x63 && first !== 0x70 && first !== BACKSLASH) return PLAIN;
    const name = decodeString(bytes, start, end);
    if (name === '__proto__' || (place === CONSTRUCTOR && name === 'prototype')) return this.#fail('prototype_name', start);
    return name === 'constructor' ? CONSTRUCTOR : PLAIN;
  }

  #member(place: Place, start: number, end: number, hash: number): number {
    switch (place) {
      case TOP:
        return this.#top.lookup(this.#bytes, start, end, hash);
      case PARAMS:
        return this.#params.lookup(this.#bytes, start, end, hash);
      case META:
        return this.#meta.lookup(this.#bytes, start, end, hash);
      case RESULT:
        return this.#result.lookup(this.#bytes, start, end, hash);
      default:
        return this.#error.lookup(this.#bytes, start, end, hash);
    }
  }

  #note(place: Place, member: number, start: number, end: number): void {
    switch (member) {
      case JSONRPC:
        this.#jsonrpcStart = start;
        break;
      case ID:
        this.idStart = start;
        this.idEnd = end;
        break;
      case METHOD:
        this.#methodStart = start;
        this.#methodEnd = end;
        break;
      case PARAMS_MEMBER:
        this.paramsStart = start;
        this.paramsEnd = end;
        break;
      case RESULT_MEMBER:
        this.#resultStart = start;
        break;
      case ERROR_MEMBER:
        this.#errorStart = start;
        break;
      case NAME:
        this.#nameStart = start;
        this.#nameEnd = end;
        break;
      case ARGUMENTS:
        this.argumentsStart = start;
        this.argumentsEnd = end;
        break;
      case META_MEMBER:
        if (place === PARAMS || place === RESULT) this.#metaStart = start;
        break;
      case PROGRESS_TOKEN:
        // Once in `_meta` of a request, or directly in `params` of notifications/progress; a second one is judged last.
        if (this.#tokenStart < 0 || this.#validToken()) {
          this.#tokenStart = start;
          this.#tokenEnd = end;
        }
        break;
      case CODE:
        this.#errorCode = start;
        this.#errorCodeEnd = end;
        break;
      case MESSAGE:
        this.#errorMessage = start;
        break;
    }
  }

  #isInteger(start: number, end: number): boolean {
    const bytes = this.#bytes;
    if (INTEGER_START[bytes[start] as number] === 0) return false;
    let p = start;
    if (bytes[p] === MINUS) {
      p++;
      if (bytes[p] === ZERO) return false; // -0 comes back as 0 from many peers
    }
    for (; p < end; p++) if ((bytes[p] as number) < ZERO || (bytes[p] as number) > 0x39) return false;
    return true;
  }

  #validToken(): boolean {
    return this.#bytes[this.#tokenStart] === QUOTE || this.#isInteger(this.#tokenStart, this.#tokenEnd);
  }

  #validId(): boolean {
    const start = this.idStart;
    const end = this.idEnd;
    if (this.#bytes[start] !== QUOTE) return end - start <= DEFAULTS.maxIdBytes && this.#isInteger(start, end);
    if (end - start - 2 <= DEFAULTS.maxIdBytes) return true;
    return Buffer.byteLength(decodeString(this.#bytes, start + 1, end - 1)) <= DEFAULTS.maxIdBytes;
  }

  #version(): boolean {
    const bytes = this.#bytes;
    const p = this.#jsonrpcStart;
    if (p < 0 || bytes[p] !== QUOTE) return false;
    if (bytes[p + 1] === 0x32 && bytes[p + 2] === 0x2e && bytes[p + 3] === ZERO && bytes[p + 4] === QUOTE) return true;
    return decodeString(bytes, p + 1, this.#string(p + 1)) === '2.0';
  }

  #misshapen(code: CodeName): false {
    this.#fail(code, -1);
    return false;
  }

  /** The shape of JSON-RPC 2.0 and MCP, judged once the whole line is proven JSON. */
  #shape(): boolean {
    const bytes = this.#bytes;
    const hasId = this.idStart >= 0;
    const hasMethod = this.#methodStart >= 0;
    const hasResult = this.#resultStart >= 0;
    const hasError = this.#errorStart >= 0;
    if (hasMethod) this.kind = hasId ? 'request' : 'notification';
    else if (hasResult || hasError) this.kind = 'response';

    if (hasMethod && bytes[this.#methodStart] === QUOTE) {
      const start = this.#methodStart + 1;
      const end = this.#methodEnd - 1;
      const facts = this.#methods.lookup(bytes, start, end, hashBytes(bytes, start, end));
      this.method = facts.name;
      if (facts.problem !== null) return this.#misshapen(facts.problem);
      if (facts.form === 'request' && !hasId) return this.#misshapen('id_missing');
      if (facts.form === 'notification' && hasId) return this.#misshapen('id_unexpected');
    } else if (hasMethod) return this.#misshapen('bad_method');
    if (this.method === 'tools/call' && this.#nameStart >= 0 && bytes[this.#nameStart] === QUOTE) {
      const start = this.#nameStart + 1;
      const end = this.#nameEnd - 1;
      this.tool = this.#tools.lookup(bytes, start, end, hashBytes(bytes, start, end));
    }

    if (!this.#version()) return this.#misshapen('bad_version');
    if (hasId && !this.#validId()) return this.#misshapen('bad_id');
    if ((hasMethod && (hasResult || hasError)) || (hasResult && hasError)) return this.#misshapen('mixed_members');
    if (this.kind === 'invalid') return this.#misshapen('not_a_message');
    if (this.kind === 'response' && !hasId) return this.#misshapen('id_missing');
    if (this.paramsStart >= 0 && bytes[this.paramsStart] !== OPEN_OBJECT) return this.#misshapen('bad_params');
    if (this.argumentsStart >= 0 && bytes[this.argumentsStart] !== OPEN_OBJECT) return this.#misshapen('bad_arguments');
    if (this.#metaStart >= 0 && bytes[this.#metaStart] !== OPEN_OBJECT) return this.#misshapen('bad_meta');
    if (this.#tokenStart >= 0 && !this.#validToken()) return this.#misshapen('bad_progress_token');
    if (hasResult && bytes[this.#resultStart] !== OPEN_OBJECT) return this.#misshapen('bad_result');
    if (hasError) {
      if (bytes[this.#errorStart] !== OPEN_OBJECT || this.#errorCode < 0 || !this.#isInteger(this.#errorCode, this.#errorCodeEnd)) {
        return this.#misshapen('bad_error');
      }
      if (this.#errorMessage < 0 || bytes[this.#errorMessage] !== QUOTE) return this.#misshapen('bad_error');
    }
    return true;
  }
}
