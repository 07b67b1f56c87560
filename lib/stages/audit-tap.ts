// One audit record for each message, on its way to the sink before the message may leave.
// Owns that order and the counts. Must not change a message, and must not let one pass whose record was not taken.
import { bytesOut, eventId, RecordWriter } from '../audit/record-writer.js';
import type { Sink } from '../audit/sink.js';
import { Fault, verdict } from '../errors.js';
import type { Decision, Message, Stage } from '../message.js';

/** What one leg did so far. */
export interface Tally extends Record<Decision, number> {
  messages: number;
  bytes_in: number;
  bytes_out: number;
  /** Messages with at least one masked value. */
  redacted: number;
}

export interface AuditTap extends Stage<Message, Message> {
  readonly tally: Readonly<Tally>;
}

const UNSETTLED = verdict('fault', { reason: 'no stage decided about the message' });

/**
 * `wall`: milliseconds since 1970, asked once an array. `sink` null keeps counts but no records: that is for embedders
 * who say so. After a message with a `fault` verdict the records are still written, then the leg ends.
 */
export const auditTap = (session: string, wall: () => number, sink: Sink | null): AuditTap => {
  const writer = new RecordWriter(session);
  const tally: Tally = { messages: 0, forward: 0, deny: 0, drop: 0, hold: 0, error: 0, bytes_in: 0, bytes_out: 0, redacted: 0 };
  let fault: Fault | null = null;
  /** Records of the array at hand; null where its step did not come to an end. */
  let pending: Uint8Array | null = null;

  return {
    name: 'audit-tap',
    emits: 'messages',
    tally,
    step(batch) {
      pending = null;
      writer.start(wall());
      for (const message of batch) {
        const settled = (message.verdict ??= UNSETTLED);
        tally.messages++;
        tally[settled.decision]++;
        tally.bytes_in += message.bytesIn;
        if (settled.decision === 'forward') {
          tally.bytes_out += bytesOut(message);
          if (message.edits?.some((edit) => edit.kind === 'mask') === true) tally.redacted++;
        } else message.event = eventId(session, message.dir, message.seq);
        if (message.fault !== null || settled.code === 'fault') fault ??= new Fault('stage', message.fault ?? settled.reason);
        if (sink !== null) writer.append(message, settled);
      }
      pending = writer.take();
      return batch as Message[];
    },
    commit(done) {
      const after = (error?: Error): void => done(error ?? fault ?? undefined);
      if (pending === null) done(new Fault('stage', 'the records of an array were not made'));
      else if (sink === null || pending.length === 0) after();
      else sink.write(pending, after);
    },
  };
};
