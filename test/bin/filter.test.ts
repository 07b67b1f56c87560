// The filter as a process: arguments, files, descriptors, signals, kills, memory, and hostile sessions through it.
// Owns what only a real process can show. What a stage decides is tested beside that stage.
import { spawn, spawnSync } from 'node:child_process';
import type { ChildProcess, StdioOptions } from 'node:child_process';
import {
  closeSync, constants, existsSync, openSync, readdirSync, readFileSync, readSync, rmSync, symlinkSync, truncateSync, writeFileSync,
} from 'node:fs';
import { join } from 'node:path';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import type { AuditRecord, LogLine, SummaryLine } from '../../lib/audit/record.js';
import { isAuditRecord } from '../../lib/audit/record.js';
import { createLeg, loadPolicy } from '../../lib/index.js';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const MODULES = join(root, 'build/bin/sluice.js');
const BUNDLE = join(root, 'build/sluice.cjs');
const MiB = 1024 * 1024;

/** The environment without what measures coverage, for runs whose time or memory counts. */
const bareEnv = (): NodeJS.ProcessEnv => {
  const env = { ...process.env };
  delete env['NODE_OPTIONS'];
  delete env['NODE_V8_COVERAGE'];
  return env;
};

const DEADLINE_MS = 15_000;

interface Options {
  readonly input?: string | Buffer;
  /** Where the child's descriptors lead; by default pipes. */
  readonly stdio?: StdioOptions;
  readonly env?: Readonly<Record<string, string>>;
  readonly cwd?: string;
  /** Start the one-file command instead of the modules, unmeasured. */
  readonly bundle?: boolean;
  readonly deadlineMs?: number;
}

interface Ran {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly out: string;
  readonly err: string;
  readonly ms: number;
}

const start = (argv: readonly string[], options: Options = {}): ChildProcess => {
  const bundle = options.bundle === true;
  const child = spawn(process.execPath, [bundle ? BUNDLE : MODULES, ...argv], {
    cwd: options.cwd,
    stdio: options.stdio ?? 'pipe',
    env: { ...(bundle ? bareEnv() : process.env), ...options.env },
  });
  child.stdin?.on('error', () => undefined); // it may leave before it has read all
  return child;
};

const textOf = (stream: Readable | null): (() => string) => {
  const parts: Buffer[] = [];
  stream?.on('data', (part: Buffer) => parts.push(part));
  return () => Buffer.concat(parts).toString();
};

/** Waits for the end; a process that is still there at the deadline is killed, and then has no exit code. */
const ended = async (child: ChildProcess, deadlineMs = DEADLINE_MS): Promise<Ran> => {
  const began = Date.now();
  const [out, err] = [textOf(child.stdout), textOf(child.stderr)];
  const timer = setTimeout(() => child.kill('SIGKILL'), deadlineMs);
  // A pipe that nobody reads would keep the child from being over.
  child.once('exit', () => child.stdio.forEach((stream) => stream?.listenerCount('data') === 0 && stream.destroy()));
  const [code, signal] = await new Promise<[number | null, NodeJS.Signals | null]>((resolve) => {
    child.once('close', (...how) => resolve(how));
  });
  clearTimeout(timer);
  return { code, signal, out: out(), err: err(), ms: Date.now() - began };
};

const sluice = (argv: readonly string[], options: Options = {}): Promise<Ran> => {
  const child = start(argv, options);
  child.stdin?.end(options.input ?? '');
  return ended(child, options.deadlineMs);
};

/** What only a shell can say about descriptors; `$SLUICE` stands for the command. */
const shell = (script: string, cwd: string): Promise<Ran> => {
  const text = script.replaceAll('$SLUICE', `"$NODE" "$COMMAND"`);
  const child = spawn('sh', ['-c', text], { cwd, env: { ...bareEnv(), NODE: process.execPath, COMMAND: BUNDLE } });
  child.stdin.on('error', () => undefined);
  child.stdin.end();
  return ended(child);
};

/** Resolves when `done` holds; rejects when it does not within five seconds. */
const until = async (done: () => boolean): Promise<void> => {
  for (let waited = 0; !done(); waited += 10) {
    if (waited > 5_000) throw new Error('it did not happen');
    await sleep(10);
  }
};

const inTurns = async <Item>(items: readonly Item[], atOnce: number, each: (item: Item) => Promise<void>): Promise<void> => {
  const queue = [...items];
  await Promise.all(Array.from({ length: atOnce }, async () => {
    for (let item = queue.shift(); item !== undefined; item = queue.shift()) await each(item);
  }));
};

const ping = (id: number | string): string => `{"jsonrpc":"2.0","id":${JSON.stringify(id)},"method":"ping"}\n`;
const call = (id: number, tool: string, args: object = {}): string =>
  `${JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: tool, arguments: args } })}\n`;
const many = (count: number, line: (index: number) => string): string => Array.from({ length: count }, (_, index) => line(index)).join('');
const reads = (count: number, bytes: number): string => many(count, (index) => call(index, 'read_file', { path: 'x'.repeat(bytes) }));

const logOf = (file: string): LogLine[] => readFileSync(file, 'utf8').split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as LogLine);
const recordsOf = (file: string): AuditRecord[] => logOf(file).filter(isAuditRecord);
const summaryOf = (file: string): SummaryLine | undefined =>
  logOf(file).find((line): line is SummaryLine => !isAuditRecord(line) && line.type === 'summary');

const linesOf = (text: string): string[] => text.split('\n').slice(0, -1);

/** Ids of forwarded lines that have no forward record in the text of a log; a torn last line of it counts for nothing. */
const unrecorded = (out: string, log: string): string[] => {
  const records = linesOf(log).filter((line) => line.startsWith('{"v":1,"event"')).map((line) => JSON.parse(line) as AuditRecord);
  const known = new Set(records.filter((record) => record.decision === 'forward').map((record) => record.rpc_id));
  return linesOf(out).map((line) => JSON.stringify((JSON.parse(line) as { id: unknown }).id)).filter((id) => !known.has(id));
};

