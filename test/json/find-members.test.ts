// Finding members by name, in JSON and in JSON that is quoted in strings, against an independent walk over plain values.
import fc from 'fast-check';
import t from 'tap';
import { MemberFinder } from '../../lib/json/find-members.js';
import type { Hit } from '../../lib/json/find-members.js';
import { NameWatch } from '../../lib/json/name-watch.js';
import type { Where } from '../../lib/json/name-watch.js';
import { Scanner } from '../../lib/json/scan.js';
import { splice } from '../../lib/json/splice.js';
import { jsonArguments, settings, shown } from '../sessions.js';

const MASK = '«redacted»';
const WANTED = new Set(['token', 's', 'k\ud800', 'to\u212aen', 'Secret']);
const watch = new NameWatch((name) => WANTED.has(name));

const find = (line: string | Buffer, levels = Infinity, intoStrings = true, where: Where = 'elsewhere', path: readonly string[] = []): Hit[] =>
  new MemberFinder(watch, levels, intoStrings).find(Buffer.concat([Buffer.from(line as Buffer), Buffer.from('\n')]), 0, where, path) ?? [];

const maskAt = (level: number): Buffer => {
  let text = JSON.stringify(MASK);
  for (let i = 0; i < level; i++) text = JSON.stringify(text).slice(1, -1);
  return Buffer.from(text);
};

const masked = (line: string, hits: readonly Hit[]): string => {
  const bytes = Buffer.from(line);
  return splice(bytes, 0, bytes.length, hits.map(({ start, end, level, path }) => ({ start, end, bytes: maskAt(level), kind: 'mask', path }))).toString().slice(0, -1);
};

/** Text that quotes `value` in `levels` strings, inside an object. */
const quotedIn = (levels: number, value: string): string => {
  let text = value;
  for (let i = 0; i < levels; i++) text = JSON.stringify(text);
  return `{"q":${text}}`;
};

type Row = readonly [line: string, hits: ReadonlyArray<readonly [source: string, level: number, path: string]>];

const ROWS: readonly Row[] = [
  // values of every type, masked whole
  ['{}', []],
  ['{"token":1}', [['1', 0, 'token']]],
  ['{"token":"x","a":2,"s":null}', [['"x"', 0, 'token'], ['null', 0, 's']]],
  ['{ "token" : { "a" : [ "}" , 1 ] } , "b" : 1 }', [['{ "a" : [ "}" , 1 ] }', 0, 'token']]],
  ['{"token":[1,"]",{"s":2}]}', [['[1,"]",{"s":2}]', 0, 'token']]],
  ['{"token":"a\\"b\\\\"}', [['"a\\"b\\\\"', 0, 'token']]],
  ['{"token":-1.5e+7,"s":true }', [['-1.5e+7', 0, 'token'], ['true', 0, 's']]],
  // places
  ['{"a":{"token":1},"b":[{"s":2},[{"s":3}]]}', [['1', 0, 'a.token'], ['2', 0, 'b.0.s'], ['3', 0, 'b.1.0.s']]],
  ['{"a":{},"b":[],"c":[{}],"token":1}', [['1', 0, 'token']]],
  ['{"a b":{"":{"token":1}}}', [['1', 0, '"a b"."".token']]],
  // names as they decode
  ['{"to\\u006ben":1,"\\u0073":2}', [['1', 0, 'token'], ['2', 0, 's']]],
  ['{"Token":1,"tokens":2,"xtoken":3}', []],
  ['{"a":"token","b":["token","s"]}', []],
  // JSON quoted in strings
  [quotedIn(1, '{"token":1}'), [['1', 1, 'q.token']]],
  [quotedIn(1, ' [ { "s" : "x" , "b" : 1 } ] '), [['\\"x\\"', 1, 'q.0.s']]],
  ['{"q":"\\n\\t{\\"token\\":\\"x\\"}"}', [['\\"x\\"', 1, 'q.token']]],
  ['{"q":"\\u007b\\u0022token\\u0022:\\u0022x\\u0022\\u007d"}', [['\\u0022x\\u0022', 1, 'q.token']]],
  ['{"q":"{\\"to\\\\u006ben\\":\\"é😀\\"}"}', [['\\"é😀\\"', 1, 'q.token']]],
  ['{"q":"{\\"\\ud83d\\ude00é\\":{\\"token\\":\\"\\ud83d\\ude00\\"}}"}', [['\\"\\ud83d\\ude00\\"', 1, 'q."😀é".token']]],
  ['{"a":["{\\"s\\":1}","[]",{"b":"[{\\"s\\":2}]"}]}', [['1', 1, 'a.0.s'], ['2', 1, 'a.2.b.0.s']]],
  // prose and halves of JSON are no objects
  ['{"q":"{brace}","r":"[1] see token","t":"{\\"token\\":1","u":"{\\"token\\":1} x"}', []],
  // a string that quotes a string that quotes JSON: two levels
  ['{"v":"\\"{\\\\\\"token\\\\\\":1}\\""}', [['1', 2, 'v.token']]],
];

