// `report` and `tail` as they are typed: what they print, what they answer, and what a hostile log cannot do to them.
import t from 'tap';
import { appendFileSync, mkdirSync, renameSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Readable, Writable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { reportCommand } from '../../bin/commands/report.js';
import { tailCommand } from '../../bin/commands/tail.js';

const record = (event: string, more: object = {}): object => ({
  v: 1, event, ts_ms: Date.UTC(2026, 0, 2, 3, 4, 5, 6), seq: Number(event.split('.')[2] ?? 1), dir: 'c2s', kind: 'request', decision: 'forward',
  code: 'allowed', severity: 'info', rule: 'reads', reason: 'a rule allows it', method: 'tools/call', tool: 'read_file', target: null,
  rpc_id: '1', bytes_in: 100, bytes_out: 90, max_depth: 3, ...more,
});
const SESSION = {
  v: 1, type: 'session', session: 'a1', ts_ms: 0, version: '0.1.0', policy: 'strict', policy_sha256: '0123456789abcdef', mode: 'enforce',
};
const SUMMARY = {
  v: 1, type: 'summary', ts_ms: 86_399_999, messages: 3, forward: 2, deny: 1, drop: 0, hold: 0, error: 0, bytes_in: 300, bytes_out: 180,
  redacted: 1, blank: 0, replies: 1, replies_unwritten: 0, sent: 3,
};
const FAULT = { v: 1, type: 'fault', ts_ms: 3, where: 'sink', reason: 'no space\x1b[2K left' };
const LINES = [
  SESSION,
  record('a1.c.000001', { redacted: ['params.arguments.api_key', 'params.arguments.note'] }),
  record('a1.c.000002', { decision: 'deny', code: 'tool_denied', rule: 'no-shell', tool: 'bash', bytes_out: 0 }),
  record('a1.c.000003', { code: 'observed', rule: 'no-shell', tool: 'bash', would: 'deny' }),
  SUMMARY,
];
const logOf = (lines: readonly object[]): string => lines.map((line) => `${JSON.stringify(line)}\n`).join('');

class Collected extends Writable {
  text = '';
  override _write(chunk: Buffer, _encoding: string, done: () => void): void {
    this.text += chunk.toString();
    done();
  }
}

interface Ran {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

const run = async (
  command: typeof tailCommand,
  argv: string[],
  { stdin = '', color = false }: { stdin?: string; color?: boolean } = {},
): Promise<Ran> => {
  const stdout = new Collected();
  const stderr = new Collected();
  const code = await command(argv, { stdin: Readable.from([Buffer.from(stdin)]), stdout, stderr, color });
  return { code, out: stdout.text, err: stderr.text };
};

t.test('report, for people', async (t) => {
  const file = join(t.testdir({ 'log.jsonl': logOf([...LINES, FAULT]) }), 'log.jsonl');
  const { code, out, err } = await run(reportCommand, [file]);
  t.equal(code, 0);
  t.equal(err, '');
  t.equal(out.replace(/^.*\n/, ''), `  time      2026-01-02T03:04:05.006Z to 2026-01-02T03:04:05.006Z
  messages  3 in 1 session
  bytes     300 B in, 180 B out
  depth     3 at most, 3 on average
  masked    2 values in 1 message

Decisions
  forward  2  66.7 %  ████████████████████
  deny     1  33.3 %  ██████████
  drop     0   0.0 %
  hold     0   0.0 %
  error    0   0.0 %
  observe mode let pass: 1 would deny

Refused, by reason
  decision  code         rule      messages
  deny      tool_denied  no-shell         1

Only observed, by reason
  decision    code      rule      messages
  would deny  observed  no-shell         1

Allowed, by reason
  decision  code     rule   messages
  forward   allowed  reads         1

Tools
  tool       forwarded  refused  masked  bytes in
  bash               1        1       0     200 B
  read_file          1        0       1     100 B

Masked keys
  key      values
  api_key       1
  note          1

Faults  1
  line 6: sink: no space\\x1B[2K left

Recount  MATCHES  1 session matching
`);
  const filtered = await run(reportCommand, ['-', '--decision', 'deny', '--tool', 'b*'], { stdin: logOf(LINES), color: true });
  t.equal(filtered.code, 0);
  t.match(filtered.out, /only {6}decision deny, tool "b\*"/);
  t.match(filtered.out, /messages {2}1 in 1 session/);
  t.match(filtered.out, '\x1b[31m', 'in colour');
  t.notMatch((await run(reportCommand, ['-', '--no-color'], { stdin: logOf(LINES), color: true })).out, '\x1b', 'or not');

  const empty = await run(reportCommand, ['-']);
  t.equal(empty.code, 0);
  t.match(empty.out, /no record[^]*nothing parsed[^]*nothing[^]*Recount {2}no summary: nothing to compare with\n$/);
});

t.test('report says what is wrong with a log', async (t) => {
  const bad = `${logOf(LINES.slice(0, 2))}\nhello\n${logOf(LINES.slice(3))}${logOf([record('a1.c.000003')])}${'x\n'.repeat(30)}{"v":1,`;
  const { code, out } = await run(reportCommand, ['-'], { stdin: bad });
  t.equal(code, 1);
  t.match(out, /repeated {2}1 record, counted once/);
  t.match(out, /Lines that are no records {2}32\n {2}line 4: not JSON\n/);
  t.match(out, / {2}and 12 more\n/);
  t.match(out, 'Recount  MISMATCH  1 session differing');
  t.match(out, 'session a1: deny is 1 in its summary, 0 in the log');
  t.match(out, 'records may be missing');
  const tools = Array.from({ length: 25 }, (_, i) => record(`a1.c.${i}`, { tool: `t${i}` }));
  t.match((await run(reportCommand, ['-'], { stdin: logOf([...tools, SESSION]) })).out, /and 5 more; --json lists them/);
  const two = logOf([...LINES, { ...SESSION, session: 'b2' }]);
  t.match((await run(reportCommand, ['-'], { stdin: two })).out, 'MATCHES  1 session matching, 1 session without a summary');
});

t.test('report --json', async (t) => {
  const { code, out } = await run(reportCommand, ['--json', '-'], { stdin: logOf([...LINES, record('a1.s.000001', {
    dir: 's2c', kind: 'response', method: null, tool: null, code: 'default_allow', rule: undefined, redacted: ['result.\u202e'],
  })]) });
  t.equal(code, 1, 'a record after the summary');
  t.match(out, /^[\n -~]*$/, 'ASCII alone');
  t.strictSame(JSON.parse(out), {
    v: 1,
    messages: 4,
    decisions: { forward: 3, deny: 1, drop: 0, hold: 0, error: 0 },
    would: { forward: 0, deny: 1, drop: 0, hold: 0, error: 0 },
    bytes_in: 400,
    bytes_out: 270,
    first_ts_ms: 1767323045006,
    last_ts_ms: 1767323045006,
    redacted: {
      messages: 2,
      values: 3,
      keys: { rows: [{ key: 'api_key', count: 1 }, { key: 'note', count: 1 }, { key: '\u202e', count: 1 }], other: 0 },
    },
    depth: { max: 3, mean: 3 },
    reasons: {
      rows: [
        { decision: 'deny', would: null, code: 'tool_denied', rule: 'no-shell', count: 1 },
        { decision: 'forward', would: 'deny', code: 'observed', rule: 'no-shell', count: 1 },
        { decision: 'forward', would: null, code: 'allowed', rule: 'reads', count: 1 },
        { decision: 'forward', would: null, code: 'default_allow', rule: null, count: 1 },
      ],
      other: 0,
    },
    tools: {
      rows: [
        { tool: 'bash', count: 2, forwarded: 1, refused: 1, redacted: 0, bytes_in: 200 },
        { tool: 'read_file', count: 1, forwarded: 1, refused: 0, redacted: 1, bytes_in: 100 },
      ],
      other: 0,
    },
    methods: { rows: [{ method: null, kind: 'response', count: 1, forwarded: 1, refused: 0, bytes_in: 100 }], other: 0 },
    sessions: 1,
    repeated: 0,
    faults: { count: 0, first: [] },
    problems: { count: 0, first: [] },
    recount: {
      result: 'MISMATCH',
      matching: 0,
      differing: 1,
      without_summary: 0,
      differences: [
        { session: 'a1', field: 'messages', summary: 3, counted: 4 },
        { session: 'a1', field: 'forward', summary: 2, counted: 3 },
        { session: 'a1', field: 'bytes_in', summary: 300, counted: 400 },
        { session: 'a1', field: 'bytes_out', summary: 180, counted: 270 },
        { session: 'a1', field: 'redacted', summary: 1, counted: 2 },
      ],
    },
  });
});

t.test('wrong usage', async (t) => {
  const folder = t.testdir({});
  for (const [name, command] of [['report', reportCommand], ['tail', tailCommand]] as const) {
    const rows: Array<[string[], RegExp]> = [
      [[], /which log\?/],
      [['a', 'b'], /b is one too many/],
      [['-', '--frobnicate'], /Unknown option '--frobnicate'/],
      [['-', '--decision'], /'--decision <value>' argument missing/],
      [['-', '--decision', 'maybe'], /--decision maybe is none of forward, deny, drop, hold, error/],
      [['-', '--decision', '\x1b[2K'], /--decision "\\x1B\[2K" is none of/],
      [['-', '--tool', 'a[b'], /--tool "a\[b": `\[` is never closed; close it with/],
      [[join(folder, 'missing')], /cannot open .*missing.*: there is no such file/],
      [[`${folder}\0`], /cannot open .*\\x00": The argument/],
      [[folder], /is a folder/],
    ];
    for (const [argv, wanted] of rows) {
      const { code, out, err } = await run(command, argv);
      t.equal(code, 2, `${name} ${argv.join(' ')}`);
      t.equal(out, '');
      t.match(err, wanted);
      t.match(err, new RegExp(`^sluice ${name}: [^\x1b]*\nTry: sluice ${name} --help\n$`));
    }
    const help = await run(command, ['--help']);
    t.equal(help.code, 0);
    t.match(help.out, new RegExp(`^Usage: sluice ${name} FILE`));
  }
});

t.test('tail', async (t) => {
  const log = logOf([...LINES, FAULT, record('a1.s.000009', { dir: 's2c', kind: 'response', method: null, tool: null, rule: undefined })]);
  const { code, out } = await run(tailCommand, ['-'], { stdin: `${log}hello\n` });
  t.equal(code, 0);
  t.equal(out, `00:00:00.000  session  a1  sluice 0.1.0  policy strict "0123456789ab"...  enforce
03:04:05.006  forward  c2s 1     tools/call read_file  allowed (reads)  100→90  [redacted: api_key, note]
03:04:05.006  deny     c2s 2     tools/call bash  tool_denied (no-shell)  100→0
03:04:05.006  forward  c2s 3     tools/call bash  observed (no-shell)  100→90  (would deny)
23:59:59.999  summary  3 messages: forward 2, deny 1, drop 0, hold 0, error 0; 300→180 bytes
00:00:00.003  fault    sink: no space\\x1B[2K left
03:04:05.006  forward  s2c 9     response  allowed  100→90
line 8 is no record: not JSON
`);
  const deny = await run(tailCommand, ['-', '--decision', 'deny'], { stdin: log });
  t.same(deny.out.match(/ (deny|fault|forward) /g), [' deny ', ' fault '], 'a fault is never hidden');
  const bash = await run(tailCommand, ['-', '--tool', 'ba*'], { stdin: logOf(LINES), color: true });
  t.equal(bash.out.split('\n').length, 3);
  t.match(bash.out, '\x1b[31mdeny   \x1b[39m');
  t.match((await run(tailCommand, ['-'], { stdin: logOf(LINES), color: true })).out, /^\x1b\[2m00:00:00\.000 {2}session/);
});

t.test('a hostile log forges no line', async (t) => {
  const fake = '03:04:05.006  forward  c2s 1     tools/call read_file  allowed (reads)  100→90';
  const evil = `x\n${fake}\r\x1b[2K\u202e\x9b1A\u2028${JSON.stringify(record('a1.c.000007'))}`;
  const lines = [
    { ...SESSION, session: evil, version: evil, policy: evil, policy_sha256: evil },
    record('a1.c.000001', { method: evil, tool: evil, code: evil, rule: evil, reason: evil, redacted: [evil, `a.${evil}`], event: evil }),
    { ...FAULT, where: evil, reason: evil },
    { ...SUMMARY },
    record('a1.c.000002', { method: evil, tool: null }),
  ];
  const tail = await run(tailCommand, ['-'], { stdin: logOf(lines) });
  t.equal(tail.out.split('\n').length, lines.length + 1, 'one line for each');
  const report = await run(reportCommand, ['-'], { stdin: logOf(lines) });
  const json = await run(reportCommand, ['-', '--json'], { stdin: logOf(lines) });
  for (const { out } of [tail, report, json]) {
    t.notMatch(out, /[\0-\x09\x0b-\x1f\x7f-\x9f\u2028\u202e]/, 'no control reaches the screen');
    t.notOk(out.split('\n').includes(fake), 'no line is the forged one');
  }
});

t.test('a reader that leaves ends it quietly', async (t) => {
  const file = join(t.testdir({ 'log.jsonl': logOf([SESSION, ...Array.from({ length: 5000 }, (_, i) => record(`a1.c.${i}`))]) }), 'log.jsonl');
  for (const argv of [[file], ['-f', file]]) {
    let writes = 0;
    const stdout = new Writable({
      write(_chunk, _encoding, done) {
        writes += 1;
        done(writes > 1 ? Object.assign(new Error('EPIPE'), { code: 'EPIPE' }) : null);
      },
    });
    const stderr = new Collected();
    t.equal(await tailCommand(argv, { stdin: new PassThrough(), stdout, stderr, color: false }), 0);
    t.equal(writes, 2, 'and reads no further');
    t.equal(stderr.text, '');
  }
  const full = new Writable({ write(_chunk, _encoding, done) { done(Object.assign(new Error('disk full'), { code: 'ENOSPC' })); } });
  await t.rejects(reportCommand([file], { stdin: new PassThrough(), stdout: full, stderr: new Collected(), color: false }), { code: 'ENOSPC' });
});

t.test('tail -f', async (t) => {
  const folder = t.testdir({ 'log.jsonl': logOf([record('a1.c.000001')]) });
  const file = join(folder, 'log.jsonl');
  const stdout = new Collected();
  const stderr = new Collected();
  const stop = new AbortController();
  const ended = tailCommand(['-f', file], { stdin: new PassThrough(), stdout, stderr, color: false, signal: stop.signal });
  const shown = (): string[] => stdout.text.split('\n').map((line) => /c2s (\d+)/.exec(line)?.[1] ?? line).filter((line) => line !== '');
  const wait = async (wanted: string[], name: string): Promise<void> => {
    for (let i = 0; i < 100 && shown().length < wanted.length; i++) await sleep(50);
    t.same(shown(), wanted, name);
  };
  await wait(['1'], 'what was there');

  const second = logOf([record('a1.c.000002')]);
  appendFileSync(file, second.slice(0, 50));
  await sleep(500);
  t.same(shown(), ['1'], 'a torn line is waited for');
  appendFileSync(file, second.slice(50));
  await wait(['1', '2'], 'until it is whole');

  renameSync(file, `${file}.1`);
  appendFileSync(`${file}.1`, logOf([record('a1.c.000003')]));
  await wait(['1', '2', '3'], 'the old file, while its name is free');
  appendFileSync(`${file}.1`, logOf([record('a1.c.000004')]));
  writeFileSync(file, logOf([record('b2.c.000005')]));
  await wait(['1', '2', '3', '4', '5'], 'the rest of the old file, then the new one');

  appendFileSync(file, '{"v":1,');
  await sleep(300);
  truncateSync(file);
  await wait(['1', '2', '3', '4', '5', 'line 2 is no record: torn: the log ends inside this line'], 'a torn line is told where the file is cut');
  appendFileSync(file, `\nhello\n${logOf([record('b2.c.000006')])}`);
  await wait([...shown().slice(0, 6), 'line 2 is no record: not JSON', '6'], 'and lines count from one again');

  rmSync(file);
  mkdirSync(`${folder}/elsewhere`);
  writeFileSync(`${folder}/elsewhere/new`, logOf([record('c3.c.000007')]));
  renameSync(`${folder}/elsewhere/new`, file);
  await wait([...shown().slice(0, 8), '7'], 'deleted and moved in');
  appendFileSync(file, 'torn');
  await sleep(300);
  stop.abort();
  t.equal(await ended, 0);
  t.equal(shown().length, 9, 'what is torn at the end may yet be written');
  t.equal(stderr.text, '');

  const pipe = new PassThrough();
  const stopPipe = new AbortController();
  const out = new Collected();
  const read = tailCommand(['-', '-f'], { stdin: pipe, stdout: out, stderr, color: false, signal: stopPipe.signal });
  pipe.write(second);
  for (let i = 0; i < 100 && out.text === ''; i++) await sleep(10);
  t.match(out.text, 'c2s 2', 'a pipe is shown as it comes');
  stopPipe.abort();
  t.equal(await read, 0);
  pipe.destroy();
  const failing = new Readable({ read() { this.destroy(new Error('broken')); } });
  await t.rejects(tailCommand(['-'], { stdin: failing, stdout: out, stderr, color: false, signal: new AbortController().signal }), { message: 'broken' });
});