const noTrace = (text: string): boolean => !/\n\s+at /.test(text);

t.test('wrong usage: exit 2, said why, and no byte forwarded', async (t) => {
  const dir = t.testdir({
    folder: {},
    'empty.yaml': '',
    'latin1.yaml': Buffer.from('version: 1\ndefault: deny # \xe9\n', 'latin1'),
    'vars.yaml': 'version: 1\ndefault: deny\nvars: { tool: a }\nallow: ["${tool}"]\n',
    'log.jsonl': 'kept\n',
  });
  type Row = readonly [what: string, argv: readonly string[], says: RegExp, env?: Readonly<Record<string, string>>];
  const typed: readonly Row[] = [
    ['no policy', [], /no policy[^]*SLUICE_ALLOW_NO_POLICY/],
    ['no policy, and a half-hearted leave', [], /no policy/, { SLUICE_ALLOW_NO_POLICY: 'true' }],
    ['an unknown flag', ['--policy', 'default', '--polcy'], /--polcy/],
    ['an unknown flag with an escape', ['--\x1b[31m'], /x1B\[31m/],
    ['a flag without its value', ['--policy'], /--policy/],
    ['a flag for a value', ['--policy', '--stats'], /--policy/],
    ['a word too many', ['filter', 'extra', '--policy', 'default'], /extra/],
    ['an unknown command', ['serve'], /no command "serve"/],
    ['an unknown command with an escape', ['\x1b[31mred'], /no command "\\x1B\[31mred"/],
    ['two policies', ['--policy', 'strict', '--policy', 'permissive'], /--policy/],
    ['a clock with a fraction', ['--policy', 'default', '--epoch-ms', '1.5'], /--epoch-ms 1\.5/],
    ['a variable without a value', ['--policy', 'vars.yaml', '--set', 'tool'], /--set tool: write NAME=VALUE/],
    ['a variable without a name', ['--policy', 'vars.yaml', '--set', '=a'], /NAME=VALUE/],
  ];
  const named: readonly Row[] = [
    ['a variable that the policy has not', ['--policy', 'vars.yaml', '--set', 'tol=a'], /did you mean `tool`/],
    ['a policy that is not there', ['--policy', 'none.yaml'], /none\.yaml:1:1: error: .*no such file/],
    ['a policy without a name', ['--policy', ''], /error: .*no such file/],
    ['a folder for a policy', ['--policy', 'folder'], /folder:1:1: error: .*it is a folder/],
    ['an empty policy', ['--policy', 'empty.yaml'], /empty\.yaml:1:1: error: .*empty/],
    ['a policy in another encoding', ['--policy', 'latin1.yaml'], /not valid UTF-8/],
    ['a folder for the log', ['--policy', 'default', '--audit', 'folder'], /cannot write the audit log folder/],
    ['a log in no folder', ['--policy', 'default', '--audit', 'none/log.jsonl'], /cannot write the audit log/],
    ['append to no file', ['--policy', 'default', '--audit-append'], /--audit-append/],
    ['a folder for the errors', ['--policy', 'default', '--errors', 'folder'], /cannot write errors to folder/],
    ['errors in no folder', ['--policy', 'default', '--audit', 'log.jsonl', '--errors', 'none/errors'], /cannot write errors to none\/errors/],
    ['errors to a descriptor that is not open', ['--policy', 'default', '--errors', 'fd:99'], /cannot write errors to fd:99/],
    // Each of these would write into the other's lines, or into the server's input.
    ['errors to standard output', ['--policy', 'default', '--errors', 'fd:1'], /--errors|errors/],
    ['errors to standard input', ['--policy', 'default', '--errors', 'fd:0'], /--errors|errors/],
    ['errors to standard output by its path', ['--policy', 'default', '--audit', 'a.jsonl', '--errors', '/dev/stdout'], /--errors|errors/],
    ['the log to standard output by its path', ['--policy', 'default', '--audit', '/dev/stdout'], /audit/],
    ['errors into the log', ['--policy', 'default', '--audit', 'b.jsonl', '--errors', 'b.jsonl'], /b\.jsonl/],
    ['the log into the policy', ['--policy', 'vars.yaml', '--audit', 'vars.yaml'], /the policy/],
  ];
  const rows = [...typed.map((row) => ({ row, bundle: true })), ...named.map((row) => ({ row, bundle: false }))];
  await inTurns(rows, 2, async ({ row: [what, argv, says, env], bundle }) => {
    const { code, out, err } = await sluice(argv, { input: ping(1), cwd: dir, bundle, ...(env === undefined ? {} : { env }) });
    t.same({ code, out }, { code: 2, out: '' }, what);
    t.match(err, says, `${what}: said why`);
    t.ok(noTrace(err), `${what}: no stack trace`);
    t.notMatch(err, '\x1b', `${what}: nothing for a terminal to act upon`);
  });
  t.equal(readFileSync(join(dir, 'log.jsonl'), 'utf8'), 'kept\n', 'a start that fails leaves an earlier log alone');
  t.match(readFileSync(join(dir, 'vars.yaml'), 'utf8'), /^version: 1\n/, 'and the policy');
  t.same(readdirSync(dir).filter((name) => name.includes('.lock')), [], 'and no lock behind');
});

t.test('files that permissions keep away', { skip: process.getuid?.() === 0 ? 'root may read and write everything' : false }, async (t) => {
  const dir = t.testdir({ 'policy.yaml': 'version: 1\ndefault: deny\n', 'log.jsonl': '' });
  spawnSync('chmod', ['000', join(dir, 'policy.yaml'), join(dir, 'log.jsonl')]);
  for (const [argv, says] of [
    [['--policy', 'policy.yaml'], /permission denied/],
    [['--policy', 'default', '--audit', 'log.jsonl'], /cannot write the audit log/],
  ] as const) {
    const { code, out, err } = await sluice(argv, { input: ping(1), cwd: dir });
    t.same({ code, out }, { code: 2, out: '' });
    t.match(err, says);
  }
});

t.test('a policy that does not load: all of it, with line, column and caret', async (t) => {
  const dir = t.testdir({ 'bad.yaml': `version: 1\ndefault: maybe\nallow: [read_*, '[a']\ncolour: red\n` });
  for (const bundle of [false, true]) {
    const { code, out, err } = await sluice(['--policy', 'bad.yaml'], { input: ping(1), cwd: dir, bundle });
    t.same({ code, out }, { code: 2, out: '' });
    t.equal(err.match(/error:/g)?.length, 3, 'all three');
    t.match(err, /^bad\.yaml:2:10: error: .*\n {4}2 \| default: maybe\n {6}\| {10}\^\n/m);
    t.match(err, /^bad\.yaml:3:17: error: .*\n.*\n {6}\| {17}\^\n/m);
    t.match(err, /^bad\.yaml:4:1: error: unknown key `colour`\n {4}4 \| colour: red\n {6}\| \^\n/m);
  }
});

t.test('policies by name, variables, and none at all', async (t) => {
  const dir = t.testdir({
    default: 'version: 1\ndefault: allow\n', // a file of the working directory is reached as ./default alone
    'vars.yaml': 'version: 1\ndefault: deny\nvars: { tool: one }\nallow: ["${tool}"]\n',
  });
  const session = ping(1) + call(2, 'shell.exec') + call(3, 'two');
  const rows: ReadonlyArray<readonly [argv: readonly string[], ids: readonly number[], env?: Readonly<Record<string, string>>]> = [
    [['--policy', 'default'], [1]],
    [['--policy', 'strict'], [1]],
    [['--policy', 'permissive'], [1, 3]],
    [['--policy', './default'], [1, 2, 3]],
    [['--policy', 'vars.yaml'], []],
    [['--policy', 'vars.yaml', '--set', 'tool=two'], [3]],
    [[], [1, 2, 3], { SLUICE_ALLOW_NO_POLICY: '1' }],
  ];
  await inTurns(rows, 2, async ([argv, ids, env]) => {
    const { code, out } = await sluice(['filter', ...argv], { input: session, cwd: dir, ...(env === undefined ? {} : { env }) });
    t.equal(code, 0);
    t.same(linesOf(out).map((line) => (JSON.parse(line) as { id: number }).id), ids, argv.join(' ') || 'no policy');
  });
  const log = join(dir, 'log.jsonl');
  const { err } = await sluice(['--audit', log], { input: session, env: { SLUICE_ALLOW_NO_POLICY: '1' } });
  t.match(err, /WARNING.*SLUICE_ALLOW_NO_POLICY/, 'it is said aloud');
  t.same(recordsOf(log).map(({ flags }) => flags), [['no_policy'], ['no_policy'], ['no_policy']], 'and in every record');
});

t.test('where the input comes from', async (t) => {
  const dir = t.testdir({ 'in.jsonl': ping(1) + ping(2), empty: '', 'torn.jsonl': ping(1) + ping(2).trimEnd(), folder: {} });
  const rows: ReadonlyArray<readonly [script: string, code: number, out: string]> = [
    ['$SLUICE --policy default --audit a < in.jsonl', 0, ping(1) + ping(2)],
    ['cat in.jsonl | $SLUICE --policy default --audit a', 0, ping(1) + ping(2)],
    ['$SLUICE --policy default --audit a < torn.jsonl', 0, ping(1) + ping(2)],
    ['$SLUICE --policy default --audit a < empty', 0, ''],
    ['$SLUICE --policy default --audit a < /dev/null', 0, ''],
    ['$SLUICE --policy default --audit a <&-', 0, ''],
    ['$SLUICE --policy default --audit a < folder', 2, ''],
  ];
  for (const [script, code, out] of rows) {
    const ran = await shell(script, dir);
    t.same({ code: ran.code, out: ran.out }, { code, out }, script);
    t.ok(noTrace(ran.err), 'no stack trace');
  }
});

t.test('two runs with a frozen clock give the same log', async (t) => {
  const dir = t.testdir({});
  const session = ping(1) + call(2, 'shell.exec') + 'x\n \n' + call(3, 'read_file', { api_key: 'hidden' });
  const logs = [];
  for (const name of ['a', 'b']) {
    const { code } = await sluice(['--policy', 'default', '--audit', join(dir, name), '--stats', '--epoch-ms', '86400000'], { input: session });
    t.equal(code, 0);
    logs.push(readFileSync(join(dir, name), 'utf8'));
  }
  t.equal(logs[0], logs[1]);
  t.match(logs[0], '"event":"00000000.c.000001","ts_ms":86400000', 'the session is zero');
  t.notMatch(logs[0], 'hidden');
});

t.test('the summary is what a recount finds', async (t) => {
  const dir = t.testdir({});
  const log = join(dir, 'log.jsonl');
  const session = many(50, (index) => ping(index) + call(index, 'shell.exec') + call(index, 'read_file', { token: 'hidden' }) + '[]\n\n');
  const { code, err } = await sluice(['--policy', 'default', '--audit', log, '--stats'], { input: session });
  t.same({ code, err }, { code: 0, err: '' });
  const counts = { messages: 200, forward: 100, deny: 50, drop: 50, hold: 0, error: 0, redacted: 50, blank: 50, replies: 0, replies_unwritten: 100 };
  t.match(summaryOf(log), counts);
  for (const bundle of [false, true]) {
    const sound = await sluice(['report', log], { bundle });
    t.equal(sound.code, 0);
    t.match(sound.out, 'MATCHES');
  }
  const text = readFileSync(log, 'utf8').split('\n');
  writeFileSync(log, [...text.slice(0, 3), ...text.slice(4)].join('\n'));
  const cut = await sluice(['report', log]);
  t.equal(cut.code, 1, 'a record less');
  t.match(cut.out, 'MISMATCH');
});

t.test('records on standard error are a log of their own', async (t) => {
  const { code, out, err } = await sluice(['--policy', 'default', '--stats'], { input: ping(1) });
  t.same({ code, out }, { code: 0, out: ping(1) });
  t.same(linesOf(err).map((line) => Object.keys(JSON.parse(line) as object)[1]), ['type', 'event', 'type']);
});

t.test('appending to a log', async (t) => {
  const log = join(t.testdir({ 'log.jsonl': '{"torn":' }), 'log.jsonl');
  const { code } = await sluice(['--policy', 'default', '--audit', log, '--audit-append'], { input: ping(1) });
  t.equal(code, 0);
  const lines = linesOf(readFileSync(log, 'utf8'));
  t.equal(lines[0], '{"torn":', 'what was there stays, on a line of its own');
  t.equal(lines.length, 3);
  await sluice(['--policy', 'default', '--audit', log], { input: ping(1) });
  t.equal(recordsOf(log).length, 1, 'without it the log is fresh');
});

t.test('one filter a log', async (t) => {
  const dir = t.testdir({});
  const log = join(dir, 'log.jsonl');
  const link = join(dir, 'link.jsonl');
  symlinkSync('log.jsonl', link);
  const first = start(['--policy', 'default', '--audit', log]);
  const out = textOf(first.stdout);
  first.stdin?.write(ping(1));
  await until(() => out() === ping(1));
  for (const name of [log, link]) {
    for (const append of [[], ['--audit-append']]) {
      const { code, out, err } = await sluice(['--policy', 'default', '--audit', name, ...append], { input: ping(2) });
      t.same({ code, out }, { code: 2, out: '' }, 'a second one does not start, by whatever name it is given the log');
      t.match(err, `process ${first.pid} writes to it`);
    }
  }
  t.same(unrecorded(out(), readFileSync(log, 'utf8')), [], 'the record of what was forwarded is still there');
  first.kill('SIGKILL');
  await ended(first);
  t.equal((await sluice(['--policy', 'default', '--audit', log], { input: ping(3) })).code, 0, 'a lock whose owner was killed holds nobody up');
  t.notOk(existsSync(`${log}.lock`));
});

t.test('a lock whose owner was killed goes to one of many', async (t) => {
  const log = join(t.testdir({}), 'log.jsonl');
  writeFileSync(`${log}.lock`, String(spawnSync('true').pid));
  const children = [1, 2, 3, 4].map((id) => ({ id, child: start(['--policy', 'default', '--audit', log], { bundle: true }) }));
  const ends = children.map(async ({ id, child }) => {
    const end = ended(child);
    child.stdin?.write(ping(id));
    await Promise.race([end, sleep(2_000)]); // all that start are there together
    child.stdin?.end();
    return end;
  });
  const ran = await Promise.all(ends);
  t.same(ran.map(({ code }) => code ?? 99).sort((a, b) => a - b), [0, 2, 2, 2]);
  t.same(unrecorded(ran.map(({ out }) => out).join(''), readFileSync(log, 'utf8')), [], 'what passed has its record');
});

t.test('refusals are answered where --errors says', async (t) => {
  const dir = t.testdir({});
  const file = join(dir, 'errors.jsonl');
  const session = ping(1) + call(2, 'shell.exec') + 'x\n';
  const ids = (text: string): unknown[] => linesOf(text).map((line) => (JSON.parse(line) as { id: unknown }).id);
  await sluice(['--policy', 'default', '--audit', join(dir, 'a'), '--errors', file], { input: session });
  t.same(ids(readFileSync(file, 'utf8')), [2, null], 'a file');

  const fd = openSync(join(dir, 'by-number.jsonl'), 'w');
  await sluice(['--policy', 'default', '--audit', join(dir, 'a'), '--errors', 'fd:3'], { input: session, stdio: ['pipe', 'pipe', 'pipe', fd] });
  closeSync(fd);
  t.same(ids(readFileSync(join(dir, 'by-number.jsonl'), 'utf8')), [2, null], 'a descriptor of a file');

  const child = start(['--policy', 'default', '--audit', join(dir, 'a'), '--errors', 'fd:3'], { stdio: ['pipe', 'pipe', 'pipe', 'pipe'] });
  child.stdin?.end(session);
  const replies = textOf(child.stdio[3] as Readable);
  t.match(await ended(child), { code: 0, out: ping(1) });
  t.same(ids(replies()), [2, null], 'a descriptor of a pipe');

  const gone = start(['--policy', 'default', '--audit', join(dir, 'gone'), '--errors', 'fd:3'], { stdio: ['pipe', 'pipe', 'pipe', 'pipe'] });
  (gone.stdio[3] as Readable).destroy();
  gone.stdin?.write(call(1, 'shell.exec'));
  t.match(await ended(gone), { code: 3, err: /errors cannot be written/ }, 'a reader that left is a fault');
});

t.test('every refusal is answered, however late its reader comes', async (t) => {
  const log = join(t.testdir({}), 'log.jsonl');
  const child = start(['--policy', 'default', '--audit', log, '--stats', '--errors', 'fd:3'], { stdio: ['pipe', 'pipe', 'pipe', 'pipe'] });
  child.stdin?.end(many(5_000, (index) => call(index, 'shell.exec')));
  const end = ended(child);
  await sleep(300);
  const replies = textOf(child.stdio[3] as Readable);
  const { code } = await end;
  const answered = linesOf(replies()).length;
  t.equal(answered, 5_000);
  t.same({ code, answered: summaryOf(log)?.replies }, { code: 0, answered }, 'and the summary counts what was written');
});

t.test('rubbish in small lines is answered, not a fault, while somebody reads', async (t) => {
  const log = join(t.testdir({}), 'log.jsonl');
  const child = start(['--policy', 'default', '--audit', log, '--errors', 'fd:3'], { stdio: ['pipe', 'pipe', 'pipe', 'pipe'], bundle: true });
  const replies = textOf(child.stdio[3] as Readable);
  child.stdin?.end('x\n'.repeat(100_000) + ping(1));
  t.match(await ended(child), { code: 0, out: ping(1) });
  t.equal(linesOf(replies()).length, 100_000);
});

t.test('replies that nobody reads', async (t) => {
  const dir = t.testdir({});
  const unread = (name: string): ChildProcess =>
    start(['--policy', 'default', '--audit', join(dir, name), '--errors', 'fd:3'], { stdio: ['pipe', 'pipe', 'pipe', 'pipe'], bundle: true });
  const over = unread('over');
  over.stdin?.write(many(60_000, (index) => call(index, 'shell.exec')));
  t.equal((await ended(over)).code, 3, 'above the cap: a fault');
  t.match(logOf(join(dir, 'over')).at(-1), { type: 'fault', where: 'replies' });

  const under = unread('under');
  under.stdin?.end(many(2_000, (index) => call(index, 'shell.exec')));
  const { code, ms } = await ended(under, 6_000);
  t.equal(code, 3, 'below it: the end of input is still an end, and not a good one');
  t.ok(ms < 5_000, 'soon');
});

t.test('a descriptor that nobody opened for it is none of its own', async (t) => {
  const dir = t.testdir({});
  const numbers = Array.from({ length: 14 }, (_, index) => index + 3);
  await inTurns(numbers, 2, async (number) => {
    const { code, signal } = await sluice(['--policy', 'default', '--audit', join(dir, `${number}`), '--errors', `fd:${number}`], { input: 'x\n', bundle: true });
    t.same({ code, signal }, { code: 2, signal: null }, `fd:${number}`);
  });
});

t.test('a reader that leaves: an orderly end', async (t) => {
  const dir = t.testdir({ 'in.jsonl': reads(20_000, 100) });
  const { out, err } = await shell('{ $SLUICE --policy default --audit a --stats < in.jsonl; echo $? > code; } | head -1', dir);
  t.equal(linesOf(out).length, 1);
  t.ok(noTrace(err), 'no stack trace');
  t.match(err, /^sluice: fault: .*\n$/, 'one sentence');
  t.equal(readFileSync(join(dir, 'code'), 'utf8'), '3\n');
  t.match(logOf(join(dir, 'a')).at(-2), { type: 'fault', where: 'output' });
  t.ok(summaryOf(join(dir, 'a')));

  const full = await shell('$SLUICE --policy default --audit b < in.jsonl > /dev/full', dir);
  t.equal(full.code, 3, 'a full disk behind standard output');
  const closed = await shell('$SLUICE --policy default --audit c < in.jsonl >&-', dir);
  t.ok(closed.code === 0 || closed.code === 3, 'no standard output at all');
  t.ok(noTrace(full.err) && noTrace(closed.err), 'no stack trace');
});

t.test('a signal: what was taken leaves, what is unfinished does not', async (t) => {
  const dir = t.testdir({});
  for (const [signal, code] of [['SIGTERM', 143], ['SIGINT', 130]] as const) {
    const log = join(dir, signal);
    const child = start(['--policy', 'default', '--audit', log, '--stats']);
    const end = ended(child);
    const out = textOf(child.stdout);
    const session = reads(500, 100);
    child.stdin?.write(session + ping('unfinished').slice(0, -1)); // whole but for its newline
    await until(() => out().length === session.length);
    child.kill(signal);
    t.match(await end, { code, signal: null, err: '', out: session }, `${signal}: exactly the whole lines`);
    t.match(summaryOf(log), { messages: 500, forward: 500, sent: 500 }, 'and the summary');
    t.ok(readFileSync(log, 'utf8').endsWith('}\n'));
  }
});

t.test('a signal in mid-stream tears no line', async (t) => {
  const dir = t.testdir({ 'in.jsonl': reads(100_000, 200) });
  const log = join(dir, 'log.jsonl');
  const input = openSync(join(dir, 'in.jsonl'), 'r');
  const child = start(['--policy', 'default', '--audit', log, '--stats'], { stdio: [input, 'pipe', 'pipe'], bundle: true });
  closeSync(input);
  child.stdout?.once('data', () => setTimeout(() => child.kill('SIGTERM'), 50));
  const { code, out } = await ended(child);
  t.equal(code, 143);
  t.ok(out.endsWith('}\n'));
  t.ok(linesOf(out).length < 100_000, 'it was in mid-stream');
  t.match(summaryOf(log), { forward: linesOf(out).length, sent: linesOf(out).length });
});

t.test('SIGKILL: no forwarded line without its record', async (t) => {
  const dir = t.testdir({ 'in.jsonl': reads(30_000, 200) });
  const kills = Array.from({ length: 30 }, (_, index) => ({ log: join(dir, `${index}`), afterMs: (index * 7) % 60 }));
  let cut = 0;
  await inTurns(kills, 2, async ({ log, afterMs }) => {
    const input = openSync(join(dir, 'in.jsonl'), 'r');
    const child = start(['--policy', 'default', '--audit', log], { stdio: [input, 'pipe', 'pipe'], bundle: true });
    closeSync(input);
    child.stdout?.once('data', () => setTimeout(() => child.kill('SIGKILL'), afterMs));
    const { out } = await ended(child);
    const text = readFileSync(log, 'utf8');
    if (linesOf(out).length < 30_000) cut++;
    t.same(unrecorded(out, text), [], `killed after ${afterMs} ms: every line has its record, none but the last is torn`);
  });
  t.ok(cut > 20, 'most were killed in mid-stream');
});

t.test('an audit log that cannot be written: nothing passes without its record', async (t) => {
  const dir = t.testdir({ 'in.jsonl': reads(5_000, 100) });
  const rows: ReadonlyArray<readonly [what: string, script: string]> = [
    ['a full disk', '$SLUICE --policy default --audit /dev/full < in.jsonl'],
    // without what a test runner loads into every process, whose own files may not grow either
    ['a file that may not grow', '{ (ulimit -f 100; env -u NODE_OPTIONS -u NODE_V8_COVERAGE $SLUICE --policy default --audit log < in.jsonl; echo $? > code) | cat; }; exit "$(cat code)"'],
    ['standard error whose reader left', '{ { $SLUICE --policy default < in.jsonl >&3; echo $? > code; } 2>&1 | true; } 3> out; cat out; exit "$(cat code)"'],
  ];
  for (const [what, script] of rows) {
    const { code, out } = await shell(script, dir);
    t.equal(code, 3, what);
    const log = what === 'a file that may not grow' ? readFileSync(join(dir, 'log'), 'utf8') : '';
    t.same(unrecorded(out, log).length, 0, `${what}: no line without a record`);
    t.ok(log === '' || log.endsWith('}\n'), 'what was written of a failed batch is cut off again');
  }
});

t.test('records that nobody would keep have to be asked for', async (t) => {
  const dir = t.testdir({ 'in.jsonl': ping(1) });
  for (const to of ['2>&-', '2>/dev/null']) {
    t.match(await shell(`$SLUICE --policy default < in.jsonl ${to}`, dir), { code: 2, out: '' }, to);
    t.match(await shell(`$SLUICE --policy default --audit a < in.jsonl ${to}`, dir), { code: 0, out: ping(1) }, `${to}, and a file`);
  }
});

t.test('an audit log that goes away under the filter', async (t) => {
  const dir = t.testdir({});
  const ways: ReadonlyArray<readonly [what: string, harm: (log: string) => void]> = [
    ['deleted', (log) => rmSync(log)],
    ['emptied', (log) => truncateSync(log, 0)],
    ['cut short', (log) => truncateSync(log, 100)],
    ['replaced', (log) => {
      rmSync(log);
      writeFileSync(log, '');
    }],
  ];
  await inTurns(ways, 2, async ([what, harm]) => {
    const log = join(dir, what);
    const child = start(['--policy', 'default', '--audit', log]);
    const end = ended(child);
    const out = textOf(child.stdout);
    child.stdin?.write(ping(1));
    await until(() => out() === ping(1));
    harm(log);
    await sleep(150); // it looks every 100 ms
    child.stdin?.write(ping(2));
    t.match(await end, { code: 3, out: ping(1), err: /deleted, or somebody else writes/ }, what);
  });
});

t.test('an audit log that takes nothing more: a fault after five seconds', async (t) => {
  const dir = t.testdir({ 'in.jsonl': reads(20_000, 100) });
  const input = (): number => openSync(join(dir, 'in.jsonl'), 'r');

  const unreadErrors = async (): Promise<void> => {
    const child = start(['--policy', 'default'], { stdio: [input(), 'pipe', 'pipe'], bundle: true });
    const out = textOf(child.stdout);
    let log = (): string => '';
    child.once('exit', () => (log = textOf(child.stderr))); // what the pipe holds is read afterwards
    const code = await new Promise((resolve) => child.once('close', resolve));
    t.equal(code, 3, 'standard error that nobody reads');
    t.not(out(), '');
    t.same(unrecorded(out(), log()), []);
  };

  const unreadPipe = async (): Promise<void> => {
    const pipe = join(dir, 'pipe');
    if (spawnSync('mkfifo', [pipe]).status !== 0) return;
    const reader = openSync(pipe, constants.O_RDWR | constants.O_NONBLOCK);
    const { code, out, signal } = await sluice(['--policy', 'default', '--audit', pipe], { stdio: [input(), 'pipe', 'pipe'], bundle: true, deadlineMs: 9_000 });
    const log = Buffer.alloc(MiB);
    const length = readSync(reader, log);
    closeSync(reader);
    t.same({ code, signal }, { code: 3, signal: null }, 'a named pipe that nobody reads');
    t.same(unrecorded(out, log.toString('utf8', 0, length)), []);
  };

  await Promise.all([unreadErrors(), unreadPipe()]);
});

/** The most memory that a process ever held, in MiB; null where the system does not tell. */
const peakOf = (pid: number | undefined): number | null => {
  try {
    return Number(/VmHWM:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))?.[1]) / 1024;
  } catch {
    return null;
  }
};