t.test('what is found, where, and at which level of quoting', async (t) => {
  for (const [line, wanted] of ROWS) {
    const bytes = Buffer.from(line);
    t.same(find(line).map(({ start, end, level, path }) => [bytes.toString('utf8', start, end), level, path]), wanted, shown(line));
  }
});

t.test('one to four levels of quoting; deeper ones go as a whole', async (t) => {
  const finder = (line: string): ReadonlyArray<Hit> => find(line);
  let inner = '{"token":"v"}';
  for (let level = 1; level <= 6; level++) {
    const line = `{"q":${JSON.stringify(inner)}}`;
    const hits = finder(line);
    t.same(hits.map((hit) => hit.level), [Math.min(level, 4)], `level ${level}`);
    if (level <= 4) {
      let value: unknown = JSON.parse(masked(line, hits));
      for (let i = 0; i < level; i++) value = JSON.parse((value as { q: string }).q);
      t.same(value, { token: MASK });
    }
    inner = line;
  }
});

t.test('half a surrogate pair in quoted JSON, which the strict scan does not see', async (t) => {
  // Each of these passes the scan: the half is spelled by an escaped backslash.
  const rows: Row[] = [
    ['{"q":"{\\"a\\":\\"[\\\\ud800abcde\\\\n]\\",\\"token\\":1}"}', [['1', 1, 'q.token']]],
    [quotedIn(1, JSON.stringify({ a: JSON.stringify({ 'k\ud800': 'v' }) })), [[JSON.stringify(JSON.stringify('"v"').slice(1, -1)).slice(1, -1), 2, 'q.a."k\\ud800"']]],
    [quotedIn(1, JSON.stringify({ a: JSON.stringify(['\ud800', { s: 1 }]) })), [['1', 2, 'q.a.1.s']]],
    [quotedIn(1, JSON.stringify({ a: JSON.stringify({ x: '\udc00\ud800', s: 1 }) })), [['1', 2, 'q.a.s']]],
    [quotedIn(1, JSON.stringify({ a: JSON.stringify(['\ud800\ud83d\ude00', { s: 1 }]) })), [['1', 2, 'q.a.1.s']]],
  ];
  for (const [line, wanted] of rows) {
    const bytes = Buffer.from(`${line}\n`);
    t.equal(new Scanner().proves(bytes, 0, bytes.length - 1), true, shown(line));
    try {
      t.same(find(line).map(({ start, end, level, path }) => [bytes.toString('utf8', start, end), level, path]), wanted, shown(line));
      JSON.parse(masked(line, find(line)));
    } catch (error) {
      t.fail(`${shown(line)} throws: ${String(error)}`);
    }
  }
});

