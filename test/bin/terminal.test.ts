// What reaches a terminal: nothing that moves, hides or colours, whatever the text.
import t from 'tap';
import { PassThrough } from 'node:stream';
import {
  asciiJson, bar, displayWidth, escapeForTerminal, field, formatBytes, formatCount, openOutput, pad, padColumns, paint, plural,
  progressLine, wantsColor,
} from '../../bin/terminal.js';

t.test('escapes', async (t) => {
  const rows: Array<[string, string, string]> = [
    ['plain text stays', 'read_file: "a b" – größe 日本', 'read_file: "a b" – größe 日本'],
    ['line ends', 'a\nb\r\n', 'a\\x0Ab\\x0D\\x0A'],
    ['escape sequences', '\x1b[2K\x1b]0;x\x07', '\\x1B[2K\\x1B]0;x\\x07'],
    ['NUL, tab, DEL', '\0\t\x7f', '\\x00\\x09\\x7F'],
    ['C1', '\x85\x9b31m', '\\x85\\x9B31m'],
    ['a backslash is not an escape', '\\x1B', '\\\\x1B'],
    ['bidi', '\u202e\u2066\u2069\u200f\u061c', '\\u{202E}\\u{2066}\\u{2069}\\u{200F}\\u{061C}'],
    ['line separators', '\u2028\u2029', '\\u{2028}\\u{2029}'],
    ['nothing to see', 'a\u200b\u200d\u2060\ufeff\u00ad\u3164b', 'a\\u{200B}\\u{200D}\\u{2060}\\u{FEFF}\\xAD\\u{3164}b'],
    ['tags and selectors', '\u{e0041}\ufe0f', '\\u{E0041}\\u{FE0F}'],
    ['spaces that are none', 'a\u00a0b\u3000c d', 'a\\xA0b\\u{3000}c d'],
    ['half a pair', 'a\ud83d!', 'a\\u{D83D}!'],
    ['a whole pair', '😀', '😀'],
  ];
  for (const [name, text, wanted] of rows) t.equal(escapeForTerminal(text), wanted, name);
  for (const text of rows.map(([, text]) => text)) t.notMatch(escapeForTerminal(text), /[\p{Cc}\p{Cf}\p{Cs}\p{Zl}\p{Zp}]/u);
});

t.test('fields', async (t) => {
  t.equal(field('tools/call'), 'tools/call');
  t.equal(field(''), '""', 'nothing is visible');
  t.equal(field('a  allowed'), '"a  allowed"', 'white space cannot make two fields of one');
  t.equal(field('say "x"'), '"say \\x22x\\x22"');
  t.equal(field('a'.repeat(200)), 'a'.repeat(200));
  t.equal(field('a'.repeat(201)), `"${'a'.repeat(200)}"...`);
  t.equal(field('😀😀😀', 2), '"😀😀"...', 'cut between characters');
  t.equal(field('😀😀', 2), '"😀😀"');
});

t.test('JSON for terminals is ASCII', async (t) => {
  const value = { tool: 'a\u202e\x7f\n\u2028é😀' };
  t.match(asciiJson(value), /^[\n -~]*$/);
  t.same(JSON.parse(asciiJson(value)), value);
});

t.test('colour', async (t) => {
  const on = paint(true);
  const off = paint(false);
  t.equal(on.red('x'), '\x1b[31mx\x1b[39m');
  t.equal(on.bold('x'), '\x1b[1mx\x1b[22m');
  t.equal(on.green(''), '');
  for (const style of [off.bold, off.dim, off.red, off.green, off.yellow, off.cyan]) t.equal(style('x'), 'x');

  const terminal = { isTTY: true };
  const rows: Array<[string, boolean, { isTTY?: boolean }, Record<string, string>, boolean]> = [
    ['a terminal', true, terminal, {}, false],
    ['a pipe', false, {}, {}, false],
    ['a dumb terminal', false, terminal, { TERM: 'dumb' }, false],
    ['NO_COLOR', false, terminal, { NO_COLOR: '1' }, false],
    ['NO_COLOR, empty', true, terminal, { NO_COLOR: '' }, false],
    ['FORCE_COLOR on a pipe', true, {}, { FORCE_COLOR: '1' }, false],
    ['FORCE_COLOR=0', false, terminal, { FORCE_COLOR: '0' }, false],
    ['FORCE_COLOR over NO_COLOR, as Node has it', true, {}, { FORCE_COLOR: '1', NO_COLOR: '1' }, false],
    ['the flag over everything', false, terminal, { FORCE_COLOR: '1' }, true],
  ];
  for (const [name, wanted, stream, env, noColor] of rows) t.equal(wantsColor(stream, env, noColor), wanted, name);
});

