// The exact bytes of a record, against a plain construction of the same record.
import fc from 'fast-check';
import t from 'tap';
import { createHash } from 'node:crypto';
import { bytesOut, cut, eventId, RecordWriter } from '../../lib/audit/record-writer.js';
import { DEFAULTS } from '../../lib/defaults.js';
import { CODES, verdict } from '../../lib/errors.js';
import { Message } from '../../lib/message.js';
import type { Decision, Direction, Edit, Kind, Verdict } from '../../lib/message.js';
import { ALLOWED, DENIED, messageOf, policyOf, recordsOf, settings, shown } from '../sessions.js';

const write = (messages: readonly Message[], writer = new RecordWriter('7f3a91c2'), time = 1_700_000_000_000): string => {
  writer.start(time);
  for (const message of messages) writer.append(message, message.verdict as Verdict);
  return Buffer.from(writer.take()).toString('latin1');
};
const settled = (parts: Partial<Message> = {}): Message => Object.assign(messageOf('{"id":1}'), { verdict: ALLOWED, kind: 'request' as const, ...parts });
const withId = (id: string, parts: Partial<Message> = {}): Message => {
  const bytes = Buffer.from(`${id}\n`);
  return settled({ bytes, start: 0, end: bytes.length - 1, bytesIn: bytes.length - 1, idStart: 0, idEnd: bytes.length - 1, ...parts });
};

// The same record, built plainly

