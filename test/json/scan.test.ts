// The strict scan: what it refuses and where, what it finds in what passes, and a fuzz against two other parsers.
import fc from 'fast-check';
import t from 'tap';
import type { Test } from 'tap';
import { isUtf8 } from 'node:buffer';
import { getManyValues, isMany, none } from 'stream-chain/defs.js';
import { jsonParser } from 'stream-json/core/parser.js';
import type { Token } from 'stream-json/core/parser.js';
import { DEFAULTS } from '../../lib/defaults.js';
import { CODES } from '../../lib/errors.js';
import { NameWatch } from '../../lib/json/name-watch.js';
import { Scanner } from '../../lib/json/scan.js';
import { redactionWatch } from '../../lib/policy/redaction.js';
import { callOf, redactionOf, settings, shown } from '../sessions.js';

/** Marks the offset at which a row's line must be refused. */
const MARK = '▸';

type Refusals = ReadonlyArray<readonly [code: string, lines: readonly string[]]>;

const withLineFeed = (line: string | Uint8Array): Buffer => Buffer.concat([Buffer.from(line as Uint8Array), Buffer.from('\n')]);

const scan = (line: string, scanner = new Scanner()): Scanner => {
  const bytes = withLineFeed(line);
  scanner.scan(bytes, 0, bytes.length - 1);
  return scanner;
};

const refusedAt = (t: Test, code: string, row: string, scanner: Scanner): void => {
  const at = Buffer.from(row).indexOf(MARK);
  const line = row.replace(MARK, '');
  scan(line, scanner);
  t.same([scanner.code, scanner.at], [code, at], shown(line));
};

// Bytes that are not JSON, or not JSON that every peer reads alike

const MALFORMED: Refusals = [
  ['byte_order_mark', ['▸\ufeff{}', '▸\ufeff']],
  ['bare_cr', [
    '▸\r{}', '{▸\r}', '{"a":▸\r1}', '{"a"▸\r:1}', '{"a":1▸\r}', '{"a":1▸\r,"b":2}', '{"a":1,▸\r"b":2}', '{"a":"x▸\ry"}', '{"x▸\ry":1}',
    '{}▸\r{}', '{}▸\r', '[1▸\r]', '[▸\r1]', '1▸\r', '{"jsonrpc":"2.0","id":1,"method":"x"}▸\r{"jsonrpc":"2.0","id":2,"method":"y"}',
  ]],
  ['not_json', [
    '▸x', '▸\u0000', '▸}', '▸]', '▸:', '▸NaN', "▸'a'", '▸undefined', '▸/**/{}', '▸\u00a0{}', '▸\u2028{}', '▸\u000b{}',
    '{▸x}', '{▸1:2}', "{▸'a':1}", '{▸,}', '{▸:1}', '{"a"▸}', '{"a" ▸1}', '{"a"▸,1}', '{"a":▸}', '{"a":▸,}', '{"a":▸:1}',
    '{"a":1,▸}', '{"a":1 ▸"b":2}', '{"a":1▸;}', '{"a":1▸]', '[1▸}', '[1,▸]', '[▸,1]', '[1 ▸2]', '[1▸:2]',
    '{"a":▸TRUE}', '{"a":▸True}', '{"a":▸truE}', '{"a":▸nul1}', '{"a":▸fals }', '{"a":▸NaN}', '{"a":▸Infinity}', '{"a":▸.5}', '{"a":▸+1}',
    '{"a":0▸1}', '{"a":-0▸1}', '{"a":1.2▸.3}', '{"a":1e5▸.5}', '{"a":0▸x10}', '{"a":1▸_000}', '{"a":1▸n}', '{"a":true▸x}',
    '{"a":▸\f1}', '{"a":▸\u00a01}', '{"a":1▸\u2028}', '{"a":▸\ufeff1}', '{"a":"b"▸"c"}', '{"a":1▸/**/}', '{"a":▸(1)}',
  ]],
  ['control_character', [
    '{"a":"▸\u0000"}', '{"a":"▸\t"}', '{"a":"x▸\u001f"}', '{"▸\u0001":1}', '{"a":["▸\u0008"]}', '{"a":"\\"▸\u000b"}',
  ]],
  ['bad_escape', [
    '{"a":"▸\\x41"}', '{"a":"▸\\\'"}', '{"a":"▸\\U0041"}', '{"a":"▸\\u12G4"}', '{"a":"▸\\u 041"}', '{"a":"▸\\u-041"}', '{"a":"▸\\u004"}', '{"a":"▸\\u{41}"}',
    '{"a":"\\ud83d▸\\uzzzz"}', '{"▸\\0":1}', '{"a":"\\n▸\\a"}', '{"a":"▸\\ "}', '{"a":"▸\\é"}',
  ]],
  ['bad_number', ['{"a":-▸}', '{"a":-▸x}', '{"a":-▸.5}', '{"a":-▸-1}', '{"a":-▸Infinity}', '{"a":1.▸}', '{"a":1.▸e5}', '{"a":1e▸}', '{"a":1E+▸}', '{"a":1e-▸x}', '[0.▸]', '{"a":1e▸.5}']],
  ['unterminated', [
    '{▸', '{ ▸', '{"▸', '{"a▸', '{"a"▸', '{"a":▸', '{"a":1▸', '{"a":1,▸', '{"a":"▸', '{"a":"x▸', '{"a":"x▸\\', '[▸', '[1▸', '[1,▸', '{"a":[{}▸', '{"a":{}▸', '{"a":-▸', '{"a":1.▸', '{"a":1e▸', '{"a":1e+▸',
    '"▸', '"é▸',
  ]],
  ['trailing_bytes', ['{}▸{}', '{}▸ {}', '{}▸ x', '{}▸,', '{}▸}', '{}▸]', '{}▸\u0000', '1▸ 2', '[]▸ []', '"a"▸"b"', 'null▸null', '{"jsonrpc":"2.0","id":1,"method":"x"}▸{"jsonrpc":"2.0"}']],
  ['batch', ['▸[]', '▸[1]', '▸[{"jsonrpc":"2.0","id":1,"method":"ping"}]']],
  ['not_an_object', ['▸1', '▸-0', '▸"x"', '▸null', '▸true', '▸false', '▸1e5']],
  ['lone_surrogate', [
    '{"a":"▸\\ud800"}', '{"a":"▸\\uDFFF"}', '{"a":"▸\\udc00\\ud800"}', '{"a":"▸\\ud800\\u0041"}', '{"a":"▸\\ud800x"}', '{"a":"▸\\ud800\\n"}', '{"a":"▸\\ud83d\\ud83d\\ude00"}',
    '{"a":"\\ud83d\\ude00▸\\ude00"}', '{"▸\\ud800":1}', '{"a":["x▸\\udbff"]}',
  ]],
  ['number_overflow', ['{"a":▸1e309}', '{"a":▸-1e309}', '{"a":▸1.8e308}', '{"a":[1,▸2E+999]}', `{"a":▸1${'0'.repeat(309)}}`, `{"a":▸${'9'.repeat(1000)}}`, `{"a":▸-${'9'.repeat(400)}.5}`, '{"a":▸0.1e400}']],
];

