// Verdicts become bytes here and nowhere else: what passes goes forward, what was refused goes to the error writer.
// Must not write a message whose verdict is anything but forward.
import { Fault } from '../errors.js';
import type { Message, Stage } from '../message.js';

const LF = 0x0a;
const NEWLINE = Buffer.from('\n');
const JOIN_BELOW = 256 * 1024; // pieces are joined into one write while copying is cheaper than another write

export interface SerializerHooks {
  /** Gets, in order, the messages of each array that do not pass. */
  readonly refused: (messages: Message[]) => void;
  /** Told how many bytes of an array go forward, and the number of its last message that does. */
  readonly forwarded?: (bytes: number, seq: number) => void;
}

export const serializer = ({ refused, forwarded }: SerializerHooks): Stage<Message, Uint8Array> => ({
  name: 'serializer',
    emits: 'bytes',
  step(batch) {
    const out: Uint8Array[] = [];
    const stopped: Message[] = [];
    let total = 0;
    let last = 0;
    // Lines that lie side by side in one piece of memory leave as one span of it, without a copy.
    let span: Uint8Array | null = null;
    let spanStart = 0;
    let spanEnd = 0;
    const closeSpan = (): void => {
      if (span === null) return;
      out.push(span.subarray(spanStart, spanEnd));
      total += spanEnd - spanStart;
      span = null;
    };
    for (const message of batch) {
      // The tap ends a leg over these; here they come only where there is none.
      if (message.fault !== null) throw new Fault('stage', message.fault);
      if (message.verdict?.decision !== 'forward') {
        stopped.push(message);
        continue;
      }
      last = message.seq;
      if (message.output !== null) {
        closeSpan();
        out.push(message.output, NEWLINE);
        total += message.output.length + 1;
        continue;
      }
      const bytes = message.bytes;
      if (span !== bytes || spanEnd !== message.start) {
        closeSpan();
        span = bytes;
        spanStart = message.start;
      }
      spanEnd = message.end;
      if (bytes[spanEnd] === LF) spanEnd++;
      else {
        closeSpan();
        out.push(NEWLINE);
        total++;
      }
    }
    closeSpan();
    if (stopped.length > 0) refused(stopped);
    if (total > 0) forwarded?.(total, last);
    return out.length > 1 && total <= JOIN_BELOW ? [Buffer.concat(out, total)] : out;
  },
});
