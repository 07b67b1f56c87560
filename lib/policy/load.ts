// From the text of a policy to a compiled Policy, or a PolicyError with everything that is wrong with it.
// Owns yaml (its one importer), variables and places. Must not read files, print, or decide about a name.
import { foldName } from '../json/strings.js';
import { createHash } from 'node:crypto';
import {
  Composer, isAlias, isMap, isScalar, isSeq, LineCounter, Parser, visit, type CST, type Document, type Node as YamlNode, type YAMLError,
} from 'yaml';
import { DEFAULTS } from '../defaults.js';
import type { Policy } from '../message.js';
import { compilePolicy, deadAllows, literals, runPolicyTests } from './compile.js';
import { covers, escapeGlob, readGlob, type Glob } from './glob.js';
import { GROUPS, TOOL_CALL } from './groups.js';
import { looksLikeLineFormat, readLineFormat } from './line-format.js';
import { strictMaskFault } from './mask.js';
import { didYouMean, oneOf, Problems, quoted, type Place } from './problems.js';
import { keysAt, NOT_YET, NOT_YET_VALUES, schemaIssues, type EntryFile, type PolicyFile, type TestFile } from './schema.js';
import type { Effect, LimitsShape, PolicyShape, PolicyTest, RateShape, RedactionShape, Rule } from './shape.js';

const LONGEST_SOURCE = 1024 * 1024; // characters; the parser's check for double keys is quadratic
const DEEPEST = 64; // levels of nesting; the composer recurses, and no policy nests deeper than 10

const YAML_OPTIONS = Object.freeze({
  version: '1.2',
  schema: 'core',
  strict: true,
  uniqueKeys: true,
  merge: false,
  customTags: [] as never[],
  resolveKnownTags: false,
  stringKeys: true,
  prettyErrors: false,
  logLevel: 'error',
} as const);

export interface LoadOptions {
  /** The file as the user named it: used in messages, and its ending tells the format (`.policy`, `.yaml`, `.yml`). */
  readonly file: string;
  /** Values for variables, in place of those in `vars`. */
  readonly set?: Readonly<Record<string, string>>;
}

/** A policy that loaded, with the shape it was compiled from. */
export interface LoadedPolicy {
  readonly policy: Policy;
  readonly shape: PolicyShape;
}

/** What is left of a file once all that does not fit its schema is taken out. */
type SoundParts = Partial<Omit<PolicyFile, 'allow' | 'deny' | 'tests'>> & {
  readonly allow?: EntryFile | Array<EntryFile | undefined>;
  readonly deny?: EntryFile | Array<EntryFile | undefined>;
  readonly tests?: Array<TestFile | undefined>;
};

type Path = ReadonlyArray<string | number>;
type YamlDocument = Document.Parsed;

const spelled = (path: Path): string =>
  path.map((step, index) => (typeof step === 'number' ? `[${step}]` : `${index === 0 ? '' : '.'}${step}`)).join('');

const BOOLEAN_WORDS = new Set(['yes', 'no', 'on', 'off', 'y', 'n', 'true', 'false']);

const shown = (value: unknown): string =>
  value === null ? 'nothing'
    : Array.isArray(value) ? (value.length === 0 ? 'an empty list' : 'a list')
      : typeof value === 'object' ? 'a map'
        : typeof value === 'string' ? quoted(value)
          : `the ${typeof value} \`${JSON.stringify(value)}\``;

/** Deepest nesting of a parse, found without recursion. */
const nesting = (token: CST.Token): number => {
  const open: Array<{ token: CST.Token; depth: number }> = [{ token, depth: 1 }];
  let deepest = 0;
  for (let next = open.pop(); next !== undefined; next = open.pop()) {
    deepest = Math.max(deepest, next.depth);
    const depth = next.depth + 1;
    if (next.token.type === 'document' && next.token.value !== undefined) open.push({ token: next.token.value, depth });
    if (!('items' in next.token)) continue;
    for (const { key, value } of next.token.items as CST.CollectionItem[]) {
      if (key !== null && key !== undefined) open.push({ token: key, depth });
      if (value !== undefined) open.push({ token: value, depth });
    }
  }
  return deepest;
};

