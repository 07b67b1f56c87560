// A lenient, resumable look at a line that will not pass: its id for the reply, its method and tool for the record.
// Owns no verdict: whatever it finds, the line stays refused. Constant memory however long the line is.
import { isUtf8 } from 'node:buffer';
import { DEFAULTS } from '../defaults.js';
import type { Kind } from '../message.js';
import { foldName } from './strings.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;
const COMMA = 0x2c;
const COLON = 0x3a;
const OPEN_OBJECT = 0x7b;
const CLOSE_OBJECT = 0x7d;
const OPEN_ARRAY = 0x5b;
const CLOSE_ARRAY = 0x5d;

// A value of 256 bytes may be spelled with six bytes each (`\u0041`), plus quotes.
const LONGEST = 6 * DEFAULTS.maxIdBytes + 2;

const LONE_SURROGATE = /\p{Surrogate}/u;
const ID = /^(?:-?[1-9][0-9]*|0)$/;

/** One value that was met under a member name of interest. */
class Found {
  count = 0;
  text: Uint8Array | null = null;

  decoded(): string | null {
    if (this.count !== 1 || this.text === null || !isUtf8(this.text)) return null;
    try {
      const value: unknown = JSON.parse(Buffer.from(this.text).toString());
      return typeof value === 'string' ? value : null;
    } catch {
      return null; // an unfinished or misspelt string: nothing to name
    }
  }
}

/** What a refused line still tells. */
export interface Skimmed {
  /** JSON text of the id where it occurs once and is valid, else null. */
  readonly id: Uint8Array | null;
  readonly kind: Kind;
  readonly method: string | null;
  readonly tool: string | null;
  /** True where nothing but JSON white space came. */
  readonly blank: boolean;
}

/** Feed pieces of one line in order with `push`, then read `finish`. */
export class Skimmer {
  #depth = 0;
  #inString = false;
  #escape = false;
  /** True where the next string names a member of the object at this depth. */
  #nameNext = false;
  readonly #isObject: boolean[] = [false, false, false];
  #inParams = false;
  #member = '';
  #capturing = false;
  #capturingName = false;
  #captured = new Uint8Array(64);
  #length = 0;
  #tooLong = false;
  readonly #id = new Found();
  readonly #method = new Found();
  readonly #tool = new Found();
  #answers = 0;
  #blank = true;

  push(bytes: Uint8Array, start = 0, end = bytes.length): void {
    for (let i = start; i < end; i++) {
      const byte = bytes[i] as number;
      if (this.#inString) {
        if (this.#capturing) this.#keep(byte);
        if (this.#escape) this.#escape = false;
        else if (byte === BACKSLASH) this.#escape = true;
        else if (byte === QUOTE) {
          this.#inString = false;
          if (this.#capturing) this.#endCapture();
        }
        continue;
      }
      if (byte !== 0x20 && byte !== 0x09 && byte !== 0x0d) this.#blank = false;
      switch (byte) {
        case QUOTE:
          this.#inString = true;
          if (this.#depth === 1 || this.#depth === 2) this.#beginString();
          break;
        case OPEN_OBJECT:
        case OPEN_ARRAY:
          this.#endScalar();
          if (this.#depth === 1) {
            // A container where the id should be makes it unusable; where params is, its members count.
            this.#beginContainer(byte === OPEN_OBJECT);
          }
          this.#depth++;
          if (this.#depth <= 2) this.#isObject[this.#depth] = byte === OPEN_OBJECT;
          this.#nameNext = byte === OPEN_OBJECT;
          break;
        case CLOSE_OBJECT:
        case CLOSE_ARRAY:
          this.#endScalar();
          if (this.#depth > 0) this.#depth--;
          if (this.#depth < 2) this.#inParams = false;
          this.#nameNext = false;
          this.#member = '';
          break;
        case COMMA:
          this.#endScalar();
          this.#nameNext = this.#depth === 1 || this.#depth === 2 ? (this.#isObject[this.#depth] ?? false) : false;
          this.#member = '';
          break;
        case COLON:
          this.#nameNext = false;
          break;
        case 0x20: case 0x09: case 0x0d:
          this.#endScalar();
          break;
        default:
          if (this.#capturing) this.#keep(byte);
          else if (this.#depth === 1 && !this.#nameNext && this.#member !== '') {
            this.#begin(false);
            this.#keep(byte);
          }
      }
    }
  }

  finish(): Skimmed {
    this.#endScalar();
    const answers = this.#answers > 0;
    const asks = this.#method.count > 0;
    return {
      id: this.#validId(),
      kind: asks ? (this.#id.count > 0 ? 'request' : 'notification') : answers ? 'response' : 'invalid',
      blank: this.#blank,
      method: this.#method.decoded(),
      tool: this.#method.decoded() === 'tools/call' ? this.#tool.decoded() : null,
    };
  }

  #begin(name: boolean): void {
    this.#capturing = true;
    this.#capturingName = name;
    this.#length = 0;
    this.#tooLong = false;
  }

  #keep(byte: number): void {
    if (this.#length === this.#captured.length) {
      if (this.#length >= LONGEST) {
        this.#tooLong = true;
        return;
      }
      const larger = new Uint8Array(Math.min(LONGEST, this.#length * 4));
      larger.set(this.#captured);
      this.#captured = larger;
    }
    this.#captured[this.#length++] = byte;
  }

  #beginString(): void {
    const named = this.#member !== '' && (this.#depth === 1 || this.#inParams);
    if (this.#nameNext && (this.#depth === 1 || this.#inParams)) this.#begin(true);
    else if (named) this.#begin(false);
    else return;
    this.#keep(QUOTE);
  }

  #beginContainer(isObject: boolean): void {
    if (this.#member === 'params') this.#inParams = isObject;
    else if (this.#member !== '') this.#take(null);
    this.#member = '';
  }

  #endScalar(): void {
    if (this.#capturing && !this.#inString) this.#endCapture();
  }

  #endCapture(): void {
    this.#capturing = false;
    const text = this.#tooLong ? null : this.#captured.slice(0, this.#length);
    if (!this.#capturingName) {
      this.#take(text);
      this.#member = '';
      return;
    }
    const found = new Found();
    found.count = 1;
    found.text = text;
    this.#member = found.decoded() ?? '';
    this.#nameNext = false;
  }

  /** A value, or null for a container or one too long to be kept, under the member named last. */
  #take(text: Uint8Array | null): void {
    const slot = this.#slot();
    if (slot === null) return;
    // A variant of a name counts as one more occurrence, since a lenient peer reads it so, but tells nothing by itself.
    const exact = foldName(this.#member) === this.#member;
    slot.count++;
    slot.text = exact ? text : null;
  }

  #slot(): Found | null {
    const member = foldName(this.#member);
    if (this.#depth > 1) return member === 'name' ? this.#tool : null;
    if (member === 'id') return this.#id;
    if (member === 'method') return this.#method;
    if (member === 'result' || member === 'error') this.#answers++;
    return null;
  }

  #validId(): Uint8Array | null {
    const text = this.#id.text;
    if (this.#id.count !== 1 || text === null || text.length === 0) return null;
    if (text[0] !== QUOTE) {
      return text.length <= DEFAULTS.maxIdBytes && ID.test(Buffer.from(text).toString('latin1')) ? text : null;
    }
    const value = this.#id.decoded();
    return value !== null && !LONE_SURROGATE.test(value) && Buffer.byteLength(value) <= DEFAULTS.maxIdBytes ? text : null;
  }
}
