// The lenient look at lines that will not pass: what it finds, piece by piece, and that it holds no more than that.
import fc from 'fast-check';
import t from 'tap';
import { DEFAULTS } from '../../lib/defaults.js';
import { Scanner } from '../../lib/json/scan.js';
import { Skimmer } from '../../lib/json/skim.js';
import { bytesOf, cutAt, session, settings, shown, trimmed } from '../sessions.js';

interface Skim {
  readonly id: string | null;
  readonly kind: string;
  readonly method: string | null;
  readonly tool: string | null;
}

const skim = (pieces: readonly Uint8Array[]): Skim => {
  const skimmer = new Skimmer();
  for (const piece of pieces) skimmer.push(piece);
  const { id, kind, method, tool } = skimmer.finish();
  return { id: id === null ? null : Buffer.from(id).toString(), kind, method, tool };
};

const PING = { kind: 'request', method: 'ping', tool: null };
const NOTHING: Skim = { id: null, kind: 'invalid', method: null, tool: null };
const LONG = 'x'.repeat(DEFAULTS.maxIdBytes);

const ROWS: ReadonlyArray<readonly [line: string, found: Skim]> = [
  // the id, wherever it stands
  ['{"id":1,"method":"ping"}', { id: '1', ...PING }],
  ['{"method":"ping","params":{"id":2,"name":"x"},"id":"a"}', { id: '"a"', ...PING }],
  ['{"method" : "ping" , "id" : 0 }', { id: '0', ...PING }],
  ['{"method":"ping","id":-7', { id: '-7', ...PING }],
  ['{"method":"ping","id":"a\\"\\\\b"', { id: '"a\\"\\\\b"', ...PING }],
  ['{"\\u0069d":1,"method":"p\\u0069ng"}', { id: '1', ...PING }],
  ['{"id":1,"method":"ping","x":{"y":[1,{"id":3}]},"z":"}{]["}', { id: '1', ...PING }],
  // an id that cannot be answered
  ['{"id":1,"method":"ping","id":1}', { id: null, ...PING }],
  ['{"ID":1,"method":"ping"}', { id: null, ...PING }],
  ['{"id":1,"Method":"ping"}', { id: '1', kind: 'request', method: null, tool: null }],
  ['{"id":1,"ID":2,"method":"ping"}', { id: null, ...PING }],
  ['{"id":1,"id\\u0000":2,"method":"ping"}', { id: null, ...PING }],
  ['{"id":1,"\u0131d":2,"method":"ping"}', { id: null, ...PING }],
  ...['null', 'true', '1.0', '1e2', '-0', '01', '{}', '[]', '{"a":1}', '"\\ud800"', '"\u0001"', '"\\x"', `"${LONG}x"`, '1'.repeat(257), `"${'\\u0041'.repeat(257)}"`]
    .map((id): readonly [string, Skim] => [`{"id":${id},"method":"ping"}`, { id: null, ...PING }]),
  ...[`"${LONG}"`, '1'.repeat(256), `"${'\\u0041'.repeat(256)}"`, '""', '"é"', '12345678901234567890']
    .map((id): readonly [string, Skim] => [`{"id":${id},"method":"ping"}`, { id, ...PING }]),
  ['{"id":1}{"id":2}', NOTHING],
  ['{"id":1,"method":"ping"}\r{"id":2,"method":"ping"}', { ...NOTHING, kind: 'request' }],
  // kinds
  ['{"method":"x"}', { id: null, kind: 'notification', method: 'x', tool: null }],
  ['{"id":1,"result":{}}', { id: '1', kind: 'response', method: null, tool: null }],
  ['{"id":1,"error":1}', { id: '1', kind: 'response', method: null, tool: null }],
  ['{"id":1,"result":null}', { id: '1', kind: 'response', method: null, tool: null }],
  ['{"id":1,"method":{},"result":1}', { id: '1', kind: 'request', method: null, tool: null }],
  ['{"id":1}', { id: '1', kind: 'invalid', method: null, tool: null }],
  // names for the record
  ['{"id":1,"method":"tools/call","params":{"name":"t","arguments":{"name":"u"}}}', { id: '1', kind: 'request', method: 'tools/call', tool: 't' }],
  ['{"id":1,"params":{"arguments":{"name":"u"},"n\\u0061me":"\\u0074"},"method":"tools/call"}', { id: '1', kind: 'request', method: 'tools/call', tool: 't' }],
  ['{"id":1,"method":"tools/call","params":{"name":"t","name":"u"}}', { id: '1', kind: 'request', method: 'tools/call', tool: null }],
  ['{"id":1,"method":"tools/call","params":{"name":5}}', { id: '1', kind: 'request', method: 'tools/call', tool: null }],
  ['{"id":1,"method":"tools/call","params":[{"name":"t"}]}', { id: '1', kind: 'request', method: 'tools/call', tool: null }],
  ['{"id":1,"method":"prompts/get","params":{"name":"t"}}', { id: '1', kind: 'request', method: 'prompts/get', tool: null }],
  ['{"id":1,"method":"a","method":"b"}', { id: '1', kind: 'request', method: null, tool: null }],
  // what is not an object
  ...['', ' ', '1', '"id"', 'null', '[]', '[{"id":1,"method":"ping"}]', '[["id",1]]', '}', ']]]]', '{', '{"', '"id":1', 'id', ':::', '\\', '{"id"', '{"id":']
    .map((line): readonly [string, Skim] => [line, NOTHING]),
];