const ascii = (text: string): string => text.replace(/[^ -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

const cutPlainly = (text: string): string => {
  if (text.length <= 128) return text;
  // A character is never cut in half.
  const head = /[\ud800-\udbff]/.test(text[127] ?? '') && /[\udc00-\udfff]/.test(text[128] ?? '') ? text.slice(0, 127) : text.slice(0, 128);
  return `${head}… (${text.length} characters, sha256 ${createHash('sha256').update(text).digest('hex').slice(0, 16)})`;
};
const cutOrNull = (text: string | null): string | null => (text === null ? null : cutPlainly(text));

/** The keys of AuditRecord in their order. */
const plainly = (message: Message, session: string, time: number): string => {
  const { decision, code, severity, rule, reason, would } = message.verdict as Verdict;
  const forward = decision === 'forward';
  const masked = forward ? [...new Set((message.edits ?? []).filter((edit) => edit.kind === 'mask').map((edit) => cutPlainly(edit.path)))] : [];
  const places = new Set(forward ? (message.edits ?? []).filter((edit) => edit.kind !== 'mask').map((edit) => cutPlainly(edit.path)) : []);
  const others = [...places].map((path) => ({ kind: 'line_break', path }));
  const flags = [...new Set([...(message.policy?.flags ?? []), ...(message.flags ?? [])])];
  return `${ascii(JSON.stringify({
    v: 1,
    event: `${session}.${message.dir === 'c2s' ? 'c' : 's'}.${String(message.seq).padStart(6, '0')}`,
    ts_ms: time,
    seq: message.seq,
    dir: message.dir,
    kind: message.kind,
    decision,
    code,
    severity,
    ...(rule === null ? {} : { rule: cutPlainly(rule) }),
    reason,
    method: cutOrNull(message.method),
    tool: cutOrNull(message.tool),
    target: null,
    rpc_id: message.idStart < 0 ? null : cutPlainly(Buffer.from(message.bytes).toString('utf8', message.idStart, message.idEnd)),
    bytes_in: message.bytesIn,
    bytes_out: forward ? (message.output ?? message.bytes.subarray(message.start, message.end)).length : 0,
    ...(masked.length > 0 ? { redacted: masked } : {}),
    ...(others.length > 0 ? { edits: others } : {}),
    max_depth: message.maxDepth,
    ...(flags.length > 0 ? { flags } : {}),
    ...(would === undefined ? {} : { would }),
  }))}\n`;
};

// Random messages

const text = fc.oneof(
  fc.string({ maxLength: 20 }), fc.string({ unit: 'grapheme', maxLength: 8 }), fc.string({ unit: 'binary', maxLength: 8 }),
  fc.constantFrom('', 'tools/call', 'a"b\\c', '\u2028', '\u202e', '\u007f', '\u0000\n', 'x'.repeat(128), 'x'.repeat(129), `${'x'.repeat(127)}😀${'y'.repeat(9)}`, 'é'.repeat(5_000)),
);
const idText = fc.oneof(fc.nat().map(String), text.map((value) => JSON.stringify(value)), fc.constantFrom('"\u2028"', '"raw é"', `"${'i'.repeat(125)}"`, `"${'i'.repeat(126)}"`, `"${'i'.repeat(127)}"`, '9'.repeat(128), '9'.repeat(129)));
const size = fc.oneof(fc.nat(2_000), fc.constantFrom(0, 9, 10, 99, 100, 99_999, 100_000, 999_999, 1_000_000, 2 ** 31, 2 ** 32, 2 ** 40, Number.MAX_SAFE_INTEGER), fc.maxSafeNat());
const path = text.map((step) => `params.arguments.${step}`);
const edit = fc.record({ start: fc.constant(0), end: fc.constant(1), bytes: fc.constant(Buffer.from('x')), kind: fc.constantFrom<Edit['kind']>('mask', 'line_break'), path });

const VERDICTS: readonly Verdict[] = [
  ALLOWED, DENIED, verdict('default_deny'), verdict('rate_limited', { rule: 'rate:1', retryAfterMs: 5 }), verdict('observed', { would: 'deny', rule: 'r' }), verdict('fault', { reason: 'stage x failed: «é» "quoted"' }),
  verdict('tool_denied', { rule: `deny:${'r'.repeat(300)}`, reason: 'z'.repeat(2_000), severity: 'critical' }), ...(Object.keys(CODES) as Array<keyof typeof CODES>).map((code) => verdict(code)),
];

const someMessage = fc
  .record({
    dir: fc.constant<Direction>('c2s'), kind: fc.constantFrom<Kind>('request', 'notification', 'response', 'invalid'),
    seq: size.map((n) => n + 1).filter(Number.isSafeInteger), bytesIn: size, maxDepth: fc.nat(300), method: fc.option(text), tool: fc.option(text), id: fc.option(idText),
    edits: fc.option(fc.array(edit, { maxLength: 4 })), output: fc.option(fc.uint8Array({ maxLength: 30 })), flags: fc.option(fc.subarray(['deep', 'no_policy', 'x'], { minLength: 1 })),
    policyFlags: fc.option(fc.subarray(['no_policy', 'y'])), given: fc.constantFrom(...VERDICTS),
  })
  // A tool is named by a call alone.
  .map(({ id, policyFlags, given, ...parts }) => Object.assign(id === null ? messageOf('{}') : withId(id), parts, parts.tool === null ? {} : { method: 'tools/call' }, { verdict: given, policy: policyFlags === null ? null : policyOf({ flags: policyFlags }) }));

t.test('every record equals its plain construction, byte for byte, and is ASCII', async () => {
  const writer = new RecordWriter('7f3a91c2');
  fc.assert(
    fc.property(fc.array(someMessage, { maxLength: 6 }), fc.nat(), (messages, time) => {
      const got = write(messages, writer, time);
      const wanted = messages.map((message) => plainly(message, '7f3a91c2', time)).join('');
      if (got !== wanted) throw new Error(`got    ${got}\nwanted ${wanted}`);
      if (!/^[ -~\n]*$/.test(got)) throw new Error('not ASCII');
    }),
    settings(1_500),
  );
});

t.test('one record in full', async (t) => {
  const message = withId('"a\\"b"', { seq: 42, method: 'tools/call', tool: 'read', bytesIn: 120, maxDepth: 4, output: Buffer.from('12345'), flags: ['deep'] });
  message.edits = [
    { start: 0, end: 1, bytes: Buffer.from('x'), kind: 'mask', path: 'params.arguments.token' }, { start: 1, end: 2, bytes: Buffer.from('x'), kind: 'mask', path: 'params.arguments.token' },
    { start: 2, end: 3, bytes: Buffer.from('x'), kind: 'line_break', path: 'params.arguments.a' },
  ];
  t.equal(write([message]),
    '{"v":1,"event":"7f3a91c2.c.000042","ts_ms":1700000000000,"seq":42,"dir":"c2s","kind":"request","decision":"forward","code":"allowed","severity":"info","rule":"allow:test","reason":"the test allows it",' +
    '"method":"tools/call","tool":"read","target":null,"rpc_id":"\\"a\\\\\\"b\\"","bytes_in":120,"bytes_out":5,"redacted":["params.arguments.token"],"edits":[{"kind":"line_break","path":"params.arguments.a"}],"max_depth":4,"flags":["deep"]}\n');
});

t.test('numbers', async (t) => {
  for (const value of [0, 1, 9, 10, 11, 99, 100, 101, 999, 1_000, 99_999, 100_000, 123_456, 999_999, 1_000_000, 9_999_999, 2 ** 31 - 1, 2 ** 31, 2 ** 32, 2 ** 40 + 1, 999_999_999_999_999, 8_999_999_999_999_999, Number.MAX_SAFE_INTEGER]) {
    const [record] = recordsOf(write([settled({ seq: Math.max(1, value), bytesIn: value })]));
    t.same([record?.seq, record?.bytes_in, record?.event], [Math.max(1, value), value, `7f3a91c2.c.${String(Math.max(1, value)).padStart(6, '0')}`]);
    t.equal(eventId('7f3a91c2', 'c2s', Math.max(1, value)), record?.event);
  }
});

t.test('ids', async (t) => {
  for (const id of ['1', '"a"', '""', '"\\""', '"\\\\"', '"a\\u0062"', '"é"', '"\u2028"', '"\ud83d\ude00"', '-9007199254740993', `"${'x'.repeat(126)}"`]) {
    t.equal(recordsOf(write([withId(id)]))[0]?.rpc_id, id, shown(id));
  }
  for (const id of [`"${'x'.repeat(127)}"`, '1'.repeat(200)]) {
    const got = recordsOf(write([withId(id)]))[0]?.rpc_id ?? '';
    t.ok(got.startsWith(id.slice(0, 128)) && got.includes(`(${id.length} characters, sha256 `), 'cut, with length and hash');
  }
  t.equal(recordsOf(write([settled()]))[0]?.rpc_id, null);
});

t.test('cutting', async (t) => {
  t.equal(cut('x'.repeat(128)), 'x'.repeat(128));
  t.match(cut('x'.repeat(129)), /^x{128}… \(129 characters, sha256 [0-9a-f]{16}\)$/);
  t.not(cut(`${'x'.repeat(200)}a`), cut(`${'x'.repeat(200)}b`), 'the hash tells them apart');
  for (const place of [126, 127, 128]) {
    const name = `${'x'.repeat(place)}😀${'y'.repeat(20)}`;
    t.notMatch(cut(name), /\p{Surrogate}/u, `a character at ${place} is not cut in half`);
    t.notMatch(recordsOf(write([settled({ tool: name, method: 'tools/call' })]))[0]?.tool ?? '', /\p{Surrogate}/u);
  }
});

// What is kept ready may never stand for another message

const inTurn = (t: { same: (a: unknown, b: unknown, name: string) => unknown }, name: string, messages: readonly Message[]): void => {
  const writer = new RecordWriter('7f3a91c2');
  const twice = [...messages, ...messages];
  t.same(recordsOf(write(twice, writer)), recordsOf(twice.map((message) => plainly(message, '7f3a91c2', 1_700_000_000_000)).join('')), name);
};

t.test('records of messages that are nearly the same', async (t) => {
  inTurn(t, 'a tool and a method of one name', [settled({ method: 'tools/call', tool: 'ping' }), settled({ method: 'ping' }), settled({ method: 'tools/call' })]);
  inTurn(t, 'kinds', (['request', 'notification', 'response', 'invalid'] as const).map((kind) => settled({ kind, method: 'x' })));
  inTurn(t, 'no method and an empty one', [settled({ method: null }), settled({ method: '' })]);
  inTurn(t, 'an empty tool', [settled({ method: 'tools/call', tool: '' }), settled({ method: 'tools/call', tool: null }), settled({ method: '' })]);
  inTurn(t, 'directions', [settled({ method: 'x', dir: 'c2s' }), settled({ method: 'x', dir: 's2c' })]);
  inTurn(t, 'verdicts of one code', [settled({ verdict: verdict('tool_denied', { rule: 'a' }), method: 'x' }), settled({ verdict: verdict('tool_denied', { rule: 'b' }), method: 'x' })]);
  inTurn(t, 'ids, sizes, edits', [withId('1', { method: 'x' }), withId('"1"', { method: 'x' }), settled({ method: 'x', bytesIn: 77, maxDepth: 9, flags: ['deep'] }), settled({ method: 'x', output: Buffer.from('abc'), edits: [] })]);
  inTurn(t, 'names that are cut alike', [settled({ method: 'x'.repeat(200) }), settled({ method: `${'x'.repeat(200)}y` })]);
});

t.test('many names do not make it grow or err', async (t) => {
  const writer = new RecordWriter('7f3a91c2');
  const name = (i: number): string => `name-${i % 9_000}`;
  for (let round = 0; round < 20; round++) {
    const batch = Array.from({ length: 1_000 }, (_, i) => settled({ method: name(round * 1_000 + i), seq: i + 1 }));
    const wrong = recordsOf(write(batch, writer)).findIndex((record, i) => record.method !== name(round * 1_000 + i));
    t.equal(wrong, -1, `round ${round}`);
  }
  t.ok(DEFAULTS.cachedNames < 9_000, 'more names than are kept');
});

t.test('batches', async (t) => {
  const writer = new RecordWriter('7f3a91c2');
  t.equal(write([], writer), '');
  t.equal(recordsOf(write([settled()], writer, 5))[0]?.ts_ms, 5);
  t.equal(recordsOf(write([settled()], writer, 6))[0]?.ts_ms, 6);
  const many = Array.from({ length: 2_000 }, (_, i) => settled({ seq: i + 1, tool: 'x'.repeat(100), method: 'tools/call' }));
  t.equal(recordsOf(write(many, writer)).length, 2_000, 'more than the first buffer holds');
  const huge = settled({ edits: Array.from({ length: 3_000 }, (_, i): Edit => ({ start: i, end: i, bytes: Buffer.alloc(0), kind: 'mask', path: `params.arguments.${i}` })) });
  const redacted = recordsOf(write([huge, settled(), huge], writer))[2]?.redacted;
  t.equal(redacted?.length, 65, 'a record names the first places alone');
  t.equal(redacted?.at(-1), '(2936 more)', 'and counts the others');
  const decisions: readonly Decision[] = ['forward', 'deny', 'drop', 'hold', 'error'];
  for (const decision of decisions) t.equal(recordsOf(write([settled({ verdict: { ...ALLOWED, decision } })]))[0]?.bytes_out, decision === 'forward' ? 8 : 0);
  const message = new Message('c2s', Buffer.from('  abc \n'), 2, 5, 6);
  t.equal(bytesOut(message), 3, 'outer white space does not leave');
});
