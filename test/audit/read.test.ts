// Reading a log: real line numbers, every kind of bad line, and memory that does not grow with the file.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import t from 'tap';
import { Readable } from 'node:stream';
import { readLog } from '../../lib/audit/read.js';
import type { LogEntry } from '../../lib/audit/read.js';

const record = (number: number, more: object = {}): Record<string, unknown> => ({
  v: 1, event: `7f3a91c2.c.${String(number).padStart(6, '0')}`, ts_ms: 1_700_000_000_000 + number, seq: number, dir: 'c2s',
  kind: 'request', decision: 'forward', code: 'allowed', severity: 'info', rule: 'reads', reason: 'a rule allows it',
  method: 'tools/call', tool: 'read_file', target: null, rpc_id: String(number), bytes_in: 100, bytes_out: 100, max_depth: 3,
  ...more,
});
const SESSION = {
  v: 1, type: 'session', session: '7f3a91c2', ts_ms: 1, version: '0.1.0', policy: 'strict', policy_sha256: 'ab', mode: 'enforce',
};
const SUMMARY = {
  v: 1, type: 'summary', ts_ms: 2, messages: 1, forward: 1, deny: 0, drop: 0, hold: 0, error: 0, bytes_in: 100, bytes_out: 100,
  redacted: 0, blank: 0, replies: 0, replies_unwritten: 0, sent: 1,
};
const FAULT = { v: 1, type: 'fault', ts_ms: 3, where: 'sink', reason: 'no space left' };

const read = async (text: string | Buffer, step = 1 << 16, options: { maxLine?: number } = {}): Promise<LogEntry[]> => {
  const bytes = Buffer.from(text as string);
  const pieces: Buffer[] = [];
  for (let at = 0; at < bytes.length; at += step) pieces.push(bytes.subarray(at, at + step));
  const entries: LogEntry[] = [];
  for await (const entry of readLog(Readable.from(pieces), options)) entries.push(entry);
  return entries;
};
const brief = (entries: readonly LogEntry[]): unknown[] =>
  entries.map((entry) => [entry.line, 'problem' in entry ? entry.problem : 'event' in entry.value ? entry.value.event : entry.value.type]);

t.test('every line has its number, however the bytes are cut', async (t) => {
  const text = [
    JSON.stringify(SESSION), '', ' \t\r', `${JSON.stringify(record(1))}\r`, 'hello', '{"v":1,"event":', '[]', '7', '{}',
    JSON.stringify({ v: 2, event: 'x' }), JSON.stringify({ v: 1, type: 'toString' }), JSON.stringify({ v: 1, type: 'seal' }),
    'x'.repeat(2000), JSON.stringify(FAULT), JSON.stringify(SUMMARY), '\ufeff{}', JSON.stringify(record(2)).slice(0, 90),
  ].join('\n');
  const wanted = [
    [1, 'session'], [4, '7f3a91c2.c.000001'], [5, 'not JSON'], [6, 'not JSON'], [7, 'not a JSON object'], [8, 'not a JSON object'],
    [9, 'not a line of an audit log of version 1'], [10, 'not a line of an audit log of version 1'],
    [11, 'neither a record nor a line of a known type'], [12, 'neither a record nor a line of a known type'],
    [13, 'longer than 1000 bytes'], [14, 'fault'], [15, 'summary'], [16, 'not JSON'], [17, 'torn: the log ends inside this line'],
  ];
  for (const step of [1 << 16, 700, 7, 1]) t.same(brief(await read(text, step, { maxLine: 1000 })), wanted, `in steps of ${step}`);
});

