// From verdicts to bytes: the Redactor, the Serializer and the ErrorWriter, step by step. The one place that knows human wording.
import t from 'tap';
import { CODES, verdict } from '../../lib/errors.js';
import type { Message, Policy, Redaction, Verdict } from '../../lib/message.js';
import { classifier } from '../../lib/stages/classifier.js';
import { errorWriter, explain } from '../../lib/stages/error-writer.js';
import { lineSplitter } from '../../lib/stages/line-splitter.js';
import { policyGate } from '../../lib/stages/policy-gate.js';
import { redactor } from '../../lib/stages/redactor.js';
import { serializer } from '../../lib/stages/serializer.js';
import { ALLOWED, DENIED, limitsOf, messageOf, policyOf, redactionOf, shown } from '../sessions.js';

const judged = (line: string, policy: Policy): Message => policyGate().step(classifier(() => policy).step([messageOf(line)]))[0] as Message;
const redacted = (line: string, redaction: Redaction | null, parts: Partial<Policy> = {}): Message => redactor().step([judged(line, policyOf({ redaction, ...parts }))])[0] as Message;
const leaving = (message: Message): string => Buffer.from(message.output ?? message.bytes.subarray(message.start, message.end)).toString();

const ANY = redactionOf('token', 'secret', 'name', 'uri', 'progressToken', 'method', 'id');
const FLAT: Redaction = { ...ANY, depth: 1 };
const call = (args: string): string => `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","arguments":${args}}}`;

type Row = readonly [line: string, redaction: Redaction, forwarded: string, edits: ReadonlyArray<readonly [kind: string, path: string]>];

const ROWS: readonly Row[] = [
  // only the value's bytes change
  [call('{ "a":1 , "token" : "x" }'), ANY, call('{ "a":1 , "token" : "«redacted»" }'), [['mask', 'params.arguments.token']]],
  [call('{"token":{"a":[1]},"secret":1e5}'), ANY, call('{"token":"«redacted»","secret":"«redacted»"}'), [['mask', 'params.arguments.token'], ['mask', 'params.arguments.secret']]],
  [call('{"a":[{"token":1},{"b":{"secret":2}}]}'), ANY, call('{"a":[{"token":"«redacted»"},{"b":{"secret":"«redacted»"}}]}'), [['mask', 'params.arguments.a.0.token'], ['mask', 'params.arguments.a.1.b.secret']]],
  [call('{"a":"{\\"token\\":\\"x\\"}"}'), ANY, call('{"a":"{\\"token\\":\\"«redacted»\\"}"}'), [['mask', 'params.arguments.a.token']]],
  // protocol members are themselves in params, and ordinary names elsewhere
  [call('{"name":"x","uri":"y"}'), ANY, call('{"name":"«redacted»","uri":"«redacted»"}'), [['mask', 'params.arguments.name'], ['mask', 'params.arguments.uri']]],
  ['{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x","token":1,"_meta":{"progressToken":2,"token":3}}}', ANY,
    '{"jsonrpc":"2.0","id":1,"method":"resources/read","params":{"uri":"file:///x","token":"«redacted»","_meta":{"progressToken":2,"token":"«redacted»"}}}', [['mask', 'params.token'], ['mask', 'params._meta.token']]],
  ['{"jsonrpc":"2.0","id":1,"result":{"token":1}}', ANY, '{"jsonrpc":"2.0","id":1,"result":{"token":1}}', []],
  // depth 1: members of arguments alone
  [call('{"token":1,"a":{"token":2},"b":"{\\"token\\":3}"}'), FLAT, call('{"token":"«redacted»","a":{"token":2},"b":"{\\"token\\":3}"}'), [['mask', 'params.arguments.token']]],
  ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","token":1}}', FLAT, '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","token":1}}', []],
  // nothing to mask
  ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}', ANY, '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t"}}', []],
  ['{"jsonrpc":"2.0","id":1,"method":"ping"}', ANY, '{"jsonrpc":"2.0","id":1,"method":"ping"}', []],
  [call('{}'), ANY, call('{}'), []],
  // raw line breaks are escaped wherever they stand, but not inside a mask
  [call('{"a":"x\u2028y","\u0085":"\u2029"}'), ANY, call('{"a":"x\\u2028y","\\u0085":"\\u2029"}'), [['line_break', 'params.arguments.a'], ['line_break', 'params.arguments."\u0085"'], ['line_break', 'params.arguments."\u0085"']]],
  [call('{"token":"x\u2028y","a":"\u2028"}'), ANY, call('{"token":"«redacted»","a":"\\u2028"}'), [['mask', 'params.arguments.token'], ['line_break', 'params.arguments.a']]],
  ['{"jsonrpc":"2.0","id":"\u2028","method":"ping"}', ANY, '{"jsonrpc":"2.0","id":"\\u2028","method":"ping"}', [['line_break', 'id']]],
  ['{"jsonrpc":"2.0","id":1,"result":{"text":"\u0085"}}', ANY, '{"jsonrpc":"2.0","id":1,"result":{"text":"\\u0085"}}', [['line_break', 'result.text']]],
  [call('{"a":"{\\"token\\":\\"x\\",\\"b\\":\\"\u2028\\"}"}'), ANY, call('{"a":"{\\"token\\":\\"«redacted»\\",\\"b\\":\\"\\u2028\\"}"}'), [['mask', 'params.arguments.a.token'], ['line_break', 'params.arguments.a']]],
];

