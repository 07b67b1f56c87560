// The mistakes of a policy's author: collected, all of them, with their places, and written for people.
// Owns the form `file:line:column: error: …` with its caret. Must not decide what is a mistake.
import { PolicyError, type PolicyProblem } from '../errors.js';

/** Where something stands in a policy's source. Both count from 1. */
export interface Place {
  readonly line: number;
  readonly column: number;
}

const START: Place = Object.freeze({ line: 1, column: 1 });

const LONGEST_SHOWN = 120; // characters of a source line that are printed

// Controls, bidi and other invisible format characters, separators, lone surrogates: anything that could move the
// cursor or hide text. Policies come from elsewhere; printing one must be safe.
const UNPRINTABLE = /[\p{C}\p{Zl}\p{Zp}]/gu;

/** Text with everything that a terminal could act upon spelled as `\u{…}`. */
export const printable = (text: string): string =>
  text.replace(UNPRINTABLE, (character) => `\\u{${(character.codePointAt(0) ?? 0).toString(16)}}`);

/** A word out of a policy, for use inside a sentence. */
export const quoted = (text: string): string => {
  const shown = printable(text);
  return `\`${shown.length > 64 ? `${shown.slice(0, 63)}…` : shown}\``;
};

/** Values as a sentence part: ``a, b or c``, each in backticks. */
export const oneOf = (words: readonly string[]): string => {
  const shown = words.map((word) => `\`${word}\``);
  return shown.length < 2 ? shown.join('') : `${shown.slice(0, -1).join(', ')} or ${shown[shown.length - 1]}`;
};

const distance = (a: string, b: string): number => {
  let row = Array.from({ length: b.length + 1 }, (_, index) => index);
  for (let i = 1; i <= a.length; i++) {
    const next = [i];
    for (let j = 1; j <= b.length; j++) {
      const change = (row[j - 1] ?? 0) + (a[i - 1] === b[j - 1] ? 0 : 1);
      next.push(Math.min(change, (row[j] ?? 0) + 1, (next[j - 1] ?? 0) + 1));
    }
    row = next;
  }
  return row[b.length] ?? 0;
};

/** `did you mean …?` for the nearest known word, or an empty string where none is near. */
export const didYouMean = (word: string, known: Iterable<string>): string => {
  let best = '';
  let least = Math.max(1, Math.min(3, Math.floor(word.length / 3))) + 1;
  for (const candidate of word.length > 64 ? [] : known) {
    const steps = distance(word.toLowerCase(), candidate.toLowerCase());
    if (steps < least) {
      least = steps;
      best = candidate;
    }
  }
  return best === '' ? '' : `did you mean \`${best}\`?`;
};

/** Collects what is wrong with one source. */
export class Problems {
  readonly #file: string;
  readonly #lines: readonly string[];
  readonly #list: PolicyProblem[] = [];

  constructor(file: string, source: string) {
    this.#file = file;
    this.#lines = source.split('\n').map((line) => line.replace(/\r$/, ''));
  }

  get count(): number {
    return this.#list.length;
  }

  /** The problem itself, uncollected: lint findings have the same form. */
  describe(code: string, place: Place | null, message: string, hint = ''): PolicyProblem {
    const { line, column } = place ?? START;
    return Object.freeze({ code, file: this.#file, line, column, source: this.#lines[line - 1] ?? '', message, hint });
  }

  add(code: string, place: Place | null, message: string, hint = ''): void {
    this.#list.push(this.describe(code, place, message, hint));
  }

  /** Throws a PolicyError with everything collected, in the order of the source. */
  throwIfAny(): void {
    if (this.#list.length === 0) return;
    throw new PolicyError(Object.freeze([...this.#list].sort((a, b) => a.line - b.line || a.column - b.column)));
  }
}

const snippet = (problem: PolicyProblem): string[] => {
  if (problem.source.trim() === '') return [];
  const caret = problem.column - 1;
  const from = caret > LONGEST_SHOWN - 20 ? caret - 40 : 0;
  const clean = (text: string): string => printable(text.replaceAll('\t', ' '));
  const before = clean(problem.source.slice(from, caret));
  const shown = before + clean(problem.source.slice(caret, from + LONGEST_SHOWN));
  const left = from > 0 ? '…' : '';
  const right = from + LONGEST_SHOWN < problem.source.length ? '…' : '';
  const indent = ' '.repeat([...left, ...before].length);
  return [`${String(problem.line).padStart(5)} | ${left}${shown}${right}`, `      | ${indent}^`];
};

/**
 * Problems as text for a terminal or a log, one block each with the source line, a caret and a help line. Everything
 * that came out of the policy is made printable. `word` is what they are called; `color` adds SGR colours.
 */
export const formatProblems = (problems: readonly PolicyProblem[], color: boolean, word: 'error' | 'warning' | 'note' = 'error'): string => {
  const paint = (code: number, text: string): string => (color ? `\u001b[${code}m${text}\u001b[0m` : text);
  const shade = word === 'error' ? 31 : word === 'warning' ? 33 : 36;
  const blocks = problems.map((problem) => {
    const place = `${printable(problem.file)}:${problem.line}:${problem.column}`;
    const lines = [`${paint(1, `${place}:`)} ${paint(shade, `${word}:`)} ${printable(problem.message)}`, ...snippet(problem)];
    if (problem.hint !== '') lines.push(`   ${paint(32, 'help:')} ${printable(problem.hint)}`);
    return `${lines.join('\n')}\n`;
  });
  return blocks.join('');
};
