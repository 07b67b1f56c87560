// The strict scan: one pass over a line's bytes that proves it is one unambiguous JSON-RPC message, and finds its parts.
// Owns what well-formed means. Must not decide policy, copy bytes or allocate for a message that passes.
//
// Accepts RFC 8259 in UTF-8 (which the caller has checked) and refuses what two parsers may read differently.
import { DEFAULTS } from '../defaults.js';
import type { CodeName } from '../errors.js';
import type { Kind } from '../message.js';
import { methodFacts } from './methods.js';
import type { MethodFacts } from './methods.js';
import { NameCache, spellingKey } from './name-cache.js';
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

// Protocol members, as the caches know them. From JSONRPC on, a number is also the member's place among the marks of a
// scan: the offset of its value, and behind it the offset after it.
const OTHER = 0;
const VARIANT = 1;
const KNOWN = 2;
const JSONRPC = 4;
const ID = 6;
const METHOD = 8;
const PARAMS_MEMBER = 10;
const RESULT_MEMBER = 12;
const ERROR_MEMBER = 14;
const NAME = 16;
const ARGUMENTS = 18;
const PARAMS_META = 20;
const PARAMS_TOKEN = 22;
const META_TOKEN = 24;
const RESULT_META = 26;
const CODE = 28;
const MESSAGE = 30;
const MARKS = 32;

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

/** Four bytes as one integer: two of them, with the length, tell names of four to eight bytes apart without a loop. */
const four = (bytes: Uint8Array, p: number): number =>
  (bytes[p] as number) | ((bytes[p + 1] as number) << 8) | ((bytes[p + 2] as number) << 16) | ((bytes[p + 3] as number) << 24);
const fourOf = (text: string): number => four(Buffer.from(text), 0);

const JSON_ = fourOf('json');
const NRPC = fourOf('nrpc');
const METH = fourOf('meth');
const THOD = fourOf('thod');
const PARA = fourOf('para');
const RAMS = fourOf('rams');
const NAME_ = fourOf('name');
const ARGU = fourOf('argu');
const ENTS = fourOf('ents');
const UNDERSCORE_MET = fourOf('_met');
const TOOL = fourOf('tool');
const SLASH = fourOf('s/ca');
const CALL = methodFacts('tools/call');

const isToolsCall = (bytes: Uint8Array, start: number, end: number): boolean =>
  end - start === 10 && four(bytes, start) === TOOL && four(bytes, start + 4) === SLASH && bytes[start + 8] === 0x6c && bytes[start + 9] === 0x6c;

const INTEGER_START = new Uint8Array(256);
INTEGER_START.fill(1, ZERO, ZERO + 10);
INTEGER_START[MINUS] = 1;

const WHITE_ESCAPES = new Set([0x6e, 0x72, 0x74]); // \n \r \t

/**
 * A look at how string content at `p` begins: true where it may be JSON of an object, an array or another string after
 * white space, however that is spelled. Any `\u` escape counts as such.
 */
