// Chunks of bytes in, one Message a line out. The only place that frames.
// Must not decode, parse or judge: a line is what stands between two line feeds.
import { Message } from '../message.js';
import type { Direction, Stage } from '../message.js';
import { Skimmer } from '../json/skim.js';

const LF = 0x0a;
const CR = 0x0d;
const SPACE = 0x20;
const TAB = 0x09;

const SMALL_PIECE = 4_096;
const BLOCK = 65_536;

const isSpace = (byte: number | undefined): boolean => byte === SPACE || byte === TAB || byte === CR;

/** Pieces of one line, joined once. Small ones are gathered in blocks, so that a peer that writes single bytes costs no more memory. */
class Pieces {
  length = 0;
  #done: Uint8Array[] = [];
  #block: Uint8Array | null = null;
  #used = 0;

  add(piece: Uint8Array): void {
    this.length += piece.length;
    if (piece.length >= SMALL_PIECE || this.length === piece.length) {
      this.#closeBlock();
      this.#done.push(piece);
      return;
    }
    if (this.#block !== null && this.#used + piece.length > this.#block.length) this.#closeBlock();
    this.#block ??= new Uint8Array(BLOCK);
    this.#block.set(piece, this.#used);
    this.#used += piece.length;
  }

  /** All pieces in order; the collection is empty afterwards. */
  take(): Uint8Array[] {
    this.#closeBlock();
    const pieces = this.#done;
    this.#done = [];
    this.length = 0;
    return pieces;
  }

  #closeBlock(): void {
    if (this.#block !== null) this.#done.push(this.#block.subarray(0, this.#used));
    this.#block = null;
    this.#used = 0;
  }
}

export interface LineSplitter extends Stage<Uint8Array, Message> {
  /** Lines of white space only, which are no messages. */
  readonly blank: number;
}

/**
 * `maxBytes` is asked once a line: a longer line is skipped to its end in constant memory and comes out as one
 * `oversize` message that holds its id alone. Frames end at LF; one CR right before it belongs to it. Outer blanks
 * and tabs are cut off, and a last line without LF is a line like any other.
 */
export const lineSplitter = (dir: Direction, maxBytes: () => number): LineSplitter => {
  const pieces = new Pieces();
  let skimmer: Skimmer | null = null;
  let skipped = 0;
  let lastByte = 0;
  let seq = 0;
  let blank = 0;
  let ended = false;

  /** Where the content of a line ends: a CR belongs to the line's end only right before a line feed that came. */
  const contentEnd = (bytes: Uint8Array, from: number, newline: number): number =>
    !ended && newline > from && bytes[newline - 1] === CR ? newline - 1 : newline;

  const line = (bytes: Uint8Array, from: number, stop: number, out: Message[]): void => {
    let start = from;
    let end = stop;
    while (start < end && (bytes[start] === SPACE || bytes[start] === TAB)) start++;
    while (end > start && (bytes[end - 1] === SPACE || bytes[end - 1] === TAB)) end--;
    if (isSpace(bytes[start]) || start === end) {
      // Only a line that begins with a bare CR, or holds nothing, comes here: it is blank unless something follows.
      let p = start;
      while (p < end && isSpace(bytes[p])) p++;
      if (p === end) {
        blank++;
        return;
      }
    }
    const message = new Message(dir, bytes, start, end, stop - from);
    message.seq = ++seq;
    out.push(message);
  };

  /** From now on the line is only looked at for its id. */
  const skip = (): void => {
    skimmer = new Skimmer();
    skipped = 0;
    for (const piece of pieces.take()) skimPiece(piece);
  };

  const skimPiece = (piece: Uint8Array): void => {
    skimmer?.push(piece);
    skipped += piece.length;
    if (piece.length > 0) lastByte = piece[piece.length - 1] as number;
  };

  const add = (piece: Uint8Array): void => {
    if (skimmer !== null) {
      skimPiece(piece);
      return;
    }
    pieces.add(piece);
    // One more byte than the limit may be the CR of the line's end.
    if (pieces.length > maxBytes() + 1) skip();
  };

  const finish = (out: Message[]): void => {
    if (skimmer !== null) {
      const found = skimmer.finish();
      skimmer = null;
      if (found.blank) {
        blank++;
        return;
      }
      const id = found.id ?? new Uint8Array(0);
      const message = new Message(dir, id, 0, id.length, lastByte === CR && !ended ? skipped - 1 : skipped);
      message.seq = ++seq;
      message.oversize = true;
      message.kind = found.kind;
      message.method = found.method;
      message.tool = found.tool;
      if (found.id !== null) {
        message.idStart = 0;
        message.idEnd = id.length;
      }
      out.push(message);
      return;
    }
    const length = pieces.length;
    // The extra byte is the line feed that every later loop relies on.
    const whole = Buffer.allocUnsafe(length + 1);
    let offset = 0;
    for (const piece of pieces.take()) {
      whole.set(piece, offset);
      offset += piece.length;
    }
    whole[length] = LF;
    complete(whole, 0, length, out);
  };

  /** A complete line that lies in one piece of memory. */
  const complete = (bytes: Uint8Array, from: number, newline: number, out: Message[]): void => {
    const stop = contentEnd(bytes, from, newline);
    if (stop - from <= maxBytes()) {
      line(bytes, from, stop, out);
      return;
    }
    skip();
    skimPiece(bytes.subarray(from, newline));
    finish(out);
  };

  return {
    name: 'line-splitter',
    emits: 'messages',
    get blank() {
      return blank;
    },
    step(chunks) {
      const out: Message[] = [];
      for (const chunk of chunks) {
        let from = 0;
        for (;;) {
          const newline = chunk.indexOf(LF, from);
          if (newline < 0) {
            if (from < chunk.length) add(chunk.subarray(from));
            break;
          }
          if (pieces.length === 0 && skimmer === null) complete(chunk, from, newline, out);
          else {
            add(chunk.subarray(from, newline));
            finish(out);
          }
          from = newline + 1;
        }
      }
      return out;
    },
    end() {
      const out: Message[] = [];
      ended = true;
      if (pieces.length > 0 || skimmer !== null) finish(out);
      return out;
    },
  };
};
