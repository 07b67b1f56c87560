// What is known of a name, remembered by the bytes it is spelled with, so that a hot name costs no string.
// Bounded: a peer that invents names cannot make it grow. Must not decide what a name means.
import { DEFAULTS } from '../defaults.js';
import { decodeString } from './strings.js';

interface Entry<Value> {
  readonly spelling: Uint8Array;
  readonly key: number;
  readonly value: Value;
}

const SLOT_BITS = 13;
const SLOTS = 1 << SLOT_BITS; // twice the bound, so that slots stay sparse
const LONGEST = 256; // longer spellings are looked up afresh each time

const PROBES = 8; // a peer that collides names on purpose must not make a lookup slow

/**
 * A cheap key for a spelling; the scan computes the same one while it reads a member name. Names that differ may share
 * it, by design of whoever sends them: whoever uses it compares the bytes as well.
 */
export const spellingKey = (bytes: Uint8Array, start: number, end: number): number => {
  let key = 0;
  for (let i = start; i < end; i++) key = (Math.imul(key, 31) + (bytes[i] as number)) | 0;
  return key;
};

/** `make` turns a decoded name into what is known of it; it is called once a spelling while there is room. */
export class NameCache<Value> {
  readonly #make: (name: string) => Value;
  readonly #slots = new Int32Array(SLOTS);
  readonly #entries: Array<Entry<Value>> = [];

  constructor(make: (name: string) => Value) {
    this.#make = make;
  }

  /** The value for the JSON string content `bytes[start, end)`, whose `spellingKey` is `key`. */
  lookup(bytes: Uint8Array, start: number, end: number, key: number): Value {
    const length = end - start;
    let slot = Math.imul(key, 0x9e3779b1) >>> (32 - SLOT_BITS);
    let free = -1;
    for (let probe = 0; probe < PROBES; probe++) {
      const found = this.#slots[slot] as number;
      if (found === 0) {
        free = slot;
        break;
      }
      const entry = this.#entries[found - 1] as Entry<Value>;
      if (entry.key === key && entry.spelling.length === length) {
        const spelling = entry.spelling;
        let i = 0;
        while (i < length && spelling[i] === bytes[start + i]) i++;
        if (i === length) return entry.value;
      }
      slot = (slot + 1) & (SLOTS - 1);
    }
    const value = this.#make(decodeString(bytes, start, end));
    if (free >= 0 && this.#entries.length < DEFAULTS.cachedNames && length <= LONGEST) {
      this.#entries.push({ spelling: bytes.slice(start, end), key, value });
      this.#slots[free] = this.#entries.length;
    }
    return value;
  }
}