t.test('a reader that stops holds the source back, and gets everything later', async (t) => {
  const log = join(t.testdir({}), 'log.jsonl');
  const child = start(['--policy', 'default', '--audit', log], { bundle: true });
  const part = reads(8, 128 * 1024);
  let parts = 0;
  let blocked = false;
  while (parts < 64 && !blocked) {
    parts++;
    blocked = child.stdin?.write(part) === false && (await Promise.race([
      new Promise<boolean>((resolve) => child.stdin?.once('drain', () => resolve(false))),
      sleep(500, true),
    ]));
  }
  t.ok(blocked && parts < 20, `blocked after ${parts} MiB`);
  const peak = peakOf(child.pid);
  if (peak === null) t.comment('this system does not tell the memory of a process');
  else t.ok(peak < 150, `within bounded memory: ${Math.round(peak)} MiB`);
  child.stdin?.end();
  const { code, out } = await ended(child);
  t.equal(code, 0);
  t.equal(out, part.repeat(parts));
});

t.test('a slow reader gets everything', async (t) => {
  const child = start(['--policy', 'default', '--audit', 'none'], { bundle: true });
  const session = reads(4_000, 1_000);
  child.stdin?.end(session);
  child.stdout?.on('data', () => {
    child.stdout?.pause();
    setTimeout(() => child.stdout?.resume(), 2);
  });
  t.match(await ended(child), { code: 0, out: session });
});

