// What patterns match, row by row, and what makes one be refused.
import { foldName } from '../../lib/json/strings.js';
import fc from 'fast-check';
import t from 'tap';
import { covers, escapeGlob, GlobSet, readGlob, type Glob } from '../../lib/policy/glob.js';

const glob = (pattern: string, folds = false): Glob => {
  const read = readGlob(pattern, folds);
  if ('problem' in read) throw new Error(`${pattern}: ${read.problem}`);
  return read;
};
const hits = (pattern: string, name: string, folds: boolean): boolean => new GlobSet([glob(pattern, folds)], folds).first(name) === 0;

type Row = readonly [pattern: string, subject: string, hit: boolean];

const EXACT: readonly Row[] = [
  // literals
  ['read_file', 'read_file', true], ['read_file', 'READ_FILE', false], ['read_file', 'read_file2', false], ['a', '', false],
  // `*` crosses slashes and dots, and matches what path matchers leave out
  ['*', '', true], ['*', '.', true], ['*', '..', true], ['*', '.fs', true], ['*', 'a/b/../c', true], ['*', '#c', true], ['*', '!x', true],
  ['fs*', 'fs', true], ['fs*', 'fs.delete', true], ['fs*', 'fs/delete', true], ['fs*', 'xfs', false],
  ['**', 'a/b', true], ['a/*', 'a/b/c', true], ['a/*', 'a/', true], ['a/*', 'a', false], ['*/', 'a/', true], ['*', '/', true],
  ['*.exec', 'x.exec.exec', true], ['*.exec', 'x.exec', true], ['*.exec', '.exec', true], ['*.exec', 'x.exec.', false],
  ['*_token', 'my_token_token', true], ['*token*', 'auth/token/x', true], ['*token*', 'TOKEN', false], ['a*b*c', 'abc', true], ['a*b*c', 'acb', false],
  // `?` is one code point
  ['?', '', false], ['?', 'a', true], ['?', '/', true], ['?', '.', true], ['?', '\u{1f600}', true], ['a?c', 'abbc', false],
  // what other matchers take for syntax is text here
  ['!fs*', '!fs.x', true], ['!fs*', 'net', false], ['#c', '#c', true], ['{a,b}', '{a,b}', true], ['{a,b}', 'a', false],
  ['+(fs)*', '+(fs)x', true], ['+(fs)*', 'fsx', false], ['a|b', 'a', false], ['(a)', '(a)', true], ['~', '~', true],
  // classes
  ['[a-z]x', 'bx', true], ['[a-z]x', 'Bx', false], ['[a-z]x', '/x', false], ['[!a]x', '/x', true], ['[!a]x', 'ax', false], ['[^a]x', 'bx', true],
  ['[]a]', ']', true], ['[a/b]', '/', true], ['[[:upper:]]', 'A', true], ['[[:upper:]]', 'a', false], ['[-a]', '-', true], ['[a-]', '-', true], ['[\\]]', ']', true],
  // escapes
  ['\\*', '*', true], ['\\*', 'a', false], ['\\?x', '?x', true], ['\\[a', '[a', true], ['a\\/b', 'a/b', true], ['a\\', 'a\\', true],
];

const FOLDED: readonly Row[] = [
  ['shell.*', 'SHELL.Exec', true], ['SHELL.*', 'shell.exec', true], ['api_key', 'API_KEY', true], ['*token*', 'AuthToken', true],
  ['api_key', 'api_\u212aey', true], ['*secret*', 'my\u017fecret', true], ['fs.write', 'fs.wr\u0131te', true], ['fs.write', 'FS.WR\u0130TE', true],
  ['*token*', 'to\u0000ken', true], ['a?b', 'a\u0000b', true], ['ΑΣ*', 'ασα', true], ['οδοσ', 'ΟΔΟΣ', true], ['пароль', 'Пароль', true],
  ['[a-z]x', 'BX', true], ['[A-Z]x', 'bx', true], ['x[A-z]', 'X_', true], ['[[:upper:]]y', 'aY', true], ['[!aA]x', 'AX', false], ['[!aA]x', 'BX', true],
  ['*', '', true], ['*', '..', true], ['read', 'reed', false],
];

t.test('what matches exactly', async (t) => {
  for (const [pattern, subject, hit] of EXACT) t.equal(hits(pattern, subject, false), hit, `${pattern} on ${JSON.stringify(subject)}`);
});

