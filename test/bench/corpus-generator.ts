// The bench's sessions, the same bytes every time: mixed client lines as real clients write them, and very long ones.
// Every line passes the bench's policy; a few percent hold values that it masks.
import { closeSync, openSync, writeSync } from 'node:fs';

export const MIXED_LINES = 300_000;
export const LONG_LINES = 200;
const LONG_BYTES = 1_000_000;

/** mulberry32: small, seeded, the same on every machine. */
const random = (seed: number): (() => number) => {
  let state = seed;
  return () => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
};

const PLAIN = `the report lists every file below the folder that changed since the last run and says what each line was before it so that
a reader can tell whether the change is meant please open the issue with the steps to repeat it and add a note about the version`.split(/\s+/);
const FOREIGN = 'naïve café Straße Größe Здравствуйте отчёт 日本語 報告書 مرحبا übergroß ελληνικά «così» señal 🚀 ação'.split(' ');
const CODE = ['const x = "a\\n";\n', '\tif (a !== b) {\n', '\t\treturn `${a}\\t`;\n', '\t}\n', 'printf("%s\\n", "C:\\\\tmp");\n', '<a href="/x?y=1&z=2">', '/* "quoted" */\n'];
const FOLDERS = ['src', 'lib', 'docs', 'data', 'reports', '2026', 'archive', 'packages', 'test', 'fixtures', 'Übersicht'];
const MASKED_KEYS = ['api_key', 'access_token', 'client_secret', 'authorization'];

interface Dice {
  readonly next: () => number;
  readonly below: (limit: number) => number;
  readonly text: (words: number) => string;
  readonly path: () => string;
}

const diceOf = (seed: number): Dice => {
  const next = random(seed);
  const below = (limit: number): number => Math.floor(next() * limit);
  const pick = <T>(list: readonly T[]): T => list[below(list.length)] as T;
  /** Mostly plain, at times in another script, at times code full of escapes. */
  const text = (words: number): string => {
    const roll = next();
    const [list, between] = roll < 0.85 ? [PLAIN, ' '] as const : roll < 0.93 ? [FOREIGN, ' '] as const : [CODE, ''] as const;
    return Array.from({ length: words }, () => pick(list)).join(between);
  };
  const path = (): string => `/srv/${Array.from({ length: 1 + below(4) }, () => pick(FOLDERS)).join('/')}/${below(100_000).toString(36)}.${pick(['ts', 'md', 'json', 'txt'])}`;
  return { next, below, text, path };
};

/** Arguments by tool, of the shapes that common servers have: each tool has its own members, in its own order. */
const TOOLS: readonly (readonly [name: string, make: (dice: Dice) => Record<string, unknown>])[] = [
  ['read_file', ({ path }) => ({ path: path() })],
  ['read_text_file', ({ path, below }) => ({ path: path(), head: below(500) })],
  ['write_file', ({ path, text, below }) => ({ path: path(), content: text(20 + below(110)) })],
  ['edit_file', ({ path, text, below, next }) => ({
    path: path(), edits: Array.from({ length: 1 + below(3) }, () => ({ oldText: text(4 + below(12)), newText: text(4 + below(12)) })), dryRun: next() < 0.3,
  })],
  ['list_directory', ({ path }) => ({ path: path() })],
  ['search_files', ({ path, text }) => ({ path: path(), pattern: text(2), excludePatterns: ['node_modules', '*.log'] })],
  ['git_log', ({ path, below }) => ({ repo_path: path(), max_count: below(50), start_timestamp: null })],
  ['git_commit', ({ path, text, below }) => ({ repo_path: path(), message: text(6 + below(40)) })],
  ['query', ({ below, text }) => ({ sql: `SELECT id, name FROM t${below(20)} WHERE note LIKE '%${text(2)}%' AND price < ${below(1e6) / 100}`, params: [below(1e6), text(3), null, true] })],
  ['fetch', ({ below, next }) => ({ url: `https://example.com/${below(1e6)}?q=${below(1e4)}&lang=de`, max_length: 5_000, raw: next() < 0.5 })],
  ['browser_click', ({ below, text }) => ({ element: text(4), ref: `e${below(500)}`, button: 'left', position: { x: below(19_200) / 10, y: below(10_800) / 10 } })],
  ['create_issue', ({ text, below }) => ({ owner: 'example', repo: `r${below(40)}`, title: text(7), body: text(30 + below(60)), labels: ['bug', 'p2'], assignees: [] })],
  ['send_message', ({ text, below }) => ({ channel: `C${below(1e9)}`, text: text(10 + below(60)), blocks: [{ type: 'section', text: { type: 'mrkdwn', text: text(10) } }] })],
  ['memory.store', ({ text, below }) => ({ entities: Array.from({ length: 1 + below(3) }, () => ({ name: text(2), entityType: 'note', observations: [text(6), text(9)] })) })],
];

