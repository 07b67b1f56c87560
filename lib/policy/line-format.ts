// McpBastion's line format: `key = value` or `key value`, one a line.
// Owns its grammar and its defaults. Must not compile or judge rules.
import { DEFAULTS } from '../defaults.js';
import { readGlob, type Glob } from './glob.js';
import { maskFault } from './mask.js';
import { didYouMean, oneOf, quoted, type Place, type Problems } from './problems.js';
import type { Effect, PolicyShape, Rule } from './shape.js';

const MANY = ['allow_tool', 'deny_tool', 'redact_arg'] as const;
const NUMBERS = ['max_bytes', 'rate_limit', 'rate_window_ms', 'max_depth'] as const;
const DIRECTIVES: readonly string[] = ['default', ...MANY, ...NUMBERS, 'redaction_mask'];

interface Directive {
  readonly key: string;
  readonly value: string;
  readonly place: Place;
  readonly valuePlace: Place;
}

/**
 * Is this source in the line format? Decided by its first line that is neither blank nor a comment: `word = value` or
 * `word value`, with no colon after the word. Everything else is YAML.
 */
export const looksLikeLineFormat = (source: string): boolean => {
  const first = source.split('\n').map((line) => line.trim()).find((line) => line !== '' && !line.startsWith('#'));
  return first !== undefined && /^[A-Za-z_][\w-]*(\s*=|\s+[^\s:=])/.test(first);
};

/** Reads one line; null for a blank or comment. */
const readLine = (text: string, line: number, problems: Problems): Directive | null => {
  const head = /^(\s*)([^\s=#]+)(\s*=\s*|\s+|$)/.exec(text);
  if (head === null) {
    const rest = text.trimStart();
    if (rest !== '' && !rest.startsWith('#')) {
      problems.add('bad_line', { line, column: text.length - rest.length + 1 }, 'a line begins with a directive', 'write `key = value`');
    }
    return null;
  }
  const [whole, indent = '', key = ''] = head;
  const place = { line, column: indent.length + 1 };
  const valuePlace = { line, column: whole.length + 1 };
  const rest = text.slice(whole.length);
  const quote = rest[0];
  if (quote === '"' || quote === "'") {
    const end = rest.indexOf(quote, 1);
    if (end === -1) {
      problems.add('bad_line', valuePlace, 'the quote is never closed', `close it with ${quote}`);
      return null;
    }
    const after = rest.slice(end + 1).trim();
    if (after !== '' && !after.startsWith('#')) {
      problems.add('bad_line', { line, column: whole.length + end + 2 }, 'something follows the closing quote', 'put a comment after `#`');
      return null;
    }
    return { key, value: rest.slice(1, end), place, valuePlace };
  }
  const comment = rest.indexOf('#');
  return { key, value: (comment === -1 ? rest : rest.slice(0, comment)).trim(), place, valuePlace };
};

const toolRule = (effect: Effect, glob: Glob, place: Place): Rule =>
  ({ id: `${effect}:${glob.text}`, effect, selects: 'tools', pattern: glob.text, globs: [glob], place });

/**
 * Reads the line format and collects what is wrong with it. What it does not say: `default` deny, `max_bytes` 262144,
 * no rate, a window of 1000 ms, no depth flag. Its `max_depth` only flags; its rate counts every forwarded message.
 */
export const readLineFormat = (source: string, name: string, hash: string, problems: Problems): PolicyShape => {
  const rules: Rule[] = [];
  const names: Glob[] = [];
  const first = new Map<string, Directive>();
  const numbers = new Map<string, number>();
  let fallback: Effect = 'deny';
  let mask: string = DEFAULTS.mask;

  const read = (directive: Directive): void => {
    const { key, value, place, valuePlace } = directive;
    if (!DIRECTIVES.includes(key)) {
      problems.add('unknown_directive', place, `unknown directive ${quoted(key)}`,
        didYouMean(key, DIRECTIVES) || `known are ${DIRECTIVES.join(', ')}`);
    } else if ((MANY as readonly string[]).includes(key)) {
      const glob = readGlob(value, key !== 'allow_tool');
      if ('problem' in glob) problems.add('bad_pattern', valuePlace, `bad pattern ${quoted(value)}: ${glob.problem}`, glob.hint);
      else if (value.includes(',')) {
        problems.add('bad_pattern', valuePlace, `bad pattern ${quoted(value)}: a comma inside a name`, `write one ${key} line for each`);
      } else if (key === 'redact_arg') names.push(glob);
      else rules.push(toolRule(key === 'allow_tool' ? 'allow' : 'deny', glob, valuePlace));
    } else if (first.has(key)) {
      problems.add('repeated_directive', place, `\`${key}\` is given twice`, `it was given in line ${first.get(key)?.place.line}; keep one`);
    } else {
      first.set(key, directive);
      if (value === '') problems.add('missing_value', place, `\`${key}\` has no value`, 'write `key = value`');
      else if (key === 'default') {
        if (value === 'allow' || value === 'deny') fallback = value;
        else problems.add('bad_value', valuePlace, `\`default\`: expected ${oneOf(['allow', 'deny'])}, not ${quoted(value)}`);
      } else if (key === 'redaction_mask') {
        const fault = maskFault(value);
        if (fault !== '') problems.add('bad_mask', valuePlace, fault);
        mask = value;
      } else {
        const least = key === 'rate_limit' ? 0 : 1;
        const number = Number(value);
        if (/^[0-9]+$/.test(value) && Number.isSafeInteger(number) && number >= least) numbers.set(key, number);
        else problems.add('bad_integer', valuePlace, `\`${key}\`: expected a whole number from ${least}, not ${quoted(value)}`, 'write plain digits');
      }
    }
  };

  source.split('\n').forEach((text, index) => {
    const directive = readLine(text.replace(/\r$/, ''), index + 1, problems);
    if (directive !== null) read(directive);
  });
  if (first.size + rules.length + names.length === 0 && problems.count === 0) {
    problems.add('empty_policy', null, 'the policy is empty', 'write at least `default = deny`');
  }

  const limit = numbers.get('rate_limit') ?? 0;
  const windowMs = numbers.get('rate_window_ms') ?? DEFAULTS.lineFormatRateWindowMs;
  return {
    name,
    hash,
    format: 'line',
    mode: 'enforce',
    flags: [],
    fallback,
    rules,
    eventsPass: false,
    redaction: names.length === 0 ? null : { mask, depth: Infinity, names },
    limits: {
      maxBytes: numbers.get('max_bytes') ?? DEFAULTS.lineFormatMaxBytes,
      maxDepth: DEFAULTS.maxDepth,
      flagDepth: numbers.get('max_depth') ?? null,
      names: 'safe',
      ids: 'any',
      rates: limit === 0 ? [] : [{ id: `rate:${limit}/${windowMs}ms`, limit, windowMs, counts: 'messages', tools: null }],
    },
    tests: [],
  };
};
