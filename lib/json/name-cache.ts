// What is known of a name, remembered by the bytes it is spelled with, so that a hot name costs no string.
// Bounded: a peer that invents names cannot make it grow. Must not decide what a name means.
import { DEFAULTS } from '../defaults.js';
import { decodeString } from './strings.js';

interface Entry<Value> {
  readonly spelling: Uint8Array;
  readonly hash: number;
  readonly value: Value;
}

const SLOTS = 2 * 4_096; // a power of two above the bound, so that probing always meets a free slot
const LONGEST = 256; // longer spellings are looked up afresh each time

/** Hash of a spelling, as `lookup` expects it; the scan computes the same one while it reads a member name. */
export const hashBytes = (bytes: Uint8Array, start: number, end: number): number => {
  let hash = 0;
  for (let i = start; i < end; i++) hash = (Math.imul(hash, 31) + (bytes[i] as number)) | 0;
  return hash;
};

/** `make` turns a decoded name into what is known of it; it is called once a spelling while there is room. */
export class NameCache<Value> {
  readonly #make: (name: string) => Value;
  readonly #slots = new Int32Array(SLOTS);
  readonly #entries: Array<Entry<Value>> = [];

  constructor(make: (name: string) => Value) {
    this.#make = make;
  }

  /** The value for the JSON string content `bytes[start, end)`. */
  lookup(bytes: Uint8Array, start: number, end: number, hash: number): Value {
    // The plain polynomial clusters names of one length; multiply once more to spread them over the slots.
    let slot = (Math.imul(hash, 0x9e3779b1) >>> 16) & (SLOTS - 1);
    const length = end - start;
    for (;;) {
      const found = this.#slots[slot] as number;
      if (found === 0) break;
      const entry = this.#entries[found - 1] as Entry<Value>;
      if (entry.hash === hash && entry.spelling.length === length) {
        const spelling = entry.spelling;
        let i = 0;
        while (i < length && spelling[i] === bytes[start + i]) i++;
        if (i === length) return entry.value;
      }
      slot = (slot + 1) & (SLOTS - 1);
    }
    const value = this.#make(decodeString(bytes, start, end));
    if (this.#entries.length < DEFAULTS.cachedNames && length <= LONGEST) {
      this.#entries.push({ spelling: bytes.slice(start, end), hash, value });
      this.#slots[slot] = this.#entries.length;
    }
    return value;
  }
}
