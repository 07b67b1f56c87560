// What the README says, held against the product: its snippets run, its figures of speech are the program's own output,
// its table of codes is the table of codes, and what it names as proof is there.
import { spawn, spawnSync } from 'node:child_process';
import type { SpawnSyncReturns } from 'node:child_process';
import { once } from 'node:events';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readFileSync, readdirSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { delimiter, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import { CODES } from '../lib/errors.js';
import type { Code } from '../lib/errors.js';
import { loadPolicy } from '../lib/policy/load.js';

const root = fileURLToPath(new URL('../..', import.meta.url));
const sluice = join(root, 'build', 'sluice.cjs');
const readme = readFileSync(join(root, 'README.md'), 'utf8');
const session = join(root, 'fixtures', 'demo', 'ten-messages', 'session.jsonl');
const windows = process.platform === 'win32' ? 'shell snippets are for bash' : false;

/** A fenced block. After its language stands a file to save it as, or what it is: `run`, `demo`, `record`, `refusal`. */
interface Block {
  readonly language: string;
  readonly role: string;
  readonly text: string;
}

const blocks: readonly Block[] = [...readme.matchAll(/^```(\w*)(?: (\S+))?\n([^]*?)^```$/gm)]
  .map(([, language = '', role = '', text = '']) => ({ language, role, text }));
const blocksOf = (role: string): string[] => blocks.filter((block) => block.role === role).map(({ text }) => text);
/** What matches, each once. */
const found = (pattern: RegExp, text = readme): string[] => [...new Set([...text.matchAll(pattern)].map(([match]) => match))];
const FLAG = /(?<![\w-])--[a-z][a-z-]*/g;
const linesOf = (text: string): string[] => text.split('\n').filter((line) => line !== '');

const env = { ...process.env, NO_COLOR: '1', FORCE_COLOR: '', SLUICE_ALLOW_NO_POLICY: '' };
const run = (args: readonly string[], options: { input?: string | Buffer; cwd?: string } = {}): SpawnSyncReturns<string> =>
  spawnSync(process.execPath, [sluice, ...args], { input: '', ...options, encoding: 'utf8', env });

/** A folder as the README's reader has it: its files, a session, and `sluice` on the path. */
const makeFolder = (folder: string): NodeJS.ProcessEnv => {
  for (const { role, text } of blocks) if (role.includes('.')) writeFileSync(join(folder, role), text);
  copyFileSync(session, join(folder, 'session.jsonl'));
  mkdirSync(join(folder, 'bin'));
  mkdirSync(join(folder, 'node_modules'));
  symlinkSync(sluice, join(folder, 'bin', 'sluice'));
  symlinkSync(root, join(folder, 'node_modules', 'mcp-sluice'));
  return { ...env, PATH: `${join(folder, 'bin')}${delimiter}${process.env['PATH'] ?? ''}` };
};

/** Runs a snippet without what tap adds to each Node process: that doubles its time, and no reader has it. */
const shell = (snippet: string, cwd: string, shellEnv: NodeJS.ProcessEnv, input = ''): SpawnSyncReturns<string> =>
  spawnSync('bash', ['-euo', 'pipefail', '-c', `unset NODE_OPTIONS\n${snippet}`], {
    cwd, input, env: shellEnv, encoding: 'utf8', maxBuffer: 64 * 1024 * 1024, timeout: 60_000,
  });

test('each snippet that is marked as runnable runs', { skip: windows }, async (t) => {
  const folder = t.testdir({});
  const shellEnv = makeFolder(folder);
  const snippets = blocksOf('run');
  t.ok(snippets.length >= 10, 'there are some');
  for (const snippet of snippets) {
    const { status, stdout, stderr } = shell(snippet, folder, shellEnv);
    t.equal(status, 0, linesOf(snippet)[0] ?? '', { stdout, stderr });
  }
  const text = (file: string): string => readFileSync(join(folder, file), 'utf8');
  t.equal(linesOf(text('refusals.jsonl')).length, 4, 'four refusals are answered');
  t.equal((JSON.parse(text('report.json')) as { recount: { result: string } }).recount.result, 'MATCHES');
  t.match(text('changes.txt'), /^[<>].*list_dir/m, 'two policies differ');
  t.equal(linesOf(text('embedded.jsonl')).length, 10, 'a leg keeps a record for each message');
  t.ok(linesOf(text('observed.jsonl')).some((line) => line.includes('"would":"deny"')), 'observe mode says what it would do');
});

test('behind the script a client gets answers and refusals, each a whole line', { skip: windows }, async (t) => {
  const folder = t.testdir({});
  const shellEnv = makeFolder(folder);
  const guard = join(folder, 'guard.sh');
  chmodSync(guard, 0o755);
  const big = 'x'.repeat(200_000);
  const calls = Array.from({ length: 40 }, (_, id) =>
    JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: id % 2 === 0 ? 'read_file' : 'shell.exec', arguments: { big: id % 2 === 0 ? big : '' } } }));
  const input = `${calls.join('\n')}\n`;
  const ran = shell('./guard.sh node server.mjs', folder, shellEnv, input);
  t.equal(ran.status, 0, 'it ends when the client does', { stderr: ran.stderr });
  const answers = linesOf(ran.stdout).map((line) => JSON.parse(line) as { id: number; error?: { code: number } });
  t.same(answers.map(({ id }) => id).sort((a, b) => a - b), calls.map((_, id) => id), 'each request is answered once');
  t.ok(answers.every(({ id, error }) => (id % 2 === 0 ? error === undefined : error?.code === CODES.tool_denied.rpc)));
  writeFileSync(guard, readFileSync(guard, 'utf8').replace('--policy default', '--policy missing.yaml'));
  const refused = shell('./guard.sh node server.mjs', folder, shellEnv, input);
  t.equal(refused.status, 2, 'without its policy it ends at once');
  t.equal(refused.stdout, '', 'and nothing was forwarded');
});