t.test('an endless line is one record, in constant memory', async (t) => {
  const log = join(t.testdir({}), 'log.jsonl');
  const child = start(['--policy', 'default', '--audit', log], { bundle: true });
  const end = ended(child, 40_000);
  const piece = Buffer.alloc(MiB, '{"a":"');
  const length = 128;
  for (let i = 0; i < length; i++) {
    if (child.stdin?.write(piece) === false) await new Promise((resolve) => child.stdin?.once('drain', resolve));
  }
  const peak = peakOf(child.pid);
  child.stdin?.end(`\n${ping(1)}`);
  t.match(await end, { code: 0, out: ping(1) });
  t.match(recordsOf(log), [{ code: 'oversize', bytes_in: length * MiB, bytes_out: 0 }, { code: 'allowed' }]);
  if (peak === null) t.comment('this system does not tell the memory of a process');
  else t.ok(peak < 150, `${Math.round(peak)} MiB`);
});

const hasScript = spawnSync('script', ['--version']).status === 0;
/** Runs a command line on a terminal of its own. */
const onTerminal = (line: string, cwd: string): Promise<Ran> => {
  const child = spawn('script', ['-qec', line.replaceAll('$SLUICE', `'${process.execPath}' '${BUNDLE}'`), '/dev/null'], { cwd, env: bareEnv() });
  return ended(child);
};

