// The ledger: rates in sliding windows and request ids, checked together and committed together.
import t from 'tap';
import fc from 'fast-check';
import { DEFAULTS } from '../../lib/defaults.js';
import { Message } from '../../lib/message.js';
import type { Limits, Policy, RateLimit } from '../../lib/message.js';
import { classifier } from '../../lib/stages/classifier.js';
import { policyGate } from '../../lib/stages/policy-gate.js';
import { rateLimiter } from '../../lib/stages/rate-limiter.js';
import { callOf, DENIED, limitsOf, messageOf, policyOf, rateOf, settings } from '../sessions.js';

/** A ledger with a clock of its own; `ask` sends one line and tells the code of its verdict. */
const ledger = (limits: Partial<Limits>, parts: Partial<Policy> = {}) => {
  const policy = policyOf({ ...parts, limits: limitsOf(limits) });
  let time = 0;
  const form = classifier(() => policy);
  const gate = policyGate();
  const stage = rateLimiter(() => time);
  let id = 0;
  return (at: number, tool = 't', line = callOf(tool, {}, ++id)): Message => {
    time = at;
    return stage.step(gate.step(form.step([messageOf(line)])))[0] as Message;
  };
};
const rates = (...given: RateLimit[]): Partial<Limits> => ({ rates: given });
const passed = (message: Message): boolean => message.verdict?.decision === 'forward';

type Step = readonly [time: number, passes: boolean, retryAfterMs?: number];

const WINDOWS: ReadonlyArray<readonly [title: string, rate: Partial<RateLimit>, steps: readonly Step[]]> = [
  ['two in a second', {}, [[0, true], [0, true], [0, false, 1000], [999, false, 1], [1000, true], [1000, true], [1000, false, 1000]]],
  ['half-open: at the very end of the window a place is free', { limit: 1 }, [[5, true], [1004.9, false, 1], [1005, true], [2004, false, 1], [2005, true]]],
  ['it slides', {}, [[0, true], [600, true], [900, false, 100], [1000, true], [1500, false, 100], [1600, true], [1999, false, 1], [2000, true]]],
  ['a refused call is not counted', { limit: 1 }, [[0, true], [500, false, 500], [900, false, 100], [1000, true]]],
  ['a clock that steps back neither locks out nor refills', {}, [[1000, true], [1500, true], [200, false, 500], [1999, false, 1], [2000, true], [0, false, 500], [2499, false, 1], [2500, true]]],
  ['a jump frees the window, once', {}, [[0, true], [0, true], [1e9, true], [1e9, true], [1e9, false, 1000]]],
  ['a limit of 0 forwards nothing', { limit: 0 }, [[0, false], [1e9, false]]],
  ['a wait is rounded up', { limit: 1, windowMs: 10 }, [[0.25, true], [9, false, 2], [10.24, false, 1], [10.25, true]]],
];

t.test('windows', async (t) => {
  for (const [title, rate, steps] of WINDOWS) {
    const ask = ledger(rates(rateOf(rate)));
    for (const [time, passes, retryAfterMs] of steps) {
      const { verdict } = ask(time);
      t.same([verdict?.code, verdict?.retryAfterMs], passes ? ['allowed', undefined] : ['rate_limited', retryAfterMs], `${title}: at ${time}`);
    }
  }
});

t.test('what a refusal tells', async (t) => {
  const ask = ledger(rates(rateOf({ id: 'rate:1', limit: 1 })));
  ask(0);
  t.match(ask(400).verdict, { decision: 'drop', code: 'rate_limited', severity: 'low', rule: 'rate:1', retryAfterMs: 600, hint: 'it may pass in 600 ms' });
  const never = ledger(rates(rateOf({ limit: 0 })))(0).verdict;
  t.notOk(never !== null && 'retryAfterMs' in never, 'never has no time');
});

t.test('any window against a plain count of the last calls', async () => {
  fc.assert(
    fc.property(fc.integer({ min: 1, max: 300 }), fc.array(fc.nat(40), { maxLength: 700 }), (limit, pauses) => {
      const ask = ledger(rates(rateOf({ limit, windowMs: 1000 })));
      const spent: number[] = [];
      let time = 0;
      for (const pause of pauses) {
        time += pause < 30 ? 0 : pause;
        const wanted = spent.filter((at) => at > time - 1000).length < limit;
        if (passed(ask(time)) !== wanted) return false;
        if (wanted) spent.push(time);
      }
      return true;
    }),
    settings(25),
  );
});