t.test('what is found, in one piece and byte by byte', async (t) => {
  for (const [line, wanted] of ROWS) {
    const bytes = Buffer.from(line);
    t.same(skim([bytes]), wanted, shown(line));
    t.same(skim([...bytes].map((byte) => Buffer.from([byte]))), wanted, `${shown(line)} byte by byte`);
  }
});

t.test('cuts change nothing, and any bytes may come', async () => {
  const noise = fc.array(fc.constantFrom('{', '}', '[', ']', '"', ':', ',', '\\', 'id', '"id"', '"method"', '"params"', '"name"', '1', ' ', 'é', '\u0000'), { maxLength: 30 }).map((parts) => Buffer.from(parts.join('')));
  fc.assert(
    fc.property(fc.oneof(session.map(bytesOf), noise, fc.uint8Array({ maxLength: 60 }).map((bytes) => Buffer.from(bytes))), fc.array(fc.nat(5_000), { maxLength: 8 }), (bytes, cuts) => {
      if (JSON.stringify(skim([bytes])) !== JSON.stringify(skim(cutAt(bytes, cuts)))) throw new Error('the cuts matter');
    }),
    settings(400),
  );
});

t.test('of a line that would pass it finds what the strict scan finds', async (t) => {
  const scanner = new Scanner();
  let compared = 0;
  fc.assert(
    fc.property(session, (lines) => {
      for (const line of lines.map(trimmed)) {
        const bytes = Buffer.concat([line, Buffer.from('\n')]);
        if (!scanner.scan(bytes, 0, line.length)) continue;
        compared++;
        const named = scanner.method === 'tools/call' && bytes[scanner.nameStart] === 0x22;
        const tool = named ? (JSON.parse(bytes.toString('utf8', scanner.nameStart, scanner.nameEnd)) as string) : null;
        const wanted = { id: scanner.idStart < 0 ? null : bytes.toString('utf8', scanner.idStart, scanner.idEnd), kind: scanner.kind, method: scanner.method, tool };
        if (JSON.stringify(skim([line])) !== JSON.stringify(wanted)) throw new Error(`${line.toString()}: ${JSON.stringify(skim([line]))}`);
      }
    }),
    settings(200),
  );
  t.ok(compared > 100, `${compared} lines`);
});

t.test('constant memory', async (t) => {
  const skimmer = new Skimmer();
  const before = process.memoryUsage();
  const piece = Buffer.alloc(64 * 1024, 'x');
  skimmer.push(Buffer.from('{"method":"ping","params":{"name":"'));
  for (let i = 0; i < 800; i++) skimmer.push(piece); // 50 MB of one string
  skimmer.push(Buffer.from('"},"id":"'));
  for (let i = 0; i < 800; i++) skimmer.push(piece);
  skimmer.push(Buffer.from('","id2":{'));
  skimmer.push(Buffer.alloc(1_000_000, '['));
  const after = process.memoryUsage();
  t.ok(after.heapUsed + after.arrayBuffers - before.heapUsed - before.arrayBuffers < 10 * 1024 * 1024);
  t.match(skimmer.finish(), { id: null, kind: 'request', method: 'ping', tool: null });
});
