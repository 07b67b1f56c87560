// Policy cases: the neutral policy is put into our language where it means the same there, else the case is not run.
import type { NeutralPolicy, PolicyCase, RateStep, ToolPattern } from './cases.js';
import type { Door, Seen } from './doors.js';
import { judged, notRun } from './outcome.js';
import type { Outcome } from './outcome.js';

/** Why a policy cannot be put into our language yet. */
class Untranslatable extends Error {}

const toolGlob = (pattern: ToolPattern): string => {
  if (pattern.regex_full !== undefined) throw new Untranslatable('regex patterns for tools: come with a later issue');
  return pattern.glob ?? (pattern.exact ?? '').replaceAll(/[\\*?[]/g, '\\$&');
};

/** Keys of the neutral form that ours writes in another way; any other key goes over as it is, mistakes included. */
const TRANSLATED = new Set(['default', 'rules', 'rate']);

/** JSON is YAML, so the policy is written as JSON. */
const translate = (policy: NeutralPolicy): string => {
  const rules = policy.rules === null ? null : (policy.rules ?? []);
  const sections: Record<string, string[] | null> = {};
  let allowed = false;
  for (const rule of rules ?? []) {
    if (rule.when !== undefined && rule.when.length > 0) throw new Untranslatable('rules with conditions: come with a later issue');
    // The first rule decides there; here a deny beats an allow wherever it stands.
    if (rule.effect === 'deny' && allowed) throw new Untranslatable('an allow before a deny: the order decides there, never here');
    allowed ||= rule.effect === 'allow';
    (sections[rule.effect] ??= []).push(toolGlob(rule.tool));
  }
  if (rules === null) sections['deny'] = null;
  const rest = Object.fromEntries(Object.entries(policy).filter(([key]) => !TRANSLATED.has(key)));
  const rate = policy.rate?.map(({ tool, limit, per_seconds }) => ({ tools: toolGlob(tool), limit, per: `${per_seconds}s` }));
  return JSON.stringify({
    version: 1,
    name: 'corpus',
    default: policy.default,
    ...sections,
    ...rest,
    ...(rate === undefined ? {} : { limits: { rate } }),
  });
};

const request = (id: number, method: string, params?: unknown): Buffer =>
  Buffer.from(`${JSON.stringify({ jsonrpc: '2.0', id, method, params })}\n`);

const callOf = (one: PolicyCase): Buffer =>
  one.raw_line_base64 === undefined
    ? request(1, 'tools/call', { name: one.call?.name, arguments: one.call?.arguments })
    : Buffer.from(one.raw_line_base64, 'base64');

const judgeVerdict = (one: PolicyCase, seen: Seen): string[] => {
  const accepted = [one.expect, ...(one.acceptable ?? [])];
  if (seen.exit === 2 && accepted.includes('policy_error')) return [];
  if (seen.exit !== 0) return [`exit ${seen.exit}: ${seen.stderr.slice(0, 200)}`];
  const verdict = seen.forwarded.length > 0 ? 'allow' : 'deny';
  const complaints = accepted.includes(verdict) ? [] : [`${verdict} (${seen.records[0]?.code})`];
  if (seen.records.length !== 1) complaints.push(`${seen.records.length} records for one message`);
  return complaints;
};

const judgeLoad = (one: PolicyCase, seen: Seen): string[] => {
  const loaded = seen.exit === 2 ? 'policy_error' : 'policy_ok';
  if (seen.exit !== 0 && seen.exit !== 2) return [`exit ${seen.exit}: ${seen.stderr.slice(0, 200)}`];
  return [one.expect, ...(one.acceptable ?? [])].includes(loaded) ? [] : [`${loaded}: ${seen.stderr.slice(0, 200)}`];
};

const MAX_RECORD = 2_048;

const judgeAudit = (one: PolicyCase, seen: Seen): string[] => {
  if (seen.exit !== 0) return [`exit ${seen.exit}: ${seen.stderr.slice(0, 200)}`];
  const text = seen.audit.toString('latin1');
  // However a viewer breaks lines: there is one record, and no byte that begins another.
  const lines = text.split('\n').filter((line) => line.includes('"decision"'));
  const complaints: string[] = [];
  if (lines.length !== 1 || seen.records.length !== 1) complaints.push(`${lines.length} lines hold a record`);
  if (!/^[\n\x20-\x7e]*$/.test(text)) complaints.push('the log holds more than printable ASCII');
  if (lines.some((line) => line.length > MAX_RECORD)) complaints.push(`the record has ${lines[0]?.length} bytes`);
  if (seen.records.some(({ decision }) => decision === 'forward')) complaints.push('the record says forward');
  for (const secret of one.must_not_contain ?? []) {
    if (text.includes(secret)) complaints.push(`the log holds ${secret}`);
  }
  return complaints;
};

const stepLine = (step: RateStep, index: number): Buffer =>
  step.name === null ? request(index + 1, step.method ?? 'ping') : request(index + 1, 'tools/call', { name: step.name, arguments: {} });

const rateCase = async (one: PolicyCase, policy: string, door: Door): Promise<Outcome> => {
  const sequence = one.sequence ?? [];
  if (sequence.some((step) => step.rule_denies)) return notRun(one.id, 'rules with conditions: come with a later issue');
  // The injected clock is monotonic by contract: a step back of the wall clock does not reach it.
  const times = sequence.map((_, index) => Math.max(...sequence.slice(0, index + 1).map((step) => step.t)) * 1_000);
  const seen = await door({ policy, pieces: sequence.map(stepLine), times });
  if (seen.exit !== 0) return judged(one.id, [`exit ${seen.exit}: ${seen.stderr.slice(0, 200)}`]);
  const verdicts = seen.records.map(({ decision }) => (decision === 'forward' ? 'allow' : 'deny'));
  const wanted = JSON.stringify(one.expect);
  return judged(one.id, JSON.stringify(verdicts) === wanted ? [] : [`${JSON.stringify(verdicts)}, not ${wanted}`]);
};

const RUN = new Set(['tool-name', 'regex', 'policy-load', 'audit', 'rate']);

/** `door` is any; `clocked` is one that obeys the session's times. */
export const policyCase = async (one: PolicyCase, door: Door, clocked: Door): Promise<Outcome> => {
  if (!RUN.has(one.kind)) return notRun(one.id, `${one.kind}: comes with a later issue`);
  if (one.expect === 'keep_previous') return notRun(one.id, 'reload: comes with a later issue');
  try {
    const source = one.policy_text ?? one.policy ?? '';
    const policy = typeof source === 'string' ? source : translate(source as unknown as NeutralPolicy);
    if (one.kind === 'rate') return await rateCase(one, policy, clocked);
    const seen = await door({ policy, pieces: [callOf(one)] });
    if (one.kind === 'policy-load') return judged(one.id, judgeLoad(one, seen));
    if (one.kind === 'audit') return judged(one.id, judgeAudit(one, seen));
    const complaints = judgeVerdict(one, seen);
    if (one.max_ms !== undefined && seen.ms > one.max_ms) complaints.push(`took ${Math.round(seen.ms)} ms, not ${one.max_ms}`);
    return judged(one.id, complaints);
  } catch (error) {
    if (error instanceof Untranslatable) return notRun(one.id, error.message);
    throw error;
  }
};