// Names that two peers may tell apart differently

const NAMES: Refusals = [
  ['duplicate_name', [
    '{"a":1,"▸a":2}', '{"a":1, "b":2 ,"▸a":2}', '{"a":1,"▸\\u0061":2}', '{"\\u0061":1,"▸a":2}', '{"\\u0061":1,"▸\\u0061":2}', '{"\\u00e9":1,"▸é":2}', '{"é":1,"▸\\u00E9":2}',
    '{"\ud83d\ude00":1,"▸\\ud83d\\ude00":2}', '{"\\uD83D\\uDE00":1,"▸\\ud83d\\ude00":2}', '{"":1,"▸":2}', '{"/":1,"▸\\/":2}', '{"\\n":1,"▸\\u000a":2}', '{"\\"":1,"▸\\u0022":2}',
    '{"p":[{"q":{"r":1,"▸r":2}}]}', '{"a":{"b":1},"b":{"a":1,"▸a":{}}}', '{"a":{},"b":[{},{"x":1}],"▸a":0}', '[{"a":1,"▸a":1}]', '{"\u2028":1,"▸\\u2028":1}', '{"\\u0000":1,"▸\\u0000":1}',
    '{"x":{"Aa":1,"BB":2,"▸Aa":3}}',
  ]],
  ['name_variant', [
    '{"▸Method":"x"}', '{"▸METHOD":"x"}', '{"▸ID":1}', '{"▸Id":1}', '{"▸JSONRPC":"2.0"}', '{"▸Params":{}}', '{"▸Result":{}}', '{"▸Error":{}}', '{"▸method\\u0000":"x"}', '{"▸\\u0000id":1}',
    '{"▸j\u017fonrpc":"2.0"}', '{"▸param\u017f":{}}', '{"▸re\\u017fult":{}}', '{"▸\u0131d":1}', '{"▸\u0130d":1}', '{"▸M\\u0065thod":"x"}',
    '{"params":{"▸Name":"t"}}', '{"params":{"▸ARGUMENTS":{}}}', '{"params":{"▸_Meta":{}}}', '{"params":{"▸name\\u0000":"t"}}', '{"params":{"▸argument\u017f":{}}}', '{"params":{"▸progre\u017f\u017fToken":1}}',
    '{"params":{"▸progressTo\u212aen":1}}', '{"params":{"▸progresstoken":1}}', '{"params":{"▸URI":"x"}}', '{"params":{"▸taskid":"x"}}', '{"params":{"▸REF":1}}', '{"params":{"▸tas\u212a":1}}',
    '{"id":1,"params":{"name":"t","▸nAme":"u"}}',
  ]],
  ['prototype_name', [
    '{"▸__proto__":1}', '{"a":{"▸__proto__":{}}}', '{"a":[{"▸__proto__":null}]}', '{"▸\\u005f_proto__":1}', '{"▸__proto\\u005f_":1}', '{"constructor":{"▸prototype":{}}}', '{"a":{"constructor":{"x":1,"▸prototype":1}}}',
    '{"\\u0063onstructor":{"▸prototype":{}}}', '{"constructor":{"▸\\u0070rototype":{}}}', '{"params":{"arguments":{"constructor":{"▸prototype":1}}}}', '{"params":{"constructor":{"▸prototype":1}}}',
    '{"constructor":{"constructor":{"▸prototype":1}}}',
  ]],
];

t.test('what is refused, and where', async (t) => {
  const scanner = new Scanner();
  for (const [code, rows] of [...MALFORMED, ...NAMES]) for (const row of rows) refusedAt(t, code, row, scanner);
});

t.test('duplicates on both sides of the border between the pair-wise search and the set', async (t) => {
  const scanner = new Scanner();
  for (const count of [1, 2, 14, 15, 16, 17, 18, 33, 100]) {
    const members = Array.from({ length: count }, (_, i) => `"m${i}":${i}`).join(',');
    for (const [first, last] of [[`{"x":{${members},"▸`, '":0}}'], [`{"x":[{${members},"▸`, '":0}]}']] as const) {
      for (const name of ['m0', `m${count - 1}`, '\\u006d0', `m${Math.floor(count / 2)}`]) refusedAt(t, 'duplicate_name', first + name + last, scanner);
    }
    // An object of its own after a large one begins with no names.
    scan(`{"x":[{${members}},{${members}}],"y":{${members},"m":{${members}}}}`, scanner);
    t.equal(scanner.code, 'bad_version', `${count} members without a duplicate`);
  }
});

