// A policy after reading and before compiling: what either format says, with the place of everything it says.
// Owns the vocabulary only. Must not read, decide or judge.
import type { Glob } from './glob.js';
import type { Place } from './problems.js';

export type Effect = 'allow' | 'deny';

/** One pattern with one effect; a list in the source makes one rule an entry. */
export interface Rule {
  /** Made from its content, as `deny:shell.*` or `allow:methods:@lifecycle`. */
  readonly id: string;
  readonly effect: Effect;
  readonly selects: 'tools' | 'methods';
  /** As written, variables filled in. */
  readonly pattern: string;
  /** The pattern, or the members of the group it names. */
  readonly globs: readonly Glob[];
  readonly place: Place;
}

export interface RateShape {
  readonly id: string;
  readonly limit: number;
  readonly windowMs: number;
  readonly counts: 'calls' | 'messages';
  /** Which tools share the counter; null: all. */
  readonly tools: readonly Glob[] | null;
}

export interface LimitsShape {
  readonly maxBytes: number;
  readonly maxDepth: number;
  readonly flagDepth: number | null;
  /** `safe`: the tool name alphabet. `any`: every name without control characters. */
  readonly names: 'safe' | 'any';
  readonly ids: 'any' | 'unique';
  readonly rates: readonly RateShape[];
}

export interface RedactionShape {
  readonly mask: string;
  /** Levels searched; Infinity: any depth. */
  readonly depth: number;
  readonly names: readonly Glob[];
}

/** A test that the policy's author wrote into it. */
export interface PolicyTest {
  readonly kind: 'call' | 'method';
  /** The tool or method that is asked about. */
  readonly name: string;
  readonly expect: Effect;
  /** Id of the rule that must have decided; null: any. */
  readonly rule: string | null;
  readonly place: Place;
}

export interface PolicyShape {
  readonly name: string;
  /** SHA-256 of the source, hexadecimal. */
  readonly hash: string;
  readonly format: 'yaml' | 'line';
  readonly mode: 'enforce' | 'observe';
  readonly flags: readonly string[];
  readonly fallback: Effect;
  readonly rules: readonly Rule[];
  /** Server events pass unless a rule denies them, whatever the default is. */
  readonly eventsPass: boolean;
  readonly redaction: RedactionShape | null;
  readonly limits: LimitsShape;
  readonly tests: readonly PolicyTest[];
}
