// The three kinds of wrong: the code table of refusals, PolicyError, Fault.
// Owns every code and its meaning. Must not print, exit or look at a message.
import type { Decision, Severity, Verdict } from './message.js';

export interface Code {
  readonly decision: Decision;
  readonly severity: Severity;
  /** JSON-RPC error code of the reply; 0 where there is none. */
  readonly rpc: number;
  /** May the same request pass later, unchanged? */
  readonly retryable: boolean;
  readonly text: string;
}

const PARSE_ERROR = -32700; // JSON-RPC 2.0, section 5.1
const INVALID_REQUEST = -32600;

const malformed = (text: string, severity: Severity = 'medium'): Code =>
  ({ decision: 'drop', severity, rpc: PARSE_ERROR, retryable: false, text });
const shape = (text: string, severity: Severity = 'medium'): Code =>
  ({ decision: 'drop', severity, rpc: INVALID_REQUEST, retryable: false, text });
const passed = (text: string): Code =>
  ({ decision: 'forward', severity: 'info', rpc: 0, retryable: false, text });
const refused = (rpc: number, decision: Decision, severity: Severity, text: string, retryable = false): Code =>
  ({ decision, severity, rpc, retryable, text });

/**
 * Every code a record or a refusal can carry. Never renamed, never reused. JSON-RPC codes of refusals are HTTP's
 * idea times ten, outside JSON-RPC's reserved range; -32700 and -32600 stand for bad bytes and bad shapes alone.
 */
export const CODES = Object.freeze({
  allowed: passed('a rule allows it'),
  default_allow: passed('no rule speaks about it and the default is allow'),
  observed: passed('it would have been refused, but the policy only observes'),

  invalid_utf8: malformed('the line is not valid UTF-8'),
  byte_order_mark: malformed('the line begins with a byte order mark'),
  bare_cr: malformed('a carriage return stands inside the line; some readers would split it there', 'high'),
  not_json: malformed('the line is not JSON'),
  control_character: malformed('a string holds a raw control character'),
  bad_escape: malformed('a string holds an escape that JSON does not have'),
  bad_number: malformed('a number is not written as JSON writes numbers'),
  unterminated: malformed('the line ends inside a value'),
  trailing_bytes: malformed('something follows the message on its line', 'high'),

  lone_surrogate: shape('a string holds half of a surrogate pair'),
  number_overflow: shape('a number is too large for a double; peers would read different values'),
  duplicate_name: shape('an object holds the same member twice; peers would read different values', 'high'),
  too_deep: shape('the message is nested deeper than the limit'),
  too_many_members: shape('an object has more members than the limit'),
  name_variant: shape('a member differs from a protocol member only by case, NUL or folding', 'high'),
  prototype_name: shape('a member would change the prototype of a JavaScript object', 'high'),
  batch: shape('a batch array; MCP has none since 2025-06-18'),
  not_an_object: shape('the line is not a JSON object'),
  bad_version: shape('`jsonrpc` is not exactly "2.0"'),
  bad_id: shape('`id` is neither an integer nor a string of at most 256 bytes'),
  bad_method: shape('`method` is not a method name'),
  method_variant: shape('`method` differs from a known method only by case, padding or slashes', 'high'),
  bad_params: shape('`params` is not an object'),
  bad_arguments: shape('`arguments` is not an object'),
  bad_meta: shape('`_meta` is not an object'),
  bad_progress_token: shape('`progressToken` is neither a string nor an integer'),
  bad_result: shape('`result` is not an object'),
  bad_error: shape('`error` is not an object with an integer code and a string message'),
  mixed_members: shape('the message is more than one of request, result and error', 'high'),
  not_a_message: shape('the message is neither request, notification nor response'),
  id_missing: shape('a request method came without an id'),
  id_unexpected: shape('a notification carries an id'),

  name_missing: refused(4000, 'deny', 'medium', 'a tools/call names no tool'),
  invalid_name: refused(4001, 'deny', 'high', 'the tool name is outside the safe alphabet'),
  tool_denied: refused(4030, 'deny', 'high', 'a rule denies the tool'),
  method_denied: refused(4031, 'deny', 'medium', 'a rule denies the method'),
  default_deny: refused(4032, 'deny', 'medium', 'no rule allows it and the default is deny'),
  id_in_use: refused(4090, 'deny', 'medium', 'the request id was used before'),
  oversize: refused(4130, 'drop', 'medium', 'the line is longer than the limit'),
  rate_limited: refused(4290, 'drop', 'low', 'too many calls in the window', true),
  splice_failed: refused(5001, 'error', 'critical', 'masking would have changed what the message is; it did not pass'),
  fault: refused(5000, 'error', 'critical', 'Sluice failed; the message did not pass'),
} satisfies Record<string, Code>);

export type CodeName = keyof typeof CODES;

/** Builds a frozen verdict from the table. `severity` may only be raised by a rule. */
export const verdict = (
  code: CodeName,
  parts: { rule?: string | null; reason?: string; hint?: string; severity?: Severity; would?: Decision; retryAfterMs?: number } = {},
): Verdict => {
  const entry = CODES[code];
  return Object.freeze({
    decision: entry.decision,
    code,
    severity: parts.severity ?? entry.severity,
    rule: parts.rule ?? null,
    reason: parts.reason ?? entry.text,
    hint: parts.hint ?? '',
    ...(parts.would === undefined ? {} : { would: parts.would }),
    ...(parts.retryAfterMs === undefined ? {} : { retryAfterMs: parts.retryAfterMs }),
  });
};

/** One mistake of a policy's author. Line and column count from 1. */
export interface PolicyProblem {
  readonly code: string;
  /** File as the user named it. */
  readonly file: string;
  readonly line: number;
  readonly column: number;
  /** The source line the caret points into; empty where there is none. */
  readonly source: string;
  /** What is wrong. */
  readonly message: string;
  /** What would be right; may be empty. */
  readonly hint: string;
}

/** A policy that does not load, with all its problems at once. Nothing may be forwarded after it. */
export class PolicyError extends Error {
  readonly problems: readonly PolicyProblem[];
  constructor(problems: readonly PolicyProblem[]) {
    super(problems.map((p) => `${p.file}:${p.line}:${p.column}: ${p.message}`).join('\n'));
    this.name = 'PolicyError';
    this.problems = problems;
  }
}

/** Our bug, a dead sink, a closed output. Nothing is forwarded after it. */
export class Fault extends Error {
  /** `sink`: the audit record could not be written. `output`: the reader went away. `stage`: a bug of ours. `replies`: the reply queue is full. */
  readonly where: 'sink' | 'output' | 'input' | 'stage' | 'replies';
  constructor(where: Fault['where'], message: string, cause?: unknown) {
    super(message, cause === undefined ? undefined : { cause });
    this.name = 'Fault';
    this.where = where;
  }
}