const SYNTAX_HINTS: Readonly<Record<string, string>> = Object.freeze({
  BAD_SCALAR_START: 'quote it, as in \'@lifecycle\'',
  BAD_ALIAS: 'quote a pattern that begins with `*`',
  TAB_AS_INDENT: 'indent with spaces',
});

/** Reads one YAML source. Everything it finds goes to `problems`. */
class YamlReader {
  readonly #problems: Problems;
  readonly #source: string;
  readonly #set: Readonly<Record<string, string>>;
  readonly #lines = new LineCounter();
  #document: YamlDocument | null = null;
  #variables = new Map<string, string>();

  constructor(source: string, set: Readonly<Record<string, string>>, problems: Problems) {
    this.#source = source;
    this.#set = set;
    this.#problems = problems;
  }

  read(name: string, hash: string): PolicyShape | null {
    const document = this.#parse();
    if (document === null) return null;
    this.#document = document;
    const value: unknown = document.toJS({ maxAliasCount: 0 });
    if (!this.#check(document, value)) return null;
    const file = value as SoundParts;
    this.#readVariables(file.vars);
    const rules = [...this.#readEntries('deny', file.deny), ...this.#readEntries('allow', file.allow)];
    return {
      name: file.name ?? name,
      hash,
      format: 'yaml',
      mode: file.mode ?? 'enforce',
      flags: [],
      fallback: file.default ?? 'deny',
      rules,
      eventsPass: true,
      redaction: this.#readRedaction(file.redact),
      limits: this.#readLimits(file.limits),
      tests: (file.tests ?? []).flatMap((test, index) => (test === undefined ? [] : this.#readTest(test, index))),
    };
  }

  #at(offset: number): Place {
    const { line, col } = this.#lines.linePos(offset);
    return { line: Math.max(1, line), column: Math.max(1, col) };
  }

  /** Place of a value, or of what encloses it where it is not written. */
  #place(path: Path): Place {
    for (let length = path.length; length >= 0; length--) {
      const node = length === 0 ? this.#document?.contents : this.#document?.getIn(path.slice(0, length), true);
      const range = (node as YamlNode | null | undefined)?.range;
      if (range !== undefined && range !== null) return this.#at(range[0]);
    }
    return { line: 1, column: 1 };
  }

  #parse(): YamlDocument | null {
    const problems = this.#problems;
    const tokens = [...new Parser(this.#lines.addNewLine).parse(this.#source)];
    if (tokens.some((token) => nesting(token) > DEEPEST)) {
      problems.add('too_nested', null, `the policy is nested deeper than ${DEEPEST} levels`);
      return null;
    }
    const documents = [...new Composer(YAML_OPTIONS).compose(tokens, true, this.#source.length)] as YamlDocument[];
    const document = documents[0];
    if (document === undefined) return null;

    const second = documents[1];
    if (second !== undefined) {
      problems.add('second_document', this.#at(second.range[0]), 'a second document: a policy is one document', 'remove the `---` or `...` line and what follows');
    }
    let readable = true;
    for (const error of [...document.errors, ...document.warnings]) {
      if (error.code === 'TAG_RESOLVE_FAILED') continue; // every tag is refused below
      this.#addSyntax(error);
      if (error.code !== 'DUPLICATE_KEY') readable = false;
    }
    if (document.directives.yaml.explicit === true || Object.keys(document.directives.tags).length > 1) {
      const line = this.#source.split('\n').findIndex((text) => /^\ufeff?%/.test(text));
      problems.add('yaml_directive', { line: line + 1, column: 1 }, 'YAML directives change how the file is read and are not taken', 'remove the `%` line');
    }
    visit(document, {
      Node: (_, node) => {
        if (isAlias(node)) {
          readable = false;
          if (node.source !== '') problems.add('yaml_alias', this.#placeOf(node), 'YAML aliases are not taken', 'write it out; quote a pattern that begins with `*`');
          return;
        }
        if (node.anchor !== undefined) problems.add('yaml_anchor', this.#placeOf(node), 'YAML anchors are not taken', 'write it out; quote text that begins with `&`');
        if (node.tag !== undefined) problems.add('yaml_tag', this.#placeOf(node), 'YAML tags are not taken', 'remove the tag; quote text that begins with `!`');
      },
    });
    if (!readable) return null;
    if (document.contents === null || (isScalar(document.contents) && document.contents.value === null)) {
      problems.add('empty_policy', null, 'the policy is empty', 'write at least `version: 1` and `default: deny`');
      return null;
    }
    return document;
  }

  #placeOf(node: YamlNode): Place {
    return this.#at(node.range?.[0] ?? 0);
  }

  #addSyntax(error: YAMLError): void {
    const place = this.#at(error.pos[0]);
    if (error.code === 'DUPLICATE_KEY') this.#problems.add('duplicate_key', place, 'the same key is given twice', 'keep one');
    else if (error.code === 'BAD_DIRECTIVE') this.#problems.add('yaml_directive', place, 'YAML directives are not taken', 'remove the `%` line');
    else this.#problems.add('yaml_syntax', place, `not YAML: ${error.message}`, SYNTAX_HINTS[error.code] ?? '');
  }

  /**
   * Keys and types. List entries and sections that do not fit are taken out of `value`, so that mistakes in the rest
   * are still found. False where there is no map at all.
   */
  #check(document: YamlDocument, value: unknown): boolean {
    if (!isMap(document.contents)) {
      this.#problems.add('bad_value', this.#place([]), `expected a policy: keys with their values, not ${shown(value)}`, 'write at least `version: 1` and `default: deny`');
      return false;
    }
    for (const { path, missing, input, message } of schemaIssues(value)) {
      const key = String(path[path.length - 1] ?? '');
      const [section = '', index] = path;
      const parts = value as Record<string, unknown>;
      if (typeof index === 'number') (parts[section] as unknown[])[index] = undefined;
      else delete parts[section];
      const place = this.#place(missing ? path.slice(0, -1) : path);
      if (missing) {
        this.#problems.add('missing_key', place, `\`${spelled(path)}\` is missing`, message);
      } else if (typeof input === 'string' && NOT_YET_VALUES[key] === input) {
        this.#problems.add('not_yet', place, `\`${key}: ${input}\` is part of the language but not yet supported by this version`, message);
      } else if (key === 'version') {
        this.#problems.add('bad_version', place, `this version of Sluice reads policy version 1, not ${shown(input)}`, 'write `version: 1`');
      } else {
        const hint = typeof input === 'string' && BOOLEAN_WORDS.has(input.toLowerCase()) ? 'YAML 1.2 reads this word as text, not as a boolean'
          : typeof input === 'boolean' ? 'YAML reads this word as a boolean; quote it where text is meant' : '';
        this.#problems.add('bad_value', place, `\`${spelled(path)}\`: ${message}, not ${shown(input)}`, hint);
      }
    }
    this.#checkKeys(document.contents, []);
    return true;
  }

  #checkKeys(node: unknown, path: Path): void {
    if (isSeq(node)) node.items.forEach((item, index) => this.#checkKeys(item, [...path, index]));
    if (!isMap(node)) return;
    const known = keysAt(path);
    if (known === null) return;
    for (const { key: keyNode, value } of node.items) {
      const key = isScalar(keyNode) ? String(keyNode.value) : '';
      if (known.includes(key)) {
        this.#checkKeys(value, [...path, key]);
        continue;
      }
      const place = this.#placeOf(keyNode as YamlNode);
      const section = path.filter((step) => typeof step === 'string').join('.');
      if ((NOT_YET[section] ?? []).includes(key)) {
        this.#problems.add('not_yet', place, `${quoted(key)} is part of the language but not yet supported by this version`, `supported here: ${known.join(', ')}`);
      } else {
        this.#problems.add('unknown_key', place, `unknown key ${quoted(key)}`, didYouMean(key, known) || `known here: ${known.join(', ')}`);
      }
    }
  }

  #readVariables(written: PolicyFile['vars']): void {
    const variables = new Map(Object.entries(written ?? {}));
    for (const name of variables.keys()) {
      if (!/^[A-Za-z_][A-Za-z0-9_]*$/.test(name)) {
        this.#problems.add('bad_value', this.#place(['vars', name]), `${quoted(name)} cannot name a variable`, 'use letters, digits and `_`');
      }
    }
    for (const [name, value] of Object.entries(this.#set)) {
      if (!variables.has(name)) {
        this.#problems.add('unknown_variable', this.#place(['vars']), `${quoted(name)} is set from outside, but \`vars\` does not name it`,
          didYouMean(name, variables.keys()));
      }
      variables.set(name, value);
    }
    this.#variables = variables;
  }

  /** Fills in `${name}`; `$${` stands for `${`. `literally` says how a value is written so that it stays text. */
  #fill(text: string, path: Path, literally: (value: string) => string): string {
    return text.replace(/\$\$\{|\$\{([^}]*)\}?/g, (found: string, name: string | undefined) => {
      if (name === undefined) return '${';
      const value = found.endsWith('}') ? this.#variables.get(name) : undefined;
      if (value === undefined) {
        this.#problems.add('unknown_variable', this.#place(path), `unknown variable ${quoted(found)}`,
          didYouMean(name, this.#variables.keys()) || 'name it in `vars`, or write `$${` for the characters themselves');
        return '';
      }
      return literally(value);
    });
  }

  #readPattern(text: string, path: Path, folds: boolean, isTool: boolean): Glob | null {
    const before = this.#problems.count;
    const filled = this.#fill(text, path, escapeGlob);
    if (this.#problems.count > before) return null;
    const glob = readGlob(filled, folds);
    if ('problem' in glob) this.#problems.add('bad_pattern', this.#place(path), `bad pattern ${quoted(filled)}: ${glob.problem}`, glob.hint);
    else if (isTool && filled.includes(',')) {
      this.#problems.add('bad_pattern', this.#place(path), `bad pattern ${quoted(filled)}: a comma inside a name`, 'write a list: one pattern an entry');
    } else return glob;
    return null;
  }

  #readPatterns(value: string | readonly string[], path: Path, folds: boolean, isTool: boolean): Glob[] {
    const list = typeof value === 'string' ? [value] : value;
    if (list.length === 0) this.#problems.add('bad_value', this.#place(path), `\`${spelled(path)}\` is an empty list`, 'name at least one pattern');
    return list
      .map((text, index) => this.#readPattern(text, typeof value === 'string' ? path : [...path, index], folds, isTool))
      .filter((glob) => glob !== null);
  }

  #readEntries(effect: Effect, value: SoundParts['allow']): Rule[] {
    if (value === undefined) return [];
    const listed = Array.isArray(value);
    return (listed ? value : [value]).flatMap((entry, index) => {
      const path = listed ? [effect, index] : [effect];
      if (entry === undefined) return [];
      if (typeof entry === 'string') return this.#readTool(effect, entry, path);
      const { tools, methods } = entry;
      if (tools === undefined && methods === undefined) {
        this.#problems.add('bad_value', this.#place(path), `\`${spelled(path)}\` selects nothing`, 'give it `tools` or `methods`');
      }
      return [
        ...this.#each(tools, [...path, 'tools'], (text, at) => this.#readTool(effect, text, at)),
        ...this.#each(methods, [...path, 'methods'], (text, at) => this.#readMethod(effect, text, at)),
      ];
    });
  }

  #each(value: string | string[] | undefined, path: Path, read: (text: string, path: Path) => Rule[]): Rule[] {
    if (value === undefined) return [];
    if (typeof value === 'string') return read(value, path);
    if (value.length === 0) this.#problems.add('bad_value', this.#place(path), `\`${spelled(path)}\` is an empty list`, 'name at least one pattern');
    return value.flatMap((text, index) => read(text, [...path, index]));
  }

  #readTool(effect: Effect, text: string, path: Path): Rule[] {
    if (text.startsWith('@')) {
      this.#problems.add('bad_pattern', this.#place(path), `${quoted(text)} is no tool pattern; groups are groups of methods`,
        GROUPS.has(text) ? `write \`{ methods: '${text}' }\`` : 'write `\\@` for the character');
      return [];
    }
    const glob = this.#readPattern(text, path, effect === 'deny', true);
    return glob === null ? [] : [
      { id: `${effect}:${glob.text}`, effect, selects: 'tools', pattern: glob.text, globs: [glob], place: this.#place(path) },
    ];
  }

  #readMethod(effect: Effect, text: string, path: Path): Rule[] {
    const place = this.#place(path);
    const rule = (pattern: string, globs: readonly Glob[]): Rule[] =>
      [{ id: `${effect}:methods:${pattern}`, effect, selects: 'methods', pattern, globs, place }];
    if (text.startsWith('@')) {
      const members = GROUPS.get(text);
      if (members !== undefined) return rule(text, literals(members));
      this.#problems.add('unknown_group', place, `unknown group ${quoted(text)}`, didYouMean(text, GROUPS.keys()) || `groups are ${oneOf([...GROUPS.keys()])}`);
      return [];
    }
    const glob = this.#readPattern(text, path, effect === 'deny', false);
    if (glob === null) return [];
    // Were it taken, a reader could think that it opens or shuts all tools; it must say so by tool rules.
    if (literals([TOOL_CALL]).some((call) => covers(glob, call))) {
      this.#problems.add('tool_call_method', place, `${quoted(glob.text)} also names \`${TOOL_CALL}\`, which rules about tools decide`,
        'use `tools:` for calls, and name methods more closely, as `resources/*`, `prompts/*` or \'@discovery\'');
      return [];
    }
    return rule(glob.text, [glob]);
  }