// Redactor

t.test('what is masked', async (t) => {
  for (const [line, redaction, forwarded, edits] of ROWS) {
    const message = redacted(line, redaction);
    t.equal(leaving(message), forwarded, shown(line));
    t.same(message.edits?.map(({ kind, path }) => [kind, path]) ?? [], edits, shown(line));
    t.equal(message.output === null, edits.length === 0, 'no copy where nothing changes');
    t.equal(message.verdict, ALLOWED);
  }
  const odd = redacted(call('{"token":1,"a":"{\\"token\\":2}"}'), { ...ANY, mask: '"quote\\«' });
  const value = JSON.parse(leaving(odd)) as { params: { arguments: { token: string; a: string } } };
  t.equal(value.params.arguments.token, '"quote\\«', 'any mask is spelled as JSON');
  t.same(JSON.parse(value.params.arguments.a), { token: '"quote\\«' }, 'at every level of quoting');
});

t.test('without a redaction only line breaks change', async (t) => {
  t.equal(leaving(redacted(call('{"token":"\u2028"}'), null)), call('{"token":"\\u2028"}'));
  t.equal(redacted(call('{"token":1}'), null).output, null);
});

t.test('what is refused stays as it is', async (t) => {
  const message = redacted(call('{"token":1}'), ANY, { tool: () => DENIED });
  t.same([message.verdict, message.output, message.edits], [DENIED, null, null]);
  const stray = messageOf(call('{"token":1}'));
  redactor().step([stray]);
  t.equal(stray.output, null, 'without a policy nothing is known');
});

t.test('redactions change with the policy of the message', async (t) => {
  const stage = redactor();
  for (const name of ['token', 'secret', 'token']) {
    const message = judged(call('{"token":1,"secret":2}'), policyOf({ redaction: redactionOf(name) }));
    stage.step([message]);
    t.same(message.edits?.map(({ path }) => path), [`params.arguments.${name}`]);
  }
});

t.test('a splice that would make it another message does not pass', async (t) => {
  const policy = policyOf({ redaction: ANY });
  for (const [what, spoil] of [
    ['another tool', (message: Message) => { message.tool = 'u'; }],
    ['another method', (message: Message) => { message.method = 'x'; }],
    ['another kind', (message: Message) => { message.kind = 'notification'; }],
    ['another id', (message: Message) => { message.idStart = message.paramsStart + 8; message.idEnd = message.idStart + 3; }],
    ['no id', (message: Message) => { message.idStart = -1; }],
    ['too deep', (message: Message) => { message.policy = policyOf({ redaction: ANY, limits: limitsOf({ maxDepth: 2 }) }); }],
  ] as const) {
    const message = judged(call('{"token":1}'), policy);
    spoil(message);
    redactor().step([message]);
    t.match(message.verdict, { code: 'splice_failed', decision: 'error', severity: 'critical' }, what);
    t.same([message.output, message.edits], [null, null]);
  }
});

t.test('quoted JSON with half a surrogate pair makes no stage throw', async (t) => {
  // An honest client that cuts text in the middle of an emoji sends this.
  for (const inner of ['["\\ud83d"]', '{"a":"\\ud83d","token":"x"}', '{"a":"[\\ud800abcde\\n]"}', '["\\ud83dabcde\\n"]']) {
    const line = call(JSON.stringify({ text: inner, token: 1 }));
    try {
      const message = redacted(line, ANY);
      t.equal(message.verdict, ALLOWED, shown(line));
      const args = (JSON.parse(leaving(message)) as { params: { arguments: { token: string; text: string } } }).params.arguments;
      t.equal(args.token, '«redacted»');
      t.equal(args.text, inner.replace('"x"', '"«redacted»"'));
    } catch (error) {
      t.fail(`${shown(line)} throws: ${String(error)}`);
    }
  }
});

t.test('what the scan lets through deep down is masked too', async (t) => {
  const deep = `${'['.repeat(600)}${']'.repeat(600)}`;
  const message = redacted(call(`{"a":${deep},"token":"clear"}`), ANY, { limits: limitsOf({ maxDepth: 1_000 }) });
  t.ok(message.verdict?.decision !== 'forward' || !leaving(message).includes('clear'), 'under max_depth 1000 a value passes in the clear');
});

