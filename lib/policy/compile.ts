// From the shape of a policy to the frozen Policy that the stages ask.
// Owns the order of decision: name form, deny, allow, default. Must not read files, parse text or print.
import { foldName } from '../json/strings.js';
import { DEFAULTS } from '../defaults.js';
import { verdict } from '../errors.js';
import type { Policy, RateLimit, Verdict } from '../message.js';
import { covers, GlobSet, readGlob, type Glob } from './glob.js';
import { GROUPS } from './groups.js';
import { quoted, type Problems } from './problems.js';
import type { PolicyShape, Rule } from './shape.js';

const LONGEST_REMEMBERED = 256; // characters: names that long are no tool's; remembering them would cost memory
const LISTED = 6; // patterns that a hint names

const SAFE_NAME = /^[A-Za-z0-9_.:/-]{1,128}$/;
const PRINTABLE_NAME = /^[^\p{Cc}\p{Cs}]{1,128}$/u;

/** Is this tool name of a form that may be forwarded at all? See `limits.names`. */
export const isToolName = (name: string, names: 'safe' | 'any'): boolean =>
  names === 'safe' ? SAFE_NAME.test(name) && !name.includes('..') && !name.includes('//') : PRINTABLE_NAME.test(name);

const listed = (patterns: readonly string[]): string => {
  const more = patterns.length - LISTED;
  return `${patterns.slice(0, LISTED).join(', ')}${more > 0 ? ` and ${more} more` : ''}`;
};

const of = (rules: readonly Rule[], selects: Rule['selects'], effect: Rule['effect']): Rule[] =>
  rules.filter((rule) => rule.selects === selects && rule.effect === effect);

/** Rules of one selector and effect, asked as one. */
class RuleSet {
  readonly #globs: GlobSet;
  readonly #verdicts: readonly Verdict[];

  constructor(rules: readonly Rule[], judge: (rule: Rule) => Verdict) {
    const rows = rules.flatMap((rule) => {
      const decided = judge(rule);
      return rule.globs.map((glob) => ({ glob, decided }));
    });
    this.#globs = new GlobSet(rows.map((row) => row.glob), rules[0]?.effect === 'deny');
    this.#verdicts = rows.map((row) => row.decided);
  }

  decide(name: string): Verdict | undefined {
    return this.#verdicts[this.#globs.first(name)];
  }
}

/**
 * Remembers answers for as many names as `DEFAULTS.cachedNames`; further names are answered afresh each time. `forget`
 * is an answer that is never worth its room: names that no tool can have must not crowd out those of tools.
 */
const remembering = <Answer extends object | boolean>(answer: (name: string) => Answer, forget?: Answer): ((name: string) => Answer) => {
  const known = new Map<string, Answer>();
  return (name) => {
    const remembered = known.get(name);
    if (remembered !== undefined) return remembered;
    const fresh = answer(name);
    if (fresh !== forget && known.size < DEFAULTS.cachedNames && name.length <= LONGEST_REMEMBERED) known.set(name, fresh);
    return fresh;
  };
};

const allowedHint = (shape: PolicyShape, selects: Rule['selects']): string => {
  const allowed = of(shape.rules, selects, 'allow').map((rule) => rule.pattern);
  if (shape.fallback === 'allow') {
    return `allowed ${selects}: all but ${listed(of(shape.rules, selects, 'deny').map((rule) => rule.pattern))}`;
  }
  return allowed.length === 0 ? `this policy allows no ${selects}` : `allowed ${selects}: ${listed(allowed)}`;
};

interface Judgement {
  readonly deny: RuleSet;
  readonly allow: RuleSet;
  readonly otherwise: Verdict;
}

const judgement = (shape: PolicyShape, selects: Rule['selects']): Judgement => {
  const what = selects === 'tools' ? 'tool' : 'method';
  const hint = allowedHint(shape, selects);
  return {
    deny: new RuleSet(of(shape.rules, selects, 'deny'), (rule) =>
      verdict(selects === 'tools' ? 'tool_denied' : 'method_denied', {
        rule: rule.id, reason: `rule \`${rule.id}\` denies this ${what}`, hint,
      })),
    allow: new RuleSet(of(shape.rules, selects, 'allow'), (rule) =>
      verdict('allowed', { rule: rule.id, reason: `rule \`${rule.id}\` allows this ${what}` })),
    otherwise: shape.fallback === 'allow'
      ? verdict('default_allow', { rule: 'default', reason: `no rule speaks about this ${what} and the default is allow` })
      : verdict('default_deny', { rule: 'default', reason: `no rule allows this ${what} and the default is deny`, hint }),
  };
};

const implicitEvents = (): Rule => ({
  id: 'allow:methods:@events', effect: 'allow', selects: 'methods', pattern: '@events',
  globs: literals(GROUPS.get('@events') ?? []), place: { line: 1, column: 1 },
});