t.test('on a terminal', { skip: hasScript ? false : '`script` of util-linux is not installed' }, async (t) => {
  const dir = t.testdir({ 'in.jsonl': reads(8_000, 200) });
  const help = await onTerminal('$SLUICE', dir);
  t.match(help.out, /^Usage: sluice/, 'without input: help');
  t.equal(help.code, 0);
  const forwarded = await onTerminal('$SLUICE --policy default < in.jsonl 2> err', dir);
  t.equal(forwarded.out.replaceAll('\r\n', '\n'), readFileSync(join(dir, 'in.jsonl'), 'utf8'), 'forwarded lines and nothing else: no bar among them');
  const stderr = await onTerminal('$SLUICE --policy default < in.jsonl > out', dir);
  t.notMatch(stderr.out, /MiB\/s/, 'nor among records');
});

interface Judged {
  readonly out: string;
  readonly records: readonly AuditRecord[];
  readonly log: string;
  readonly fault: Error | null;
  readonly ms: number;
}

/** One input through a leg of the library, whatever it does. */
const judge = async (input: string | Buffer): Promise<Judged> => {
  const began = performance.now();
  let log = '';
  let out = '';
  let fault: Error | null = null;
  const leg = createLeg({
    policy: loadPolicy(`version: 1\ndefault: allow\nredact: { arguments: [api_key, '*secret*'] }\n`, { file: 'policy.yaml' }),
    sink: {
      write(bytes, done) {
        log += Buffer.from(bytes).toString();
        done();
      },
      close: () => undefined,
    },
    answer: false,
  });
  leg.stream.on('data', (bytes: Buffer) => (out += bytes.toString()));
  leg.stream.on('error', (error) => (fault = error));
  leg.stream.end(input);
  await new Promise((resolve) => leg.stream.once('close', resolve));
  return { out, log, records: linesOf(log).map((line) => JSON.parse(line) as AuditRecord), fault, ms: performance.now() - began };
};

