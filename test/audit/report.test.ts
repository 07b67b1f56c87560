// Counting a log: figures, filters, repeated events, sessions and their recount, and bounds.
import t from 'tap';
import { createReport, selects } from '../../lib/audit/report.js';
import type { Filters, Report } from '../../lib/audit/report.js';
import type { AuditRecord, FaultLine, LogLine, SessionLine, SummaryLine } from '../../lib/audit/record.js';

const record = (event: string, more: Partial<AuditRecord> = {}): AuditRecord => ({
  v: 1, event, ts_ms: 1000, seq: 1, dir: 'c2s', kind: 'request', decision: 'forward', code: 'allowed', severity: 'info',
  rule: 'reads', reason: 'a rule allows it', method: 'tools/call', tool: 'read_file', target: null, rpc_id: '1',
  bytes_in: 100, bytes_out: 90, max_depth: 3, ...more,
});
const denied = (event: string, more: Partial<AuditRecord> = {}): AuditRecord =>
  record(event, { decision: 'deny', code: 'tool_denied', rule: 'no-shell', tool: 'bash', bytes_out: 0, ...more });
const session = (id: string): SessionLine => ({
  v: 1, type: 'session', session: id, ts_ms: 1, version: '0.1.0', policy: 'strict', policy_sha256: 'ab', mode: 'enforce',
});
const summary = (counts: Partial<SummaryLine> = {}): SummaryLine => ({
  v: 1, type: 'summary', ts_ms: 9, messages: 1, forward: 1, deny: 0, drop: 0, hold: 0, error: 0, bytes_in: 100, bytes_out: 90,
  redacted: 0, blank: 3, replies: 0, replies_unwritten: 0, sent: 1, ...counts,
});
const fault: FaultLine = { v: 1, type: 'fault', ts_ms: 5, where: 'sink', reason: 'no space left' };

const reportOf = (lines: Iterable<LogLine>, filters?: Filters): Report => {
  const report = createReport(filters);
  let line = 0;
  for (const value of lines) report.add({ line: ++line, value });
  return report.finish();
};

t.test('nothing at all', async (t) => {
  const report = createReport().finish();
  t.match(report, {
    v: 1, messages: 0, first_ts_ms: null, last_ts_ms: null, depth: { max: null, mean: null }, sessions: 0,
    recount: { result: 'no summary', matching: 0, differing: 0, without_summary: 0, differences: [] },
  });
});

const MIXED: LogLine[] = [
  session('a1'),
  record('a1.c.000001', { ts_ms: 2000, redacted: ['params.arguments.api_key', 'params.arguments.note'], max_depth: 5 }),
  denied('a1.c.000002', { ts_ms: 1500 }),
  record('a1.c.000003', { decision: 'forward', code: 'observed', rule: 'no-shell', tool: 'bash', would: 'deny' }),
  record('a1.c.000004', { method: 'initialize', tool: null, rule: 'basics' }),
  record('a1.c.000005', { decision: 'drop', code: 'not_json', kind: 'invalid', method: null, tool: null, bytes_out: 0, max_depth: 0 }),
  record('a1.s.000001', { dir: 's2c', kind: 'response', method: null, tool: null, code: 'default_allow', ts_ms: 3000 }),
  record('a1.c.000006', { redacted: ['key'], ts_ms: 2500 }),
  fault,
  summary({ messages: 7, forward: 5, deny: 1, drop: 1, bytes_in: 700, bytes_out: 450, redacted: 2 }),
];

