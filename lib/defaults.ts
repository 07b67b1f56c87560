// Every default of the product in one frozen place: value, why, and what breaks if it changes.
// Must not hold logic.

export const DEFAULTS = Object.freeze({
  /** Bytes of one client line. File writes of some MiB are normal; SDK peers drop a connection at 10 MiB. */
  maxBytes: 4 * 1024 * 1024,
  /** McpBastion's own default, used only for policies in its line format. */
  lineFormatMaxBytes: 262_144,
  lineFormatRateWindowMs: 1_000,
  /** Nesting. Peers fail without a reply near 200 (pydantic) and crash far above it. */
  maxDepth: 128,
  /** Members of one object. Bounds the work of telling duplicates apart. */
  maxMembers: 10_000,
  /** Decoded bytes of a string id. Above it an id is refused: it is echoed into replies and records. */
  maxIdBytes: 256,
  /** Request ids remembered under `limits.ids: unique`. */
  rememberedIds: 4_096,
  /** Tool, method and member names whose decision is remembered. Above it a decision is made afresh each time. */
  cachedNames: 4_096,
  /** What a masked value becomes: not ASCII, so that it cannot be typed by accident (write-back is refused). */
  mask: '«redacted»',
  /** Characters of one glob, and of one attacker-held string in a record. */
  maxGlob: 256,
  maxRecorded: 128,
  /** Places of changed spans that one record names; the rest is counted. */
  maxPaths: 64,
  /** JSON inside strings is followed this many levels for redaction. */
  maxInnerJson: 4,
  /** An array of messages above this many bytes is split, so that one huge chunk cannot pile up behind a slow reader. */
  arrayBytes: 256 * 1024,
  /** Replies waiting for a reader that does not read. Above it: a Fault, since replies may not block a leg. */
  replyBytes: 8 * 1024 * 1024,
  /** Above this many waiting replies a leg gives their reader a moment, as long as there is one. */
  replyPauseBytes: 1024 * 1024,
  /** How long it waits for a reader of replies who does not move. */
  replyPauseMs: 100,
  /** The end of input waits this long for a reader of errors who does not move; then that is a fault. */
  errorsMs: 2_000,
  /** What a message costs beside its bytes, for the size of an array: small lines make large replies. */
  messageBytes: 256,
  /** An audit sink that takes nothing for this long has failed. */
  sinkTimeoutMs: 5_000,
  /** How long an exit waits for streams to take what was written. */
  exitMs: 500,
});
