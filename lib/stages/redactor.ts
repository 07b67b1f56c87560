// Masks what the policy names, by replacing exactly those bytes; escapes raw line breaks; proves the result again.
// Must not refuse for policy, parse values or touch a byte outside a named span.
import { verdict } from '../errors.js';
import { MemberFinder } from '../json/find-members.js';
import { Scanner } from '../json/scan.js';
import { lineBreakEdits, mergeEdits, splice } from '../json/splice.js';
import { decodeString, idKey } from '../json/strings.js';
import { passes } from '../message.js';
import type { Edit, Message, Redaction, Stage } from '../message.js';
import { redactionWatch } from '../policy/redaction.js';

const SPLICE_FAILED = verdict('splice_failed', { hint: 'report this: a mask made the message another one' });
const UNSEARCHABLE = verdict('splice_failed', { reason: 'the message is nested too deep to be searched for what must be masked', hint: 'nest less' });

/** A policy's redaction made ready: the search, and the mask as it is spelled at each level of quoting. */
class Masker {
  readonly redaction: Redaction;
  tooDeep = false;
  readonly #finder: MemberFinder;
  readonly #masks: Uint8Array[] = [];

  constructor(redaction: Redaction) {
    this.redaction = redaction;
    const anyDepth = redaction.depth === Infinity;
    this.#finder = new MemberFinder(redactionWatch(redaction), redaction.depth, anyDepth);
  }

  /** The masks of a message, in order; null where there is none. `tooDeep` tells whether they are all. */
  edits(message: Message): Edit[] | null {
    this.tooDeep = false;
    const anyDepth = this.redaction.depth === Infinity;
    const start = anyDepth ? message.paramsStart : message.argumentsStart;
    if (start < 0) return null;
    const hits = this.#finder.find(message.bytes, start, anyDepth ? 'params' : 'elsewhere', anyDepth ? ['params'] : ['params', 'arguments']);
    this.tooDeep = this.#finder.tooDeep;
    if (hits === null) return null;
    return hits.map(({ start: from, end, level, path }) => ({ start: from, end, bytes: this.#mask(level), kind: 'mask', path }));
  }

  #mask(level: number): Uint8Array {
    let text = JSON.stringify(this.redaction.mask);
    for (let i = 0; i < level; i++) text = JSON.stringify(text).slice(1, -1);
    return (this.#masks[level] ??= Buffer.from(text));
  }
}

const sameId = (message: Message, output: Uint8Array, start: number, end: number): boolean => {
  if (message.idStart < 0) return start < 0;
  // Compared as it decodes: an escaped line break inside a string id is the same id.
  return idKey(message.bytes, message.idStart, message.idEnd) === idKey(output, start, end);
};

const sameTool = (message: Message, output: Uint8Array, start: number, end: number): boolean =>
  message.tool === null || (start >= 0 && decodeString(output, start + 1, end - 1) === message.tool);

export const redactor = (): Stage<Message, Message> => {
  const scanner = new Scanner();
  let current: Masker | null = null;

  const maskerOf = (redaction: Redaction): Masker => {
    if (current === null || current.redaction !== redaction) current = new Masker(redaction);
    return current;
  };

  /** The spliced line must still be the same message, by the same strict scan. */
  const apply = (message: Message, edits: Edit[], maxDepth: number): void => {
    const output = splice(message.bytes, message.start, message.end, edits);
    scanner.limitDepth(maxDepth);
    const proven = scanner.scan(output, 0, output.length - 1);
    const same =
      proven &&
      scanner.kind === message.kind &&
      scanner.method === message.method &&
      sameTool(message, output, scanner.nameStart, scanner.nameEnd) &&
      sameId(message, output, scanner.idStart, scanner.idEnd);
    if (!same) {
      message.verdict = SPLICE_FAILED;
      return;
    }
    message.edits = edits;
    message.output = output.subarray(0, output.length - 1);
  };

  return {
    name: 'redactor',
    emits: 'messages',
    step(batch) {
      for (const message of batch) {
        const policy = message.policy;
        if (policy === null || !passes(message)) continue;
        const masker = policy.redaction === null || !message.watched ? null : maskerOf(policy.redaction);
        const masks = masker?.edits(message) ?? null;
        if (masker?.tooDeep === true) {
          message.verdict = UNSEARCHABLE;
          continue;
        }
        if (masks === null && !message.hasLineBreaks) continue;
        const breaks = message.hasLineBreaks ? lineBreakEdits(message.bytes, message.start, message.end) : [];
        apply(message, mergeEdits(masks ?? [], breaks), policy.limits.maxDepth);
      }
      return batch as Message[];
    },
  };
};