t.test('depth', async (t) => {
  for (const limit of [1, 2, 3, 128, 300]) {
    const scanner = new Scanner();
    scanner.limitDepth(limit);
    const nested = (levels: number): string => `{"a":${'['.repeat(levels - 1)}${']'.repeat(levels - 1)}}`;
    if (limit > 1) {
      scan(nested(limit), scanner);
      t.same([scanner.code, scanner.maxDepth], ['bad_version', limit], `${limit} levels`);
    }
    scan(nested(limit + 1), scanner);
    t.same([scanner.code, scanner.at], ['too_deep', 5 + limit - 1], `${limit + 1} levels`);
    const objects = `${'{"a":'.repeat(limit + 1)}1${'}'.repeat(limit + 1)}`;
    scan(objects, scanner);
    t.same([scanner.code, scanner.at], ['too_deep', 5 * limit], `${limit + 1} objects`);
    scan('['.repeat(1_000_000), scanner);
    t.same([scanner.code, scanner.at], ['too_deep', limit], 'a million brackets');
  }
  t.equal(scan(`{"a":${'['.repeat(DEFAULTS.maxDepth - 1)}${']'.repeat(DEFAULTS.maxDepth - 1)}}`).code, 'bad_version', 'the default limit passes');
  t.equal(scan(`{"a":${'['.repeat(DEFAULTS.maxDepth)}${']'.repeat(DEFAULTS.maxDepth)}}`).code, 'too_deep', 'one more does not');
  const wide = new Scanner(20);
  const sixteen = Array.from({ length: 16 }, (_, i) => `"m${i}":1`).join(',');
  const full = (levels: number): string => (levels === 0 ? '1' : `{${sixteen},"m":${full(levels - 1)}}`);
  t.equal(scan(full(20), wide).code, 'bad_version', 'a full table of names at every level');
});

t.test('members of one object', async (t) => {
  const few = new Scanner(DEFAULTS.maxDepth, 20);
  const members = (count: number): string => Array.from({ length: count }, (_, i) => `"m${i}":1`).join(',');
  t.equal(scan(`{${members(20)}}`, few).code, 'bad_version');
  refusedAt(t, 'too_many_members', `{${members(20)},"▸n":1}`, few);
  refusedAt(t, 'too_many_members', `{"x":[{${members(20)},"▸n":1}]}`, few);
  t.equal(scan(`{"x":{${members(DEFAULTS.maxMembers)}}}`).code, 'bad_version', 'the default limit passes');
  refusedAt(t, 'too_many_members', `{"x":{${members(DEFAULTS.maxMembers)},"▸n":1}}`, new Scanner());
});

// Shapes, judged once the line is JSON

const LONG_ID = 'x'.repeat(DEFAULTS.maxIdBytes);
const envelope = (members: string): string => `{"jsonrpc":"2.0",${members}}`;
const requestWith = (members: string): string => envelope(`"id":1,"method":"m/x"${members === '' ? '' : `,${members}`}`);

const SHAPES: Refusals = [
  ['bad_version', ['{}', '{"id":1,"method":"x"}', '{"jsonrpc":2.0,"id":1,"method":"x"}', '{"jsonrpc":"2","id":1,"method":"x"}', '{"jsonrpc":"2.0 ","id":1,"method":"x"}', '{"jsonrpc":"2.00","id":1,"method":"x"}', '{"jsonrpc":null,"id":1,"method":"x"}']],
  ['bad_id', [
    ...['null', 'true', '1.0', '1e2', '-0', '{}', '[]', '1.5', '0.0', `"${LONG_ID}x"`, `"${'é'.repeat(129)}"`, `"${'\\u0041'.repeat(257)}"`, '1'.repeat(257)].map((id) => envelope(`"id":${id},"method":"m/x"`)),
    envelope('"id":null,"result":{}'),
  ]],
  ['bad_method', ['null', '1', '{}', '[]', '""', '" "', '"a b"', '"é"', '"a\\u0000"', '"a\\nb"', '"a:b"', '"a\\\\b"', `"${'x'.repeat(129)}"`].map((method) => envelope(`"id":1,"method":${method}`))],
  ['method_variant',
    ['Tools/call', 'TOOLS/CALL', 'tools//call', '/tools/call', 'tools/call/', 'Initialize', 'PING', 'notifications/Initialized', 'tools/List', 'logging/setlevel', 'notifications//progress', '//ping', 'ping/']
      .map((method) => envelope(`"id":1,"method":"${method}"`))],
  ['id_missing', [envelope('"method":"tools/call"'), envelope('"method":"ping"'), envelope('"method":"roots/list"'), envelope('"result":{}'), envelope('"error":{"code":1,"message":"m"}')]],
  ['id_unexpected', [envelope('"id":1,"method":"notifications/initialized"'), envelope('"id":1,"method":"notifications/of/our/own"')]],
  ['mixed_members', [requestWith('"result":{}'), requestWith('"error":{"code":1,"message":"m"}'), envelope('"id":1,"result":{},"error":{"code":1,"message":"m"}'), envelope('"method":"vendor/x","result":{}')]],
  ['not_a_message', [envelope('"id":1'), envelope('"params":{}'), '{"jsonrpc":"2.0"}', envelope('"id":1,"x":2')]],
  ['bad_params', ['null', '[]', '1', '"x"', 'true', '[{"name":"t"}]'].map((params) => requestWith(`"params":${params}`))],
  ['bad_arguments', ['null', '[]', '"{}"', '1', 'false'].map((args) => requestWith(`"params":{"name":"t","arguments":${args}}`))],
  ['bad_meta', [...['null', '[]', '"x"', '1'].flatMap((meta) => [requestWith(`"params":{"_meta":${meta}}`), envelope(`"id":1,"result":{"_meta":${meta}}`)]),
    envelope('"id":1,"result":{"_meta":1},"params":{"_meta":{}}'), envelope('"id":1,"params":{"_meta":1},"result":{"_meta":{}}')]],
  ['bad_progress_token', [...['null', 'true', '1.5', '1.0', '1e2', '-0', '{}', '[]'].flatMap((token) => [requestWith(`"params":{"_meta":{"progressToken":${token}}}`), envelope(`"method":"notifications/progress","params":{"progressToken":${token}}`)]),
    requestWith('"params":{"_meta":{"progressToken":1},"progressToken":null}'), requestWith('"params":{"progressToken":null,"_meta":{"progressToken":1}}'), requestWith('"params":{"_meta":{"progressToken":null},"progressToken":1}')]],
  ['bad_result', ['null', '[]', '1', '"x"'].map((result) => envelope(`"id":1,"result":${result}`))],
  ['bad_error', ['null', '[]', '"x"', '{}', '{"code":1}', '{"message":"m"}', '{"code":1.5,"message":"m"}', '{"code":"1","message":"m"}', '{"code":1e3,"message":"m"}', '{"code":1,"message":null}', '{"code":1,"message":{}}'].map((error) => envelope(`"id":1,"error":${error}`))],
];