t.test('what matches without letter case', async (t) => {
  for (const [pattern, subject, hit] of FOLDED) t.equal(hits(pattern, subject, true), hit, `${pattern} on ${JSON.stringify(subject)}`);
  for (const [pattern, subject, hit] of EXACT) {
    if (hit && !('problem' in readGlob(pattern, true))) t.ok(hits(pattern, subject, true), `folding keeps ${pattern} on ${JSON.stringify(subject)}`);
  }
});

t.test('what is refused', async (t) => {
  const rows: ReadonlyArray<readonly [pattern: string, folds: boolean, problem: RegExp]> = [
    ['', false, /empty/], ['a'.repeat(257), false, /longer than 256/], ['a\u0001', false, /control/], ['a\nb', false, /control/], ['a\u0085', false, /control/],
    ['\ud800', false, /surrogate/], ['[a', false, /never closed/], ['[]', false, /never closed/], ['[!]', false, /never closed/], ['a[b\\]', false, /never closed/],
    ['[z-a]', false, /backwards/], ['[.-9]', false, /reaches over/], ['[/-a]', false, /reaches over/], ['[--/]', false, /reaches over/],
    ['[a-[:alpha:]]', false, /ends in a class/], ['[!a]', true, /one case only/], ['[![:lower:]]', true, /one case only/],
  ];
  for (const [pattern, folds, problem] of rows) {
    const read = readGlob(pattern, folds);
    t.ok('problem' in read && problem.test(read.problem) && read.hint !== '', `${JSON.stringify(pattern.slice(0, 20))}: ${'problem' in read ? read.problem : 'accepted'}`);
  }
  t.notOk('problem' in readGlob('a'.repeat(256), false), '256 characters are taken');
  t.notOk('problem' in readGlob('[!a]', false), 'a negated class needs no second case where case counts');
});

t.test('many patterns: the first in order that matches is named', async (t) => {
  const set = new GlobSet(['x', '*b', 'a*', 'ab', 'a*c', 'x'].map((p) => glob(p)), false);
  for (const [name, index] of [['x', 0], ['ab', 1], ['ac', 2], ['b', 1], ['zz', -1], ['', -1]] as const) t.equal(set.first(name), index, name);
  t.equal(new GlobSet([], true).first('a'), -1);
  t.equal(new GlobSet([glob('Ab', true), glob('aB', true)], true).first('AB'), 0);
});

t.test('covers', async (t) => {
  const rows: readonly Row[] = [
    ['*', 'a*', true], ['a*', '*', false], ['fs.*', 'FS.*', true], ['fs.*', 'fs.delete', true], ['fs.?', 'fs.*', false], ['a*c', 'a*b*c', true],
    ['?*', '*', false], ['[a-c]*', 'b', true], ['[a-c]*', 'd', false], ['[a-c]', '[a-c]', true], ['*', '[a-c]?', true], ['ab', 'a', false], ['a', 'ab', false],
  ];
  for (const [outer, inner, covered] of rows) t.equal(covers(glob(outer, true), glob(inner, true)), covered, `${outer} over ${inner}`);
});

const somePattern = fc.string({ unit: fc.constantFrom('a', 'b', 'B', '.', '/', '*', '?', '[', ']', '!', '-', '\\', 'ß'), maxLength: 8 });
const someName = fc.string({ unit: fc.constantFrom('a', 'b', 'B', '.', '/', '-', ']', 'ß', '\u0000', 'İ'), maxLength: 6 });

t.test('properties', async (t) => {
  fc.assert(fc.property(somePattern, somePattern, someName, (first, second, name) => {
    const [a, b] = [readGlob(first, true), readGlob(second, true)];
    if ('problem' in a || 'problem' in b) return true;
    const exact = new GlobSet([a], false).first(name) === 0;
    const folded = new GlobSet([a], true).first(name) === 0;
    if (exact && !folded) return false;
    const set = new GlobSet([b, a], true).first(name);
    const inB = new GlobSet([b], true).first(name) === 0;
    if (set !== (inB ? 0 : folded ? 1 : -1)) return false;
    return !(covers(b, a) && exact && !inB);
  }), { numRuns: 3000 });
  t.pass('folding only adds names; a set answers as its patterns do; covers never lies');
  fc.assert(fc.property(someName.filter((name) => name !== '' && !name.includes('\u0000')), (name) => glob(escapeGlob(name)).literal === name));
  t.pass('an escaped name is a literal');
  t.equal(foldName(foldName('ẞİſKΣ')), foldName('ẞİſKΣ'));
});
