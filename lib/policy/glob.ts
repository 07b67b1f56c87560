// Name patterns: what `*`, `?` and `[a-z]` mean, and how many of them are asked about one name quickly.
// Owns minimatch (its one importer). Must not know rules, verdicts or files.
import { foldName } from '../json/strings.js';
import { Minimatch } from 'minimatch';
import { DEFAULTS } from '../defaults.js';

// minimatch matches paths. Without these options `*` misses dot names, `!` negates, `#` comments, `{}` expands.
const OPTIONS = Object.freeze({
  platform: 'linux',
  dot: true,
  nobrace: true,
  noext: true,
  noglobstar: true,
  nonegate: true,
  nocomment: true,
  nocase: false,
  matchBase: false,
  nonull: false,
  partial: false,
  preserveMultipleSlashes: true,
  optimizationLevel: 0,
} as const);

// No slash is left, so a name is one path portion and `*` crosses what were slashes. The prefix keeps `.`, `..` and
// the empty name from being special. Both stand-ins are refused in patterns, U+0001 can only precede a name.
const encode = (text: string): string => `\u0001${text.replaceAll('/', '\u0002')}`;

const matcher = (pattern: string, ignoreCase: boolean): ((name: string) => boolean) => {
  const compiled = new Minimatch(encode(pattern), ignoreCase ? { ...OPTIONS, nocase: true } : OPTIONS);
  return (name) => compiled.match(encode(name));
};

interface Token {
  readonly kind: 'char' | 'any' | 'run' | 'class';
  /** The character for `char`; the spelling for the others. */
  readonly text: string;
  /** `text` without letter case, for a `char`. */
  readonly folded: string;
}

/** A pattern that has been read and found sound. */
export interface Glob {
  readonly text: string;
  readonly tokens: readonly Token[];
  /** The one name it matches, where it holds no wildcard. */
  readonly literal: string | null;
}

/** Why a pattern is refused, for people. */
export interface GlobProblem {
  readonly problem: string;
  readonly hint: string;
}

const POSIX_CLASS =
  /\[:(?:alnum|alpha|ascii|blank|cntrl|digit|graph|lower|print|punct|space|upper|word|xdigit):\]/y;
const CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const LONE_SURROGATE = /\p{Cs}/u;
const SLASH = 0x2f;

const characterAt = (text: string, index: number): string => {
  const code = text.codePointAt(index);
  return code === undefined ? '' : String.fromCodePoint(code);
};

const fault = (problem: string, hint: string): GlobProblem => ({ problem, hint });

/**
 * Reads the class that opens at `start` as minimatch does, and returns its end. Refused is what minimatch would drop
 * in silence (a class that matches nothing) and a range over `/`, which stands elsewhere in an encoded name.
 */
const readClass = (pattern: string, start: number): number | GlobProblem => {
  let at = start + 1;
  if (pattern[at] === '!' || pattern[at] === '^') at++;
  let first = true;
  let from: string | null = null;
  while (at < pattern.length) {
    if (pattern[at] === ']' && !first) {
      return from === null ? at + 1 : fault('a range in `[…]` has no end', 'put `-` first or last to mean itself');
    }
    first = false;
    POSIX_CLASS.lastIndex = at;
    const posix = POSIX_CLASS.exec(pattern);
    if (posix !== null) {
      if (from !== null) return fault('a range in `[…]` ends in a class', 'put `-` first or last to mean itself');
      at += posix[0].length;
      continue;
    }
    if (pattern[at] === '\\') at++;
    const character = characterAt(pattern, at);
    at += character.length;
    if (from !== null) {
      const low = from.codePointAt(0) ?? 0;
      const high = character.codePointAt(0) ?? 0;
      if (high < low) return fault(`the range \`${from}-${character}\` runs backwards`, `did you mean \`${character}-${from}\`?`);
      if (low <= SLASH && high >= SLASH) return fault(`the range \`${from}-${character}\` reaches over \`/\``, 'name the characters one by one');
      from = null;
    } else if (pattern[at] === '-' && pattern[at + 1] !== ']') {
      from = character;
      at++;
    }
  }
  return fault('`[` is never closed', 'close it with `]`, or write `\\[` for the character');
};

const caseClosed = (negatedClass: string): boolean => {
  const matches = matcher(negatedClass, false);
  for (const letter of 'abcdefghijklmnopqrstuvwxyz') {
    if (matches(letter) !== matches(letter.toUpperCase())) return false;
  }
  return true;
};

/**
 * Reads a pattern: `*` any run of characters, `/` and dots included; `?` one character; `[a-z]`, `[!a-z]` a class;
 * `\` takes the next character as it is; it must match the whole name. `folds` says that it will be asked without
 * regard to letter case; a negated class must then exclude both cases of a letter or neither.
 */
