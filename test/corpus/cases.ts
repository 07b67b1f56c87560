// The case files as they are on disk: their shapes, and reading them. Knows nothing of how a case is run.
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';

/** A part of a line repeated until it is longer than the product's limit. */
export interface GeneratedInput {
  readonly prefix_base64: string;
  readonly repeat_base64: string;
  /** A number, or arithmetic from left to right over `limit_bytes` and integers: `limit_bytes/4096*4`. */
  readonly count: number | string;
  readonly suffix_base64: string;
}

export interface FramingCase {
  readonly name: string;
  readonly verdict: 'forward' | 'refuse';
  readonly confidence: 'firm' | 'judgement';
  readonly direction?: 'c2s' | 's2c';
  readonly input_base64?: string;
  readonly input_gen?: GeneratedInput;
  /** 0-based numbers of the lines that must arrive; all others must not. */
  readonly forwarded_lines?: readonly number[];
  readonly must_contain?: string | readonly string[];
  readonly no_reply?: boolean;
  readonly ignored?: boolean;
  readonly eof?: boolean;
  readonly max_ms?: number;
  /** How to cut the writes, in words, or the lengths of the pieces. */
  readonly chunks?: string | readonly number[];
  readonly setup?: string;
  readonly expect_reply?: boolean;
}

export interface JsonTestSuiteCase {
  readonly file: string;
  /** A: the file is the arguments value. B: it is the value of a member of the arguments. */
  readonly mode: 'A' | 'B';
  readonly verdict: 'forward' | 'refuse';
}

export interface RelayCase {
  readonly id: string;
  readonly policy_text: string;
  readonly input_base64: string;
  readonly expect: 'refuse' | 'forward' | 'forward-redacted' | 'policy-error';
}

export interface ToolPattern {
  readonly exact?: string;
  readonly glob?: string;
  readonly regex_full?: string;
}

/** The first rule whose tool pattern and conditions are met decides. */
export interface NeutralPolicy {
  readonly default: string;
  readonly rules?: readonly { readonly effect: string; readonly tool: ToolPattern; readonly when?: readonly unknown[] }[] | null;
  readonly rate?: readonly { readonly tool: ToolPattern; readonly limit: number; readonly per_seconds: number }[];
}

export interface RateStep {
  /** Seconds on the injected clock. */
  readonly t: number;
  readonly name: string | null;
  readonly method?: string;
  readonly rule_denies?: boolean;
}

export interface PolicyCase {
  readonly id: string;
  readonly kind: string;
  readonly expect: string | readonly string[];
  readonly acceptable?: readonly string[];
  readonly policy?: NeutralPolicy;
  /** The text of a file, or what it holds in neutral form. */
  readonly policy_text?: string | Record<string, unknown>;
  readonly call?: { readonly name: string; readonly arguments?: Record<string, unknown> };
  readonly raw_line_base64?: string;
  readonly must_not_contain?: readonly string[];
  readonly sequence?: readonly RateStep[];
  readonly max_ms?: number;
}

/** What stands in every file of a kind that no issue has brought yet. */
export interface OtherCase {
  readonly id: string;
  readonly kind?: string;
}

/** The gzipped JSON Lines files of a folder, held-back ones included, by the name before the first dot. */
export const caseFiles = (folder: string): { path: string; name: string; format: string }[] =>
  readdirSync(folder)
    .filter((name) => name.endsWith('.jsonl.gz'))
    .sort()
    .map((name) => ({ path: join(folder, name), name: name.slice(0, -'.jsonl.gz'.length), format: name.split('.')[0] ?? '' }));

export const readCases = <T>(path: string): T[] =>
  gunzipSync(readFileSync(path))
    .toString('utf8')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as T);

export const generate = (input: GeneratedInput, limitBytes: number): Buffer => {
  const [first = '', ...rest] = String(input.count).replaceAll(/\s/g, '').split(/(?=[*/])/);
  const value = (term: string): number => (term === 'limit_bytes' ? limitBytes : Number(term));
  const count = rest.reduce((sum, term) => (term.startsWith('*') ? sum * value(term.slice(1)) : sum / value(term.slice(1))), value(first));
  if (!Number.isFinite(count)) throw new Error(`cannot read the count ${JSON.stringify(input.count)}`);
  const repeat = Buffer.from(input.repeat_base64, 'base64');
  return Buffer.concat([
    Buffer.from(input.prefix_base64, 'base64'),
    ...Array.from({ length: Math.ceil(count) }, () => repeat),
    Buffer.from(input.suffix_base64, 'base64'),
  ]);
};
