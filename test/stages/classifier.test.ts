// Form and the policy's first questions: the Classifier and the PolicyGate, step by step.
import t from 'tap';
import { isUtf8 } from 'node:buffer';
import { CODES, verdict } from '../../lib/errors.js';
import type { CodeName } from '../../lib/errors.js';
import type { Message, Policy } from '../../lib/message.js';
import { classifier } from '../../lib/stages/classifier.js';
import { lineSplitter } from '../../lib/stages/line-splitter.js';
import { policyGate } from '../../lib/stages/policy-gate.js';
import { ALLOWED, callOf, DENIED, limitsOf, messageOf, policyOf, redactionOf, shown } from '../sessions.js';

const classified = (line: string | Uint8Array, policy: Policy = policyOf()): Message => {
  const message = messageOf(line);
  classifier(() => policy).step([message]);
  return message;
};
const idOf = (message: Message): string | null =>
  message.idStart < 0 ? null : Buffer.from(message.bytes).toString('utf8', message.idStart, message.idEnd);

// Classifier

t.test('what passes gets its parts and no verdict', async (t) => {
  const message = classified(callOf('t', { a: [1] }, 7));
  t.match(message, { verdict: null, kind: 'request', method: 'tools/call', tool: 't', maxDepth: 4, hasLineBreaks: false, flags: null, oversize: false });
  const text = Buffer.from(message.bytes).toString();
  t.equal(text.slice(message.paramsStart, message.paramsEnd), '{"name":"t","arguments":{"a":[1]}}');
  t.equal(text.slice(message.argumentsStart, message.argumentsEnd), '{"a":[1]}');
  t.equal(idOf(message), '7');
  t.match(classified('{"jsonrpc":"2.0","id":1,"result":{}}'), { kind: 'response', method: null, tool: null, verdict: null });
  t.match(classified(callOf('t', { a: 'x\u2028' })), { hasLineBreaks: true });
});

const REFUSED: ReadonlyArray<readonly [line: string | Buffer, code: CodeName, kind: string, id: string | null]> = [
  // broken bytes are no kind of message, so that whoever sent them hears of it
  ['{"jsonrpc":"2.0","method":"notifications/x","params":{', 'unterminated', 'invalid', null],
  ['{"jsonrpc":"2.0","id":5,"method":"ping"}}', 'trailing_bytes', 'invalid', '5'],
  ['{"jsonrpc":"2.0","id":5,"method":"p\ring"}', 'bare_cr', 'invalid', '5'],
  ['hello', 'not_json', 'invalid', null],
  ['\ufeff{"jsonrpc":"2.0","id":5,"method":"ping"}', 'byte_order_mark', 'invalid', '5'],
  [Buffer.from('{"jsonrpc":"2.0","method":"\xff","id":5}', 'latin1'), 'invalid_utf8', 'invalid', '5'],
  // but for what looks like an answer: a reply would settle a request of the other side
  ['{"jsonrpc":"2.0","id":5,"result":{}}}', 'trailing_bytes', 'response', '5'],
  // bad shapes keep what they are
  ['{"jsonrpc":"2.0","id":5,"method":"ping","method":"ping"}', 'duplicate_name', 'request', '5'],
  ['{"jsonrpc":"2.0","method":"vendor/x","a":1,"a":2}', 'duplicate_name', 'notification', null],
  ['{"jsonrpc":"2.0","id":"x","result":[]}', 'bad_result', 'response', '"x"'],
  ['{"jsonrpc":"2.0","id":5,"id":6,"method":"ping"}', 'duplicate_name', 'request', null],
  ['{"jsonrpc":"2.0","id":null,"method":"ping"}', 'bad_id', 'request', null],
  ['{"jsonrpc":"2.0","method":"ping"}', 'id_missing', 'notification', null],
  ['[{"jsonrpc":"2.0","id":5,"method":"ping"}]', 'batch', 'invalid', null],
  ['{"method":"ping","Method":"x","jsonrpc":"2.0","id":5}', 'name_variant', 'request', '5'],
];