export const readGlob = (text: string, folds: boolean): Glob | GlobProblem => {
  if (text === '') return fault('the pattern is empty', 'write `*` to match every name');
  if (text.length > DEFAULTS.maxGlob) {
    return fault(`the pattern is longer than ${DEFAULTS.maxGlob} characters`, 'use `*`, or several shorter patterns');
  }
  if (CONTROL.test(text)) return fault('the pattern holds a control character', 'names with control characters are never forwarded');
  if (LONE_SURROGATE.test(text)) return fault('the pattern holds half of a surrogate pair', 'write the whole character');
  const tokens: Token[] = [];
  for (let at = 0; at < text.length; ) {
    const character = characterAt(text, at);
    if (character === '[') {
      const end = readClass(text, at);
      if (typeof end !== 'number') return end;
      const spelling = text.slice(at, end);
      if (folds && /^\[[!^]/.test(spelling) && !caseClosed(spelling)) {
        return fault(`\`${spelling}\` leaves out a letter in one case only, but letter case is ignored here`, 'name both cases, as in `[!aA]`');
      }
      tokens.push({ kind: 'class', text: spelling, folded: spelling });
      at = end;
    } else if (character === '\\') {
      const escaped = characterAt(text, at + 1) || '\\';
      tokens.push({ kind: 'char', text: escaped, folded: foldName(escaped) });
      at += 1 + escaped.length;
    } else {
      const kind = character === '*' ? 'run' : character === '?' ? 'any' : 'char';
      tokens.push({ kind, text: character, folded: foldName(character) });
      at += character.length;
    }
  }
  const literal = tokens.every((token) => token.kind === 'char') ? tokens.map((token) => token.text).join('') : null;
  return { text, tokens, literal };
};

/** Writes text so that a pattern takes it literally. */
export const escapeGlob = (text: string): string => text.replace(/[\\*?[]/g, '\\$&');

const foldedPattern = (glob: Glob): string =>
  glob.tokens.map((token) => (token.kind === 'char' ? escapeGlob(token.folded) : token.text)).join('');

type Matches = (name: string, folded: string) => boolean;

/** The matcher of one pattern that is not a literal. Built when it is first asked: most patterns never are. */
const compile = (glob: Glob, folds: boolean): Matches => {
  let asWritten: ((name: string) => boolean) | null = null;
  const exact: Matches = (name) => (asWritten ??= matcher(glob.text, false))(name);
  if (!folds) return exact;
  const hasClass = glob.tokens.some((token) => token.kind === 'class');
  let folding: ((name: string) => boolean) | null = null;
  // Folding must only ever add names. Where it changes the length of a name, and for classes, which fold by minimatch's
  // own rule, the pattern as written is asked too.
  return (name, folded) => (folding ??= matcher(foldedPattern(glob), hasClass))(folded)
    || ((hasClass || folded.length !== name.length) && exact(name, folded));
};

interface Indexed {
  readonly index: number;
  readonly matches: Matches;
}

/**
 * Many patterns asked as one. Literals cost one Map lookup whatever their number; the others are filed under what they
 * begin with, so that only patterns whose beginning fits are tried.
 */
export class GlobSet {
  readonly #folds: boolean;
  readonly #literals = new Map<string, number>();
  readonly #byPrefix = new Map<string, Indexed[]>();
  readonly #prefixLengths: readonly number[];

  /** `folds`: names that differ only by letter case match too. */
  constructor(globs: readonly Glob[], folds: boolean) {
    this.#folds = folds;
    globs.forEach((glob, index) => {
      if (glob.literal !== null) {
        const key = folds ? foldName(glob.literal) : glob.literal;
        if (!this.#literals.has(key)) this.#literals.set(key, index);
        return;
      }
      const stop = glob.tokens.findIndex((token) => token.kind !== 'char');
      const prefix = glob.tokens.slice(0, stop).map((token) => (folds ? token.folded : token.text)).join('');
      const bucket = this.#byPrefix.get(prefix) ?? [];
      bucket.push({ index, matches: compile(glob, folds) });
      this.#byPrefix.set(prefix, bucket);
    });
    this.#prefixLengths = [...new Set([...this.#byPrefix.keys()].map((prefix) => prefix.length))];
  }

  /** Index of the first pattern, in the order given, that matches the whole name; -1 where none does. */
  first(name: string): number {
    const key = this.#folds ? foldName(name) : name;
    let found = this.#literals.get(key) ?? -1;
    for (const length of this.#prefixLengths) {
      if (length > key.length) continue;
      for (const { index, matches } of this.#byPrefix.get(key.slice(0, length)) ?? []) {
        if (found !== -1 && index > found) break; // a bucket is in order: nothing earlier can follow
        if (matches(name, key)) {
          found = index;
          break;
        }
      }
    }
    return found;
  }
}

const takesOne = (outer: Token, inner: Token): boolean => {
  if (inner.kind === 'run') return false;
  if (outer.kind === 'any') return true;
  if (outer.kind === 'char') return inner.kind === 'char' && outer.folded === inner.folded;
  if (inner.kind === 'class') return outer.text === inner.text;
  return inner.kind === 'char' && matcher(outer.text, true)(inner.folded);
};

/** The first characters that stand together in a pattern, folded: a name that it matches holds them. */
const firstText = (glob: Glob): string => {
  const start = glob.tokens.findIndex((token) => token.kind === 'char');
  if (start < 0) return '';
  const stop = glob.tokens.findIndex((token, index) => index > start && token.kind !== 'char');
  return glob.tokens.slice(start, stop < 0 ? undefined : stop).map((token) => token.folded).join('');
};

/**
 * True where every name that `inner` matches exactly is surely matched by `outer` without regard to letter case.
 * Never true by mistake; may be false for patterns built to be hard.
 */
export const covers = (outer: Glob, inner: Glob): boolean => {
  const end = outer.tokens.length;
  const [first, start] = [outer.tokens[0], inner.tokens[0]];
  if (first?.kind === 'char' && start?.kind === 'char' && !takesOne(first, start)) return false; // nearly always
  if (inner.literal !== null && !foldName(inner.literal).includes(firstText(outer))) return false; // most of the rest
  const enter = (states: Set<number>, state: number): void => {
    states.add(state);
    if (outer.tokens[state]?.kind === 'run') enter(states, state + 1);
  };
  let states = new Set<number>();
  enter(states, 0);
  for (const token of inner.tokens) {
    const next = new Set<number>();
    for (const state of states) {
      const taker = outer.tokens[state];
      if (taker === undefined) continue;
      if (taker.kind === 'run') enter(next, state);
      else if (takesOne(taker, token)) enter(next, state + 1);
    }
    states = next;
  }
  return states.has(end);
};