t.test('shapes that are refused', async (t) => {
  const scanner = new Scanner();
  for (const [code, lines] of SHAPES) {
    for (const line of lines) t.same([scan(line, scanner).code, scanner.at], [code, -1], shown(line));
  }
});

t.test('every code of form has a row here', async (t) => {
  const shown = new Set([...MALFORMED, ...NAMES, ...SHAPES].map(([code]) => code));
  for (const code of ['too_deep', 'too_many_members', 'invalid_utf8']) shown.add(code); // above; UTF-8 is the caller's to check
  const form = Object.entries(CODES).filter(([, entry]) => entry.rpc === -32700 || entry.rpc === -32600).map(([code]) => code);
  t.same(form.filter((code) => !shown.has(code)), []);
});

// What passes, with what was found

interface Found {
  readonly kind: string;
  readonly id?: string;
  readonly method?: string | null;
  readonly tool?: string | null;
  readonly params?: string;
  readonly args?: string;
  readonly depth?: number;
  readonly breaks?: boolean;
}

const PASSING: ReadonlyArray<readonly [line: string, found: Found]> = [
  // kinds
  [requestWith(''), { kind: 'request', id: '1', method: 'm/x', depth: 1 }],
  [envelope('"method":"vendor/x"'), { kind: 'notification', method: 'vendor/x', depth: 1 }],
  [envelope('"method":"notifications/initialized"'), { kind: 'notification', method: 'notifications/initialized' }],
  [envelope('"id":0,"result":{}'), { kind: 'response', id: '0', depth: 2 }],
  [envelope('"id":"x","error":{"code":-32000,"message":""}'), { kind: 'response', id: '"x"', depth: 2 }],
  // ids as they are spelled
  ...(['0', '-1', '12345678901234567890', '""', '"a"', '"\\u0061"', `"${LONG_ID}"`, `"${'é'.repeat(128)}"`, `"${'\\u0041'.repeat(256)}"`, '1'.repeat(256), '"\\ud83d\\ude00"'] as const)
    .map((id): readonly [string, Found] => [envelope(`"id":${id},"method":"m/x"`), { kind: 'request', id, method: 'm/x', depth: 1 }]),
  // the parts of a call, spelled and placed in many ways
  ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":{"a":1}}}', { kind: 'request', id: '1', method: 'tools/call', tool: 't', params: '{"name":"t","arguments":{"a":1}}', args: '{"a":1}', depth: 3 }],
  ['{ "params" : { "arguments" : { } , "name" : "t" } , "method" : "tools/call" , "id" : 1 , "jsonrpc" : "2.0" }', { kind: 'request', id: '1', method: 'tools/call', tool: 't', params: '{ "arguments" : { } , "name" : "t" }', args: '{ }', depth: 3 }],
  ['{\t"jsonrpc":\t"2.0",\t"id":\t1,\t"method":\t"ping"\t}', { kind: 'request', id: '1', method: 'ping' }],
  [envelope('"i\\u0064":1,"m\\u0065thod":"tools\\/call","par\\u0061ms":{"na\\u006de":"\\u0074","argument\\u0073":{}}'), { kind: 'request', id: '1', method: 'tools/call', tool: 't', params: '{"na\\u006de":"\\u0074","argument\\u0073":{}}', args: '{}' }],
  ['{"jsonrpc":"2\\u002e0","id":1,"method":"ping"}', { kind: 'request', id: '1', method: 'ping' }],
  [envelope('"id":1,"method":"tools/call","params":{"name":""}'), { kind: 'request', id: '1', method: 'tools/call', tool: '', params: '{"name":""}' }],
  [envelope('"id":1,"method":"tools/call","params":{"name":5}'), { kind: 'request', id: '1', method: 'tools/call', tool: null, params: '{"name":5}' }],
  [envelope('"id":1,"method":"tools/call"'), { kind: 'request', id: '1', method: 'tools/call', tool: null }],
  [envelope('"id":1,"method":"prompts/get","params":{"name":"p","arguments":{}}'), { kind: 'request', id: '1', method: 'prompts/get', tool: null, params: '{"name":"p","arguments":{}}', args: '{}' }],
  [envelope('"id":1,"method":"tools/call","params":{"name":"\ud83d\ude00\\n"}'), { kind: 'request', id: '1', method: 'tools/call', tool: '\ud83d\ude00\n', params: '{"name":"\ud83d\ude00\\n"}' }],
  // protocol names mean nothing where they do not belong
  [requestWith('"params":{"arguments":{"Method":1,"id":2,"ID":3,"name":4,"Name":5,"params":{"arguments":6}}}'), { kind: 'request', id: '1', method: 'm/x', params: '{"arguments":{"Method":1,"id":2,"ID":3,"name":4,"Name":5,"params":{"arguments":6}}}', args: '{"Method":1,"id":2,"ID":3,"name":4,"Name":5,"params":{"arguments":6}}', depth: 4 }],
  [requestWith('"params":{"Method":1,"ID":2,"x":{"Name":3,"arguments":4}}'), { kind: 'request', id: '1', method: 'm/x', params: '{"Method":1,"ID":2,"x":{"Name":3,"arguments":4}}' }],
  [envelope('"id":1,"result":{"Method":1,"id":2,"_Meta":3,"_meta":{"ProgressToken":[]}}'), { kind: 'response', id: '1' }],
  [envelope('"id":1,"error":{"code":1,"message":"m","Code":2,"data":null}'), { kind: 'response', id: '1' }],
  [requestWith('"x":{"id":[],"method":{}},"Foo":null,"arguments":[],"name":1'), { kind: 'request', id: '1', method: 'm/x' }],
  // names that only look alike
  [requestWith('"a":1,"A":2,"\u00e9":3,"e\u0301":4,"m ethod":5,"methods":6'), { kind: 'request', id: '1', method: 'm/x' }],
  [requestWith('"constructor":1,"prototype":{},"x":{"constructor":{"y":{"prototype":1}}},"y":{"constructor":[{"prototype":1}]},"__proto":1,"_proto__":2'), { kind: 'request', id: '1', method: 'm/x', depth: 4 }],
  // numbers
  [requestWith('"a":[1e308,-1e308,1.7976931348623157e308,-0,0,-0.0,0e999,1E-400,123456789012345678901234567890,1e+5,1.5E-3]'), { kind: 'request', id: '1', method: 'm/x', depth: 2 }],
  [requestWith(`"a":${'9'.repeat(308)},"b":0.${'3'.repeat(1000)},"c":1${'0'.repeat(308)},"d":1e-${'9'.repeat(50)}`), { kind: 'request', id: '1', method: 'm/x' }],
  // strings
  [requestWith('"a":"\\u0000\\b\\f\\n\\r\\t\\/\\\\\\"\u007f\ufffd\uffff\ud83d\ude00\\ud83d\\ude00\\uD83D\\uDE00"'), { kind: 'request', id: '1', method: 'm/x' }],
  [requestWith('"a":"\u00c2\u00e2\u0080\u0084\u0086\u2027\u202a\u2020\\u2028\\u0085"'), { kind: 'request', id: '1', method: 'm/x', breaks: false }],
  [requestWith('"a":"\u0085"'), { kind: 'request', id: '1', method: 'm/x', breaks: true }],
  [requestWith('"a":["x\u2028"]'), { kind: 'request', id: '1', method: 'm/x', breaks: true }],
  [requestWith('"a\u2029":1'), { kind: 'request', id: '1', method: 'm/x', breaks: true }],
  // tokens, empty containers
  [requestWith('"params":{"_meta":{"progressToken":"x"}}'), { kind: 'request', id: '1', method: 'm/x', params: '{"_meta":{"progressToken":"x"}}' }],
  [requestWith('"params":{"_meta":{"progressToken":-7,"ProgressToken":null}}'), { kind: 'request', id: '1', method: 'm/x', params: '{"_meta":{"progressToken":-7,"ProgressToken":null}}' }],
  [requestWith('"a":{ },"b":[ ],"c":[{},[]],"":""'), { kind: 'request', id: '1', method: 'm/x', depth: 3 }],
];

