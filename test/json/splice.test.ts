// Replacing spans, escaping raw line breaks, and how strings and names are spelled and remembered.
import fc from 'fast-check';
import t from 'tap';
import { DEFAULTS } from '../../lib/defaults.js';
import { methodFacts } from '../../lib/json/methods.js';
import { spellingKey, NameCache } from '../../lib/json/name-cache.js';
import { lineBreakEdits, splice } from '../../lib/json/splice.js';
import { decodeString, encodeAscii, foldName, idKey, view } from '../../lib/json/strings.js';
import type { Edit } from '../../lib/message.js';
import { jsonValue, settings, shown } from '../sessions.js';

// How spans are replaced

const edit = (start: number, end: number, text: string): Edit => ({ start, end, bytes: Buffer.from(text), kind: 'mask', path: '' });

t.test('splice', async (t) => {
  const bytes = Buffer.from('..0123456789..');
  for (const [edits, wanted] of [
    [[], '0123456789'],
    [[edit(2, 2, 'a')], 'a0123456789'],
    [[edit(12, 12, 'a')], '0123456789a'],
    [[edit(2, 12, '')], ''],
    [[edit(3, 5, 'longer'), edit(5, 6, ''), edit(6, 7, 'é')], '0longeré56789'],
  ] as const) {
    const out = splice(bytes, 2, 12, edits);
    t.same([out.subarray(0, -1).toString(), out.at(-1)], [wanted, 0x0a]);
  }
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 60 }), fc.array(fc.tuple(fc.nat(60), fc.nat(8), fc.uint8Array({ maxLength: 6 })), { maxLength: 6 }), (source, wishes) => {
      let free = 0;
      const edits: Edit[] = [];
      let wanted = '';
      for (const [at, length, text] of wishes.sort((a, b) => a[0] - b[0])) {
        const start = Math.min(source.length, Math.max(free, at));
        const end = Math.min(source.length, start + length);
        wanted += Buffer.from(source.subarray(free, start)).toString('hex') + Buffer.from(text).toString('hex');
        edits.push({ start, end, bytes: text, kind: 'mask', path: '' });
        free = end;
      }
      wanted += Buffer.from(source.subarray(free)).toString('hex');
      return splice(source, 0, source.length, edits).toString('hex') === `${wanted}0a`;
    }),
    settings(300),
  );
});

const BREAKS: ReadonlyArray<readonly [line: string, paths: readonly string[]]> = [
  ['{"a":"x"}', []],
  ['{"a":"\u2028"}', ['a']],
  ['{"a":"\u2028\u2029\u0085","b":1}', ['a', 'a', 'a']],
  ['{"a":1,"b":"\u2028"}', ['b']],
  ['{"a":{"b":["x","y\u2028"]}}', ['a.b.1']],
  ['{"a":[[1,{"c":"\u2028"}],"\u0085"]}', ['a.0.1.c', 'a.1']],
  ['{"a":{"b":1,"c":{"d":2}},"e":"\u2028"}', ['e']],
  ['{"a":"x\\"\\\\y\u2028"}', ['a']],
  ['{"a":"{[,:\u2028"}', ['a']],
  ['{ "a" : [ 1 , "\u2028" ] }', ['a.1']],
  // in a name
  ['{"x\u2028":1}', ['"x\u2028"']],
  ['{"a":{"x\u2028":"\u0085"}}', ['a."x\u2028"', 'a."x\u2028"']],
  // names that need quotes
  ['{"a b":"\u2028"}', ['"a b"']],
  ['{"a.b":{"":"\u2028"}}', ['"a.b".""']],
  ['{"\\u0061":"\u2028"}', ['a']],
  // after empty containers: what follows is a value, not a name
  ['{"a":{},"b":"\u2028"}', ['b']],
  ['{"a":[{},"value\u2028"]}', ['a.1']],
  ['{"a":[[],"value\u2028"]}', ['a.1']],
  ['{"a":[{"b":{}},"value\u2028"]}', ['a.1']],
  ['{"a":[{},{},{"b":"\u2028"}]}', ['a.2.b']],
  ['["value\u2028",[{}],"\u2028"]', ['0', '2']],
];