t.test('what is refused keeps its id for the reply, wherever it stands', async (t) => {
  for (const [line, code, kind, id] of REFUSED) {
    const message = classified(line);
    t.match(message.verdict, { code, decision: 'drop', rule: null, severity: CODES[code].severity }, shown(String(line)));
    t.same([message.kind, idOf(message)], [kind, id], shown(String(line)));
    t.ok((message.verdict?.hint.length ?? 0) > 10, 'a hint says what would pass');
  }
  t.equal(classified('x').verdict, classified('y').verdict, 'verdicts are shared');
});

t.test('limits of the policy', async (t) => {
  const policy = policyOf({ limits: limitsOf({ maxBytes: 60, maxDepth: 3, flagDepth: 2 }) });
  const padded = (length: number): string => callOf('t', {}).replace('{}', `{"a":"${'x'.repeat(length)}"}`);
  t.match(classified(padded(100), policy), { verdict: { code: 'oversize', decision: 'drop' }, kind: 'request', tool: 't' });
  t.equal(classified('{"jsonrpc":"2.0","id":1,"method":"ping","a":[[[1]]]}', policy).verdict?.code, 'too_deep');
  t.same(classified('{"jsonrpc":"2.0","id":1,"method":"ping","a":[[1]]}', policy).flags, ['deep']);
  t.equal(classified('{"jsonrpc":"2.0","id":1,"method":"ping","a":[1]}', policy).flags, null);

  let limits = limitsOf({ maxDepth: 2 });
  let asked = 0;
  const stage = classifier(() => {
    asked++;
    return policyOf({ limits });
  });
  const line = '{"jsonrpc":"2.0","id":1,"method":"ping","a":[[1]]}';
  const [first, second] = stage.step([messageOf(line), messageOf(line)]);
  t.same([first?.verdict?.code, second?.verdict?.code, asked], ['too_deep', 'too_deep', 1], 'the policy is asked once an array');
  t.equal(first?.policy, second?.policy);
  limits = limitsOf({ maxDepth: 3 });
  t.equal(stage.step([messageOf(line)])[0]?.verdict, null, 'a new policy holds from the next array on');

  const oversize = messageOf('1');
  oversize.oversize = true;
  oversize.kind = 'request';
  oversize.idStart = 0;
  oversize.idEnd = 1;
  stage.step([oversize]);
  t.match(oversize, { verdict: { code: 'oversize' }, kind: 'request', idStart: 0, idEnd: 1 }, 'what the splitter skipped stays as it told');
});

t.test('one line with damaged UTF-8 among lines of one chunk', async (t) => {
  const good = Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping","é":"😀"}\n');
  const bad = Buffer.from('{"jsonrpc":"2.0","id":1,"method":"ping","\xc3":"x"}\n', 'latin1');
  for (let at = 0; at < 5; at++) {
    const chunk = Buffer.concat(Array.from({ length: 5 }, (_, i) => (i === at ? bad : good)));
    const messages = classifier(() => policyOf()).step(lineSplitter('c2s', () => 1_000).step([chunk, good]));
    t.same(messages.map((message) => message.verdict?.code ?? null), [...Array.from({ length: 5 }, (_, i) => (i === at ? 'invalid_utf8' : null)), null], `at ${at}`);
  }
  // Two lines, each damaged, whose bytes would be whole if they stood together.
  const halves = [Buffer.from('{"a":"\xc3\n', 'latin1'), Buffer.from('\xa9"}\n', 'latin1')];
  t.notOk(halves.some((half) => isUtf8(half)));
  const messages = classifier(() => policyOf()).step(lineSplitter('c2s', () => 1_000).step([Buffer.concat(halves)]));
  t.same(messages.map((message) => message.verdict?.code), ['invalid_utf8', 'invalid_utf8']);
});

