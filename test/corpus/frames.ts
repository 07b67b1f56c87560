// What must be seen after given lines went in: what arrives, which replies, which records. Judges, runs nothing.
import { CODES } from '../../lib/index.js';
import type { CodeName } from '../../lib/index.js';
import type { Seen } from './doors.js';

export const CANARY = '{"jsonrpc":"2.0","id":"canary","method":"ping"}';

export interface Expectation {
  /** Lines without their newline, as they went in, the canary not among them. */
  readonly frames: readonly Buffer[];
  /** Numbers of the frames that must arrive; no other may. */
  readonly forwarded: readonly number[];
  /** True where the canary was written after the frames. */
  readonly canary: boolean;
  readonly mustContain: readonly string[];
  /** True where no reply at all is allowed. */
  readonly silent: boolean;
}

export const split = (input: Buffer): Buffer[] => {
  const frames: Buffer[] = [];
  let start = 0;
  for (let lf = input.indexOf(10); lf !== -1; lf = input.indexOf(10, start)) {
    frames.push(input.subarray(start, lf));
    start = lf + 1;
  }
  if (start < input.length) frames.push(input.subarray(start));
  return frames;
};

const WHITE = new Set([0x20, 0x09, 0x0d]);
export const isBlank = (frame: Buffer): boolean => frame.every((byte) => WHITE.has(byte));

/** A line as it must arrive: outer white space gone, what naive readers take for a line end escaped, all else untouched. */
const arriving = (frame: Buffer): string =>
  frame
    .toString('latin1')
    .replace(/^[ \t\r]+|[ \t\r]+$/g, '')
    .replaceAll('\u00c2\u0085', '\\u0085')
    .replaceAll('\u00e2\u0080\u00a8', '\\u2028')
    .replaceAll('\u00e2\u0080\u00a9', '\\u2029');

const shorten = (text: string): string => (text.length > 160 ? `${text.slice(0, 160)}… (${text.length} bytes)` : text);

const parse = (frame: Buffer): unknown => {
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(frame));
  } catch {
    return undefined;
  }
};

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value);

/** JSON text of the id of a frame that every reader takes for a request; undefined where there may be two opinions. */
const requestId = (frame: Buffer): string | undefined => {
  const value = parse(frame);
  if (!isObject(value) || typeof value['method'] !== 'string' || 'result' in value || 'error' in value) return undefined;
  const text = frame.toString('latin1');
  const id = /"id"\s*:\s*("[!#-[\]-~]{0,256}"|-?[1-9]\d{0,14}|0)\s*[,}]/.exec(text)?.[1];
  // A second id-like member, wherever it stands, or an escape that may spell one: no single opinion.
  const ids = text.match(/"id"/gi) ?? [];
  return id !== undefined && ids.length === 1 && !text.includes('\\u') && JSON.stringify(value['id']) === id ? id : undefined;
};

/** True for what is no request in any reading: no reply may answer it. */
const answersNothing = (frame: Buffer): boolean => {
  const value = parse(frame);
  if (!isObject(value)) return false;
  const names = Object.keys(value).map((name) => name.toLowerCase());
  return !names.includes('id') || (!names.includes('method') && (names.includes('result') || names.includes('error')));
};

/** Refusals that the scan may meet in a broken line before it meets the break. */
const BEFORE_THE_BREAK = new Set<CodeName>([
  'oversize', 'too_deep', 'too_many_members', 'duplicate_name', 'name_variant', 'prototype_name', 'lone_surrogate', 'number_overflow',
]);

const isCode = (name: unknown): name is CodeName => typeof name === 'string' && Object.hasOwn(CODES, name);