/** Decoded `params.name` of a call. */
const toolOf = (scanner: Scanner, bytes: Buffer): string | null =>
  scanner.method === 'tools/call' && bytes[scanner.nameStart] === 0x22 ? (JSON.parse(bytes.toString('utf8', scanner.nameStart, scanner.nameEnd)) as string) : null;

const foundBy = (scanner: Scanner, bytes: Buffer): Found => {
  const text = (start: number, end: number): string | undefined => (start < 0 ? undefined : bytes.toString('utf8', start, end));
  const id = text(scanner.idStart, scanner.idEnd);
  const params = text(scanner.paramsStart, scanner.paramsEnd);
  const args = text(scanner.argumentsStart, scanner.argumentsEnd);
  return {
    kind: scanner.kind, method: scanner.method, tool: toolOf(scanner, bytes), depth: scanner.maxDepth, breaks: scanner.hasLineBreaks,
    ...(id === undefined ? {} : { id }), ...(params === undefined ? {} : { params }), ...(args === undefined ? {} : { args }),
  };
};

t.test('what passes, with the exact bytes of its parts', async (t) => {
  const scanner = new Scanner();
  for (const [line, wanted] of PASSING) {
    for (const before of ['', 'something before\n']) {
      const bytes = Buffer.concat([Buffer.from(before), withLineFeed(line)]);
      t.equal(scanner.scan(bytes, before.length, bytes.length - 1), true, shown(line));
      t.same([scanner.code, scanner.at], [null, -1]);
      const found = foundBy(scanner, bytes);
      t.same(found, { method: null, tool: null, depth: found.depth, breaks: false, ...wanted }, shown(line));
    }
  }
});

t.test('a scanner forgets the line before', async () => {
  const lines = [...PASSING.map(([line]) => line), ...[...MALFORMED, ...NAMES, ...SHAPES].flatMap(([, rows]) => rows.map((row) => row.replace(MARK, '')))];
  const shared = new Scanner();
  shared.watch(redactionWatch(redactionOf('a', 'x')));
  fc.assert(
    fc.property(fc.array(fc.constantFrom(...lines), { minLength: 2, maxLength: 6 }), (some) => {
      for (const line of some) {
        const fresh = new Scanner();
        fresh.watch(redactionWatch(redactionOf('a', 'x')));
        const bytes = withLineFeed(line);
        scan(line, fresh);
        scan(line, shared);
        const view = (scanner: Scanner): unknown => [scanner.code, scanner.at, scanner.watched, foundBy(scanner, bytes)];
        if (JSON.stringify(view(fresh)) !== JSON.stringify(view(shared))) throw new Error(`differs on ${line}`);
      }
    }),
    settings(150),
  );
});

t.test('a line ends where it ends: what follows in memory is not read', async (t) => {
  const scanner = new Scanner();
  for (const [line] of PASSING.filter(([one]) => one.length < 200)) {
    const whole = Buffer.from(line);
    for (const gap of ['\n', ' \n', '\t\r\n', '\r\n']) {
      const bytes = Buffer.concat([whole, Buffer.from(gap), whole]);
      if (!scanner.scan(bytes, 0, whole.length)) t.fail(`refused before ${JSON.stringify(gap)}: ${line}`);
      for (let cut = 1; cut < whole.length; cut++) {
        if (((whole[cut] ?? 0) & 0xc0) === 0x80) continue; // damaged UTF-8 never comes here
        // The bytes that would complete the line stand right behind its end.
        const torn = Buffer.concat([whole.subarray(0, cut), Buffer.from(gap), whole.subarray(cut)]);
        if (scanner.scan(torn, 0, cut)) t.fail(`passed when cut at ${cut}: ${line}`);
        if (scanner.at >= cut + gap.length) t.fail(`looked at ${scanner.at} when cut at ${cut}: ${line}`);
      }
    }
  }
  t.pass('for every line and every cut');
});

// Names that somebody watches for