/** One line after another, without newlines. */
const mixedLines = function* (seed: number): Generator<string, never> {
  const dice = diceOf(seed);
  const { next, below } = dice;
  for (let number = 1; ; number++) {
    const id = number % 3 === 0 ? `req-${number.toString(36)}` : number;
    const roll = next();
    if (number === 1) {
      yield JSON.stringify({
        jsonrpc: '2.0', id, method: 'initialize',
        params: { protocolVersion: '2025-11-25', capabilities: { roots: { listChanged: true }, sampling: {} }, clientInfo: { name: 'bench', version: '1.0.0' } },
      });
    } else if (roll < 0.02) {
      yield JSON.stringify({ jsonrpc: '2.0', method: 'notifications/progress', params: { progressToken: number, progress: below(100), total: 100 } });
    } else if (roll < 0.04) {
      yield JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/list', params: next() < 0.5 ? {} : { cursor: `c${below(1_000)}` } });
    } else if (roll < 0.05) {
      yield JSON.stringify({ jsonrpc: '2.0', id, method: 'ping' });
    } else {
      const [name, make] = TOOLS[below(TOOLS.length)] as (typeof TOOLS)[number];
      const masked = roll < 0.08 ? { [MASKED_KEYS[below(MASKED_KEYS.length)] ?? '']: `sample-${below(1e9)}` } : {};
      const meta = next() < 0.5 ? { _meta: { progressToken: number, 'example.com/trace': `${below(1e9)}-${below(1e9)}` } } : {};
      yield JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name, arguments: { ...make(dice), ...masked }, ...meta } });
    }
  }
};

/** Writes lines through one buffer, for a line at a time would take longer than all measurements. */
const writeLines = (path: string, lines: Iterable<string>): void => {
  const file = openSync(path, 'w');
  let pending: string[] = [];
  for (const line of lines) {
    pending.push(line, '\n');
    if (pending.length >= 4_096) {
      writeSync(file, pending.join(''));
      pending = [];
    }
  }
  writeSync(file, pending.join(''));
  closeSync(file);
};

const take = function* <T>(count: number, source: Iterator<T, never>): Generator<T> {
  for (let index = 0; index < count; index++) yield source.next().value;
};

export const writeMixed = (path: string): void => writeLines(path, take(MIXED_LINES, mixedLines(2026)));

/** Half one long text, half many small members; a handful of bodies is enough, only the id tells the lines apart. */
const longLines = function* (): Generator<string> {
  const { below, next, text } = diceOf(7);
  const bodies = Array.from({ length: 4 }, () => ({
    path: '/srv/data/long.txt',
    content: Array.from({ length: LONG_BYTES / 1_200 }, () => text(100)).join('\n'),
    items: Array.from({ length: LONG_BYTES / 170 }, (_, row) => ({ row, ok: next() < 0.5, title: text(5 + below(10)) })),
  }));
  for (let id = 1; id <= LONG_LINES; id++) {
    yield JSON.stringify({ jsonrpc: '2.0', id, method: 'tools/call', params: { name: 'write_file', arguments: bodies[id % bodies.length] } });
  }
};

export const writeLong = (path: string): void => writeLines(path, longLines());

/** No rate, and nothing that any of these lines meets but the masks. */
export const POLICY = `version: 1
name: bench
default: allow
deny: [shell.*, net.*, fs.delete]
redact:
  arguments: ['*token*', '*secret*', api_key, authorization]
`;