t.test('every figure', async (t) => {
  const report = createReport();
  MIXED.forEach((value, i) => report.add({ line: i + 1, value }));
  report.add({ line: 11, problem: 'not JSON' });
  t.strictSame(report.finish(), {
    v: 1,
    messages: 7,
    decisions: { forward: 5, deny: 1, drop: 1, hold: 0, error: 0 },
    would: { forward: 0, deny: 1, drop: 0, hold: 0, error: 0 },
    bytes_in: 700,
    bytes_out: 450,
    first_ts_ms: 1000,
    last_ts_ms: 3000,
    redacted: {
      messages: 2,
      values: 3,
      keys: { rows: [{ key: 'api_key', count: 1 }, { key: 'key', count: 1 }, { key: 'note', count: 1 }], other: 0 },
    },
    depth: { max: 5, mean: 3.33 },
    reasons: {
      rows: [
        { decision: 'forward', would: null, code: 'allowed', rule: 'reads', count: 2 },
        { decision: 'deny', would: null, code: 'tool_denied', rule: 'no-shell', count: 1 },
        { decision: 'drop', would: null, code: 'not_json', rule: 'reads', count: 1 },
        { decision: 'forward', would: 'deny', code: 'observed', rule: 'no-shell', count: 1 },
        { decision: 'forward', would: null, code: 'allowed', rule: 'basics', count: 1 },
        { decision: 'forward', would: null, code: 'default_allow', rule: 'reads', count: 1 },
      ],
      other: 0,
    },
    tools: {
      rows: [
        { tool: 'bash', count: 2, forwarded: 1, refused: 1, redacted: 0, bytes_in: 200 },
        { tool: 'read_file', count: 2, forwarded: 2, refused: 0, redacted: 2, bytes_in: 200 },
      ],
      other: 0,
    },
    methods: {
      rows: [
        { method: 'initialize', kind: 'request', count: 1, forwarded: 1, refused: 0, bytes_in: 100 },
        { method: null, kind: 'invalid', count: 1, forwarded: 0, refused: 1, bytes_in: 100 },
        { method: null, kind: 'response', count: 1, forwarded: 1, refused: 0, bytes_in: 100 },
      ],
      other: 0,
    },
    sessions: 1,
    repeated: 0,
    faults: { count: 1, first: [{ line: 9, ts_ms: 5, where: 'sink', reason: 'no space left' }] },
    problems: { count: 1, first: [{ line: 11, problem: 'not JSON' }] },
    recount: { result: 'MATCHES', matching: 1, differing: 0, without_summary: 0, differences: [] },
  });
});

t.test('filters choose records; the recount looks at all of them', async (t) => {
  const refused = reportOf(MIXED, { decision: 'deny' });
  t.equal(refused.messages, 1);
  t.equal(refused.tools.rows.length, 1);
  t.equal(refused.recount.result, 'MATCHES');
  const bash = reportOf(MIXED, { tool: (name) => name === 'bash' });
  t.same([bash.messages, bash.decisions.deny, bash.methods.rows.length, bash.faults.count], [2, 1, 0, 1]);
  t.equal(reportOf(MIXED, { decision: 'deny', tool: (name) => name === 'read_file' }).messages, 0);
  t.equal(selects({ tool: () => true }, record('a1.c.1', { tool: null })), false, 'no tool, no match');
});

t.test('recount', async (t) => {
  const good = [session('a1'), record('a1.c.1'), summary()];
  const rows: Array<[string, LogLine[], object]> = [
    ['a summary that agrees', good, { result: 'MATCHES', matching: 1 }],
    ['a record came twice', [...good.slice(0, 2), record('a1.c.1'), summary()], { result: 'MATCHES', matching: 1 }],
    ['the whole log twice', [...good, ...good], { result: 'MATCHES', matching: 1 }],
    ['two sessions in one file', [...good, session('b2'), record('b2.c.1'), summary()], { result: 'MATCHES', matching: 2 }],
    ['two frozen sessions', [1, 2].flatMap(() => [session('00000000'), record('00000000.c.1'), summary()]), { result: 'MATCHES', matching: 2 }],
    ['the first was killed', [session('a1'), record('a1.c.1'), session('b2'), record('b2.c.1'), summary()],
      { result: 'MATCHES', matching: 1, without_summary: 1 }],
    ['no session line', good.slice(1), { result: 'MATCHES', matching: 1 }],
    ['no record', [session('a1'), summary({ messages: 0, forward: 0, bytes_in: 0, bytes_out: 0 })], { result: 'MATCHES', matching: 1 }],
    ['only a summary', [summary()], { result: 'MISMATCH', differing: 1 }],
    ['no summary', good.slice(0, 2), { result: 'no summary', without_summary: 1 }],
    ['a record was taken out', [session('a1'), summary()],
      { result: 'MISMATCH', differing: 1, differences: [
        { session: 'a1', field: 'messages', summary: 1, counted: 0 }, { session: 'a1', field: 'forward', summary: 1, counted: 0 },
        { session: 'a1', field: 'bytes_in', summary: 100, counted: 0 }, { session: 'a1', field: 'bytes_out', summary: 90, counted: 0 },
      ] }],
    ['a decision was changed', [session('a1'), record('a1.c.1', { decision: 'deny' }), summary()],
      { result: 'MISMATCH', differences: [
        { session: 'a1', field: 'forward', summary: 1, counted: 0 }, { session: 'a1', field: 'deny', summary: 0, counted: 1 },
      ] }],
    ['a record was added after the summary', [...good, record('a1.c.2')], { result: 'MISMATCH' }],
    ['a record was added with an event of no known form', [...good, record('forged')], { result: 'MISMATCH' }],
    ['one session of two differs', [...good, session('b2'), summary({ redacted: 1 })], { result: 'MISMATCH', matching: 1, differing: 1 }],
  ];
  for (const [name, lines, wanted] of rows) t.match(reportOf(lines).recount, wanted, name);
});