const WATCHED: ReadonlyArray<readonly [line: string, watched: boolean]> = [
  [callOf('t', { token: 1 }), true],
  [callOf('t', { a: { b: [{ token: 1 }] } }), true],
  [callOf('t', { a: 1 }), false],
  [callOf('token', { a: 'token' }), false],
  [callOf('t', { x: 'y' }).replace('"x"', '"to\\u006ben"'), true],
  [requestWith('"params":{"token":1}'), true],
  [requestWith('"params":{"_meta":{"token":1}}'), true],
  [requestWith('"params":{"_meta":{"io.modelcontextprotocol/token":1}}'), false],
  // not below params
  [requestWith('"token":1,"x":{"token":2},"params":{}'), false],
  [requestWith('"params":{},"x":{"token":2}'), false],
  [envelope('"id":1,"result":{"token":1}'), false],
  // the protocol's own members, where they are its own
  [requestWith('"params":{"uri":"x","name":"n"}'), false],
  [requestWith('"params":{"x":{"uri":1}}'), true],
  [requestWith('"params":{"_meta":{"progressToken":1}}'), false],
  // strings that may quote JSON
  [callOf('t', { a: '{"x":1}' }), true], [callOf('t', { a: '[1]' }), true], [callOf('t', { a: ' {' }), true], [callOf('t', { a: '\n{' }), true], [callOf('t', { a: ['{'] }), true],
  [callOf('t', { a: 'x{' }), false], [callOf('{', { a: '' }), true],
];

t.test('watching', async (t) => {
  const scanner = new Scanner();
  t.equal(scan(callOf('t', { a: 1 }), scanner).watched, true, 'without a watch nothing is known');
  scanner.watch(redactionWatch(redactionOf('token', 'io.modelcontextprotocol/token', 'uri', 'progressToken', 'name')));
  for (const [line, watched] of WATCHED) {
    t.equal(scan(line, scanner).code, null, line);
    t.equal(scanner.watched, watched, line);
  }
  scanner.watch(new NameWatch(() => false));
  t.equal(scan(callOf('t', { token: 1 }), scanner).watched, false, 'another watch');
  scanner.watch(null);
  t.equal(scan(callOf('t', { token: 1 }), scanner).watched, true);
});

t.test('the proof of any one value, whatever its shape', async (t) => {
  const scanner = new Scanner(3);
  for (const [text, proven, depth] of [
    ['1', true, 0], ['"x"', true, 0], ['null', true, 0], ['{}', true, 1], ['[[1],{"a":[]}]', true, 3], ['{"Method":1,"id":{}}', true, 2],
    ['1 2', false, 0], ['', false, 0], ['{"a":1,"a":1}', false, 1], ['[[[[]]]]', false, 3], ['{"__proto__":1}', false, 1],
  ] as const) {
    const bytes = withLineFeed(text);
    t.same([scanner.proves(bytes, 0, bytes.length - 1), scanner.maxDepth], [proven, depth], text);
  }
});

// The fuzz: two other parsers, and each reason for strictness checked on its own

const tokensOf = (text: string): Token[] | null => {
  const parse = jsonParser({ streamValues: false });
  const tokens: Token[] = [];
  const keep = (given: unknown): void => {
    if (isMany(given)) tokens.push(...(getManyValues(given) as Token[]));
    else if (given !== none && given !== undefined && given !== null) tokens.push(given as Token);
  };
  try {
    keep(parse(text));
    keep(parse(none as never));
    return tokens;
  } catch {
    return null; // not JSON to this parser
  }
};

/** Why a text that is JSON may be refused, found from another parser's tokens. */
const strictReasons = (text: string, tokens: readonly Token[], maxDepth: number, maxMembers: number): Set<string> => {
  const reasons = new Set<string>();
  if (text.includes('\r')) reasons.add('bare_cr');
  const open: Array<{ names: Set<string>; count: number; last: string; inConstructor: boolean } | null> = [];
  for (const token of tokens) {
    const holder = open.at(-1);
    switch (token.name) {
      case 'startObject':
        open.push({ names: new Set(), count: 0, last: '', inConstructor: holder?.last === 'constructor' });
        break;
      case 'startArray':
        open.push(null);
        break;
      case 'endObject':
      case 'endArray':
        open.pop();
        break;
      case 'keyValue':
        if (holder === null || holder === undefined) break;
        if (holder.names.has(token.value)) reasons.add('duplicate_name');
        holder.names.add(token.value);
        holder.last = token.value;
        if (++holder.count > maxMembers) reasons.add('too_many_members');
        if (token.value === '__proto__' || (holder.inConstructor && token.value === 'prototype')) reasons.add('prototype_name');
        if (/\p{Surrogate}/u.test(token.value)) reasons.add('lone_surrogate');
        break;
      case 'stringValue':
        if (/\p{Surrogate}/u.test(token.value)) reasons.add('lone_surrogate');
        break;
      case 'numberValue':
        if (!Number.isFinite(Number(token.value))) reasons.add('number_overflow');
        break;
      default:
    }
    if (open.length > maxDepth) reasons.add('too_deep');
  }
  return reasons;
};

const parses = (text: string): boolean => {
  try {
    JSON.parse(text);
    return true;
  } catch {
    return false; // that is the answer
  }
};

const STRICT_UTF8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });
const decoded = (bytes: Uint8Array): string | null => {
  try {
    return STRICT_UTF8.decode(bytes);
  } catch {
    return null; // damaged UTF-8
  }
};

const SEEDS: readonly string[] = [
  ...PASSING.map(([line]) => line).filter((line) => line.length < 400),
  '{"constructor":{"a":1},"x":{"prototype":1,"__prot__":2}}',
  '{"a":{"b":{"c":[1,2.5e10,-0,1e300,"\\ud83d\\ude00","é",true,false,null]}},"b":[[],[{}],""]}',
  '[[[[1]]],{"a":1,"b":2,"c":3,"d":4,"e":5,"f":6,"g":7,"h":8,"i":9,"j":10,"k":11,"l":12,"m":13,"n":14,"o":15,"p":16}]',
  '"\\u0000\\"\\\\"', '-12.5e-7', '  {"a" : [ 1 , 2 ] }  ',
];
const INSERTS: readonly string[] = [
  '"', '\\', '{', '}', '[', ']', ',', ':', '\r', '\t', ' ', '0', '9', '-', '+', '.', 'e', 'E', '1e999', 'true', 'nul', '\\u', '\\ud800', '\\udc00', '\\u0061', '\u0000', '\u001f', '\u007f',
  '"a":1,', '"__proto__":1,', '"constructor":{"prototype":1},', '"a":', '{}', '[[[[[[[[[[', ']]]]]]]]]]', '\ufeff', '\u2028', '\u0085', 'é', '😀', '//', '/**/', "'",
];

