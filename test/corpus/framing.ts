// Framing cases, and files of a JSON parsing suite in the place of a call's arguments: only form is judged.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { DEFAULTS } from '../../lib/defaults.js';
import { generate } from './cases.js';
import type { FramingCase, JsonTestSuiteCase } from './cases.js';
import type { Door } from './doors.js';
import { CANARY, isBlank, judgeFrames, split } from './frames.js';
import { judged, notRun } from './outcome.js';
import type { Outcome } from './outcome.js';

const ALLOW_ALL = 'version: 1\nname: corpus\ndefault: allow\n';
const UNIQUE_IDS = `${ALLOW_ALL}limits: { ids: unique }\n`;

const ORDINALS = ['first', 'second', 'third', 'fourth', 'fifth'];

/** Offsets after which a new write begins. What no pattern here reads is cut everywhere: cuts may never matter. */
const cutPoints = (input: Buffer, chunks: string | readonly number[]): number[] => {
  const offsets = [...input.keys()].slice(1);
  if (typeof chunks !== 'string') return chunks.map((_, index) => chunks.slice(0, index + 1).reduce((sum, length) => sum + length, 0));
  const each = /(\d+) bytes? each/.exec(chunks)?.[1];
  if (each !== undefined) return offsets.filter((offset) => offset % Number(each) === 0);
  if (/inside every multi-byte character/.test(chunks)) return offsets.filter((offset) => ((input[offset] ?? 0) & 0xc0) === 0x80);
  if (/between CR and LF/.test(chunks)) return offsets.filter((offset) => input[offset] === 10 && input[offset - 1] === 13);
  const [, bytes, ordinal] = /cut (\d+) bytes into the (\w+) line/.exec(chunks) ?? [];
  const line = ORDINALS.indexOf(ordinal ?? '');
  if (line === -1) return offsets;
  return [split(input).slice(0, line).reduce((sum, frame) => sum + frame.length + 1, 0) + Number(bytes)];
};

const cut = (input: Buffer, points: readonly number[]): Buffer[] => {
  const edges = [0, ...points.filter((point) => point < input.length), input.length];
  return edges.slice(1).map((end, index) => input.subarray(edges[index], end));
};

const idOf = (frame: Buffer): string | undefined => {
  try {
    return JSON.stringify((JSON.parse(frame.toString('utf8')) as { id?: unknown }).id);
  } catch {
    return undefined;
  }
};

/** True where a frame that must not pass bears the id of an earlier one: only `limits.ids: unique` refuses that. */
const wantsUniqueIds = (frames: readonly Buffer[], forwarded: readonly number[]): boolean =>
  frames.some((frame, index) => {
    const id = idOf(frame);
    return id !== undefined && !forwarded.includes(index) && frames.slice(0, index).some((other) => idOf(other) === id);
  });

export const framingCase = async (one: FramingCase, door: Door, timed: boolean): Promise<Outcome> => {
  if (one.direction === 's2c') return notRun(one.name, 'server to client: comes with a later issue');
  if (one.setup !== undefined || one.expect_reply === true) return notRun(one.name, 'needs both legs: comes with a later issue');
  const input = one.input_gen === undefined ? Buffer.from(one.input_base64 ?? '', 'base64') : generate(one.input_gen, DEFAULTS.maxBytes);
  const frames = split(input);
  const all = [...frames.keys()].filter((index) => !isBlank(frames[index] ?? input));
  const forwarded = one.forwarded_lines ?? (one.verdict === 'forward' ? all : []);
  const canary = one.eof !== true;
  const open = input.length > 0 && input.at(-1) !== 10;
  const seen = await door({
    policy: wantsUniqueIds(frames, forwarded) ? UNIQUE_IDS : ALLOW_ALL,
    pieces: [
      ...cut(input, one.chunks === undefined ? [] : cutPoints(input, one.chunks)),
      ...(canary ? [Buffer.from(`${open ? '\n' : ''}${CANARY}\n`)] : []),
    ],
  });
  const complaints = judgeFrames(seen, {
    frames,
    forwarded,
    canary,
    mustContain: one.must_contain === undefined ? [] : [one.must_contain].flat(),
    silent: one.no_reply === true || one.ignored === true,
  });
  if (timed && one.max_ms !== undefined && seen.ms > one.max_ms) complaints.push(`took ${Math.round(seen.ms)} ms, not ${one.max_ms}`);
  return judged(one.name, one.confidence === 'judgement' ? complaints.map((text) => `${text} [a judgement]`) : complaints);
};

export const jsonTestSuiteCase = async (one: JsonTestSuiteCase, folder: string | undefined, door: Door): Promise<Outcome> => {
  const id = `${one.file}/${one.mode}`;
  if (folder === undefined) return notRun(id, 'JSONTESTSUITE=DIR names no folder with the test_parsing files');
  const file = readFileSync(join(folder, one.file));
  const [before, after] = one.mode === 'A' ? ['', ''] : ['{"v":', '}'];
  const input = Buffer.concat([
    Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"echo","arguments":${before}`),
    file,
    Buffer.from(`${after}}}\n`),
  ]);
  const seen = await door({ policy: ALLOW_ALL, pieces: [input, Buffer.from(`${CANARY}\n`)] });
  const frames = split(input);
  const forwarded = one.verdict === 'forward' ? [...frames.keys()] : [];
  return judged(id, judgeFrames(seen, { frames, forwarded, canary: true, mustContain: [], silent: false }));
};
