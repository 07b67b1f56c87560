// Counts an audit log, and recounts it against what each session said of itself.
// Owns the figures. Must not read files, print or know a terminal. Memory is bounded whatever a log holds.
import type { Decision, Kind } from '../message.js';
import type { LogEntry } from './read.js';
import { isAuditRecord } from './record.js';
import type { AuditRecord, SummaryLine } from './record.js';

/** Rows of one table; what has no row is counted as `other`. */
const MAX_ROWS = 4096;
/** Sessions whose recount is open. The one longest without a record is settled first. */
const MAX_SESSIONS = 1024;
/** Ranges of numbers that are remembered for one leg of a session. */
const MAX_RANGES = 1024;
/** Problems, faults and differences that are told one by one; all are counted. */
const MAX_TOLD = 20;

/** Every decision, in the order in which reports show them. */
export const DECISIONS: readonly Decision[] = Object.freeze(['forward', 'deny', 'drop', 'hold', 'error'] as const);

/** Which records to look at; an absent filter lets all through. */
export interface Filters {
  readonly decision?: Decision | undefined;
  /** Asked about the decoded tool name; records without one fail this filter. */
  readonly tool?: ((name: string) => boolean) | undefined;
}

/** True where a record passes all filters. */
export const selects = (filters: Filters, record: AuditRecord): boolean =>
  (filters.decision === undefined || record.decision === filters.decision) &&
  (filters.tool === undefined || (record.tool !== null && filters.tool(record.tool)));

/** The name of the member that was masked: the last segment of its path. */
export const maskedName = (path: string): string => path.slice(path.lastIndexOf('.') + 1);

/** Rows by falling `count`, then by name; `other` sums the counts that found no row. */
export interface Ranking<Row> {
  readonly rows: readonly Row[];
  readonly other: number;
}

export interface ReasonRow {
  readonly decision: Decision;
  /** The decision that observe mode withheld. */
  readonly would: Decision | null;
  readonly code: string;
  readonly rule: string | null;
  count: number;
}

export interface ToolRow {
  readonly tool: string;
  count: number;
  forwarded: number;
  refused: number;
  /** Messages with at least one masked value. */
  redacted: number;
  bytes_in: number;
}

export interface MethodRow {
  /** Null for a response, and where a message had no readable method. */
  readonly method: string | null;
  readonly kind: Kind;
  count: number;
  forwarded: number;
  refused: number;
  bytes_in: number;
}

export interface KeyRow {
  /** Last segment of the path of a masked value. */
  readonly key: string;
  count: number;
}

/** What a summary line says that a reader can count again. */
export type Recounted = 'messages' | Decision | 'bytes_in' | 'bytes_out' | 'redacted';

export interface Difference {
  readonly session: string;
  readonly field: Recounted;
  readonly summary: number;
  readonly counted: number;
}

/** The figures of one log. Everything from `messages` to `methods` is of the records that pass the filters. */
export interface Report {
  readonly v: 1;
  readonly messages: number;
  readonly decisions: Readonly<Record<Decision, number>>;
  /** Messages forwarded by observe mode, by the decision it withheld. */
  readonly would: Readonly<Record<Decision, number>>;
  readonly bytes_in: number;
  readonly bytes_out: number;
  /** Milliseconds since 1970; null where there is no record. */
  readonly first_ts_ms: number | null;
  readonly last_ts_ms: number | null;
  readonly redacted: { readonly messages: number; readonly values: number; readonly keys: Ranking<KeyRow> };
  /** Over the messages that were parsed; null where there is none. */
  readonly depth: { readonly max: number | null; readonly mean: number | null };
  readonly reasons: Ranking<ReasonRow>;
  readonly tools: Ranking<ToolRow>;
  /** Messages that name no tool. */
  readonly methods: Ranking<MethodRow>;
  readonly sessions: number;
  /** Records whose event was counted before. */
  readonly repeated: number;
  readonly faults: { readonly count: number; readonly first: ReadonlyArray<{ line: number; ts_ms: number; where: string; reason: string }> };
  /** Lines that are none of ours. */
  readonly problems: { readonly count: number; readonly first: ReadonlyArray<{ line: number; problem: string }> };
  /** Over all records, whatever the filters. One session that differs makes the result MISMATCH. */
  readonly recount: {
    readonly result: 'MATCHES' | 'MISMATCH' | 'no summary';
    readonly matching: number;
    readonly differing: number;
    readonly without_summary: number;
    readonly differences: readonly Difference[];
  };
}

/** A table of at most MAX_ROWS rows. */
class Tally<Row extends { count: number }> {
  readonly #rows = new Map<string, Row>();
  #other = 0;

