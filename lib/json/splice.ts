// Replaces spans of a line and leaves every other byte as it came; names the place of a span.
// Must not choose what is replaced: edits come in, sorted and apart.
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

const LINE_BREAKS: ReadonlyArray<readonly [Uint8Array, Uint8Array]> = [
  [Buffer.from('\u0085'), Buffer.from('\\u0085')],
  [Buffer.from('\u2028'), Buffer.from('\\u2028')],
  [Buffer.from('\u2029'), Buffer.from('\\u2029')],
];

/** Raw U+0085, U+2028 and U+2029 end a line for naive readers: an edit for each, to its escape. In order. */
export const lineBreakEdits = (bytes: Uint8Array, start: number, end: number): Edit[] => {
  const edits: Edit[] = [];
  const line = Buffer.from(bytes.buffer, bytes.byteOffset + start, end - start);
  for (const [raw, escaped] of LINE_BREAKS) {
    for (let at = line.indexOf(raw); at >= 0; at = line.indexOf(raw, at + raw.length)) {
      const from = start + at;
      edits.push({ start: from, end: from + raw.length, bytes: escaped, kind: 'line_break', path: '' });
    }
  }
  edits.sort((a, b) => a.start - b.start);
  const paths = pathsOf(bytes, start, edits.map((edit) => edit.start));
  return edits.map((edit, i) => ({ ...edit, path: paths[i] as string }));
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
        break;
      case 0x2c: {
        const step = steps[steps.length - 1];
        if (typeof step === 'number') steps[steps.length - 1] = step + 1;
        else nameNext = true;
        break;
      }
    }
  }
  return paths;
};