test('what is shown as output is what comes out', async (t) => {
  const [demo = ''] = blocksOf('demo');
  const shown = run(['demo']).stdout.split('\n');
  for (const line of linesOf(demo)) t.ok(shown.includes(line), line);

  const folder = t.testdir({ 'policy.yaml': blocksOf('policy.yaml')[0] ?? '' });
  const input = readFileSync(session);
  const { stderr } = run(['--policy', 'default', '--epoch-ms', '0'], { input });
  const records = linesOf(blocksOf('record')[0] ?? '');
  t.not(records.length, 0, 'a record is shown');
  for (const record of records) t.ok(linesOf(stderr).includes(record), record);
  const section = readme.slice(readme.indexOf('## The audit record'), readme.indexOf('## Refusals'));
  const fields = new Set([...section.matchAll(/^\| ((?:`\w+`(?:, )?)+) \|/gm)].flatMap(([, names = '']) => found(/\w+/g, names)));
  const keys = linesOf(stderr).map((line) => Object.keys(JSON.parse(line) as object)).filter((names) => names.includes('event')).flat();
  t.same(keys.filter((key) => !fields.has(key)), [], 'each field of a record has its row');

  const errors = join(folder, 'refusals.jsonl');
  run(['--policy', join(folder, 'policy.yaml'), '--epoch-ms', '0', '--audit', join(folder, 'audit.jsonl'), '--errors', errors], { input });
  const [refusal = ''] = blocksOf('refusal');
  t.ok(linesOf(readFileSync(errors, 'utf8')).includes(refusal.trimEnd()), 'a refusal');
});