t.test('raw line breaks are escaped where they stand, each with its path', async (t) => {
  for (const [line, paths] of BREAKS) {
    for (const before of ['', '"\u2028 before']) {
      const start = Buffer.byteLength(before);
      const bytes = Buffer.from(`${before}${line}\n"\u2028"`);
      const end = start + Buffer.byteLength(line);
      const edits = lineBreakEdits(bytes, start, end);
      t.same(edits.map(({ path }) => path), paths, shown(line));
      t.equal(splice(bytes, start, end, edits).toString(), `${line.replace(/[\u0085\u2028\u2029]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`)}\n`);
      t.ok(edits.every(({ kind }) => kind === 'line_break'));
    }
  }
});

t.test('a path names members, never a value, and does not outgrow its line', async (t) => {
  fc.assert(
    fc.property(fc.array(jsonValue, { maxLength: 4 }), (values) => {
      const line = JSON.stringify({ a: values, 'b\u2028': values }).replace(/\\\\u2028/g, '\u2028');
      const bytes = Buffer.from(`${line}\n`);
      for (const { path } of lineBreakEdits(bytes, 0, bytes.length - 1)) if (path.includes('value')) throw new Error(path);
      const marked = Buffer.from(`${JSON.stringify({ a: [...values, 'value\u2028', values, 'value\u2028'] })}\n`);
      const paths = lineBreakEdits(marked, 0, marked.length - 1).map(({ path }) => path);
      if (paths.some((path) => path.includes('value'))) throw new Error(paths.join(' '));
      if (!paths.includes(`a.${values.length}`) || !paths.includes(`a.${values.length + 2}`)) throw new Error(`${marked.toString()}: ${paths.join(' ')}`);
    }),
    settings(300),
  );
  const line = Buffer.from(`{"${'n'.repeat(50_000)}":"${'\u0085'.repeat(1_000)}"}\n`);
  const edits = lineBreakEdits(line, 0, line.length - 1);
  t.equal(edits.length, 1_000);
  t.ok(edits.reduce((sum, { path }) => sum + path.length, 0) < 1_000_000, 'one long name, many breaks: 52 kB must not become 50 MB');
});

// Strings

t.test('decoding', async (t) => {
  for (const [content, wanted] of [
    ['', ''], ['abc', 'abc'], ['é😀', 'é😀'], ['\\u00e9', 'é'], ['\\ud83d\\ude00', '😀'], ['\\"\\\\\\/\\b\\f\\n\\r\\t', '"\\/\b\f\n\r\t'], ['\\u0000', '\u0000'], ['a\u2028b', 'a\u2028b'],
  ] as const) {
    const bytes = Buffer.from(`"${content}"`);
    t.equal(decodeString(bytes, 1, bytes.length - 1), wanted, shown(content));
    t.equal(decodeString(Uint8Array.from(bytes), 1, bytes.length - 1), wanted, 'from plain bytes');
  }
  const plain = Uint8Array.from([1, 2, 3]);
  t.equal(view(plain).buffer, plain.buffer, 'a view shares memory');
});

t.test('encoding in ASCII', async () => {
  fc.assert(
    fc.property(fc.oneof(fc.string({ unit: 'binary' }), fc.string({ unit: 'grapheme' }), fc.constantFrom('\u2028', '\ud800', '\u007f', '"\\')), (text) => {
      const encoded = encodeAscii(text);
      return /^[ -~]*$/.test(encoded) && JSON.parse(encoded) === text;
    }),
    settings(300),
  );
});

t.test('folding names', async (t) => {
  for (const [name, folded] of [
    ['', ''], ['method', 'method'], ['METHOD', 'method'], ['Me\u0000thod\u0000', 'method'], ['param\u017f', 'params'], ['to\u212aen', 'token'], ['\u0131d', 'id'], ['\u0130D', 'id'], ['É', 'é'], ['m ethod', 'm ethod'],
  ] as const) t.equal(foldName(name), folded, shown(name));
});

t.test('the identity of an id', async (t) => {
  const key = (text: string): string => idKey(Buffer.from(text), 0, Buffer.byteLength(text));
  for (const [a, b, same] of [
    ['1', '1', true], ['1', '"1"', false], ['"a"', '"\\u0061"', true], ['"é"', '"\\u00e9"', true], ['9007199254740993', '9007199254740992', false], ['"\\u0022a"', '"\\"a"', true], ['""', '" "', false], ['-1', '1', false], ['"\u2028"', '"\\u2028"', true],
  ] as const) t.equal(key(a) === key(b), same, shown(`${a} and ${b}`));
});

t.test('methods by their names alone', async (t) => {
  for (const [name, form, problem] of [
    ['tools/call', 'request', null], ['ping', 'request', null], ['notifications/progress', 'notification', null], ['notifications/anything', 'notification', null], ['vendor/x', 'open', null], ['a.b_c-d$1', 'open', null],
    ['', 'open', 'bad_method'], ['a b', 'open', 'bad_method'], ['é', 'open', 'bad_method'], ['x'.repeat(128), 'open', null], ['x'.repeat(129), 'open', 'bad_method'],
    ['Ping', 'open', 'method_variant'], ['/ping', 'open', 'method_variant'], ['ping/', 'open', 'method_variant'], ['tools//call', 'open', 'method_variant'], ['ping/x', 'open', null], ['toolscall', 'open', null],
  ] as const) t.same(methodFacts(name), { name, form, problem }, shown(name));
});

// The cache of names

const lookUp = <Value>(cache: NameCache<Value>, spelling: string, bytes: Buffer = Buffer.from(spelling)): Value => cache.lookup(bytes, 0, bytes.length, spellingKey(bytes, 0, bytes.length));

t.test('names are remembered by their spelling', async (t) => {
  const made: string[] = [];
  const cache = new NameCache((name) => {
    made.push(name);
    return name;
  });
  for (const [spelling, name, count] of [
    ['a', 'a', 1], ['a', 'a', 1], ['\\u0061', 'a', 2], ['\\u0061', 'a', 2], ['', '', 3], ['', '', 3],
    // one hash, different names
    ['Aa', 'Aa', 4], ['BB', 'BB', 5], ['Aa', 'Aa', 5], ['BB', 'BB', 5], ['AaAa', 'AaAa', 6], ['BBBB', 'BBBB', 7], ['AaBB', 'AaBB', 8], ['BBAa', 'BBAa', 9], ['AaBB', 'AaBB', 9],
    // one hash, different lengths
    ['\u0000', '\u0000', 10], ['\u0000\u0000', '\u0000\u0000', 11], ['\u0000', '\u0000', 11],
  ] as const) t.same([lookUp(cache, spelling), made.length], [name, count], shown(spelling));
  t.equal(spellingKey(Buffer.from('Aa'), 0, 2), spellingKey(Buffer.from('BB'), 0, 2), 'they do collide');

  const reused = Buffer.from('name');
  t.equal(lookUp(cache, 'name', reused), 'name');
  reused.write('mane');
  t.equal(lookUp(cache, 'mane', reused), 'mane', 'the caller may write over its bytes');
  t.equal(lookUp(cache, 'name'), 'name');
  t.equal(made.length, 13);

  const long = 'x'.repeat(257);
  lookUp(cache, long);
  lookUp(cache, long);
  t.equal(made.length, 15, 'a long spelling is made afresh');
});

t.test('the cache keeps no hold of the memory that a name came in', async (t) => {
  const cache = new NameCache((name) => name.length);
  const before = process.memoryUsage().arrayBuffers;
  for (let i = 0; i < 1_000; i++) {
    const chunk = Buffer.allocUnsafeSlow(64 * 1024);
    const length = chunk.write(`name-${i}`);
    cache.lookup(chunk, 0, length, spellingKey(chunk, 0, length));
  }
  globalThis.gc?.();
  await new Promise((resolve) => setTimeout(resolve, 50));
  for (let i = 0; i < 300; i++) Buffer.alloc(1024 * 1024); // external memory is what makes V8 collect
  const grown = process.memoryUsage().arrayBuffers - before;
  t.ok(grown < 40 * 1024 * 1024, `${Math.round(grown / 1024 / 1024)} MiB are held for 1 000 names of 8 bytes`);
  t.equal(lookUp(cache, 'name-1'), 6);
});

t.test('the cache is bounded', async (t) => {
  let made = 0;
  const cache = new NameCache((name) => {
    made++;
    return name;
  });
  for (let i = 0; i < 3 * DEFAULTS.cachedNames; i++) if (lookUp(cache, `name-${i}`) !== `name-${i}`) t.fail(`wrong at ${i}`);
  t.equal(made, 3 * DEFAULTS.cachedNames);
  lookUp(cache, 'name-0');
  t.equal(made, 3 * DEFAULTS.cachedNames, 'the first ones are remembered');
  lookUp(cache, `name-${DEFAULTS.cachedNames}`);
  t.equal(made, 3 * DEFAULTS.cachedNames + 1, 'those beyond the bound are made afresh');
});

t.test('a peer that picks names with one hash does not make each look-up a search', async (t) => {
  const cache = new NameCache((name) => name);
  const colliding = (i: number): string => Array.from({ length: 13 }, (_, bit) => ((i >> bit) & 1 ? 'Aa' : 'BB')).join('');
  for (let i = 0; i < DEFAULTS.cachedNames; i++) lookUp(cache, colliding(i));
  let reads = 0;
  const counted = new Proxy(Buffer.from(colliding(2 ** 13 - 1)), {
    get(target, key) {
      if (typeof key === 'string' && /^\d+$/.test(key)) reads++;
      const value: unknown = Reflect.get(target, key, target);
      return typeof value === 'function' ? (value.bind(target) as unknown) : value;
    },
  });
  t.equal(cache.lookup(counted, 0, 26, spellingKey(Buffer.from(colliding(2 ** 13 - 1)), 0, 26)), colliding(2 ** 13 - 1));
  t.ok(reads < 40 * 26, `${reads} bytes were read to look up one name of 26`);
});
