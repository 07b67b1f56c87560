// Relay cases: a policy in the line format and a whole standard input, with what must come of them.
import type { RelayCase } from './cases.js';
import type { Door } from './doors.js';
import { isBlank, split } from './frames.js';
import { judged } from './outcome.js';
import type { Outcome } from './outcome.js';

const DEFAULT_MASK = '«redacted»';
/** Every secret planted in these cases looks so: AKIA-REAL-SECRET. */
const PLANTED = /[A-Z]+-[A-Z-]*SECRET[A-Z-]*/g;

const maskOf = (policyText: string): string =>
  /^\s*redaction_mask\s*=?\s*"?([^"\n]*?)"?\s*$/m.exec(policyText)?.[1] ?? DEFAULT_MASK;

const escapeRegExp = (text: string): string => text.replaceAll(/[\\^$.*+?()[\]{}|]/g, '\\$&');

/** True where the output is the input with whole JSON values replaced by the mask, and nothing else changed. */
const onlyMasked = (input: string, output: string, mask: string): boolean => {
  const pieces = output.trimEnd().split(JSON.stringify(mask));
  return pieces.length > 1 && new RegExp(`^${pieces.map(escapeRegExp).join('(?:"(?:[^"\\\\]|\\\\.)*"|[^",]+|[[{].*[\\]}])')}$`, 's').test(input.trim());
};

export const relayCase = async (one: RelayCase, door: Door): Promise<Outcome> => {
  const input = Buffer.from(one.input_base64, 'base64');
  const seen = await door({ policy: one.policy_text, pieces: [input] });
  const output = seen.forwarded.toString('utf8');
  const messages = split(input).filter((frame) => !isBlank(frame)).length;
  const complaints: string[] = [];
  const wantedExit = one.expect === 'policy-error' ? 2 : 0;
  if (seen.exit !== wantedExit) complaints.push(`exit ${seen.exit}, not ${wantedExit}: ${seen.stderr.slice(0, 200)}`);
  if (one.expect === 'refuse' || one.expect === 'policy-error') {
    if (output !== '') complaints.push(`arrived: ${output.slice(0, 200)}`);
  } else {
    const planted = input.toString('utf8').match(PLANTED) ?? [];
    const leaked = planted.filter((secret) => output.includes(secret));
    if (one.expect === 'forward' && output.trim() !== input.toString('utf8').trim()) complaints.push(`changed or missing: ${output.slice(0, 200)}`);
    if (one.expect === 'forward-redacted' && leaked.length > 0) complaints.push(`not masked: ${output.slice(0, 200)}`);
    if (one.expect === 'forward-redacted' && !onlyMasked(input.toString('utf8'), output, maskOf(one.policy_text))) {
      complaints.push(`more than the planted secrets changed: ${output.slice(0, 200)}`);
    }
  }
  if (one.expect !== 'policy-error') {
    if (seen.records.length !== messages) complaints.push(`${seen.records.length} records for ${messages} messages`);
    const forwards = one.expect !== 'refuse';
    const other = seen.records.find(({ decision }) => decision === 'error' || (decision === 'forward') !== forwards);
    if (other !== undefined) complaints.push(`a record says ${other.decision} (${other.code})`);
  }
  const secrets = seen.audit.toString('utf8').match(PLANTED);
  if (secrets !== null) complaints.push('a planted secret stands in the audit log');
  return judged(one.id, complaints);
};