t.test('ends', async (t) => {
  t.same(await read(''), []);
  t.same(await read('\n\n'), []);
  t.same(brief(await read(JSON.stringify(record(1)))), [[1, '7f3a91c2.c.000001']], 'whole, though without newline');
  t.same(brief(await read('x'.repeat(50), 8, { maxLine: 20 })), [[1, 'longer than 20 bytes']], 'too long, without newline');
  t.same(brief(await read(`${'x'.repeat(20)}\n${'x'.repeat(21)}\n`, 4, { maxLine: 20 })), [[1, 'not JSON'], [2, 'longer than 20 bytes']]);
  t.same(brief(await read(Buffer.from([0x22, 0xff, 0x22, 0x0a]))), [[1, 'not UTF-8']]);
  const strings: LogEntry[] = [];
  for await (const entry of readLog(Readable.from(['{"v":1,', `"type":"fault","ts_ms":1,"where":"w","reason":"r"}\n`]))) strings.push(entry);
  t.same(brief(strings), [[1, 'fault']], 'text chunks');
  const broken = new Readable({ read() { this.destroy(new Error('disk')); } });
  await t.rejects(readLog(broken).next(), { message: 'disk' }, 'what the source throws comes through');
});

t.test('the shape of each line is checked, field by field', async (t) => {
  const full = record(1, { redacted: ['params.arguments.key'], edits: [{ kind: 'line_break', path: 'a' }], flags: ['deep'], would: 'deny', risk: 7 });
  t.same((await read(JSON.stringify(full)))[0], { line: 1, value: full }, 'unknown members pass');
  const bad: Array<[string, unknown]> = [
    ['event', 7], ['event', 'x'.repeat(1025)], ['ts_ms', 9e15], ['ts_ms', '1'], ['seq', -1], ['seq', 1.5], ['dir', 'up'], ['kind', 'toString'],
    ['decision', 'maybe'], ['code', null], ['severity', ''], ['rule', null], ['reason', 1], ['method', 1], ['tool', {}], ['target', false],
    ['rpc_id', 1], ['bytes_in', null], ['bytes_out', '1'], ['redacted', 'key'], ['redacted', [1]], ['edits', [null]], ['edits', [{ kind: 'x' }]],
    ['max_depth', 1e300], ['flags', {}], ['would', 'x'],
  ];
  for (const [key, value] of bad) {
    t.same(await read(JSON.stringify(record(1, { [key]: value }))), [{ line: 1, problem: `\`${key}\` is not what an audit log writes there` }], key);
  }
  for (const line of [record(1), SESSION, SUMMARY, FAULT]) {
    const keys = Object.keys(line).filter((key) => !['v', 'event', 'type', 'rule'].includes(key));
    for (const key of keys) {
      t.same(await read(JSON.stringify({ ...line, [key]: undefined })), [{ line: 1, problem: `\`${key}\` is missing` }], key);
    }
  }
});

t.test('200 000 lines and one line of 64 MiB, in the memory of a few', async (t) => {
  const lines = 200_000;
  const filler = Buffer.alloc(1 << 16, 0x61);
  let peak = 0;
  // What is held, not what waits to be collected: that depends on the mood of the collector.
  setFlagsFromString('--expose-gc');
  const collect = runInNewContext('gc') as () => void;
  const heap = (): number => {
    collect();
    const { heapUsed, external } = process.memoryUsage();
    return heapUsed + external;
  };
  const before = heap();
  const [head, tail] = JSON.stringify(record(1)).split('.c.000001');
  async function* source(): AsyncGenerator<Buffer> {
    for (let at = 1; at <= lines; at += 200) {
      yield Buffer.from(Array.from({ length: 200 }, (_, i) => `${head}.c.${at + i}${tail}\n`).join(''));
      if (at % 20_000 === 1) peak = Math.max(peak, heap() - before);
    }
    for (let i = 0; i < 1024; i += 1) {
      yield filler;
      if (i % 64 === 0) peak = Math.max(peak, heap() - before);
    }
  }
  let records = 0;
  let problem: LogEntry | null = null;
  for await (const entry of readLog(source())) {
    if ('problem' in entry) problem = entry;
    else records += 1;
  }
  t.equal(records, lines);
  t.same(problem, { line: lines + 1, problem: 'longer than 1048576 bytes' });
  // The log has 130 MiB; its records as objects would take twice that.
  t.ok(peak < 32 * 1024 * 1024, `far less than the log: ${peak} bytes`);
});