// Serializer

const forwarded = (input: string, refuse: (index: number) => boolean = () => false, edit: (index: number) => boolean = () => false): { out: Uint8Array[]; refused: Message[] } => {
  const messages = lineSplitter('c2s', () => 1 << 30).step([Buffer.from(input)]);
  for (const [i, message] of messages.entries()) {
    message.verdict = refuse(i) ? DENIED : ALLOWED;
    if (edit(i)) message.output = Buffer.from(`edited ${i}`);
  }
  const refused: Message[] = [];
  const out = serializer({ refused: (some) => void refused.push(...some) }).step(messages);
  return { out, refused };
};

t.test('forwarded bytes', async (t) => {
  for (const [input, wanted] of [
    ['a\nb\nc\n', 'a\nb\nc\n'], ['a\r\nb\r\n', 'a\nb\n'], ['  a \t\n\n \nb\n', 'a\nb\n'], ['', ''], ['a \nb\nc\n', 'a\nb\nc\n'],
  ] as const) {
    t.equal(Buffer.concat(forwarded(input).out).toString(), wanted, shown(input));
  }
  const text = (result: { out: Uint8Array[] }): string => Buffer.concat(result.out).toString();
  t.equal(forwarded('a\nb\nc\n').out.length, 1, 'lines side by side leave as one piece');
  t.equal(text(forwarded('a\nb\nc\nd\n', (i) => i === 1)), 'a\nc\nd\n');
  t.equal(text(forwarded('a\nb\nc\n', () => false, (i) => i === 1)), 'a\nedited 1\nc\n');
  t.equal(text(forwarded('a\nb\nc\n', (i) => i === 1, (i) => i === 1)), 'a\nc\n', 'an output of a refused message does not leave');
  t.same(forwarded('a\nb\nc\n', (i) => i !== 1).refused.map(({ seq }) => seq), [1, 3], 'the refused ones, in order');
  const big = `${'x'.repeat(200_000)}\n`;
  t.equal(text(forwarded(`${big} ${big}${big}`)), big.repeat(3));
  t.ok(forwarded(`${big} ${big} ${big}`).out.length > 1, 'large pieces are not joined');
  for (const decision of ['deny', 'drop', 'hold', 'error'] as const) {
    const message = messageOf('a');
    message.verdict = { ...ALLOWED, decision };
    t.same(serializer({ refused: () => undefined }).step([message]), [], decision);
  }
  const told: Array<readonly [bytes: number, seq: number]> = [];
  const counting = serializer({ refused: () => undefined, forwarded: (bytes, seq) => void told.push([bytes, seq]) });
  const three = lineSplitter('c2s', () => 100).step([Buffer.from('a\r\nbb\n c\n')]);
  for (const message of three) message.verdict = message.seq === 3 ? DENIED : ALLOWED;
  const left = Buffer.concat(counting.step(three));
  t.same([left.toString(), told], ['a\nbb\n', [[5, 2]]], 'how much went forward, and up to which message');
  for (const message of three) message.verdict = DENIED;
  counting.step(three);
  t.equal(told.length, 1, 'not told of nothing');
  const unsettled = messageOf('a');
  t.same(serializer({ refused: () => undefined }).step([unsettled]), [], 'no verdict, no forward');
});

// ErrorWriter

const refusedWith = (given: Verdict, parts: Partial<Message> & { idText?: string } = {}): Message => {
  const { idText, ...rest } = parts;
  const message = messageOf(idText ?? '');
  if (idText !== undefined) {
    message.idStart = 0;
    message.idEnd = Buffer.byteLength(idText);
  }
  return Object.assign(message, { kind: 'request', event: '00000000.c.000001', verdict: given }, rest);
};
const replyTo = (message: Message): string => errorWriter().step([message]).map((bytes) => Buffer.from(bytes).toString()).join('');

