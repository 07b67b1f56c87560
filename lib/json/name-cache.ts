// What is known of a name, remembered by the bytes it is spelled with, so that a hot name costs no string.
// Bounded: a peer that invents names cannot make it grow. Must not decide what a name means.
import { DEFAULTS } from '../defaults.js';
import { decodeString } from './strings.js';

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
  /** Number of a spelling, counted from 1; 0: free. */
  readonly #slots = new Int16Array(SLOTS);
  // By number: key, end in the arena, value. Flat, since this is asked for nearly every member.
  readonly #keys: number[] = [0];
  readonly #ends: number[] = [0];
  readonly #values: Value[] = [];
  #arena = new Uint8Array(1_024);

  constructor(make: (name: string) => Value) {
    this.#make = make;
  }

  /** The value for the JSON string content `bytes[start, end)`, whose `spellingKey` is `key`. */
  lookup(bytes: Uint8Array, start: number, end: number, key: number): Value {
    const length = end - start;
    let slot = Math.imul(key, 0x9e3779b1) >>> (32 - SLOT_BITS);
    for (let probe = 0; probe < PROBES; probe++) {
      const number = this.#slots[slot] as number;
      if (number === 0) return this.#add(slot, bytes, start, end, key);
      if (this.#keys[number] === key) {
        const at = this.#ends[number - 1] as number;
        if ((this.#ends[number] as number) - at === length) {
          const arena = this.#arena;
          let i = 0;
          while (i < length && arena[at + i] === bytes[start + i]) i++;
          if (i === length) return this.#values[number - 1] as Value;
        }
      }
      slot = (slot + 1) & (SLOTS - 1);
    }
    return this.#make(decodeString(bytes, start, end));
  }

  #add(slot: number, bytes: Uint8Array, start: number, end: number, key: number): Value {
    const value = this.#make(decodeString(bytes, start, end));
    const length = end - start;
    if (this.#values.length >= DEFAULTS.cachedNames || length > LONGEST) return value;
    const used = this.#ends[this.#values.length] as number;
    if (used + length > this.#arena.length) {
      const larger = new Uint8Array(4 * (used + length));
      larger.set(this.#arena);
      this.#arena = larger;
    }
    for (let i = 0; i < length; i++) this.#arena[used + i] = bytes[start + i] as number;
    this.#keys.push(key);
    this.#ends.push(used + length);
    this.#slots[slot] = this.#values.push(value);
    return value;
  }
}