t.test('a window larger than its first array', async (t) => {
  for (const limit of [63, 64, 65, 255, 256, 257, 300]) {
    const ask = ledger(rates(rateOf({ limit })));
    let count = 0;
    for (let i = 0; i < limit + 5; i++) if (passed(ask(i / 1000))) count++;
    t.equal(count, limit, `${limit} calls pass`);
    t.equal(passed(ask(999.99)), false);
    t.equal(passed(ask(1000)), true, 'then the oldest place is free');
    t.equal(passed(ask(1000)), false, 'and only that one');
  }
});

t.test('several rates: all must agree, and none is spent where one refuses', async (t) => {
  const search = (name: string): boolean => name.startsWith('search');
  const ask = ledger(rates(rateOf({ id: 'all', limit: 3 }), rateOf({ id: 'search', limit: 1, tools: search })));
  t.equal(passed(ask(0, 'search_web')), true);
  for (let i = 0; i < 5; i++) t.equal(ask(0, 'search_all').verdict?.rule, 'search', 'one counter for all that the rate covers');
  t.equal(passed(ask(0, 'read')), true, 'the refused calls did not spend the other rate');
  t.equal(passed(ask(0, 'read')), true);
  t.equal(ask(0, 'read').verdict?.rule, 'all');
  t.equal(ask(0, 'search_web').verdict?.rule, 'all', 'the first that refuses is named');
  const reversed = ledger(rates(rateOf({ id: 'search', limit: 1, tools: search }), rateOf({ id: 'all', limit: 1 })));
  t.equal(passed(reversed(0, 'read')), true);
  t.equal(reversed(0, 'search_web').verdict?.rule, 'all');
  t.equal(passed(reversed(1000, 'search_web')), true, 'its own rate was not spent by the refusal');
});

t.test('what is counted', async (t) => {
  const ping = (id: number): string => `{"jsonrpc":"2.0","id":${id},"method":"ping"}`;
  const list = '{"jsonrpc":"2.0","id":1,"method":"tools/list"}';
  const event = '{"jsonrpc":"2.0","method":"vendor/event"}';
  const answer = '{"jsonrpc":"2.0","id":1,"result":{}}';

  const calls = ledger(rates(rateOf({ limit: 1 })));
  for (const line of [list, event, answer, ping(1), list, '{"jsonrpc":"2.0","id":1,"method":"prompts/get","params":{"name":"t"}}']) t.equal(passed(calls(0, '', line)), true, 'only calls are counted');
  t.equal(passed(calls(0)), true);
  t.equal(passed(calls(0)), false);
  t.equal(passed(calls(0, '', list)), true);
  t.equal(passed(calls(0, '', callOf('t', {}).replace('"id":1,', ''))), false, 'a call without an id is refused for its form');

  const messages = ledger(rates(rateOf({ limit: 2, counts: 'messages' })));
  t.equal(passed(messages(0, '', event)), true);
  t.equal(passed(messages(0, '', answer)), true, 'a response is counted');
  t.equal(messages(0, '', list).verdict?.code, 'rate_limited');
  t.equal(passed(messages(0, '', answer)), true, 'but never refused');
  for (const method of ['initialize', 'ping', 'server/discover', 'logging/setLevel']) t.equal(passed(messages(0, '', `{"jsonrpc":"2.0","id":1,"method":"${method}"}`)), true, `nor is ${method}`);
  for (const method of ['notifications/initialized', 'notifications/cancelled', 'notifications/progress']) t.equal(passed(messages(0, '', `{"jsonrpc":"2.0","method":"${method}"}`)), true, `nor is ${method}`);
  t.equal(messages(999, '', list).verdict?.code, 'rate_limited');
  t.equal(passed(messages(1000, '', list)), true);

  const refusing = ledger(rates(rateOf({ limit: 1 })), { tool: (name) => (name === 'denied' ? DENIED : policyOf().tool(name)) });
  for (let i = 0; i < 3; i++) t.equal(refusing(0, 'denied').verdict, DENIED);
  t.equal(passed(refusing(0)), true, 'refused calls spend nothing');
});

