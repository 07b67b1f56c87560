// Masks what the policy names, by replacing exactly those bytes; escapes raw line breaks; proves the result again.
// Must not refuse for policy, parse values or touch a byte outside a named span.
import { verdict } from '../errors.js';
import { MemberFinder } from '../json/find-members.js';
import { Scanner } from '../json/scan.js';
import { lineBreakEdits, splice } from '../json/splice.js';
import { decodeString, idKey } from '../json/strings.js';
import { passes } from '../message.js';
import type { Edit, Message, Redaction, Stage } from '../message.js';
import { redactionWatch } from '../policy/redaction.js';

const SPLICE_FAILED = verdict('splice_failed', { hint: 'Report this: a mask made the message another one.' });

/** A policy's redaction made ready: the search, and the mask as it is spelled at each level of quoting. */
class Masker {
  readonly redaction: Redaction;
  readonly #finder: MemberFinder;
  readonly #masks: Uint8Array[] = [];

  constructor(redaction: Redaction) {
    this.redaction = redaction;
    const anyDepth = redaction.depth === Infinity;
    this.#finder = new MemberFinder(redactionWatch(redaction), redaction.depth, anyDepth);
  }

  edits(message: Message): Edit[] | null {
    const anyDepth = this.redaction.depth === Infinity;
    const start = anyDepth ? message.paramsStart : message.argumentsStart;
    if (start < 0) return null;
    const hits = this.#finder.find(message.bytes, start, anyDepth ? 'params' : 'elsewhere', anyDepth ? ['params'] : ['params', 'arguments']);
    if (hits === null) return null;
    return hits.map(({ start: from, end, level, path }) => ({ start: from, end, bytes: this.#mask(level), kind: 'mask', path }));
  }

  #mask(level: number): Uint8Array {
    let text = JSON.stringify(this.redaction.mask);
    for (let i = 0; i < level; i++) text = JSON.stringify(text).slice(1, -1);
    return (this.#masks[level] ??= Buffer.from(text));
  }
}

const within = (edit: Edit, masks: readonly Edit[]): boolean => masks.some((mask) => edit.start >= mask.start && edit.end <= mask.end);

const sameId = (message: Message, output: Uint8Array, start: number, end: number): boolean => {
  if (message.idStart < 0) return start < 0;
  // Compared as it decodes: an escaped line break inside a string id is the same id.
  return idKey(message.bytes, message.idStart, message.idEnd) === idKey(output, start, end);
};

const sameTool = (message: Message, output: Uint8Array, start: number, end: number): boolean =>
  message.tool === null || (start >= 0 && decodeString(output, start + 1, end - 1) === message.tool);

export const redactor = (): Stage<Message, Message> => {
  const scanner = new Scanner();
  let masker: Masker | null = null;

  const maskerOf = (redaction: Redaction): Masker => {
    if (masker === null || masker.redaction !== redaction) masker = new Masker(redaction);
    return masker;
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
    step(batch) {
      for (const message of batch) {
        const policy = message.policy;
        if (policy === null || !passes(message)) continue;
        const masks = policy.redaction === null || !message.watched ? null : maskerOf(policy.redaction).edits(message);
        if (masks === null && !message.hasLineBreaks) continue;
        const breaks = message.hasLineBreaks ? lineBreakEdits(message.bytes, message.start, message.end) : [];
        const edits = [...(masks ?? []), ...breaks.filter((edit) => masks === null || !within(edit, masks))];
        edits.sort((a, b) => a.start - b.start);
        apply(message, edits, policy.limits.maxDepth);
      }
      return batch as Message[];
    },
  };
};