const EXTRA_MEMBERS: readonly string[] = [
  '"a":1', '"a":2', '"\\u0061":1', '"id":1', '"b":{}', '"__proto__":1', '"constructor":{"prototype":1}', '"\\ud83d\\ude00":1', '"é":"\\ud800"', '"x":1e400', '"y":\r1', '"c":[[[[[[[]]]]]]]',
  '"d":1,"d":2', '"":null', '"\\udead":0', Array.from({ length: 17 }, (_, i) => `"m${i}":0`).join(','),
];
const EXTRA_ELEMENTS: readonly string[] = [
  '1', '"x"', '{}', '{"a":1,"a":1}', '1e309', '-1e-400', '[[[[[[[[]]]]]]]]', '"\\ud800"', '"\\udc00\\ud800"', '{"__proto__":[]}', '"\r"', '\r1', '{"constructor":{"x":{"prototype":1}}}', 'null', '{"constructor":{"\\u0070rototype":1}}', '"\\ud83d\\ude00"',
];

interface Mutation {
  readonly kind: 'insert' | 'delete' | 'swap' | 'set' | 'truncate' | 'repeat' | 'escape' | 'member';
  readonly at: number;
  readonly length: number;
  readonly text: string;
}

const mutated = (bytes: Buffer, { kind, at, length, text }: Mutation): Buffer => {
  const p = bytes.length === 0 ? 0 : at % (bytes.length + 1);
  const q = Math.min(bytes.length, p + 1 + (length % 12));
  switch (kind) {
    case 'insert':
      return Buffer.concat([bytes.subarray(0, p), Buffer.from(text), bytes.subarray(p)]);
    case 'delete':
      return Buffer.concat([bytes.subarray(0, p), bytes.subarray(q)]);
    case 'swap':
      return Buffer.concat([bytes.subarray(0, p), bytes.subarray(q, q + 3), bytes.subarray(p, q), bytes.subarray(q + 3)]);
    case 'set': {
      const copy = Buffer.from(bytes);
      if (p < copy.length) copy[p] = length % 256; // any byte: damages UTF-8 as often as not
      return copy;
    }
    case 'truncate':
      return bytes.subarray(0, p);
    case 'repeat': // doubles a stretch, members with their names among them
      return Buffer.concat([bytes.subarray(0, q), bytes.subarray(p, q), bytes.subarray(q)]);
    case 'member': { // one more member or element at the front of a container
      const brace = bytes.findIndex((byte, i) => i >= p && (byte === 0x7b || byte === 0x5b));
      const object = bytes[brace] === 0x7b;
      const extra = (object ? EXTRA_MEMBERS : EXTRA_ELEMENTS)[length % 16] ?? '';
      const empty = bytes[brace + 1] === (object ? 0x7d : 0x5d);
      return brace < 0 ? bytes : Buffer.concat([bytes.subarray(0, brace + 1), Buffer.from(empty ? extra : `${extra},`), bytes.subarray(brace + 1)]);
    }
    case 'escape': {
      const byte = bytes[p];
      if (byte === undefined || byte >= 0x80 || byte < 0x20) return bytes;
      return Buffer.concat([bytes.subarray(0, p), Buffer.from(`\\u00${byte.toString(16)}`), bytes.subarray(p + 1)]);
    }
    default:
      return bytes;
  }
};

const mutation: fc.Arbitrary<Mutation> = fc.record({
  kind: fc.constantFrom<Mutation['kind']>('insert', 'insert', 'delete', 'swap', 'set', 'truncate', 'repeat', 'escape', 'member', 'member', 'member'),
  at: fc.nat(500),
  length: fc.nat(255),
  text: fc.constantFrom(...INSERTS),
});

t.test('mutated lines: the scan accepts what two other parsers accept, or names a reason that a third check confirms', async (t) => {
  const maxDepth = 9;
  const maxMembers = 18;
  const scanner = new Scanner(maxDepth, maxMembers);
  const tally = { lines: 0, accepted: 0, strict: 0, damaged: 0 };
  const judge = (source: Buffer): void => {
    let start = 0;
    let end = source.length;
    while (start < end && (source[start] === 0x20 || source[start] === 0x09)) start++;
    while (end > start && (source[end - 1] === 0x20 || source[end - 1] === 0x09)) end--;
    const line = source.subarray(start, end);
    const text = decoded(line);
    tally.lines++;
    if (isUtf8(line) !== (text !== null)) throw new Error('isUtf8 and TextDecoder differ');
    if (text === null) {
      tally.damaged++;
      return; // the scan is never given such a line
    }
    const accepts = scanner.proves(withLineFeed(line), 0, line.length);
    const tokens = tokensOf(text);
    const parsed = parses(text);
    if (accepts && !parsed) throw new Error('accepted, but JSON.parse refuses');
    if (accepts && tokens === null) throw new Error('accepted, but stream-json refuses');
    if (!parsed) return;
    if (tokens === null) throw new Error('stream-json refuses what JSON.parse accepts');
    const reasons = strictReasons(text, tokens, maxDepth, maxMembers);
    if (accepts) {
      tally.accepted++;
      if (reasons.size > 0) throw new Error(`accepted in spite of ${[...reasons].join(', ')}`);
      return;
    }
    tally.strict++;
    const code = text.startsWith('\r') ? 'bare_cr' : scanner.code ?? 'bare_cr'; // a CR after the value leaves no code
    if (!reasons.has(code)) throw new Error(`refused as ${code}, but the reasons are: ${[...reasons].join(', ') || 'none'}`);
  };
  fc.assert(
    fc.property(fc.constantFrom(...SEEDS), fc.array(mutation, { minLength: 1, maxLength: 4 }), (seed, mutations) => {
      let line: Buffer = Buffer.from(seed);
      for (const one of mutations) {
        line = Buffer.from(mutated(line, one).filter((byte) => byte !== 0x0a));
        judge(line);
      }
    }),
    settings(8_000),
  );
  t.comment(JSON.stringify(tally));
  t.ok(tally.accepted > tally.lines / 50 && tally.strict > tally.lines / 50 && tally.damaged > tally.lines / 200, 'every outcome was met');
});