t.test('levels', async (t) => {
  const line = '{"s":1,"a":{"s":2,"b":{"s":3}},"c":[{"s":4}],"q":"{\\"s\\":5}"}';
  const sources = (levels: number, intoStrings: boolean): string[] => find(line, levels, intoStrings).map(({ start, end }) => line.slice(start, end));
  t.same(sources(1, false), ['1']);
  t.same(sources(2, false), ['1', '2']);
  t.same(sources(3, false), ['1', '2', '3', '4']);
  t.same(sources(Infinity, false), ['1', '2', '3', '4']);
  t.same(sources(Infinity, true), ['1', '2', '3', '4', '5']);
  t.same(find('{"token":{"token":1},"b":2}', 1, false).length, 1, 'a hit is not searched further');
});

t.test('the places where a name is the protocol\'s own', async (t) => {
  const places = new NameWatch((name, where) => name === `in-${where}`);
  const hits = new MemberFinder(places, Infinity, true).find(
    Buffer.from('{"in-params":1,"in-meta":2,"_meta":{"in-meta":3,"in-params":4,"x":{"in-elsewhere":5}},"x":{"_meta":{"in-elsewhere":6,"in-meta":7}},"in-elsewhere":8}\n'), 0, 'params', ['params'],
  );
  t.same(hits?.map(({ path }) => path), ['params.in-params', 'params._meta.in-meta', 'params._meta.x.in-elsewhere', 'params.x._meta.in-elsewhere']);
});

t.test('nothing is too deep to be masked', async (t) => {
  const deep = (levels: number): string => `${'['.repeat(levels)}${']'.repeat(levels)}`;
  const whole = quotedIn(1, `{"a":${deep(1_200)},"token":1,"b":"{"}`);
  t.same(find(whole).map(({ start, end, level, path }) => [whole.slice(start, end), level, path]), [[whole.slice(5, -1), 0, 'q']], 'quoted JSON beyond the depth goes as a whole');
  const before = quotedIn(1, `{"token":1,"a":${deep(1_200)}}`);
  t.same(find(before).map(({ start, end }) => before.slice(start, end)), [before.slice(5, -1)], 'also where something was found before');
  const within = quotedIn(1, `{"a":${deep(300)},"token":1}`);
  t.same(find(within).map(({ path }) => path), ['q.token']);
  const million = quotedIn(1, deep(1_000_000));
  t.same(find(million).map(({ path }) => path), ['q'], 'a million brackets');

  // A policy may set max_depth up to 1000: what the scan lets through must be searched, or masked.
  for (const line of [`{"a":${deep(700)},"token":"clear"}`, `{"a":${'{"x":'.repeat(700)}{"token":"clear"}${'}'.repeat(700)}}`, `{"a":[${deep(700)},{"token":"clear"}]}`]) {
    const out = masked(line, find(line));
    t.notOk(out.includes('clear'), `${shown(line)}: the value stands in the clear`);
  }
});

t.test('the paths of many hits do not outgrow their line', async (t) => {
  const line = `{"${'n'.repeat(50_000)}":[${Array.from({ length: 1_000 }, () => '{"token":1}').join(',')}]}`;
  const hits = find(line);
  t.equal(hits.length, 1_000);
  const length = hits.reduce((sum, { path }) => sum + path.length, 0);
  t.ok(length < 1_000_000, `a line of ${line.length} bytes gave ${length} characters of paths`);
});

// The independent walk

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);