  /** Counts one more under `key`; returns its row, or null where the table is full. */
  count(key: string, make: (key: string) => Row): Row | null {
    let row = this.#rows.get(key);
    if (row === undefined) {
      if (this.#rows.size >= MAX_ROWS) {
        this.#other += 1;
        return null;
      }
      // A copy: V8 keeps the whole line alive behind a slice of it.
      const own = Buffer.from(key, 'utf16le').toString('utf16le');
      row = make(own);
      this.#rows.set(own, row);
    }
    row.count += 1;
    return row;
  }

  ranking(): Ranking<Row> {
    const entries = [...this.#rows].sort(([a, left], [b, right]) => right.count - left.count || (a < b ? -1 : 1));
    return { rows: entries.map(([, row]) => row), other: this.#other };
  }
}

/**
 * Numbers seen before, as ranges: one range for a whole log, since numbers count up. Where a log is so torn that there
 * are too many, the lowest gap is given up, and a number in it then passes for a repeated one.
 */
class Seen {
  readonly #ranges: Array<{ first: number; last: number }> = [];

  /** False where `number` was added before. */
  add(number: number): boolean {
    const ranges = this.#ranges;
    const newest = ranges.at(-1);
    if (newest === undefined || number > newest.last + 1) {
      ranges.push({ first: number, last: number });
      this.#bound();
      return true;
    }
    if (number === newest.last + 1) {
      newest.last = number;
      return true;
    }
    // The first range that holds the number, ends right before it, or lies after it.
    let low = 0;
    let high = ranges.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if ((ranges[middle]?.last ?? 0) >= number - 1) high = middle;
      else low = middle + 1;
    }
    const range = ranges[low] ?? newest;
    const next = ranges[low + 1];
    if (number >= range.first && number <= range.last) return false;
    if (number === range.last + 1) {
      range.last = number;
      if (next?.first === number + 1) {
        range.last = next.last;
        ranges.splice(low + 1, 1);
      }
    } else if (number === range.first - 1) {
      range.first = number;
    } else {
      ranges.splice(low, 0, { first: number, last: number });
      this.#bound();
    }
    return true;
  }

  #bound(): void {
    const [lowest, second] = this.#ranges;
    if (this.#ranges.length <= MAX_RANGES || lowest === undefined || second === undefined) return;
    lowest.last = second.last;
    this.#ranges.splice(1, 1);
  }
}

type Counts = Record<Recounted, number>;

interface Session {
  readonly id: string;
  readonly counts: Counts;
  readonly seen: { readonly c: Seen; readonly s: Seen };
  summary: SummaryLine | null;
}

const byDecision = (): Record<Decision, number> => ({ forward: 0, deny: 0, drop: 0, hold: 0, error: 0 });

const newSession = (id: string): Session => ({
  id,
  counts: { messages: 0, ...byDecision(), bytes_in: 0, bytes_out: 0, redacted: 0 },
  seen: { c: new Seen(), s: new Seen() },
  summary: null,
});

const addTo = (counts: Counts, record: AuditRecord): void => {
  counts.messages += 1;
  counts[record.decision] += 1;
  counts.bytes_in += record.bytes_in;
  counts.bytes_out += record.bytes_out;
  if ((record.redacted?.length ?? 0) > 0) counts.redacted += 1;
};

/** `7f3a91c2.c.000042` → session, leg, number; null where an event is not of this form. */
const partsOf = (event: string): { session: string; leg: 'c' | 's'; number: number } | null => {
  const found = /^([^.]+)\.([cs])\.(\d{1,15})$/.exec(event);
  if (found?.[1] === undefined) return null;
  return { session: found[1], leg: found[2] === 'c' ? 'c' : 's', number: Number(found[3]) };
};

/** The id of every session whose clock is frozen: it tells none from another. */
const isFrozen = (id: string): boolean => /^0+$/.test(id);

/** Takes the lines of one log in order, then tells the figures. */
export const createReport = (filters: Filters = {}): { add(entry: LogEntry): void; finish(): Report } => {
  const total = newSession('').counts;
  const would = byDecision();
  const keys = new Tally<KeyRow>();
  const reasons = new Tally<ReasonRow>();
  const tools = new Tally<ToolRow>();
  const methods = new Tally<MethodRow>();
  const faults: Array<{ line: number; ts_ms: number; where: string; reason: string }> = [];
  const problems: Array<{ line: number; problem: string }> = [];
  let faultCount = 0;
  let problemCount = 0;
  let first: number | null = null;
  let last: number | null = null;
  let values = 0;
  let deepest = 0;
  let depths = 0;
  let parsed = 0;
  let repeated = 0;

  const sessions = new Map<string, Session>();
  let sessionCount = 0;
  let current: Session | null = null;
  const settled = { matching: 0, differing: 0, without_summary: 0, differences: [] as Difference[] };

  const settle = ({ id, counts, summary }: Session): void => {
    if (summary === null) {
      settled.without_summary += 1;
      return;
    }
    const fields = (Object.keys(counts) as Recounted[]).filter((field) => counts[field] !== summary[field]);
    if (fields.length === 0) settled.matching += 1;
    else settled.differing += 1;
    for (const field of fields) {
      if (settled.differences.length >= MAX_TOLD) break;
      settled.differences.push({ session: id, field, summary: summary[field], counted: counts[field] });
    }
  };

  /** Makes the session of this id the current one, the last to be settled. */
  const enter = (id: string): Session => {
    if (current?.id === id) return current;
    const session = sessions.get(id) ?? newSession(id);
    if (!sessions.delete(id)) sessionCount += 1;
    sessions.set(id, session);
    current = session;
    for (const oldest of sessions.values()) {
      if (sessions.size <= MAX_SESSIONS) break;
      sessions.delete(oldest.id);
      settle(oldest);
    }
    return session;
  };

  const begin = (id: string): void => {
    const frozen = isFrozen(id) ? sessions.get(id) : undefined;
    if (frozen !== undefined) {
      sessions.delete(id);
      settle(frozen);
      current = null;
    }
    enter(id);
  };

  /** Counts a record in its session. False where its event was counted before. */
  const recount = (record: AuditRecord): boolean => {
    const parts = partsOf(record.event);
    const session = parts === null ? current ?? enter('') : enter(parts.session);
    if (parts !== null && !session.seen[parts.leg].add(parts.number)) return false;
    addTo(session.counts, record);
    return true;
  };

  const tally = (record: AuditRecord): void => {
    addTo(total, record);
    if (record.would !== undefined) would[record.would] += 1;
    first = first === null ? record.ts_ms : Math.min(first, record.ts_ms);
    last = last === null ? record.ts_ms : Math.max(last, record.ts_ms);
    if (record.max_depth > 0) {
      deepest = Math.max(deepest, record.max_depth);
      depths += record.max_depth;
      parsed += 1;
    }
    const masked = record.redacted ?? [];
    values += masked.length;
    for (const path of masked) keys.count(maskedName(path), (key) => ({ key, count: 0 }));

    const { decision, code, method, kind, tool } = record;
    const rule = record.rule ?? null;
    const withheld = record.would ?? null;
    reasons.count(JSON.stringify([decision, withheld, code, rule]), () => ({ decision, would: withheld, code, rule, count: 0 }));
    const row = tool !== null
      ? tools.count(tool, () => ({ tool, count: 0, forwarded: 0, refused: 0, redacted: 0, bytes_in: 0 }))
      : methods.count(JSON.stringify([method, kind]), () => ({ method, kind, count: 0, forwarded: 0, refused: 0, bytes_in: 0 }));
    if (row === null) return;
    if (decision === 'forward') row.forwarded += 1;
    else row.refused += 1;
    row.bytes_in += record.bytes_in;
    if ('redacted' in row && masked.length > 0) row.redacted += 1;
  };

  return {
    /** Counts one line of the log. */
    add(entry) {
      if ('problem' in entry) {
        problemCount += 1;
        if (problems.length < MAX_TOLD) problems.push({ line: entry.line, problem: entry.problem });
        return;
      }
      const { line, value } = entry;
      if (isAuditRecord(value)) {
        if (!recount(value)) repeated += 1;
        else if (selects(filters, value)) tally(value);
      } else if (value.type === 'session') {
        begin(value.session);
      } else if (value.type === 'summary') {
        (current ?? enter('')).summary = value;
      } else {
        faultCount += 1;
        const { ts_ms, where, reason } = value;
        if (faults.length < MAX_TOLD) faults.push({ line, ts_ms, where, reason });
      }
    },

    /** The figures. To be called once, after the last line. */
    finish() {
      for (const session of sessions.values()) settle(session);
      const { messages, bytes_in, bytes_out, redacted, ...decisions } = total;
      const result = settled.differing > 0 ? 'MISMATCH' : settled.matching > 0 ? 'MATCHES' : 'no summary';
      return {
        v: 1,
        messages,
        decisions,
        would,
        bytes_in,
        bytes_out,
        first_ts_ms: first,
        last_ts_ms: last,
        redacted: { messages: redacted, values, keys: keys.ranking() },
        depth: parsed === 0
          ? { max: null, mean: null }
          : { max: deepest, mean: Math.round((depths * 100) / parsed) / 100 },
        reasons: reasons.ranking(),
        tools: tools.ranking(),
        methods: methods.ranking(),
        sessions: sessionCount,
        repeated,
        faults: { count: faultCount, first: faults },
        problems: { count: problemCount, first: problems },
        recount: { result, ...settled },
      };
    },
  };
};