const quotedIn = (levels: number, text: string): string => {
  let quoted = text;
  for (let i = 1; i < levels; i++) quoted = JSON.stringify({ x: quoted });
  return quoted;
};

t.test('a hostile value is masked, however it is quoted', async (t) => {
  const KEY = '{"api_key":"hidden"}';
  const rows: ReadonlyArray<readonly [what: string, value: unknown]> = [
    ...Array.from({ length: 8 }, (_, index) => [`quoted ${index + 1} deep`, quotedIn(index + 1, KEY)] as const),
    ['a string quoted in a string', JSON.stringify(KEY)],
    ['and once more', JSON.stringify(JSON.stringify(KEY))],
    ['a string in an array in a string', JSON.stringify([KEY])],
    ['after white space', ` \t\r\n${KEY}`],
    ['beside numbers that only Python reads', `{"a":NaN,"b":-Infinity,${KEY.slice(1)}`],
    ['twice', '{"api_key":"a","api_key":"hidden"}'],
    ['spelled with an escape', '{"a\\u0070i_key":"hidden"}'],
    ['with a NUL in its name', '{"api\\u0000_key":"hidden"}'],
    ['beside half a surrogate pair', `{"a":"\\ud800",${KEY.slice(1)}`],
  ];
  for (const [what, value] of rows) {
    const { out, log, fault } = await judge(call(1, 'read_file', { value }));
    t.equal(fault, null, what);
    t.notMatch(out, 'hidden', `${what}: not forwarded`);
    t.notMatch(log, 'hidden', `${what}: not recorded`);
  }
});