t.test('whether a policy\'s names may occur', async (t) => {
  const policy = policyOf({ redaction: redactionOf('token') });
  t.equal(classified(callOf('t', { a: 1 }), policy).watched, false);
  t.equal(classified(callOf('t', { a: [{ token: 1 }] }), policy).watched, true);
  t.equal(classified(callOf('t', { a: 1 })).watched, true, 'no redaction, nothing known');
  let current = policy;
  const stage = classifier(() => current);
  t.equal(stage.step([messageOf(callOf('t', { secret: 1 }))])[0]?.watched, false);
  current = policyOf({ redaction: redactionOf('secret') });
  t.equal(stage.step([messageOf(callOf('t', { secret: 1 }))])[0]?.watched, true, 'a new policy, new names');
});

// PolicyGate

t.test('which question is asked', async (t) => {
  const asked: string[] = [];
  const policy = policyOf({
    tool: (name) => {
      asked.push(`tool ${name}`);
      return ALLOWED;
    },
    method: (name) => {
      asked.push(`method ${String(name)}`);
      return ALLOWED;
    },
  });
  for (const [line, question] of [
    [callOf('read', {}), 'tool read'],
    [callOf('', {}), 'tool '],
    ['{"jsonrpc":"2.0","id":1,"method":"tools\\/call","params":{"name":"\\u0072ead"}}', 'tool read'],
    ['{"jsonrpc":"2.0","id":1,"method":"ping"}', 'method ping'],
    ['{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"p"}}', 'method prompts/get'],
    ['{"jsonrpc":"2.0","method":"notifications/initialized"}', 'method notifications/initialized'],
    ['{"jsonrpc":"2.0","id":1,"result":{}}', 'method null'],
    ['{"jsonrpc":"2.0","id":1,"error":{"code":1,"message":"m"}}', 'method null'],
    ['{"jsonrpc":"2.0","id":1,"method":"tools/call"}', 'name_missing'],
    ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{}}', 'name_missing'],
    ['{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":null}}', 'name_missing'],
    ['hello', 'not_json'],
  ] as const) {
    asked.length = 0;
    const message = classified(line, policy);
    policyGate().step([message]);
    const silent = question.endsWith('_missing') || question === 'not_json';
    t.same(asked, silent ? [] : [question], line);
    t.equal(message.verdict?.code, silent ? question : 'allowed', line);
  }
});

t.test('observe mode withholds what the policy refuses, and not what is malformed', async (t) => {
  const answers = {
    tool_denied: DENIED,
    default_deny: verdict('default_deny', { rule: 'default', reason: 'no rule allows it' }),
    invalid_name: verdict('invalid_name'),
    allowed: ALLOWED,
  };
  const policy = policyOf({ mode: 'observe', tool: (name) => answers[name as keyof typeof answers], method: () => verdict('method_denied', { rule: 'deny:m' }) });
  const gate = policyGate();
  const judge = (line: string): Message => gate.step([classified(line, policy)])[0] as Message;
  t.match(judge(callOf('tool_denied', {})).verdict, { decision: 'forward', code: 'observed', rule: 'deny:test', would: 'deny', reason: /^observed only: the test denies it$/ });
  t.match(judge(callOf('default_deny', {})).verdict, { decision: 'forward', code: 'observed', rule: 'default', would: 'deny' });
  t.match(judge('{"jsonrpc":"2.0","id":1,"method":"ping"}').verdict, { decision: 'forward', code: 'observed', would: 'deny' });
  t.match(judge(callOf('invalid_name', {})).verdict, { decision: 'forward', code: 'observed', would: 'deny' });
  t.match(judge('{"jsonrpc":"2.0","id":1,"method":"tools/call"}').verdict, { decision: 'deny', code: 'name_missing' });
  t.equal(judge(callOf('allowed', {})).verdict, ALLOWED);
  t.equal(judge('x').verdict?.code, 'not_json');
  t.equal(judge(callOf('tool_denied', {})).verdict, judge(callOf('tool_denied', {})).verdict, 'shared, like all verdicts');
});

t.test('the gate leaves a refusal as it is', async (t) => {
  const refused = classified(callOf('t', {}));
  refused.verdict = DENIED;
  policyGate().step([refused]);
  t.equal(refused.verdict, DENIED);
  const stray = messageOf('{}');
  policyGate().step([stray]);
  t.equal(stray.verdict, null, 'a message without a policy stays unsettled, for the tap to refuse');
});
