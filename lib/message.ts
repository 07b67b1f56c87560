// What flows through a leg: one Message a line, and the Verdict written on it.
// Owns the vocabulary only. Must not import anything, parse, decide or do I/O.

/** `c2s`: client to server. `s2c`: server to client. */
export type Direction = 'c2s' | 's2c';

/** JSON-RPC 2.0 kinds; `invalid` is a line that is none of them beyond doubt. */
export type Kind = 'request' | 'notification' | 'response' | 'invalid';

/**
 * forward: it passes. deny: a policy, name, budget or breaker says no. drop: rate, size or bad form.
 * hold: a human must decide first. error: a fault of our own.
 */
export type Decision = 'forward' | 'deny' | 'drop' | 'hold' | 'error';

export type Severity = 'info' | 'low' | 'medium' | 'high' | 'critical';

/** A decision with its reasons. Frozen and shared by every message that gets the same one. */
export interface Verdict {
  readonly decision: Decision;
  /** Stable machine reason from the table in `errors.ts`. */
  readonly code: string;
  readonly severity: Severity;
  /** Id of the rule that decided, or null where no rule of a policy spoke. */
  readonly rule: string | null;
  /** One sentence for people: what was decided and by what. */
  readonly reason: string;
  /** One sentence: what would be allowed instead. Empty for a forward. */
  readonly hint: string;
  /** The decision that observe mode withheld. */
  readonly would?: Decision;
  /** Milliseconds until the same request could pass. */
  readonly retryAfterMs?: number;
}

/** One span of the line that is replaced before it is forwarded. Offsets are into `Message.bytes`. */
export interface Edit {
  readonly start: number;
  readonly end: number;
  readonly bytes: Uint8Array;
  /** `mask`: a redaction. `line_break`: a raw U+0085, U+2028 or U+2029, escaped. */
  readonly kind: 'mask' | 'line_break';
  /** Dotted path from the message's root, member names only as they decode. */
  readonly path: string;
}

/** A rate limit: at most `limit` forwarded messages in any half-open window of `windowMs`. */
export interface RateLimit {
  readonly id: string;
  readonly limit: number;
  readonly windowMs: number;
  /** `calls`: forwarded `tools/call` requests. `messages`: everything forwarded (McpBastion's meaning). */
  readonly counts: 'calls' | 'messages';
  /** Which tools share this counter. Null: all of them. */
  readonly tools: ((name: string) => boolean) | null;
}

export interface Limits {
  /** Bytes of one line without its newline; a longer one is refused before any parsing. */
  readonly maxBytes: number;
  /** Containers that may be open at once, the message itself included. */
  readonly maxDepth: number;
  /** Deeper than this is only flagged (`deep`); null: never. */
  readonly flagDepth: number | null;
  /** `unique`: a request id seen among the last 4 096 forwarded requests is refused. */
  readonly ids: 'any' | 'unique';
  readonly rates: readonly RateLimit[];
}

/** Which argument values are masked, and with what. */
export interface Redaction {
  readonly mask: string;
  /** Levels of `arguments` that are searched; Infinity: all of `params` at any depth. */
  readonly depth: number;
  /** True where the value of a member of this decoded name is masked. */
  readonly masks: (name: string) => boolean;
}

/**
 * A compiled policy, as the stages see it: frozen, and carried by each message it judges.
 * Every answer is a value; none of these functions throws or does I/O.
 */
export interface Policy {
  readonly name: string;
  /** SHA-256 of the source text, hexadecimal. */
  readonly hash: string;
  /** `observe`: rules decide and are recorded, but refuse nothing. */
  readonly mode: 'enforce' | 'observe';
  /** Flags put on every record judged by this policy, e.g. `no_policy`. */
  readonly flags: readonly string[];
  readonly limits: Limits;
  readonly redaction: Redaction | null;
  /** The verdict on a `tools/call` of this decoded tool name. */
  readonly tool: (name: string) => Verdict;
  /** The verdict on any other message, by its decoded method; `null` for a response. */
  readonly method: (method: string | null) => Verdict;
}

/**
 * One line and all that is known of it. Stages write on it; from the Classifier on none removes it.
 * Offsets are into `bytes`; -1 means absent.
 */
export class Message {
  /** Number in its leg, from 1. */
  seq = 0;
  dir: Direction;
  kind: Kind = 'invalid';
  /** Holds the line; `bytes[start, end)` is it without outer white space, `bytes[end]` exists and is white space. */
  bytes: Uint8Array;
  start: number;
  end: number;
  /** Bytes of the line as it came, newline not counted. */
  bytesIn: number;
  /** True when the line was skipped for its size: `bytes` then holds no more than its id. */
  oversize = false;

  /** JSON text of the id, where it is present once and valid. */
  idStart = -1;
  idEnd = -1;
  /** False where a reply must carry `null` although the id is readable (already in flight). */
  idUsable = true;
  method: string | null = null;
  /** Decoded `params.name` of a `tools/call`. */
  tool: string | null = null;
  paramsStart = -1;
  paramsEnd = -1;
  argumentsStart = -1;
  argumentsEnd = -1;
  /** Deepest nesting seen, the message itself being 1; 0 where it was not parsed. */
  maxDepth = 0;
  /** True where strings hold a raw U+0085, U+2028 or U+2029. */
  hasLineBreaks = false;

  /** False only where it is proven that no member below `params` has a name that the policy's redaction masks. */
  watched = true;

  policy: Policy | null = null;
  verdict: Verdict | null = null;
  edits: Edit[] | null = null;
  /** The line to forward where edits changed it; else the bytes as they came. */
  output: Uint8Array | null = null;
  flags: string[] | null = null;
  /** Why a stage failed over the array this message was in: its record is written, and nothing passes after it. */
  fault: string | null = null;
  /** Id of the audit record, written by the tap. */
  event = '';

  constructor(dir: Direction, bytes: Uint8Array, start: number, end: number, bytesIn: number) {
    this.dir = dir;
    this.bytes = bytes;
    this.start = start;
    this.end = end;
    this.bytesIn = bytesIn;
  }
}

/** True for a message that no stage has refused so far. */
export const passes = (message: Message): boolean =>
  message.verdict === null || message.verdict.decision === 'forward';

/**
 * A stage: a synchronous function over one array, without I/O of its own. Clock, policy and state come in
 * through the factory that makes it. `end` is called once, after the last array. `commit`, where present, makes
 * what `step` decided durable before any of its output moves on: `done` gets an Error when that failed.
 */
export interface Stage<In, Out> {
  readonly name: string;
  /** What comes out; what a failing stage was given can be handed on to be recorded only where these are messages. */
  readonly emits: 'messages' | 'bytes';
  step(batch: readonly In[]): Out[];
  end?(): Out[];
  commit?(done: (error?: Error) => void): void;
}