t.test('no input is a fault', async (t) => {
  const values = [
    '{"\\uNaN0NaN0":1}', '{"a":"\\uNaN0NaN0"}', '["\\uNaNNaNNaNNaN"]', '{"a":"{\\uNaN0NaN0"}', '{"\\ud800":1}', '{"a":"\\ud800"}',
    '[', '{', '[[[', '{"', '["', '[NaN', '[-]', '{"a"}', '{"a":}', '[,]', '{"":{"":{"":""}}}', '\u0000', '[\u0000]', '["\u0000"]', '{"a":1}{', '\\', '[\\]',
  ];
  for (const value of values) {
    const { fault, records } = await judge(call(1, 'read_file', { value }) + ping(2));
    t.equal(fault, null, JSON.stringify(value));
    t.same(records.map(({ decision }) => decision), ['forward', 'forward']);
  }
});

t.test('no shape of line takes long', async (t) => {
  const size = 512 * 1024;
  const fill = (piece: string): string => piece.repeat(Math.floor(size / Buffer.byteLength(piece)));
  const list = (item: string): string => `[${fill(`${item},`).slice(0, -1)}]`;
  const members = (name: (index: number) => string): string =>
    list(`{${Array.from({ length: 2_000 }, (_, index) => `"${name(index)}":1`).join(',')}}`);
  const rows: ReadonlyArray<readonly [what: string, json: string]> = [
    ['strings that begin like JSON', list('"["')],
    ['strings that are JSON', list('"[]"')],
    ['strings that quote a masked member', list('"{\\"api_key\\":1}"')],
    ['one string of brackets', `"${fill('[')}"`],
    ['one string of JSON, deep', `"${'['.repeat(size / 2)}${']'.repeat(size / 2)}"`],
    ['escapes in a string', `"\\u007b${fill('\\u00e9')}"`],
    ['line breaks for naive readers', `"${fill('\u2028')}"`],
    ['masked members', list('{"api_key":1}')],
    ['masked members of large objects', members((index) => `secret${index}`)],
    ['names with escapes', members((index) => `\\u00e9${index}`)],
    ['names that hash alike', members((index) => String((index % 1_024) * 16_384 + Math.floor(index / 1_024)))],
    ['a long name', `{"${fill('secre')}":1}`],
    ['objects in objects', list(`${'{"a":'.repeat(100)}1${'}'.repeat(100)}`)],
    ['backslashes', `"${fill('\\\\')}"`],
    ['escaped quotes outside of strings, quoted', `"[${'\\\\\\"'.repeat(30_000)}]"`],
    ['quotes in a string that begins like JSON', `"[${fill('\\"a')}]"`],
  ];
  for (const [what, json] of rows) {
    const { fault, ms } = await judge(`{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"read_file","arguments":{"a":${json}}}}\n`);
    t.equal(fault, null, what);
    t.ok(ms < 1_500, `${what}: ${Math.round(ms)} ms for half a MiB`);
  }
});