const codeTable = (): string => {
  const codes: Readonly<Record<string, Code>> = CODES;
  const rows = Object.entries(codes).map(([name, { decision, severity, rpc, retryable, text }]) =>
    `| \`${name}\` | ${rpc === 0 ? '' : rpc} | ${decision} | ${severity} | ${retryable ? 'yes' : ''} | ${text} |`);
  return ['| code | JSON-RPC | decision | severity | retryable | meaning |', '|---|---|---|---|---|---|', ...rows].join('\n');
};

test('the table of codes is the one that the program has', async (t) => {
  const shown = /<!-- codes -->\n+([^]*?)\n+<!-- \/codes -->/.exec(readme)?.[1];
  t.equal(shown, codeTable(), 'put this table between the markers');
  const known = new Set([...Object.keys(CODES), ...Object.values(CODES).map(({ rpc }) => String(rpc))]);
  const numbers = [...readme.matchAll(/"code":(-?\d+)/g)].map(([, number = '']) => number);
  t.same(numbers.filter((number) => !known.has(number)), [], 'no other number is shown');
});

test('what is named as proof exists', async (t) => {
  const named = found(/(?<![\w/])(?:fixtures|test|policies|lib|bin)\/[\w./-]*\w/g);
  t.ok(named.length > 30, 'proofs are named');
  for (const path of named) t.ok(existsSync(join(root, path)), path);
  const cases = named.filter((path) => /^fixtures\/(?!corpus|demo|README)[\w-]+\/[\w-]+$/.test(path));
  for (const path of cases) t.ok(readdirSync(join(root, path)).includes('audit.jsonl'), `${path} is a golden case`);
  const laws = readFileSync(join(root, 'test', 'laws.test.ts'), 'utf8');
  for (const [, list = ''] of readme.matchAll(/\(laws? ([\d and]+)\)/g)) {
    for (const [number] of list.matchAll(/\d+/g)) t.match(laws, new RegExp(`'laws? (?:\\d+ and )?${number}\\b`), `law ${number} has a test`);
  }
  const links = [...readme.matchAll(/\]\(([^)#]+)\)/g)].map(([, link = '']) => link).filter((link) => !/^https?:/.test(link));
  for (const link of links) t.ok(statSync(join(root, link)).isFile(), `link to ${link}`);
});

test('each flag and command that is named is told by a --help', async (t) => {
  const helps = [['--help'], ['filter', '--help'], ['demo', '--help'], ['report', '--help'], ['tail', '--help'], ['policy', '--help']];
  const help = helps.map((args) => run(args).stdout).join('\n');
  const flags = found(FLAG).filter((flag) => flag !== '--global'); // npm's own
  t.ok(flags.length > 8, 'flags are named');
  const known = new Set(found(FLAG, help));
  t.same(flags.filter((flag) => !known.has(flag)), []);
  const scripts = (JSON.parse(readFileSync(join(root, 'package.json'), 'utf8')) as { scripts: Record<string, string> }).scripts;
  for (const [, script = ''] of readme.matchAll(/npm run (\w+)/g)) t.ok(Object.hasOwn(scripts, script), `npm run ${script}`);
  const variables = found(/\b(?:SLUICE_[A-Z_]+|JSONTESTSUITE)\b/g);
  const sources = ['bin/commands/filter.ts', 'test/sessions.ts', 'test/corpus/run.ts'].map((file) => readFileSync(join(root, file), 'utf8')).join('\n');
  for (const variable of variables) t.ok(sources.includes(variable), variable);
});

test('the policies that are shown load, and their own tests pass', async (t) => {
  for (const file of ['README.md', 'policies/README.md']) {
    const shown = [...readFileSync(join(root, file), 'utf8').matchAll(/^```yaml.*\n([^]*?)^```$/gm)].map(([, text = '']) => text);
    t.not(shown.length, 0, `${file} shows one`);
    for (const source of shown) t.equal(loadPolicy(source, { file }).name, 'notes');
  }
});

test('it ends as the README says, and forwards what it says', async (t) => {
  const told = [...readme.matchAll(/^\| (\d(?:\d\d\+N)?) \|/gm)].map(([, code = '']) => code);
  t.same(told, ['0', '1', '2', '3', '128+N'], 'each exit code has its row');
  const folder = t.testdir({ 'alow.yaml': 'version: 1\nalow: [read_file]\ndefault: deny\n', 'empty.yaml': '', 'untested.yaml': 'version: 1\ndefault: allow\n' });
  const log = join(folder, 'audit.jsonl');
  const input = readFileSync(session);

  const done = run(['--policy', 'default', '--audit', log, '--stats'], { input });
  t.equal(done.status, 0, 'done');
  t.equal(linesOf(done.stdout).length, 6);
  t.equal(run(['report', log]).status, 0);

  writeFileSync(log, linesOf(readFileSync(log, 'utf8')).filter((_, i) => i !== 3).join('\n'));
  const mismatch = run(['report', log]);
  t.equal(mismatch.status, 1, 'MISMATCH');
  t.match(mismatch.stdout, /MISMATCH/);
  t.equal(run(['policy', 'check', '--strict', join(folder, 'untested.yaml')]).status, 1, 'a warning under --strict');

  const wrong: ReadonlyArray<readonly string[]> = [
    [], ['--policy', 'missing.yaml'], ['--policy', folder], ['--policy', join(folder, 'empty.yaml')], ['--policy', join(folder, 'alow.yaml')],
    ['--policy', 'default', '--unknown'], ['--policy', 'default', '--audit', join(folder, 'none', 'audit.jsonl')], ['--policy', 'default', '--epoch-ms', 'x'],
  ];
  for (const args of wrong) {
    const { status, stdout, stderr } = run(args, { input });
    t.equal(status, 2, `sluice ${args.join(' ')}`);
    t.equal(stdout, '', 'nothing is forwarded');
    t.not(stderr, '', 'it says why');
  }
  t.equal(run(['report', join(folder, 'missing.jsonl')]).status, 2);
});

test('a fault and a signal', { skip: windows }, async (t) => {
  const folder = t.testdir({});
  const log = join(folder, 'audit.jsonl');
  const line = '{"jsonrpc":"2.0","id":1,"method":"ping"}\n';

  const left = spawn(process.execPath, [sluice, '--policy', 'default', '--audit', log, '--stats'], { stdio: ['pipe', 'pipe', 'ignore'], env });
  left.stdout.destroy();
  left.stdin.on('error', () => undefined); // it may end while we write
  left.stdin.end(line.repeat(20_000));
  t.same(await once(left, 'exit'), [3, null], 'the reader went away');
  t.match(readFileSync(log, 'utf8'), /"type":"fault"/);

  if (existsSync('/dev/full')) {
    const full = run(['--policy', 'default', '--audit', '/dev/full'], { input: line });
    t.equal(full.status, 3, 'the log cannot be written');
    t.equal(full.stdout, '', 'nothing passes without its record');
  }

  for (const [signal, code] of [['SIGINT', 130], ['SIGTERM', 143]] as const) {
    const stopped = spawn(process.execPath, [sluice, '--policy', 'default', '--audit', log, '--stats'], { stdio: ['pipe', 'pipe', 'ignore'], env });
    const exit = once(stopped, 'exit');
    stopped.stdin.write(line);
    const [forwarded] = (await once(stopped.stdout, 'data')) as [Buffer];
    stopped.kill(signal);
    t.same(await exit, [code, null], signal);
    t.equal(forwarded.toString(), line, 'what was decided has left');
    t.match(readFileSync(log, 'utf8'), /"type":"summary".*"sent":1\}/);
  }

  const held = `${log}.lock`;
  writeFileSync(held, String(process.pid));
  t.equal(run(['--policy', 'default', '--audit', log], { input: line }).status, 2, 'the log is in use');
  writeFileSync(held, '2147483647');
  t.equal(run(['--policy', 'default', '--audit', log], { input: line }).status, 0, 'the lock of a process that is gone');
});
