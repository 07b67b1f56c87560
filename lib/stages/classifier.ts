// Proves each line and says what it is, or refuses it for its bytes or shape.
// Owns form alone. Must not ask a rule: which policy applies is stamped on the message, not consulted.
import { isUtf8 } from 'node:buffer';
import { CODES, verdict } from '../errors.js';
import type { CodeName } from '../errors.js';
import type { Message, Policy, Stage, Verdict } from '../message.js';
import { NameCache, spellingKey } from '../json/name-cache.js';
import { Scanner } from '../json/scan.js';
import { Skimmer } from '../json/skim.js';
import { redactionWatch } from '../policy/redaction.js';

const HINTS: Partial<Record<CodeName, string>> = {
  oversize: 'Send less in one message, or raise `limits.max_bytes`.',
  too_deep: 'Nest less, or raise `limits.max_depth`.',
  batch: 'Send each message on a line of its own.',
  bare_cr: 'Escape it as \\r inside strings and leave it out elsewhere.',
};

const verdicts = new Map<CodeName, Verdict>();
const refusal = (code: CodeName): Verdict => {
  let found = verdicts.get(code);
  if (found === undefined) {
    found = verdict(code, { hint: HINTS[code] ?? 'Send one JSON-RPC 2.0 message a line, in strict JSON.' });
    verdicts.set(code, found);
  }
  return found;
};

const QUOTE = 0x22;
const MALFORMED = CODES.not_json.rpc;

/**
 * `policy` is asked once an array: all its messages carry the policy they entered with, so that a change of policy
 * meets no message half-way.
 */
export const classifier = (policy: () => Policy): Stage<Message, Message> => {
  const scanner = new Scanner();
  const tools = new NameCache<string>((name) => name);
  let watchedFor: Policy['redaction'] = null;

  /** The decoded name of a call, where it has one. */
  const toolOf = (bytes: Uint8Array): string | null => {
    const start = scanner.nameStart;
    if (scanner.method !== 'tools/call' || start < 0 || bytes[start] !== QUOTE) return null;
    const end = scanner.nameEnd - 1;
    return tools.lookup(bytes, start + 1, end, spellingKey(bytes, start + 1, end));
  };

  const refuse = (message: Message, code: CodeName): void => {
    message.verdict = refusal(code);
    if (message.oversize) return;
    // The line is read on for its id alone: real clients write it last.
    const skimmer = new Skimmer();
    skimmer.push(message.bytes, message.start, message.end);
    const found = skimmer.finish();
    // Broken bytes are no kind of message, so that whoever sent them hears of it. Only what looks like an answer is
    // never answered: its id is the other side's, and a reply would settle a request of its own.
    message.kind = CODES[code].rpc === MALFORMED && found.kind !== 'response' ? 'invalid' : found.kind;
    message.method = found.method;
    message.tool = found.tool;
    if (found.id !== null) {
      message.bytes = found.id;
      message.start = message.idStart = 0;
      message.end = message.idEnd = found.id.length;
    }
  };

  const classify = (message: Message, limits: Policy['limits'], utf8: boolean): void => {
    if (message.oversize || message.bytesIn > limits.maxBytes) return refuse(message, 'oversize');
    if (!utf8 && !isUtf8(message.bytes.subarray(message.start, message.end))) return refuse(message, 'invalid_utf8');
    if (!scanner.scan(message.bytes, message.start, message.end)) {
      message.maxDepth = scanner.maxDepth;
      return refuse(message, scanner.code ?? 'not_json');
    }
    message.kind = scanner.kind;
    message.idStart = scanner.idStart;
    message.idEnd = scanner.idEnd;
    message.method = scanner.method;
    message.tool = toolOf(message.bytes);
    message.paramsStart = scanner.paramsStart;
    message.paramsEnd = scanner.paramsEnd;
    message.argumentsStart = scanner.argumentsStart;
    message.argumentsEnd = scanner.argumentsEnd;
    message.maxDepth = scanner.maxDepth;
    message.hasLineBreaks = scanner.hasLineBreaks;
    message.watched = scanner.watched;
    if (limits.flagDepth !== null && scanner.maxDepth > limits.flagDepth) message.flags = ['deep'];
  };

  return {
    name: 'classifier',
    emits: 'messages',
    step(batch) {
      const current = policy();
      scanner.limitDepth(current.limits.maxDepth);
      if (current.redaction !== watchedFor) {
        watchedFor = current.redaction;
        scanner.watch(watchedFor === null ? null : redactionWatch(watchedFor));
      }
      let utf8End = 0; // messages before this index lie in memory that was checked as a whole
      let utf8 = false;
      for (let i = 0; i < batch.length; i++) {
        const message = batch[i] as Message;
        message.policy = current;
        if (message.fault !== null) continue;
        if (i >= utf8End) {
          // One call for all lines that share their memory costs a tenth of one call a line.
          utf8End = i + 1;
          while (utf8End < batch.length && (batch[utf8End] as Message).bytes === message.bytes) utf8End++;
          utf8 = isUtf8(message.bytes.subarray(message.start, (batch[utf8End - 1] as Message).end));
        }
        classify(message, current.limits, utf8);
      }
      return batch as Message[];
    },
  };
};