  #readRedaction(value: PolicyFile['redact']): RedactionShape | null {
    if (value === undefined) return null;
    const mask = value.mask ?? DEFAULTS.mask;
    const fault = strictMaskFault(mask);
    if (fault !== '') this.#problems.add('bad_mask', this.#place(['redact', 'mask']), fault, `the default is ${DEFAULTS.mask}`);
    return {
      mask,
      depth: value.depth === undefined || value.depth === 'any' ? Infinity : this.#integer(value.depth, ['redact', 'depth']),
      names: this.#readPatterns(value.arguments, ['redact', 'arguments'], true, false),
    };
  }

  /** A number must be written in plain digits: `1e3`, `0x10` and `1.0` are numbers too, but nobody reads them aloud. */
  #integer(value: number, path: Path): number {
    const node = this.#document?.getIn(path, true);
    const source = isScalar(node) ? node.source ?? '' : '';
    if (!/^[0-9]+$/.test(source)) {
      this.#problems.add('bad_integer', this.#place(path), `\`${spelled(path)}\`: expected a whole number, not ${quoted(source)}`, 'write plain digits');
    }
    return value;
  }

  #readLimits(value: PolicyFile['limits'] = {}): LimitsShape {
    return {
      maxBytes: value.max_bytes === undefined ? DEFAULTS.maxBytes
        : typeof value.max_bytes === 'string' ? bytesOf(value.max_bytes) : this.#integer(value.max_bytes, ['limits', 'max_bytes']),
      maxDepth: value.max_depth === undefined ? DEFAULTS.maxDepth : this.#integer(value.max_depth, ['limits', 'max_depth']),
      flagDepth: null,
      names: value.names ?? 'safe',
      ids: value.ids ?? 'any',
      rates: (value.rate ?? []).map((rate, index): RateShape => {
        const path = ['limits', 'rate', index];
        const tools = rate.tools === undefined ? null : this.#readPatterns(rate.tools, [...path, 'tools'], true, true);
        const scope = tools === null ? '' : `${tools.map((glob) => glob.text).join('|')}:`;
        return {
          id: `rate:${scope}${rate.limit}/${rate.per}`,
          limit: this.#integer(rate.limit, [...path, 'limit']),
          windowMs: millisecondsOf(rate.per),
          counts: 'calls',
          tools,
        };
      }),
    };
  }

  #readTest(test: TestFile, index: number): PolicyTest[] {
    const path = ['tests', index];
    const place = this.#place(path);
    const refuse = (message: string, hint: string): PolicyTest[] => {
      this.#problems.add('bad_test', place, message, hint);
      return [];
    };
    const { call, method } = test;
    if ((call === undefined) === (method === undefined)) {
      return refuse('a test asks about one `call` or one `method`', '`{ call: read_file, expect: allow }`');
    }
    if (call !== undefined && test.params !== undefined) return refuse('`params` belong to a `method`', 'a call has `arguments`');
    if (method !== undefined && test.arguments !== undefined) return refuse('`arguments` belong to a `call`', 'a method has `params`');
    if (method !== undefined && foldName(method) === TOOL_CALL) return refuse(`\`${TOOL_CALL}\` is tested by its tool`, '`{ call: read_file, expect: allow }`');
    const rest = { expect: test.expect, rule: test.rule ?? null, place };
    return [call !== undefined
      ? { kind: 'call', name: this.#fill(call, [...path, 'call'], String), ...rest }
      : { kind: 'method', name: method ?? '', ...rest }];
  }
}

