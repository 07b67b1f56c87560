// Framing: where lines end, what is blank, what is too long, and that memory follows neither chunks nor endless lines.
import fc from 'fast-check';
import t from 'tap';
import { lineSplitter } from '../../lib/stages/line-splitter.js';
import type { Message } from '../../lib/message.js';
import { bytesOf, cutAt, inSteps, session, settings, shown } from '../sessions.js';

const NO_LIMIT = 1 << 30;

interface Split {
  readonly lines: string[];
  readonly blank: number;
}

const textOf = (message: Message): string => Buffer.from(message.bytes).toString('utf8', message.start, message.end);

const split = (chunks: readonly Uint8Array[], maxBytes = NO_LIMIT): { messages: Message[]; blank: number } => {
  const stage = lineSplitter('c2s', () => maxBytes);
  const messages = chunks.flatMap((chunk) => stage.step([chunk]));
  messages.push(...(stage.end?.() ?? []));
  return { messages, blank: stage.blank };
};

const splitText = (chunks: readonly string[], maxBytes = NO_LIMIT): Split => {
  const { messages, blank } = split(chunks.map((chunk) => Buffer.from(chunk, 'latin1')), maxBytes);
  return { lines: messages.map((message) => (message.oversize ? `oversize ${message.bytesIn}` : Buffer.from(message.bytes).toString('latin1', message.start, message.end))), blank };
};

const ROWS: ReadonlyArray<readonly [input: string, lines: readonly string[], blank: number]> = [
  ['', [], 0],
  ['a\nb\n', ['a', 'b'], 0],
  ['a\nb', ['a', 'b'], 0],
  ['a', ['a'], 0],
  ['\n', [], 1],
  ['\n\n\na\n\n', ['a'], 4],
  // white space alone is no message
  [' \n\t\n \t \r\n\r\n\r\r\n \r \n', [], 6],
  ['a\n  ', ['a'], 1],
  // outer blanks and tabs go, and one CR before LF
  ['  a \t\n', ['a'], 0],
  ['a\r\nb\r\n', ['a', 'b'], 0],
  [' a\t\r\n', ['a'], 0],
  // any other CR stays, for the scan to refuse; so does one at the end of input, where no LF came
  ['a\r', ['a\r'], 0],
  ['a\r\r\n', ['a\r'], 0],
  ['\ra\n', ['\ra'], 0],
  [' \r a\n', ['\r a'], 0],
  ['a\rb\n', ['a\rb'], 0],
  ['a\r \n', ['a\r'], 0],
  ['a \r\n', ['a'], 0],
  // nothing else ends a line or is white space
  ['a\u000bb\u000cc\u0085d\u0000\n', ['a\u000bb\u000cc\u0085d\u0000'], 0],
  ['\u000b\n\u00a0\n\u0000\n', ['\u000b', '\u00a0', '\u0000'], 0],
  ['a\n\rb\n', ['a', '\rb'], 0],
];

t.test('lines', async (t) => {
  for (const [input, lines, blank] of ROWS) {
    for (const step of [input.length + 1, 1, 2, 3]) {
      const chunks: string[] = [];
      for (let at = 0; at < input.length; at += step) chunks.push(input.slice(at, at + step));
      t.same(splitText(chunks), { lines, blank }, `${shown(input)} by ${step}`);
    }
  }
});

t.test('what a message knows of its line', async (t) => {
  const stage = lineSplitter('s2c', () => NO_LIMIT);
  const [first, second] = stage.step([Buffer.from(' a \r\n'), Buffer.from('b\nc')]);
  t.match(first, { seq: 1, dir: 's2c', kind: 'invalid', start: 1, end: 2, bytesIn: 3, oversize: false, verdict: null });
  t.match(second, { seq: 2, start: 0, end: 1, bytesIn: 1 });
  const [last] = stage.end?.() ?? [];
  t.match(last, { seq: 3, bytesIn: 1 });
  t.equal(last?.bytes[last.end], 0x0a, 'a line feed stands behind every line');
  const [one, two] = lineSplitter('c2s', () => NO_LIMIT).step([Buffer.from('a\nb\n')]);
  t.equal(one?.bytes, two?.bytes, 'lines of one chunk share its memory');
  t.same(stage.step([]), []);
  t.same(stage.step([Buffer.alloc(0)]), []);
  t.same(stage.end?.(), [], 'nothing is given twice');
});

const LIMIT = 50;