/** What the text of a string holds, where that is JSON of an object, an array or another string. */
const innerOf = (text: string): unknown => {
  if (!/^[ \t\n\r]*[{["]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
};

interface Walked {
  readonly paths: string[];
}

/** The same value with quoted JSON opened and watched members masked: what must come out on both ways. */
const walk = (value: unknown, level: number, path: readonly string[], found: Walked): unknown => {
  if (Array.isArray(value)) return value.map((item, i) => walk(item, level, [...path, String(i)], found));
  if (isObject(value)) {
    return Object.entries(value).map(([name, inner]) => {
      const step = [...path, /^[A-Za-z0-9_$-]{1,128}$/.test(name) ? name : JSON.stringify(name)];
      if (!WANTED.has(name)) return [name, walk(inner, level, step, found)];
      found.paths.push(step.join('.'));
      return [name, MASK];
    });
  }
  if (typeof value !== 'string') return value;
  const inner = innerOf(value);
  if (inner === undefined) return value;
  if (level < 4) return { quoted: walk(inner, level + 1, path, found) };
  found.paths.push(path.join('.'));
  return MASK;
};

/** Opens quoted JSON, masks nothing. */
const opened = (value: unknown, level = 0): unknown => {
  if (Array.isArray(value)) return value.map((item) => opened(item, level));
  if (isObject(value)) return Object.entries(value).map(([name, inner]) => [name, WANTED.has(name) ? inner : opened(inner, level)]);
  if (typeof value !== 'string' || level === 4) return value;
  const inner = innerOf(value);
  return inner === undefined ? value : { quoted: opened(inner, level + 1) };
};

/** The text of a value with white space and escapes as other senders put them. */
const spelledOddly = (value: unknown, spaces: boolean, escapes: boolean): string => {
  const text = JSON.stringify(value, null, spaces ? 1 : 0).replaceAll('\n', ' ');
  if (!escapes) return text;
  const escaped = (part: string): string => (part.length > 1 ? part : `\\u00${part.charCodeAt(0).toString(16)}`);
  return text.replace(/"(?:[^"\\]|\\.)*"/g, (string) => string.replace(/\\u....|\\.|[ek]/g, escaped));
};

t.test('masking every hit gives what an independent walk gives, and changes no byte outside the hits', async (t) => {
  let compared = 0;
  const scanner = new Scanner();
  fc.assert(
    fc.property(jsonArguments, fc.boolean(), fc.boolean(), (value, spaces, escapes) => {
      const line = spelledOddly(value, spaces, escapes);
      const bytes = Buffer.from(line);
      if (!scanner.proves(Buffer.from(`${line}\n`), 0, bytes.length)) return;
      const plain: unknown = JSON.parse(line);
      const hits = find(line);
      const found: Walked = { paths: [] };
      const wanted = walk(plain, 0, [], found);
      let free = 0;
      for (const { start, end } of hits) {
        if (start < free || end <= start || end > bytes.length) throw new Error(`a hit out of order: ${line}`);
        free = end;
      }
      if (JSON.stringify(hits.map(({ path }) => path)) !== JSON.stringify(found.paths)) throw new Error(`paths: ${line}`);
      const out = masked(line, hits);
      if (JSON.stringify(opened(JSON.parse(out))) !== JSON.stringify(wanted)) throw new Error(`value: ${line} became ${out}`);
      // Every stretch between two hits stands in the result as it came.
      let rest = out;
      free = 0;
      for (const { start, end, level } of hits) {
        const kept = bytes.toString('utf8', free, start) + maskAt(level).toString();
        if (!rest.startsWith(kept)) throw new Error(`bytes: ${line}`);
        rest = rest.slice(kept.length);
        free = end;
      }
      if (rest !== bytes.toString('utf8', free)) throw new Error(`tail: ${line}`);
      compared += hits.length;
    }),
    settings(3_000),
  );
  t.ok(compared > 300, `${compared} hits`);
});

t.test('where the scan saw nothing to watch, nothing is found', async () => {
  const scanner = new Scanner();
  scanner.watch(watch);
  fc.assert(
    fc.property(jsonArguments, (value) => {
      const line = Buffer.from(`{"jsonrpc":"2.0","id":1,"method":"m","params":{"arguments":${JSON.stringify(value)}}}\n`);
      if (!scanner.scan(line, 0, line.length - 1)) return true;
      return scanner.watched || new MemberFinder(watch, Infinity, true).find(line, scanner.paramsStart, 'params', []) === null;
    }),
    settings(500),
  );
});