const bytesOf = (size: string): number => {
  const unit = size.slice(-3);
  return Number(size.slice(0, -3)) * (unit === 'KiB' ? 1024 : unit === 'MiB' ? 1024 ** 2 : 1024 ** 3);
};

const millisecondsOf = (time: string): number => {
  const unit = time.replace(/[0-9]+/, '');
  return Number.parseInt(time, 10) * (unit === 'ms' ? 1 : unit === 's' ? 1_000 : unit === 'm' ? 60_000 : 3_600_000);
};

const hashOf = (source: string, set: Readonly<Record<string, string>>): string => {
  const hash = createHash('sha256').update(source);
  const values = Object.entries(set).sort(([a], [b]) => (a < b ? -1 : 1));
  if (values.length > 0) hash.update(`\u0000${JSON.stringify(values)}`);
  return hash.digest('hex');
};

const nameOf = (file: string): string => {
  const base = file.replace(/^.*[/\\]/s, '').replace(/\.(?:ya?ml|policy)$/i, '');
  return base.replace(/[^A-Za-z0-9_.-]/g, '_').slice(0, 64) || 'policy';
};

const isLineFormat = (file: string, source: string): boolean =>
  /\.policy$/i.test(file) || (!/\.ya?ml$/i.test(file) && looksLikeLineFormat(source));