t.test('the limit', async (t) => {
  for (const [size, end, fits] of [
    [LIMIT - 1, '\n', true], [LIMIT, '\n', true], [LIMIT, '\r\n', true], [LIMIT, '', true], [LIMIT - 1, '\r', true], [LIMIT, '\r', false], [LIMIT + 1, '\n', false], [LIMIT + 1, '\r\n', false], [LIMIT + 1, '', false], [3 * LIMIT, '\n', false],
    [LIMIT, ' \n', false], [LIMIT - 1, '\r\r\n', true], [LIMIT, '\r\r\n', false],
  ] as const) {
    const input = `${'x'.repeat(size)}${end}`;
    const content = input.replace(/\r?\n$/, '').length;
    for (const step of [input.length, 1, 7, LIMIT, LIMIT + 1]) {
      const { messages } = split([...inSteps(Buffer.from(input), step), Buffer.from(end.endsWith('\n') ? 'y\n' : '')], LIMIT);
      t.same([messages[0]?.oversize, messages[0]?.bytesIn], [!fits, content], `${size} ${shown(end)} by ${step}`);
      if (end.endsWith('\n')) t.equal(messages[1] === undefined ? '' : textOf(messages[1]), 'y', 'the next line is whole');
    }
  }
  let limit = 10;
  const stage = lineSplitter('c2s', () => limit);
  t.equal(stage.step([Buffer.from('123456789ab\n')])[0]?.oversize, true);
  limit = 20;
  t.equal(stage.step([Buffer.from('123456789ab\n')])[0]?.oversize, false, 'a changed limit holds for the next line');
});

t.test('an oversized line is skipped, but for its id and names', async (t) => {
  const pad = 'x'.repeat(10 * LIMIT);
  for (const [line, id, kind, method, tool] of [
    [`{"jsonrpc":"2.0","method":"tools/call","params":{"name":"t","arguments":{"pad":"${pad}"}},"id":"last"}`, '"last"', 'request', 'tools/call', 't'],
    [`{"id":1,"method":"ping","pad":"${pad}"}`, '1', 'request', 'ping', null],
    [`{"method":"vendor/x","pad":"${pad}"}`, null, 'notification', 'vendor/x', null],
    [`{"id":1,"id":2,"method":"ping","pad":"${pad}"}`, null, 'request', 'ping', null],
    [pad, null, 'invalid', null, null],
  ] as const) {
    for (const step of [1, 13, 4_096]) {
      const { messages } = split([...inSteps(Buffer.from(line), step), Buffer.from('\n{}\n')], LIMIT);
      const [message, next] = messages;
      t.match(message, { oversize: true, kind, method, tool, bytesIn: line.length, seq: 1 });
      t.equal(message === undefined || message.idStart < 0 ? null : Buffer.from(message.bytes).toString('utf8', message.idStart, message.idEnd), id);
      t.ok((message?.bytes.length ?? 0) <= 20, 'only the id is kept');
      t.equal(next === undefined ? '' : textOf(next), '{}');
    }
  }
});

t.test('blank lines are no messages, however long', async (t) => {
  const { messages, blank } = split(inSteps(Buffer.from(`${' '.repeat(10 * LIMIT)}\t\r\n{}\n${' '.repeat(10 * LIMIT)}`), 13), LIMIT);
  t.same([messages.map(textOf), blank], [['{}'], 2]);
});

t.test('cuts change nothing', async () => {
  const view = (chunks: readonly Uint8Array[], limit: number): string => {
    const { messages, blank } = split(chunks, limit);
    return JSON.stringify([blank, messages.map((message) => [message.seq, message.oversize, message.bytesIn, message.kind, message.method, message.oversize ? '' : textOf(message)])]);
  };
  fc.assert(
    fc.property(session.map(bytesOf), fc.array(fc.nat(4_000), { maxLength: 10 }), fc.constantFrom(40, 100, NO_LIMIT), (bytes, cuts, limit) => view([bytes], limit) === view(cutAt(bytes, cuts), limit) && view([bytes], limit) === view(inSteps(bytes, 1), limit)),
    settings(150),
  );
});

// Memory

const held = (): number => {
  const { heapUsed, arrayBuffers } = process.memoryUsage();
  return heapUsed + arrayBuffers;
};
const MIB = 1024 * 1024;

t.test('an endless line costs constant memory', async (t) => {
  for (const [name, piece, count] of [['64 KiB', Buffer.alloc(65_536, 'x'), 800], ['100 bytes', Buffer.alloc(100, 'x'), 500_000]] as const) {
    const stage = lineSplitter('c2s', () => MIB);
    const before = held();
    let most = 0;
    for (let i = 0; i < count; i++) {
      stage.step([piece]);
      if (i % 100 === 0) most = Math.max(most, held() - before);
    }
    t.ok(most < 40 * MIB, `50 MB in pieces of ${name}: ${Math.round(most / MIB)} MiB at most`);
    t.match(stage.step([Buffer.from('\n')])[0], { oversize: true, bytesIn: piece.length * count });
  }
});

t.test('a line that comes byte by byte costs no more than its length', async (t) => {
  const stage = lineSplitter('c2s', () => 2 * MIB);
  const before = held();
  let most = 0;
  for (let i = 0; i < MIB; i++) {
    stage.step([Buffer.alloc(1, 97 + (i % 26))]);
    if (i % 10_000 === 0) most = Math.max(most, held() - before);
  }
  const [message] = stage.step([Buffer.from('\n')]);
  t.equal(message?.bytesIn, MIB);
  t.equal(message === undefined ? '' : textOf(message).slice(-3), String.fromCharCode(...[3, 2, 1].map((back) => 97 + ((MIB - back) % 26))));
  t.ok(most < 60 * MIB, `${Math.round(most / MIB)} MiB`);
});
