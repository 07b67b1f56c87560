// Asks the policy that a message carries: the name, deny, allow, default.
// Owns the order of these questions. Must not count anything or look at bytes.
import { verdict } from '../errors.js';
import { passes } from '../message.js';
import type { Message, Policy, Stage, Verdict } from '../message.js';

const NAME_MISSING = verdict('name_missing', { hint: 'give `params.name` as a string' });

// What a policy in observe mode lets pass: whatever its own rules and limits refuse. A call without a name is malformed.
const OBSERVED: ReadonlySet<string> = new Set(['tool_denied', 'method_denied', 'default_deny', 'invalid_name']);

export const policyGate = (): Stage<Message, Message> => {
  const observed = new WeakMap<Verdict, Verdict>();

  const observe = (withheld: Verdict): Verdict => {
    let shown = observed.get(withheld);
    if (shown === undefined) {
      shown = verdict('observed', { rule: withheld.rule, reason: `observed only: ${withheld.reason}`, would: withheld.decision });
      observed.set(withheld, shown);
    }
    return shown;
  };

  const ask = (message: Message, policy: Policy): Verdict => {
    if (message.kind === 'response') return policy.method(null);
    if (message.method !== 'tools/call') return policy.method(message.method);
    return message.tool === null ? NAME_MISSING : policy.tool(message.tool);
  };

  return {
    name: 'policy-gate',
    emits: 'messages',
    step(batch) {
      for (const message of batch) {
        if (!passes(message) || message.policy === null) continue;
        const answer = ask(message, message.policy);
        message.verdict =
          answer.decision !== 'forward' && message.policy.mode === 'observe' && OBSERVED.has(answer.code) ? observe(answer) : answer;
      }
      return batch as Message[];
    },
  };
};
