// Replaces spans of a line and leaves every other byte as it came; names the place of a span.
// Must not choose what is replaced: edits come in, sorted and apart.
import { DEFAULTS } from '../defaults.js';
import { pathStep } from './find-members.js';
import { decodeString } from './strings.js';
import type { Edit } from '../message.js';

const QUOTE = 0x22;
const BACKSLASH = 0x5c;

/** `bytes[start, end)` with the edits applied, and one byte more: the line feed that a scan relies on. `length` of the line is one less. */
export const splice = (bytes: Uint8Array, start: number, end: number, edits: readonly Edit[]): Buffer => {
  let length = end - start;
  for (const edit of edits) length += edit.bytes.length - (edit.end - edit.start);
  const out = Buffer.allocUnsafe(length + 1);
  let from = start;
  let to = 0;
  const copy = (source: Uint8Array, a: number, b: number): void => {
    out.set(source.subarray(a, b), to);
    to += b - a;
  };
  for (const edit of edits) {
    copy(bytes, from, edit.start);
    copy(edit.bytes, 0, edit.bytes.length);
    from = edit.end;
  }
  copy(bytes, from, end);
  out[length] = 0x0a;
  return out;
};

const NEXT_LINE = Buffer.from('\\u0085');
const LINE_SEPARATOR = Buffer.from('\\u2028');
const PARAGRAPH_SEPARATOR = Buffer.from('\\u2029');

/** Raw U+0085, U+2028 and U+2029 end a line for naive readers: an edit for each, to its escape. In order. */
export const lineBreakEdits = (bytes: Uint8Array, start: number, end: number): Edit[] => {
  const offsets: number[] = [];
  for (let p = start; p < end - 1; p++) {
    if (bytes[p] === 0xc2 && bytes[p + 1] === 0x85) offsets.push(p);
    else if (bytes[p] === 0xe2 && bytes[p + 1] === 0x80 && (bytes[p + 2] === 0xa8 || bytes[p + 2] === 0xa9)) offsets.push(p);
  }
  const paths = pathsOf(bytes, start, offsets.slice(0, DEFAULTS.maxPaths));
  return offsets.map((at, i) => {
    const [length, escape] = bytes[at] === 0xc2 ? [2, NEXT_LINE] : [3, bytes[at + 2] === 0xa8 ? LINE_SEPARATOR : PARAGRAPH_SEPARATOR];
    return { start: at, end: at + length, bytes: escape, kind: 'line_break', path: paths[i] ?? '' };
  });
};

/** Two lists, each in order, as one in order; an edit inside a mask is dropped, since the mask replaces it. */
export const mergeEdits = (masks: readonly Edit[], others: readonly Edit[]): Edit[] => {
  const merged: Edit[] = [];
  let next = 0;
  for (const edit of others) {
    while (next < masks.length && (masks[next] as Edit).start <= edit.start) merged.push(masks[next++] as Edit);
    const before = merged.at(-1);
    if (before === undefined || before.end <= edit.start) merged.push(edit);
  }
  for (; next < masks.length; next++) merged.push(masks[next] as Edit);
  return merged;
};

/** For each offset, in order, the dotted path of the innermost member or element that holds it. */
const pathsOf = (bytes: Uint8Array, start: number, offsets: readonly number[]): string[] => {
  const paths: string[] = [];
  const steps: Array<string | number> = [];
  let nameNext = false;
  for (let p = start; paths.length < offsets.length && p < bytes.length; p++) {
    switch (bytes[p]) {
      case QUOTE: {
        const from = p + 1;
        for (p = from; bytes[p] !== QUOTE; p++) if (bytes[p] === BACKSLASH) p++;
        if (nameNext) {
          steps[steps.length - 1] = pathStep(decodeString(bytes, from, p));
          nameNext = false;
        }
        while (paths.length < offsets.length && (offsets[paths.length] as number) < p) paths.push(steps.join('.'));
        break;
      }
      case 0x7b:
        steps.push('');
        nameNext = true;
        break;
      case 0x5b:
        steps.push(0);
        break;
      case 0x7d:
      case 0x5d:
        steps.pop();
        nameNext = false;
        break;
      case 0x2c: {
        const step = steps[steps.length - 1];
        nameNext = typeof step !== 'number';
        if (typeof step === 'number') steps[steps.length - 1] = step + 1;
        break;
      }
    }
  }
  return paths;
};
