// The shape of an audit log: every line's type, key order and meaning.
// Owns the format. Must not write files, read streams or decide anything.
import type { Decision, Direction, Kind, Severity } from '../message.js';

export const RECORD_VERSION = 1;

/** One message's record, keys in the order they are written. Optional ones are absent, never null. */
export interface AuditRecord {
  readonly v: 1;
  /** Stable id: session, direction, number, e.g. `7f3a91c2.c.000042`. */
  readonly event: string;
  /** Wall clock, milliseconds since 1970. */
  readonly ts_ms: number;
  readonly seq: number;
  readonly dir: Direction;
  readonly kind: Kind;
  readonly decision: Decision;
  readonly code: string;
  readonly severity: Severity;
  readonly rule?: string;
  readonly reason: string;
  readonly method: string | null;
  readonly tool: string | null;
  readonly target: string | null;
  /** JSON text of a valid id, else null. */
  readonly rpc_id: string | null;
  /** Of the line, newline not counted. `bytes_out` is 0 where nothing was forwarded. */
  readonly bytes_in: number;
  readonly bytes_out: number;
  /** Paths of masked values: names, never values. */
  readonly redacted?: readonly string[];
  /** Spans changed for another cause. */
  readonly edits?: ReadonlyArray<{ readonly kind: string; readonly path: string }>;
  readonly max_depth: number;
  readonly flags?: readonly string[];
  /** The decision that observe mode withheld. */
  readonly would?: Decision;
}

/** First line of a log. */
export interface SessionLine {
  readonly v: 1;
  readonly type: 'session';
  readonly session: string;
  readonly ts_ms: number;
  readonly version: string;
  readonly policy: string;
  readonly policy_sha256: string;
  readonly mode: 'enforce' | 'observe';
  readonly flags?: readonly string[];
}

/** Last line, with `--stats`: what the process counted itself, against which a reader recounts. */
export interface SummaryLine {
  readonly v: 1;
  readonly type: 'summary';
  readonly ts_ms: number;
  readonly messages: number;
  readonly forward: number;
  readonly deny: number;
  readonly drop: number;
  readonly hold: number;
  readonly error: number;
  readonly bytes_in: number;
  readonly bytes_out: number;
  /** Messages with at least one masked value. */
  readonly redacted: number;
  /** Lines of white space only: no messages, no records. */
  readonly blank: number;
  /** Refusals answered with a JSON-RPC error, and refusals that had no error writer to answer them. */
  readonly replies: number;
  readonly replies_unwritten: number;
  /** Last `seq` whose bytes the reader took. */
  readonly sent: number;
}

/** Why nothing passed after it. */
export interface FaultLine {
  readonly v: 1;
  readonly type: 'fault';
  readonly ts_ms: number;
  readonly where: string;
  readonly reason: string;
}

export type LogLine = AuditRecord | SessionLine | SummaryLine | FaultLine;

/** True for a message's record, false for the lines beside records. */
export const isAuditRecord = (line: LogLine): line is AuditRecord => 'event' in line;