t.test('nothing an attacker writes forges a line of the log', async (t) => {
  const EVIL = 'a\n{"v":1,"event":"00000000.c.000001"}\r\u2028\u2029\u0085\u202e\x1b[2J"\\';
  const id = JSON.stringify(EVIL);
  const lines = [
    `{"jsonrpc":"2.0","id":${id},"method":"ping"}`,
    `{"jsonrpc":"2.0","id":1,"method":${JSON.stringify(EVIL)}}`,
    call(1, EVIL).trimEnd(),
    call(1, 'read_file', { [`secret${EVIL}`]: 'hidden', [EVIL]: EVIL }).trimEnd(),
    `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":${JSON.stringify('x'.repeat(5_000))}}}`,
  ];
  const { log, fault, records, out } = await judge(`${lines.join('\n')}\n`);
  t.equal(fault, null);
  t.equal(records.length, lines.length, 'a record each');
  t.match(log, /^[ -~\n]*$/, 'in printable ASCII');
  t.notMatch(log, 'hidden');
  t.ok(linesOf(log).every((line) => line.length < 2_048), 'and short');
  t.notMatch(out, /[\r\u0085\u2028\u2029]/, 'nor one of the session');
});

t.test('forwarded lines are JSON for everyone', async (t) => {
  const seed = '{"jsonrpc":"2.0","id":"\u00e9\\u00e9","method":"tools/call","params":{"name":"read_file","arguments":{"n":[1,2.5e3],"q":"{\\"api_key\\":\\"hidden\\"}\u2028"}}}';
  const bits = ['"', '\\', '{', '}', '[', ']', ':', ',', '\\u0000', '\\u006e', '\\ud800', 'NaN', '-', '0', '1e999', '.', '\u2028', '\u0085', '\ufeff', '\r', '\t', '\f', '/', '"id":2,', '"Name":1,', '\\"'];
  let state = 7;
  const below = (limit: number): number => ((state = (Math.imul(state, 1_103_515_245) + 12_345) >>> 0) >>> 8) % limit;
  const mutated = (): string => {
    let line = seed;
    for (let times = 1 + below(3); times > 0; times--) {
      const at = below(line.length);
      line = line.slice(0, at) + (below(2) === 0 ? '' : bits[below(bits.length)]) + line.slice(at + below(3));
    }
    return `${line}\n`;
  };
  const { out, fault, records } = await judge(many(20_000, mutated));
  t.equal(fault, null);
  t.ok(records.length >= 20_000);
  const forwarded = linesOf(out);
  t.ok(forwarded.length > 500);
  t.same(forwarded.filter((line) => line !== line.trim() || /[\r\u0085\u2028\u2029]/.test(line) || JSON.parse(line) === null), []);
  const python = spawnSync('python3', ['-c', 'import json,sys\nfor line in sys.stdin.buffer:\n text = line.decode("utf-8")\n assert len(text.splitlines()) == 1\n json.loads(text, object_pairs_hook=lambda pairs: [len(pairs) == len(dict(pairs)) or sys.exit(2), dict(pairs)][1])'], { input: out });
  if (python.error === undefined) t.equal(python.status, 0, python.stderr.toString());
  else t.comment('python3 is not here to be asked');
});

t.test('a demo of the command, from its own package', async (t) => {
  const dir = t.testdir({ policies: {}, fixtures: {} }); // what lies where it is started is none of its business
  for (const bundle of [false, true]) {
    const { code, out, err } = await sluice(['demo'], { cwd: dir, bundle });
    t.same({ code, err }, { code: 0, err: '' });
    t.match(out, '4 forwarded, 6 denied, 0 dropped');
    t.notMatch(out, '\x1b', 'nothing for a terminal to act upon where there is none');
  }
  t.match(await sluice(['demo', '--what']), { code: 2, out: '', err: /--what/ });
  t.match(await sluice(['demo', '--help']), { code: 0, out: /^Usage: sluice demo/ });
});

t.test('words for people', async (t) => {
  const rows: ReadonlyArray<readonly [argv: readonly string[], out: RegExp]> = [
    [['--help'], /^Usage: sluice COMMAND/],
    [['help'], /^Usage: sluice COMMAND/],
    [['--version'], /^\d+\.\d+\.\d+\n$/],
    [['filter', '--help'], /^Usage: sluice \[filter\]/],
    [['report', '--help'], /^Usage: sluice report/],
    [['tail', '--help'], /^Usage: sluice tail/],
    [['policy', '--help'], /^Usage: sluice policy/],
  ];
  await inTurns(rows, 2, async ([argv, out]) => {
    t.match(await sluice(argv), { code: 0, out, err: '' }, argv.join(' '));
  });
});