// Shapes again, stated a second time over plain values

const MEMBERS: Readonly<Record<string, readonly string[]>> = {
  jsonrpc: ['"2.0"', '"2.0"', '"2.0"', '"2.0"', '"2.0"', '"1.0"', '2.0'],
  id: ['1', '1', '"a"', '0', '-1', '-0', '1.0', '1e1', 'null', '{}', `"${'x'.repeat(257)}"`, '12345678901234567890'],
  method: ['"tools/call"', '"tools/call"', '"ping"', '"vendor/x"', '"notifications/initialized"', '"Ping"', '"tools//call"', '"a b"', '""', '5'],
  params: ['{}', '{"name":"t"}', '{"name":"t","arguments":{}}', '{"name":5}', '{"arguments":[]}', '{"_meta":{}}', '{"_meta":[]}', '{"_meta":{"progressToken":1.5}}', '{"_meta":{"progressToken":"x"}}', '{"progressToken":null}', '[]', 'null', '{"Name":1}', '{"x":{"Name":1}}'],
  result: ['{}', '{"_meta":{}}', '{"_meta":1}', '[]', 'null'],
  error: ['{"code":1,"message":"m"}', '{"code":1}', '{"code":1.5,"message":"m"}', '{"code":-0,"message":"m"}', '{"code":1,"message":1}', '[]', 'null'],
  extra: ['1', '{"id":{},"method":1}'],
  Id: ['1'],
};
const ABSENT = ['id', 'method', 'params', 'result', 'error', 'extra', 'Id', 'Id', 'Id'];

const isObject = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const INTEGER_TEXT = /^(?:0|-?[1-9][0-9]*)$/;
const REQUEST_METHODS = ['tools/call', 'ping'];

/** Every reason to refuse these members, none first. */
const shapeProblems = (texts: Readonly<Record<string, string>>): Set<string> => {
  const problems = new Set<string>();
  const value = (name: string): unknown => (texts[name] === undefined ? undefined : (JSON.parse(texts[name]) as unknown));
  const has = (name: string): boolean => texts[name] !== undefined;
  const method = value('method');
  const params = value('params');
  const result = value('result');
  const error = value('error');
  const integerIn = (text: string, name: string): boolean => INTEGER_TEXT.test(new RegExp(`"${name}":([^,}]*)`).exec(text)?.[1] ?? '');
  const tokenIsFine = (text: string, token: unknown): boolean => typeof token === 'string' || integerIn(text, 'progressToken');

  if (has('Id')) problems.add('name_variant');
  if (texts['jsonrpc'] !== '"2.0"') problems.add('bad_version');
  if (has('id') && !(typeof value('id') === 'string' ? Buffer.byteLength(value('id') as string) <= 256 : INTEGER_TEXT.test(texts['id'] ?? ''))) problems.add('bad_id');
  if (has('method')) {
    if (typeof method !== 'string' || !/^[A-Za-z0-9_./$-]{1,128}$/.test(method)) problems.add('bad_method');
    else if (method === 'Ping' || method === 'tools//call') problems.add('method_variant');
    else if (REQUEST_METHODS.includes(method) && !has('id')) problems.add('id_missing');
    else if (method.startsWith('notifications/') && has('id')) problems.add('id_unexpected');
  } else if (!has('result') && !has('error')) problems.add('not_a_message');
  else if (!has('id')) problems.add('id_missing');
  if ([has('method'), has('result'), has('error')].filter(Boolean).length > 1) problems.add('mixed_members');
  if (has('params')) {
    if (!isObject(params)) problems.add('bad_params');
    else {
      if (Object.hasOwn(params, 'Name')) problems.add('name_variant');
      if (Object.hasOwn(params, 'arguments') && !isObject(params['arguments'])) problems.add('bad_arguments');
      if (Object.hasOwn(params, 'progressToken') && !tokenIsFine(texts['params'] ?? '', params['progressToken'])) problems.add('bad_progress_token');
      const meta = params['_meta'];
      if (Object.hasOwn(params, '_meta') && !isObject(meta)) problems.add('bad_meta');
      if (isObject(meta) && Object.hasOwn(meta, 'progressToken') && !tokenIsFine(texts['params'] ?? '', meta['progressToken'])) problems.add('bad_progress_token');
    }
  }
  if (has('result')) {
    if (!isObject(result)) problems.add('bad_result');
    else if (Object.hasOwn(result, '_meta') && !isObject(result['_meta'])) problems.add('bad_meta');
  }
  if (has('error') && !(isObject(error) && integerIn(texts['error'] ?? '', 'code') && typeof error['message'] === 'string')) problems.add('bad_error');
  return problems;
};

t.test('the rules of shape, against a second statement of them', async (t) => {
  const scanner = new Scanner();
  const envelopes = fc.record({
    names: fc.shuffledSubarray(Object.keys(MEMBERS)).filter((names) => names.includes('jsonrpc')),
    dropped: fc.subarray(ABSENT),
    picks: fc.array(fc.nat(1000), { minLength: 8, maxLength: 8 }),
  });
  let passed = 0;
  fc.assert(
    fc.property(envelopes, ({ names, dropped, picks }) => {
      const texts: Record<string, string> = {};
      for (const [i, name] of names.entries()) {
        const choices = MEMBERS[name] ?? [];
        if (!dropped.includes(name)) texts[name] = choices[(picks[i] ?? 0) % choices.length] ?? '';
      }
      const line = `{${Object.entries(texts).map(([name, text]) => `"${name}":${text}`).join(',')}}`;
      const problems = shapeProblems(texts);
      scan(line, scanner);
      const wrong = problems.size === 0 ? scanner.code !== null : scanner.code === null || !problems.has(scanner.code);
      if (wrong) throw new Error(`${line}: the scan says ${String(scanner.code)}, the second statement ${[...problems].join(', ') || 'nothing'}`);
      if (problems.size > 0) return;
      passed++;
      const found = foundBy(scanner, withLineFeed(line));
      if (found.id !== texts['id'] || found.params !== texts['params']) throw new Error(`${line}: wrong parts`);
    }),
    settings(6_000),
  );
  t.comment(`${passed} passed`);
  t.ok(passed > 20);
});