export const opensJson = (bytes: Uint8Array, p: number): boolean => {
  for (;;) {
    const byte = bytes[p] as number;
    if (byte === OPEN_OBJECT || byte === OPEN_ARRAY) return true;
    if (byte === SPACE) p++;
    else if (byte !== BACKSLASH) return false;
    else if (bytes[p + 1] === 0x75 || bytes[p + 1] === QUOTE) return true; // also a string that quotes a string
    else if (WHITE_ESCAPES.has(bytes[p + 1] as number)) p += 2;
    else return false;
  }
};

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
  /** Where the protocol members' values are in the line at hand; -1: absent. */
  readonly #marks = new Int32Array(MARKS);
  #watch: NameWatch | null = null;
  /** The watch, while the scan is below `params` and nothing was seen yet. */
  #looking: NameWatch | null = null;
  readonly #top = members({ jsonrpc: JSONRPC, id: ID, method: METHOD, params: PARAMS_MEMBER, result: RESULT_MEMBER, error: ERROR_MEMBER });
  readonly #params = members({ name: NAME, arguments: ARGUMENTS, _meta: PARAMS_META, progressToken: PARAMS_TOKEN }, PARAMS_NAMES);
  readonly #meta = exactMembers({ progressToken: META_TOKEN });
  readonly #result = exactMembers({ _meta: RESULT_META });
  readonly #error = exactMembers({ code: CODE, message: MESSAGE });
  readonly #methods = new NameCache<MethodFacts>(methodFacts);

  /** Why the last line was refused, and at which offset; null when it passed. */
  code: CodeName | null = null;
  at = -1;
  kind: Kind = 'invalid';
  /** JSON text of the id. */
  idStart = -1;
  idEnd = -1;
  method: string | null = null;
  /** JSON text of `params.name`, whatever the method. */
  nameStart = -1;
  nameEnd = -1;
  paramsStart = -1;
  paramsEnd = -1;
  argumentsStart = -1;
  argumentsEnd = -1;
  maxDepth = 0;
  /** True where a string holds a raw U+0085, U+2028 or U+2029. */
  hasLineBreaks = false;
  /** True where below `params` a watched name occurs, or a string that may quote JSON; also where nothing is watched. */
  watched = true;

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
    this.nameStart = this.nameEnd = -1;
    this.paramsStart = this.paramsEnd = -1;
    this.argumentsStart = this.argumentsEnd = -1;
    this.maxDepth = 0;
    this.hasLineBreaks = false;
    this.watched = this.#watch === null;
    this.#looking = null;
    const marks = this.#marks;
    marks[JSONRPC] = marks[ID] = marks[ID + 1] = marks[METHOD] = marks[RESULT_MEMBER] = marks[ERROR_MEMBER] = -1;
    marks[PARAMS_MEMBER] = marks[PARAMS_MEMBER + 1] = marks[ARGUMENTS] = marks[ARGUMENTS + 1] = marks[NAME] = marks[NAME + 1] = -1;
    marks[PARAMS_META] = marks[PARAMS_TOKEN] = marks[META_TOKEN] = marks[RESULT_META] = marks[CODE] = marks[MESSAGE] = -1;

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
        if (this.#looking !== null && opensJson(bytes, p + 1)) this.#seen();
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

  /** `p` is after the opening quote, or at any byte of the string; returns the offset of the closing quote, or -1. */
  #string(p: number): number {
    const bytes = this.#bytes;
    const text = TEXT; // a local: in a bundle V8 does not know that the module's own never changes
    for (;;) {
      // Unrolled: most of a session's bytes pass here.
      while (text[bytes[p] as number] === 0) {
        if (text[bytes[p + 1] as number] !== 0) {
          p += 1;
          break;
        }
        if (text[bytes[p + 2] as number] !== 0) {
          p += 2;
          break;
        }
        if (text[bytes[p + 3] as number] !== 0) {
          p += 3;
          break;
        }
        p += 4;
      }
      switch (text[bytes[p] as number]) {
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
    const text = TEXT;
    if (depth > this.#maxDepth) return this.#fail('too_deep', p - 1);
    if (depth > this.maxDepth) this.maxDepth = depth;
    const names = this.#names;
    const base = this.#namesTop;
    let top = base;
    let count = 0;
    let bits = 0;
    let seen: Set<string> | null = null;
    while (bytes[p] === SPACE || bytes[p] === TAB) p++;
    if (bytes[p] === CLOSE_OBJECT) return p + 1;
    for (;;) {
      if (bytes[p] !== QUOTE) return this.#unexpected(p);
      const nameStart = p + 1;
      p = nameStart;
      let key = 0; // `spellingKey`, computed on the way; unrolled like `#string`
      let byte = bytes[p] as number;
      while (text[byte] === 0) {
        const second = bytes[p + 1] as number;
        key = (Math.imul(key, 31) + byte) | 0;
        if (text[second] !== 0) {
          byte = second;
          p += 1;
          break;
        }
        const third = bytes[p + 2] as number;
        key = (Math.imul(key, 31) + second) | 0;
        if (text[third] !== 0) {
          byte = third;
          p += 2;
          break;
        }
        key = (Math.imul(key, 31) + third) | 0;
        byte = bytes[(p += 3)] as number;
      }
      let escaped = false;
      if (byte !== QUOTE) {
        this.#escaped = false;
        p = this.#string(p);
        if (p < 0) return -1;
        escaped = this.#escaped;
        key = spellingKey(bytes, nameStart, p);
      }
      const nameEnd = p;

      // Duplicates are told apart as they decode, whatever their spelling.
      const identity = escaped ? this.#decodedKey(nameStart, nameEnd) : key;
      const bit = 1 << (identity & 31);
      if (seen === null) {
        // Most names share their bit with none before them, and then need no look at them.
        for (let i = (bits & bit) === 0 ? top : base; i < top; i += 3) {
          if (names[i + 2] === identity && this.#sameName(names[i] as number, names[i + 1] as number, nameStart, nameEnd)) {
            return this.#fail('duplicate_name', nameStart);
          }
        }
        bits |= bit;
        if (count < PAIRWISE) {
          names[top] = nameStart;
          names[top + 1] = nameEnd;
          names[top + 2] = identity;
          top += 3;
        } else {
          seen = new Set();
          for (let i = base; i < top; i += 3) seen.add(decodeString(bytes, names[i] as number, names[i + 1] as number));
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
        member = this.#member(place, nameStart, nameEnd, key);
        if (member === VARIANT) return this.#fail('name_variant', nameStart);
        if (member === PARAMS_MEMBER) {
          innerPlace = PARAMS;
          if (!this.watched) this.#looking = this.#watch;
        } else if (member === PARAMS_META) innerPlace = META;
        else if (member === RESULT_MEMBER) innerPlace = RESULT;
        else if (member === ERROR_MEMBER) innerPlace = ERROR;
      }

      const looking = this.#looking;
      if (looking !== null && place !== TOP) {
        const names = place === PARAMS ? looking.params : place === META ? looking.meta : looking.elsewhere;
        if (names.lookup(bytes, nameStart, nameEnd, key)) this.#seen();
      }

      p++;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
      if (bytes[p] !== COLON) return this.#unexpected(p);
      p++;
      while (bytes[p] === SPACE || bytes[p] === TAB) p++;
      const valueStart = p;
      if (bytes[p] === QUOTE) {
        if (looking !== null && opensJson(bytes, p + 1)) this.#seen();
        p = this.#string(p + 1);
        if (p < 0) return -1;
        p++;
      } else {
        this.#namesTop = top;
        p = this.#value(p, depth, innerPlace);
        if (p < 0) return -1;
      }
      if (member > KNOWN) {
        const marks = this.#marks;
        marks[member] = valueStart;
        marks[member + 1] = p;
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

  #decodedKey(start: number, end: number): number {
    const decoded = Buffer.from(decodeString(this.#bytes, start, end));
    return spellingKey(decoded, 0, decoded.length);
  }

  #sameName(aStart: number, aEnd: number, bStart: number, bEnd: number): boolean {
    const bytes = this.#bytes;
    // Long plain names are compared without a string; any escape needs one.
    let i = 0;
    const length = aEnd - aStart;
    while (i < length && bytes[aStart + i] === bytes[bStart + i] && bytes[aStart + i] !== BACKSLASH) i++;
    if (i === length) return bEnd - bStart === length;
    const a = bytes[aStart + i];
    const b = bytes[bStart + i];
    if (a !== BACKSLASH && b !== BACKSLASH) return false;
    return decodeString(bytes, aStart, aEnd) === decodeString(bytes, bStart, bEnd);
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

  /** The commonest members by their bytes; any other, and every variant, by what is remembered of its spelling. */
  #member(place: Place, start: number, end: number, key: number): number {
    const bytes = this.#bytes;
    const length = end - start;
    if (place === TOP) {
      if (length === 2) {
        if (bytes[start] === 0x69 && bytes[start + 1] === 0x64) return ID;
      } else if (length === 6 || length === 7) {
        const head = four(bytes, start);
        const tail = four(bytes, end - 4);
        if (head === JSON_ && tail === NRPC && length === 7) return JSONRPC;
        if (head === METH && tail === THOD && length === 6) return METHOD;
        if (head === PARA && tail === RAMS && length === 6) return PARAMS_MEMBER;
      }
      return this.#top.lookup(bytes, start, end, key);
    }
    if (place === PARAMS) {
      const head = four(bytes, start);
      if (head === NAME_ && length === 4) return NAME;
      if (head === ARGU && length === 9 && bytes[start + 4] === 0x6d && four(bytes, end - 4) === ENTS) return ARGUMENTS;
      if (head === UNDERSCORE_MET && length === 5 && bytes[start + 4] === 0x61) return PARAMS_META;
      return this.#params.lookup(bytes, start, end, key);
    }
    switch (place) {
      case META:
        // Its one known member has thirteen bytes, and more only where it is spelled with escapes.
        return length < 13 ? OTHER : this.#meta.lookup(bytes, start, end, key);
      case RESULT:
        return this.#result.lookup(bytes, start, end, key);
      default:
        return this.#error.lookup(bytes, start, end, key);
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

  #validToken(start: number, end: number): boolean {
    return this.#bytes[start] === QUOTE || this.#isInteger(start, end);
  }

  #validId(start: number, end: number): boolean {
    if (this.#bytes[start] !== QUOTE) return end - start <= DEFAULTS.maxIdBytes && this.#isInteger(start, end);
    if (end - start - 2 <= DEFAULTS.maxIdBytes) return true;
    return Buffer.byteLength(decodeString(this.#bytes, start + 1, end - 1)) <= DEFAULTS.maxIdBytes;
  }

  #validVersion(p: number, end: number): boolean {
    const bytes = this.#bytes;
    if (p < 0 || bytes[p] !== QUOTE) return false;
    if (bytes[p + 1] === 0x32 && bytes[p + 2] === 0x2e && bytes[p + 3] === ZERO && bytes[p + 4] === QUOTE) return true;
    return decodeString(bytes, p + 1, end - 1) === '2.0';
  }

  #validError(): boolean {
    const bytes = this.#bytes;
    const marks = this.#marks;
    if (bytes[marks[ERROR_MEMBER] as number] !== OPEN_OBJECT || (marks[CODE] as number) < 0 || (marks[MESSAGE] as number) < 0) return false;
    return this.#isInteger(marks[CODE] as number, marks[CODE + 1] as number) && bytes[marks[MESSAGE] as number] === QUOTE;
  }

  #misshapen(code: CodeName): false {
    this.#fail(code, -1);
    return false;
  }

  /** The shape of JSON-RPC 2.0 and MCP, judged once the whole line is proven JSON. */
  #shape(): boolean {
    const bytes = this.#bytes;
    const marks = this.#marks;
    const idStart = marks[ID] as number;
    const idEnd = marks[ID + 1] as number;
    const methodStart = marks[METHOD] as number;
    const paramsStart = marks[PARAMS_MEMBER] as number;
    const resultStart = marks[RESULT_MEMBER] as number;
    const hasId = idStart >= 0;
    const hasMethod = methodStart >= 0;
    const hasResult = resultStart >= 0;
    const hasError = (marks[ERROR_MEMBER] as number) >= 0;
    this.idStart = idStart;
    this.idEnd = idEnd;
    this.paramsStart = paramsStart;
    this.paramsEnd = marks[PARAMS_MEMBER + 1] as number;
    this.nameStart = marks[NAME] as number;
    this.nameEnd = marks[NAME + 1] as number;
    this.argumentsStart = marks[ARGUMENTS] as number;
    this.argumentsEnd = marks[ARGUMENTS + 1] as number;

    if (hasMethod) {
      this.kind = hasId ? 'request' : 'notification';
      if (bytes[methodStart] !== QUOTE) return this.#misshapen('bad_method');
      const start = methodStart + 1;
      const end = (marks[METHOD + 1] as number) - 1;
      const facts = isToolsCall(bytes, start, end) ? CALL : this.#methods.lookup(bytes, start, end, spellingKey(bytes, start, end));
      this.method = facts.name;
      if (facts.problem !== null) return this.#misshapen(facts.problem);
      if (facts.form === 'request' && !hasId) return this.#misshapen('id_missing');
      if (facts.form === 'notification' && hasId) return this.#misshapen('id_unexpected');
    } else if (hasResult || hasError) this.kind = 'response';

    if (!this.#validVersion((marks[JSONRPC] as number), (marks[JSONRPC + 1] as number))) return this.#misshapen('bad_version');
    if (hasId && !this.#validId(idStart, idEnd)) return this.#misshapen('bad_id');
    if (paramsStart >= 0) {
      if (bytes[paramsStart] !== OPEN_OBJECT) return this.#misshapen('bad_params');
      if ((marks[ARGUMENTS] as number) >= 0 && bytes[marks[ARGUMENTS] as number] !== OPEN_OBJECT) return this.#misshapen('bad_arguments');
      if ((marks[PARAMS_META] as number) >= 0 && bytes[marks[PARAMS_META] as number] !== OPEN_OBJECT) return this.#misshapen('bad_meta');
      if ((marks[META_TOKEN] as number) >= 0 && !this.#validToken((marks[META_TOKEN] as number), (marks[META_TOKEN + 1] as number))) return this.#misshapen('bad_progress_token');
      if ((marks[PARAMS_TOKEN] as number) >= 0 && !this.#validToken((marks[PARAMS_TOKEN] as number), (marks[PARAMS_TOKEN + 1] as number))) return this.#misshapen('bad_progress_token');
    }
    if (hasMethod) return hasResult || hasError ? this.#misshapen('mixed_members') : true;
    if (!hasResult && !hasError) return this.#misshapen('not_a_message');
    if (hasResult && hasError) return this.#misshapen('mixed_members');
    if (!hasId) return this.#misshapen('id_missing');
    if (hasError) return this.#validError() ? true : this.#misshapen('bad_error');
    if (bytes[resultStart] !== OPEN_OBJECT) return this.#misshapen('bad_result');
    if ((marks[RESULT_META] as number) >= 0 && bytes[marks[RESULT_META] as number] !== OPEN_OBJECT) return this.#misshapen('bad_meta');
    return true;
  }
}