t.test('an event counts once, in whatever order', async (t) => {
  const numbers = Array.from({ length: 300 }, (_, i) => 1 + ((i * 7) % 300));
  const lines = (leg: string): LogLine[] => [...numbers, ...numbers].map((number) => record(`a1.${leg}.${number}`));
  const report = reportOf([...lines('c'), ...lines('s')]);
  t.same([report.messages, report.repeated, report.sessions], [600, 600, 1]);
  t.match(reportOf([record('a1.c.5'), record('a1.c.3'), record('a1.c.4'), record('a1.c.4'), record('a1.c.2'), record('a1.c.9')]), { messages: 5, repeated: 1 });
  t.match(reportOf([record('x'), record('x')]), { messages: 2, repeated: 0 }, 'an event of no known form tells nothing');
});

t.test('a log of nothing but surprises stays small', async (t) => {
  const report = createReport();
  const before = process.memoryUsage().heapUsed;
  const long = 'x'.repeat(900);
  for (let i = 0; i < 12_000; i++) {
    report.add({ line: i, value: session(`s${i}`) });
    report.add({ line: i, value: record(`s${i}.c.${2 * i}`, { tool: `${i}${long}`, rule: `${i}${long}`, redacted: [`${long}.${long}.${i}`] }) });
    report.add({ line: i, value: summary({ messages: 3 }) });
    report.add({ line: i, value: record(`one.c.${2 * i}`, { tool: null, method: `${i}` }) });
    report.add({ line: i, value: fault });
    report.add({ line: i, problem: 'not JSON' });
  }
  const done = report.finish();
  for (const ranking of [done.tools, done.reasons, done.methods, done.redacted.keys]) {
    t.equal(ranking.rows.length, 4096);
    t.ok(ranking.other > 0, 'the rest is counted');
  }
  t.equal(done.messages, 24_000);
  t.match(done, { sessions: 12_001, faults: { count: 12_000 }, problems: { count: 12_000 }, recount: { result: 'MISMATCH' } });
  t.same([done.faults.first.length, done.problems.first.length, done.recount.differences.length], [20, 20, 20]);
  t.equal(done.recount.matching + done.recount.differing + done.recount.without_summary, 12_001, 'each session is settled once');
  t.ok(process.memoryUsage().heapUsed - before < 100 * 1024 * 1024);

  const torn = reportOf(Array.from({ length: 3000 }, (_, i) => record(`a1.c.${2 * i}`)));
  t.same([torn.messages, torn.repeated], [3000, 0], 'more gaps than are remembered');
  const given = reportOf([...Array.from({ length: 3000 }, (_, i) => record(`a1.c.${2 * i}`)), record('a1.c.1')]);
  t.equal(given.repeated, 1, 'a number in a gap given up passes for a repeated one');
});