t.test('columns and figures', async (t) => {
  t.equal(displayWidth('日本'), 4);
  t.equal(displayWidth('e\u0301😀'), 3);
  t.equal(pad('日本', 6) + '|', '日本  |');
  t.equal(pad('7', 3, 'right'), '  7');
  t.equal(pad('long', 2), 'long');
  t.same(padColumns([['a', '1'], ['bcd', '22']], ['left', 'right']), [['a  ', ' 1'], ['bcd', '22']]);
  t.equal(formatCount(1234567), '1,234,567');
  t.same([0, 1023, 1536, 5 * 1024 ** 3].map(formatBytes), ['0 B', '1023 B', '1.5 KiB', '5.0 GiB']);
  t.same([plural(1, 'message'), plural(2000, 'message')], ['1 message', '2,000 messages']);
});

t.test('bars', async (t) => {
  t.equal(bar(0, 4), '    ');
  t.equal(bar(1, 4), '████');
  t.equal(bar(0.5, 4), '██  ');
  t.equal(bar(1e-9, 4), '▏   ', 'anything above nothing shows');
  t.equal(bar(7, 4), '████');
  t.equal(bar(Number.NaN, 4), '    ');
});

t.test('progress', async (t) => {
  const drawn = (isTTY: boolean, columns: number, total: number | null, steps: Array<[number, number]>): string => {
    let time = 0;
    let text = '';
    const stream = Object.assign(new PassThrough(), { isTTY, columns });
    stream.on('data', (chunk: Buffer) => { text += chunk.toString(); });
    const progress = progressLine(stream, total, () => time);
    for (const [at, done] of steps) {
      time = at;
      progress.update(done);
    }
    progress.end();
    progress.update(1);
    return text;
  };
  t.equal(drawn(false, 80, 2048, [[500, 1024], [1000, 2048]]), '', 'never but on a terminal');
  t.equal(drawn(true, 80, 2048, [[50, 1024], [99, 2048]]), '', 'short work leaves no trace');
  const line = drawn(true, 80, 2048, [[500, 1024], [510, 1500], [1000, 2048]]);
  const parts = line.split('\r');
  t.match(parts[1], /^█{15} {15} {2}1\.0 KiB of 2\.0 KiB {2}2\.0 KiB\/s$/);
  t.match(parts[2], /^█{30} {2}2\.0 KiB of 2\.0 KiB {2}2\.0 KiB\/s$/);
  t.equal(parts[3]?.trim(), '', 'wiped');
  t.equal(parts.length, 5, 'throttled');
  t.match(drawn(true, 80, null, [[1000, 2048]]), /^\r2\.0 KiB {2}2\.0 KiB\/s\r +\r$/, 'without a total');
  t.notMatch(drawn(true, 30, 2048, [[1000, 2048]]), /█/, 'no room for a bar');
  t.equal(drawn(true, 10, 2048, [[1000, 2048]]), '', 'no room at all');
  t.match(drawn(true, 0, 2048, [[1000, 2048]]), /█/, 'a terminal that does not know its width');
});

t.test('a reader that leaves', async (t) => {
  const failing = (code: string): PassThrough => Object.assign(new PassThrough(), {
    write(_text: string, done: (error: Error) => void): boolean {
      queueMicrotask(() => done(Object.assign(new Error(code), { code })));
      return false;
    },
  });
  const left = openOutput(failing('EPIPE'));
  t.equal(await left('x'), false);
  t.equal(await left('x'), false);
  await t.rejects(openOutput(failing('ENOSPC'))('x'), { code: 'ENOSPC' });
  const late = new PassThrough();
  const write = openOutput(late.resume());
  t.equal(await write('x'), true);
  t.equal(await write(''), true);
  late.destroy(Object.assign(new Error('EPIPE'), { code: 'EPIPE' }));
  await new Promise(setImmediate);
  t.equal(await write('x'), false, 'an error between writes');
});