/** Globs of plain names, none of which holds a wildcard. */
export const literals = (names: readonly string[]): Glob[] =>
  names.map((name) => readGlob(name, true)).filter((glob): glob is Glob => 'tokens' in glob);

/**
 * Compiles a shape into the policy that stages ask. It is frozen; its verdicts are built here, one for each rule, and
 * handed out again and again. Throws nothing: a shape is sound by construction.
 */
export const compilePolicy = (written: PolicyShape): Policy => {
  const shape = written.eventsPass ? { ...written, rules: [...written.rules, implicitEvents()] } : written;
  const tools = judgement(shape, 'tools');
  const methods = judgement(shape, 'methods');
  const { limits, redaction } = shape;

  const badName = verdict('invalid_name', {
    hint: limits.names === 'safe'
      ? 'a tool name is 1 to 128 of the characters A-Z a-z 0-9 _ . : / - and holds neither `..` nor `//`'
      : 'a tool name is 1 to 128 characters, none of them a control character',
  });

  const response = shape.fallback === 'allow'
    ? verdict('default_allow', { rule: 'default', reason: 'no rule speaks about responses and the default is allow' })
    : verdict('default_deny', { rule: 'default', reason: 'no rule speaks about responses and the default is deny' });

  const decideTool = remembering((name: string) => (isToolName(name, limits.names)
    ? tools.deny.decide(name) ?? tools.allow.decide(name) ?? tools.otherwise
    : badName), badName);
  const decideMethod = remembering((name: string) =>
    methods.deny.decide(name) ?? methods.allow.decide(name) ?? methods.otherwise);
  const masked = redaction === null ? null : new GlobSet(redaction.names, true);
  return Object.freeze<Policy>({
    name: shape.name,
    hash: shape.hash,
    mode: shape.mode,
    flags: Object.freeze([...shape.flags]),
    limits: Object.freeze({
      maxBytes: limits.maxBytes,
      maxDepth: limits.maxDepth,
      flagDepth: limits.flagDepth,
      ids: limits.ids,
      rates: Object.freeze(limits.rates.map(({ id, limit, windowMs, counts, tools: globs }): RateLimit => {
        const set = globs === null ? null : new GlobSet(globs, true);
        return Object.freeze({
          id, limit, windowMs, counts,
          tools: set === null ? null : remembering((name: string) => set.first(name) !== -1),
        });
      })),
    }),
    redaction: redaction === null || masked === null ? null : Object.freeze({
      mask: redaction.mask,
      depth: redaction.depth,
      masks: remembering((name: string) => masked.first(name) !== -1),
    }),
    tool: decideTool,
    method: (name: string | null) => (name === null ? response : decideMethod(name)),
  });
};

/** Allow rules that can never speak, because a deny rule covers all they name; with the first rule that does. */
export const deadAllows = (rules: readonly Rule[]): Array<{ readonly rule: Rule; readonly under: Rule }> => {
  const dead: Array<{ rule: Rule; under: Rule }> = [];
  for (const selects of ['tools', 'methods'] as const) {
    const rows = of(rules, selects, 'deny').flatMap((rule) => rule.globs.map((glob) => ({ rule, glob })));
    const plain = new Map(rows.map(({ rule, glob }) => [glob.literal === null ? null : foldName(glob.literal), rule]));
    const wide = rows.filter(({ glob }) => glob.literal === null);
    const coverOf = (glob: Glob): Rule | undefined =>
      (glob.literal === null ? undefined : plain.get(foldName(glob.literal))) ?? wide.find((row) => covers(row.glob, glob))?.rule;
    for (const rule of of(rules, selects, 'allow')) {
      const over = rule.globs.map(coverOf);
      const under = over[0];
      if (under !== undefined && !over.includes(undefined)) dead.push({ rule, under });
    }
  }
  return dead;
};

/** Runs the policy's own tests through the compiled policy and collects the failing ones. */
export const runPolicyTests = (policy: Policy, shape: PolicyShape, problems: Problems): void => {
  for (const test of shape.tests) {
    const got = test.kind === 'call' ? policy.tool(test.name) : policy.method(test.name);
    const effect = got.decision === 'forward' ? 'allow' : 'deny';
    const by = got.rule === null ? `(${got.code})` : `by rule \`${got.rule}\``;
    if (effect !== test.expect) {
      problems.add('failed_test', test.place,
        `test failed: ${quoted(test.name)} should get ${test.expect}, but gets ${effect} ${by}`, got.reason);
    } else if (test.rule !== null && test.rule !== got.rule) {
      problems.add('failed_test', test.place,
        `test failed: ${quoted(test.name)} gets ${effect} as expected, but ${by} instead of \`${test.rule}\``, got.reason);
    }
  }
};
