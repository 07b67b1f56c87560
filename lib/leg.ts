// One direction's chain: bytes in, what may pass out, refusals answered on `replies`, a record for each message.
// Owns the order of the stages. Must not open files or processes: sink, clock and policy come in.
import { randomBytes } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Duplex } from 'node:stream';
import type { Sink } from './audit/sink.js';
import { DEFAULTS } from './defaults.js';
import { Fault } from './errors.js';
import type { Direction, Message, Policy } from './message.js';
import { chain, compose } from './stage-stream.js';
import type { AnyStage } from './stage-stream.js';
import { auditTap } from './stages/audit-tap.js';
import type { Tally } from './stages/audit-tap.js';
import { classifier } from './stages/classifier.js';
import { errorWriter, wantsReply } from './stages/error-writer.js';
import { lineSplitter } from './stages/line-splitter.js';
import { policyGate } from './stages/policy-gate.js';
import { rateLimiter } from './stages/rate-limiter.js';
import { redactor } from './stages/redactor.js';
import { serializer } from './stages/serializer.js';

export interface LegOptions {
  /** A policy, or a function asked once an array of messages. */
  policy: Policy | (() => Policy);
  /** Where the records go. `null` keeps none, and has to be said. */
  sink: Sink | null;
  /** Default `c2s`. */
  dir?: Direction;
  /** Eight hexadecimal digits that begin every event id; made at random by default. */
  session?: string;
  /** Monotonic milliseconds, for rates; default the process's clock. */
  now?: () => number;
  /** Milliseconds since 1970, for records; default `Date.now`. */
  wall?: () => number;
  /** False: refusals are not answered, only counted in `stats().replies_unwritten`. Default true: read `replies`. */
  answer?: boolean;
}

/** What a leg did: the fields of the summary line that a leg knows. */
export interface LegStats extends Tally {
  blank: number;
  replies: number;
  replies_unwritten: number;
}

export interface Leg {
  /** Write the peer's bytes here and read from it what may go on. */
  readonly stream: Duplex;
  /** JSON-RPC error responses for the peer that sent what was refused. */
  readonly replies: Readable;
  readonly session: string;
  stats(): LegStats;
  /** The number of the last message that lies wholly in the first `bytes` of what `stream` gave out; 0: none. */
  sent(bytes: number): number;
}

export const newSession = (): string => randomBytes(4).toString('hex');

/** Monotonic milliseconds; the global `performance` would load a module that the filter does without. */
const monotonic = (): number => Number(process.hrtime.bigint()) / 1e6;

const build = (options: LegOptions, join: (...stages: AnyStage[]) => Duplex): Leg => {
  const dir = options.dir ?? 'c2s';
  const given = options.policy;
  const policy = typeof given === 'function' ? given : () => given;
  const session = options.session ?? newSession();
  const answer = options.answer ?? true;
  const replies = new Readable({ read: () => undefined, highWaterMark: DEFAULTS.replyBytes });
  const errors = errorWriter();
  let unwritten = 0;

  // Replies never block a leg, or two peers that wait for each other would both hang: they queue, up to a cap.
  const refused = (messages: Message[]): void => {
    if (!answer) {
      for (const message of messages) if (wantsReply(message)) unwritten++;
      return;
    }
    for (const bytes of errors.step(messages)) {
      replies.push(bytes);
      if (replies.readableLength > DEFAULTS.replyBytes) throw new Fault('replies', 'nobody reads the replies');
    }
  };

  /**
   * Replies do not block a leg, but many small refusals must not outrun a reader who is there: while replies pile up and
   * their reader moves, the next array waits. One who does not move is waited for once, until he does.
   */
  let stalled = false;
  const pause = (done: () => void): void => {
    const before = replies.readableLength;
    if (before < DEFAULTS.replyPauseBytes) {
      stalled = false;
      done();
      return;
    }
    if (stalled) {
      done();
      return;
    }
    let least = before;
    let moved = monotonic();
    const look = (): void => {
      const waiting = replies.readableLength;
      if (waiting < least) {
        least = waiting;
        moved = monotonic();
      }
      if (waiting < DEFAULTS.replyPauseBytes) done();
      else if (monotonic() - moved > DEFAULTS.replyPauseMs) {
        stalled = true;
        done();
      } else setTimeout(look, 1);
    };
    setImmediate(look);
  };

  // What is on its way between here and a reader is a few arrays, so a few marks are enough.
  const marks: Array<{ readonly end: number; readonly seq: number }> = [];
  let out = 0;
  const forwarded = (bytes: number, seq: number): void => {
    out += bytes;
    marks.push({ end: out, seq });
    if (marks.length > 256) marks.shift();
  };

  const splitter = lineSplitter(dir, () => policy().limits.maxBytes);
  const tap = auditTap(session, options.wall ?? Date.now, options.sink);
  const stream = join(
    splitter,
    classifier(policy),
    policyGate(),
    rateLimiter(options.now ?? monotonic),
    redactor(),
    tap,
    { ...serializer({ refused, forwarded }), commit: pause },
  );
  stream.once('close', () => replies.push(null));
  return {
    stream,
    replies,
    session,
    stats: () => ({ ...tap.tally, blank: splitter.blank, replies: errors.replies, replies_unwritten: unwritten }),
    sent: (bytes) => marks.findLast((mark) => mark.end <= bytes)?.seq ?? 0,
  };
};

/** All stages in one Transform: what the commands use. */
export const createLeg = (options: LegOptions): Leg => build(options, compose);

/** Each stage in a Transform of its own, piped: the same verdicts, records and bytes, open to streams in between. */
export const createChain = (options: LegOptions): Leg => build(options, chain);
