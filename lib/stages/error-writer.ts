// Refused messages in, JSON-RPC error responses out.
// Owns what the caller is told. Must not answer a notification or a response, or write an id that came in doubt.
import { CODES } from '../errors.js';
import type { CodeName } from '../errors.js';
import { cut } from '../audit/record-writer.js';
import { escapeNonAscii, view } from '../json/strings.js';
import type { Message, Stage, Verdict } from '../message.js';

export interface ErrorWriter extends Stage<Message, Uint8Array> {
  readonly replies: number;
}

const subject = (message: Message): string => {
  if (message.tool !== null) return `Tool ${JSON.stringify(cut(message.tool))}`;
  if (message.method !== null) return `Method ${JSON.stringify(cut(message.method))}`;
  return 'The message';
};

const sentence = (text: string): string => (text === '' ? '' : ` ${text.charAt(0).toUpperCase()}${text.slice(1).replace(/\.$/, '')}.`);

/** One sentence with what was refused and by what, and one with what would pass: clients show the model nothing else. */
export const explain = (message: Message, verdict: Verdict): string =>
  `${subject(message)} was refused: ${verdict.reason.replace(/\.$/, '')}.${sentence(verdict.hint)}`;

/** True where JSON-RPC wants an answer: a request, or a line that is no message at all. */
export const wantsReply = (message: Message): boolean => message.kind === 'request' || message.kind === 'invalid';

const reply = (message: Message, verdict: Verdict): string => {
  const code = CODES[verdict.code as CodeName];
  const id = message.idStart >= 0 && message.idUsable ? view(message.bytes).toString('utf8', message.idStart, message.idEnd) : 'null';
  const error = {
    code: code.rpc,
    message: explain(message, verdict),
    data: {
      code: verdict.code,
      rule: verdict.rule,
      event: message.event,
      retryable: code.retryable && verdict.retryAfterMs !== undefined,
      ...(verdict.retryAfterMs === undefined ? {} : { retry_after_ms: verdict.retryAfterMs }),
    },
  };
  return `{"jsonrpc":"2.0","id":${id},"error":${escapeNonAscii(JSON.stringify(error))}}\n`;
};

export const errorWriter = (): ErrorWriter => {
  let replies = 0;
  return {
    name: 'error-writer',
    emits: 'bytes',
    get replies() {
      return replies;
    },
    step(batch) {
      let text = '';
      for (const message of batch) {
        if (message.verdict === null || !wantsReply(message)) continue;
        replies++;
        text += reply(message, message.verdict);
      }
      return text === '' ? [] : [Buffer.from(text)];
    },
  };
};