const WORDING: ReadonlyArray<readonly [message: Message, sentences: string]> = [
  [refusedWith(DENIED, { tool: 'shell.exec', method: 'tools/call' }), 'Tool "shell.exec" was refused: the test denies it. Nothing.'],
  [refusedWith(verdict('tool_denied', { rule: 'deny:shell.*', reason: 'rule `deny:shell.*` denies this tool', hint: 'allowed tools: read_*' }), { tool: 'shell.exec', method: 'tools/call' }),
    'Tool "shell.exec" was refused: rule `deny:shell.*` denies this tool. Allowed tools: read_*.'],
  [refusedWith(verdict('method_denied'), { method: 'prompts/get' }), 'Method "prompts/get" was refused: a rule denies the method.'],
  [refusedWith(verdict('not_json', { hint: 'Send one JSON-RPC 2.0 message a line, in strict JSON.' }), { kind: 'invalid' }), 'The message was refused: the line is not JSON. Send one JSON-RPC 2.0 message a line, in strict JSON.'],
  [refusedWith(verdict('name_missing', { hint: 'give `params.name` as a string' }), { method: 'tools/call' }), 'Method "tools/call" was refused: a tools/call names no tool. Give `params.name` as a string.'],
  [refusedWith(verdict('rate_limited', { reason: 'more than 2 in 1000 ms (rate:1)', hint: 'it may pass in 600 ms', retryAfterMs: 600 }), { tool: 't', method: 'tools/call' }),
    'Tool "t" was refused: more than 2 in 1000 ms (rate:1). It may pass in 600 ms.'],
  [refusedWith(verdict('invalid_name'), { tool: 'a"b\n', method: 'tools/call' }), 'Tool "a\\"b\\n" was refused: the tool name is outside the safe alphabet.'],
  [refusedWith(verdict('invalid_name'), { tool: '', method: 'tools/call' }), 'Tool "" was refused: the tool name is outside the safe alphabet.'],
];

t.test('wording: full sentences, each ending once', async (t) => {
  for (const [message, sentences] of WORDING) t.equal(explain(message, message.verdict as Verdict), sentences);
  for (const code of Object.keys(CODES) as Array<keyof typeof CODES>) {
    const text = explain(refusedWith(verdict(code), { method: 'x' }), verdict(code));
    t.match(text, /^Method "x" was refused: .*[^.]\.$/, code);
  }
  const long = explain(refusedWith(DENIED, { tool: 'x'.repeat(100_000) }), DENIED);
  t.ok(long.length < 500, 'a long name is cut');
  t.match(long, /100000 characters, sha256 [0-9a-f]{16}/);
});

t.test('replies', async (t) => {
  t.same(JSON.parse(replyTo(refusedWith(DENIED, { tool: 't', idText: '1' }))), {
    jsonrpc: '2.0', id: 1,
    error: { code: 4030, message: 'Tool "t" was refused: the test denies it. Nothing.', data: { code: 'tool_denied', rule: 'deny:test', event: '00000000.c.000001', retryable: false } },
  });
  t.same((JSON.parse(replyTo(refusedWith(verdict('rate_limited', { retryAfterMs: 600 }), { idText: '"a"' }))) as { error: { data: unknown } }).error.data,
    { code: 'rate_limited', rule: null, event: '00000000.c.000001', retryable: true, retry_after_ms: 600 });
  t.match(replyTo(refusedWith(verdict('rate_limited', { hint: 'nothing passes under a limit of 0' }))), /"retryable":false/, 'what can never pass is not worth another try');
  for (const id of ['1', '-7', '12345678901234567890', '"a"', '"\\u0061\\/"', '"é"', '""', '0']) {
    t.ok(replyTo(refusedWith(DENIED, { idText: id })).startsWith(`{"jsonrpc":"2.0","id":${id},"error":{`), `id ${id} as it came`);
  }
  t.match(replyTo(refusedWith(DENIED)), /^\{"jsonrpc":"2.0","id":null,"error":/);
  t.match(replyTo(refusedWith(verdict('id_in_use'), { idText: '1', idUsable: false })), /"id":null/, 'already in flight');
  t.match(replyTo(refusedWith(verdict('not_json'), { kind: 'invalid' })), /"code":-32700/);
  t.match(replyTo(refusedWith(verdict('bad_id'))), /"code":-32600/);
  t.equal(replyTo(refusedWith(DENIED, { kind: 'notification' })), '', 'a notification gets none');
  t.equal(replyTo(refusedWith(DENIED, { kind: 'response', idText: '1' })), '', 'a response gets none');
  t.match(replyTo(refusedWith(DENIED, { tool: 'a\nb\u0000' })), /^[^\n\u0000]*\n$/, 'one line');

  const writer = errorWriter();
  t.same(writer.step([]), []);
  const both = writer.step([refusedWith(DENIED, { idText: '1' }), refusedWith(DENIED, { kind: 'notification' }), refusedWith(DENIED, { idText: '2' })]);
  t.equal(both.length, 1, 'one write an array');
  t.same(Buffer.concat(both).toString().trimEnd().split('\n').map((line) => (JSON.parse(line) as { id: number }).id), [1, 2]);
  t.equal(writer.replies, 2);
});

t.test('codes of replies stay out of the range that JSON-RPC reserves', async (t) => {
  for (const [code, entry] of Object.entries(CODES)) {
    if (entry.decision === 'forward') t.equal(entry.rpc, 0, code);
    else if (entry.rpc < 0) t.ok(entry.rpc === -32700 || entry.rpc === -32600, code);
    else t.ok(entry.rpc >= 4000 && entry.rpc < 6000, code);
  }
});
