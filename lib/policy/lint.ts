// What a policy says that its author may not have meant. Nothing here refuses a policy.
// Owns the findings and their codes. Must not print or decide about messages.
import { foldName } from '../json/strings.js';
import type { PolicyProblem } from '../errors.js';
import { methodFacts } from '../json/methods.js';
import { deadAllows, isToolName } from './compile.js';
import { covers } from './glob.js';
import type { LoadedPolicy } from './load.js';
import { Problems, type Place } from './problems.js';
import type { Rule } from './shape.js';

/** `warning`: likely a mistake. `note`: worth knowing, often meant. Codes are stable. */
export interface LintFinding extends PolicyProblem {
  readonly level: 'warning' | 'note';
}

/** Equal for rules that say the same: a deny ignores letter case. */
const sayingOf = (rule: Rule): string => (rule.effect === 'deny' ? foldName(rule.id) : rule.id);

/** Findings about a policy that loaded, in the order of the source. `file` is named in each. */
export const lintPolicy = ({ policy, shape }: LoadedPolicy, source: string, file: string): LintFinding[] => {
  const sink = new Problems(file, source);
  const findings: LintFinding[] = [];
  const add = (level: LintFinding['level'], code: string, place: Place | null, message: string, hint: string): void => {
    findings.push(Object.freeze({ ...sink.describe(code, place, message, hint), level }));
  };
  const openHandshake = shape.format === 'yaml' ? 'allow `{ methods: \'@lifecycle\' }`'
    : 'the line format has no rules for methods: use `default = allow`, or a YAML policy';
  const dead = new Set<Rule>();
  const said = new Map<string, Rule>();

  for (const { rule, under } of deadAllows(shape.rules)) {
    dead.add(rule);
    add('warning', 'dead_allow', rule.place, `\`${rule.id}\` never allows anything: \`${under.id}\` denies all of it`, 'remove one of the two');
  }

  for (const rule of shape.rules) {
    const twin = said.get(sayingOf(rule));
    said.set(sayingOf(rule), twin ?? rule);
    if (twin !== undefined) {
      add('warning', 'same_rule', rule.place, `\`${rule.id}\` says the same as the rule in line ${twin.place.line}`, 'remove one of the two');
    }
    const literal = rule.globs.length === 1 ? rule.globs[0]?.literal ?? null : null;
    if (rule.selects === 'tools' && literal !== null) {
      if (!isToolName(literal, shape.limits.names)) {
        add('warning', 'unreachable_rule', rule.place, `no tool can be called \`${rule.pattern}\`: such a name is refused before any rule`,
          'see `limits.names` for what a name may hold');
      } else if (methodFacts(literal).form === 'request') {
        add('warning', 'method_as_tool', rule.place, `\`${rule.pattern}\` is a method, but this rule speaks about a tool of that name`,
          `write \`{ methods: '${rule.pattern}' }\``);
      }
    }
    if (rule.effect === 'allow' && shape.fallback === 'allow') {
      add('warning', 'redundant_allow', rule.place, `\`${rule.id}\` changes nothing: the default is allow`, 'remove it, or make the default deny');
    }
    if (rule.effect === 'allow' && shape.fallback === 'deny' && !dead.has(rule)) {
      for (const deny of shape.rules) {
        if (deny.effect !== 'deny' || deny.selects !== rule.selects) continue;
        if (deny.globs.some((part) => rule.globs.some((whole) => whole.literal === null && covers(whole, part)))) {
          add('note', 'partly_denied', rule.place, `\`${deny.id}\` takes a part out of \`${rule.id}\``, 'a deny wins whatever the order; nothing to do if that is meant');
        }
      }
    }
  }

  for (const method of ['initialize', 'notifications/initialized']) {
    const got = policy.method(method);
    if (got.decision !== 'forward') {
      add('warning', 'handshake_refused', placeOfRule(shape.rules, got.rule), `\`${method}\` is refused (${got.rule ?? got.code}): no client of a revision before 2026-07-28 can connect`,
        openHandshake);
    }
  }
  const discover = policy.method('server/discover');
  if (discover.decision !== 'forward') {
    add('warning', 'discover_refused', placeOfRule(shape.rules, discover.rule), `\`server/discover\` is refused (${discover.rule ?? discover.code}): a modern client falls back to an older revision without a word`,
      openHandshake);
  }
  if (shape.format === 'yaml' && shape.tests.length === 0) {
    add('warning', 'no_tests', null, 'the policy has no tests of its own', 'add `tests:`; a file cut short can still be YAML, its tests would tell');
  }
  return findings.sort((a, b) => a.line - b.line || a.column - b.column);
};

const placeOfRule = (rules: readonly Rule[], id: string | null): Place | null =>
  rules.find((rule) => rule.id === id)?.place ?? null;