/** Complaints about one reply, given the frames that were refused. */
const judgeReply = (reply: unknown, refused: readonly Buffer[]): string[] => {
  const text = shorten(JSON.stringify(reply));
  if (!isObject(reply) || reply['jsonrpc'] !== '2.0' || !isObject(reply['error'])) return [`reply is no JSON-RPC error: ${text}`];
  const { code, message, data } = reply['error'];
  const name = isObject(data) ? data['code'] : undefined;
  if (!isCode(name)) return [`reply bears no known refusal code: ${text}`];
  if (typeof message !== 'string' || message === '') return [`reply has no message: ${text}`];
  if (CODES[name].rpc !== code) return [`reply's code does not fit ${name}: ${text}`];
  const source = refused.find((frame) => requestId(frame) === JSON.stringify(reply['id'])) ?? (refused.length === 1 ? refused[0] : undefined);
  if (source === undefined) return [];
  const value = parse(source);
  const ownId = isObject(value) ? value['id'] : undefined;
  if (reply['id'] !== null && value !== undefined && reply['id'] !== ownId) return [`reply's id is not the request's: ${text}`];
  if (code === -32700 && value !== undefined && !source.includes(0x0d)) return [`valid JSON was answered as broken: ${text}`];
  if (code !== -32700 && value === undefined && !BEFORE_THE_BREAK.has(name)) return [`broken JSON was not answered as such: ${text}`];
  return [];
};

/** Everything that is wrong with what was seen. */
export const judgeFrames = (seen: Seen, expected: Expectation): string[] => {
  if (seen.exit !== 0) return [`exit ${seen.exit}: ${shorten(seen.stderr)}`];
  const complaints: string[] = [];
  const { frames } = expected;
  const forwarded = new Set(expected.forwarded);

  const wanted = [...expected.forwarded.map((index) => arriving(frames[index] ?? Buffer.alloc(0))), ...(expected.canary ? [CANARY] : [])];
  const arrived = seen.forwarded.toString('latin1');
  if (arrived !== wanted.map((line) => `${line}\n`).join('')) {
    const lines = arrived.split('\n');
    const extra = lines.filter((line) => line !== '' && !wanted.includes(line)).map(shorten);
    const missing = wanted.filter((line) => !lines.includes(line)).map(shorten);
    complaints.push(`wrong bytes arrived (unwanted ${JSON.stringify(extra)}, missing ${JSON.stringify(missing)})`);
  }
  for (const part of expected.mustContain) {
    if (!arrived.includes(Buffer.from(part).toString('latin1'))) complaints.push(`${shorten(part)} did not arrive`);
  }

  const messages = frames.flatMap((frame, index) => (isBlank(frame) ? [] : [{ frame, passes: forwarded.has(index) }]));
  const records = seen.records.slice(0, messages.length);
  if (seen.records.length !== messages.length + (expected.canary ? 1 : 0)) {
    complaints.push(`${seen.records.length} records for ${messages.length} messages${expected.canary ? ' and the canary' : ''}`);
  }
  for (const [index, { passes }] of messages.entries()) {
    const decision = records[index]?.decision;
    if (decision === 'error') complaints.push(`record ${index + 1} is a fault`);
    else if (decision !== undefined && (decision === 'forward') !== passes) complaints.push(`record ${index + 1} says ${decision}`);
  }

  const refused = messages.flatMap(({ frame, passes }) => (passes ? [] : [frame]));
  for (const reply of seen.replies) complaints.push(...judgeReply(reply, refused));
  if (expected.silent && seen.replies.length > 0) complaints.push('there may be no reply');
  if (!expected.silent) {
    if (seen.replies.length > refused.filter((frame) => !answersNothing(frame)).length) complaints.push('more replies than refused requests');
    const answered = seen.replies.map((reply) => JSON.stringify((reply as { id?: unknown }).id));
    for (const frame of refused) {
      const id = requestId(frame);
      // An id that is in flight already is answered with null.
      if (id !== undefined && !answered.includes(id) && !answered.includes('null')) complaints.push(`no reply to the refused request ${id}`);
    }
  }
  return complaints;
};