/**
 * Reads, checks, compiles and tests a policy. The format follows from the file's ending (`.policy`: McpBastion's lines;
 * `.yaml`, `.yml`: YAML), else from the first line that is neither blank nor a comment. Throws a PolicyError, and
 * nothing else, with everything that is wrong: each with its place, the source line and what would be right.
 */
export const readPolicy = (source: string, { file, set = {} }: LoadOptions): LoadedPolicy => {
  const problems = new Problems(file, source);
  if (source.length > LONGEST_SOURCE) {
    problems.add('too_large', null, `the policy is longer than ${LONGEST_SOURCE} characters`);
    problems.throwIfAny();
  }
  const text = source.replace(/^\ufeff/, '');
  const name = nameOf(file);
  const hash = hashOf(source, set);
  const line = isLineFormat(file, text);
  if (line && Object.keys(set).length > 0) {
    problems.add('unknown_variable', null, 'the line format has no variables, but values are set from outside', 'leave out --set');
  }
  const shape = line ? readLineFormat(text, name, hash, problems) : new YamlReader(text, set, problems).read(name, hash);
  if (shape !== null && shape.format === 'yaml') {
    for (const { rule, under } of deadAllows(shape.rules)) {
      problems.add('dead_allow', rule.place, `\`${rule.id}\` can never allow anything: \`${under.id}\` denies all of it`,
        `remove it, or narrow the deny in line ${under.place.line}`);
    }
  }
  problems.throwIfAny();
  if (shape === null) throw new Error('a policy without a shape has a problem');
  const policy = compilePolicy(shape);
  runPolicyTests(policy, shape, problems);
  problems.throwIfAny();
  return { policy, shape };
};

/** The policy alone; see `readPolicy`. Throws PolicyError. */
export const loadPolicy = (source: string, options: LoadOptions): Policy => readPolicy(source, options).policy;