t.test('observe mode counts as if it refused, and passes', async (t) => {
  const ask = ledger(rates(rateOf({ limit: 1 }), rateOf({ id: 'none', limit: 0 })), { mode: 'observe' });
  for (let i = 0; i < 3; i++) t.match(ask(0).verdict, { decision: 'forward', code: 'observed', would: 'drop' });
});

t.test('observe mode refuses no repeated id either', async (t) => {
  const ask = ledger({ ids: 'unique' }, { mode: 'observe' });
  t.equal(ask(0, 't', callOf('t', {}, 1)).verdict?.code, 'allowed');
  t.match(ask(0, 't', callOf('t', {}, 1)).verdict, { decision: 'forward', code: 'observed', would: 'deny' });
});

t.test('an array has one time', async (t) => {
  const policy = policyOf({ limits: limitsOf(rates(rateOf({ limit: 2 }))) });
  let asked = 0;
  const stage = rateLimiter(() => asked++ * 600);
  const batch = [1, 2, 3].map((id) => messageOf(callOf('t', {}, id)));
  stage.step(policyGate().step(classifier(() => policy).step(batch)));
  t.same([asked, batch.map(passed)], [1, [true, true, false]]);
});

// Request ids

t.test('unique ids: by type and decoded value', async (t) => {
  const ask = ledger({ ids: 'unique' });
  const withId = (id: string, line = `{"jsonrpc":"2.0","id":${id},"method":"ping"}`): Message => ask(0, '', line);
  for (const [id, fresh] of [['1', true], ['"1"', true], ['1', false], ['"\\u0031"', false], ['"a"', true], ['"\\u0061"', false], ['9007199254740992', true], ['9007199254740993', true], ['0', true], ['0', false], ['""', true], ['""', false]] as const) {
    const message = withId(id);
    t.equal(passed(message), fresh, id);
    if (!fresh) t.match(message, { verdict: { code: 'id_in_use', decision: 'deny' }, idUsable: false });
  }
  t.equal(passed(withId('1', '{"jsonrpc":"2.0","id":1,"result":{}}')), true, 'a response repeats the id it answers');
  t.equal(passed(withId('1', '{"jsonrpc":"2.0","method":"vendor/event"}')), true);
  const any = ledger({ ids: 'any' });
  for (let i = 0; i < 2; i++) t.equal(passed(any(0, '', '{"jsonrpc":"2.0","id":1,"method":"ping"}')), true);
});

t.test('unique ids: what is refused is not remembered, and old ones are forgotten', async (t) => {
  const ask = ledger({ ids: 'unique', rates: [rateOf({ limit: 1, tools: (name) => name === 'rare' })] }, { tool: (name) => (name === 'denied' ? DENIED : policyOf().tool(name)) });
  t.equal(passed(ask(0, 'denied', callOf('denied', {}, 'x'))), false);
  t.equal(passed(ask(0, 't', callOf('t', {}, 'x'))), true, 'the denied one left its id free');
  ask(0, 'rare', callOf('rare', {}, 'y'));
  t.equal(ask(0, 'rare', callOf('rare', {}, 'z')).verdict?.code, 'rate_limited');
  t.equal(passed(ask(0, 't', callOf('t', {}, 'z'))), true, 'and so did the limited one');
  for (let i = 0; i < DEFAULTS.rememberedIds - 3; i++) t.equal(passed(ask(0, 't', callOf('t', {}, i))) || t.fail(`id ${i}`), true);
  t.equal(passed(ask(0, 't', callOf('t', {}, 'x'))), false, 'the oldest of the last 4 096');
  t.equal(passed(ask(0, 't', callOf('t', {}, 'one more'))), true);
  t.equal(passed(ask(0, 't', callOf('t', {}, 'x'))), true, 'now forgotten');
});

t.test('a message that comes without a policy or with a refusal is left alone', async (t) => {
  const stage = rateLimiter(() => 0);
  const stray = new Message('c2s', Buffer.from('{}\n'), 0, 2, 2);
  const refused = messageOf('{}');
  refused.verdict = DENIED;
  refused.policy = policyOf({ limits: limitsOf(rates(rateOf({ limit: 0 }))) });
  t.same(stage.step([stray, refused]).map((message) => message.verdict), [null, DENIED]);
});
