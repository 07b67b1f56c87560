// The framing, relay and policy cases through the library, so that a plain test run guards them; and the judge itself:
// a judge that never complains proves nothing.
import { fileURLToPath } from 'node:url';
import { test } from 'tap';
import type { Test } from 'tap';
import { generate, readCases } from './cases.js';
import type { FramingCase, PolicyCase, RelayCase } from './cases.js';
import { library } from './doors.js';
import type { Door, Seen } from './doors.js';
import { framingCase, jsonTestSuiteCase } from './framing.js';
import { summary } from './outcome.js';
import type { Outcome } from './outcome.js';
import { policyCase } from './policy.js';
import { relayCase } from './relay.js';

const casesOf = <T>(name: string): T[] => readCases<T>(fileURLToPath(new URL(`../../../fixtures/corpus/${name}.public.jsonl.gz`, import.meta.url)));

const check = (t: Test, outcome: Outcome): void => {
  if (outcome.result === 'failed') t.fail(`${outcome.id}: ${outcome.why}`);
  else if (outcome.result === 'passed') t.pass(outcome.id);
};

test('framing cases', async (t) => {
  for (const one of casesOf<FramingCase>('framing')) check(t, await framingCase(one, library, true));
});

test('relay cases', async (t) => {
  for (const one of casesOf<RelayCase>('relay')) check(t, await relayCase(one, library));
});

test('policy cases that the language can express', async (t) => {
  for (const one of casesOf<PolicyCase>('policy')) check(t, await policyCase(one, library, library));
});

/** The library, with what it did falsified. */
const lying = (lie: (seen: Seen) => Partial<Seen>): Door => async (session) => {
  const seen = await library(session);
  return { ...seen, ...lie(seen) };
};

const base64 = (text: string): string => Buffer.from(text).toString('base64');
const passing: FramingCase = { name: 'passing', verdict: 'forward', confidence: 'firm', input_base64: base64('{"jsonrpc":"2.0","id":1,"method":"ping"}\n') };
const refused: FramingCase = { name: 'refused', verdict: 'refuse', confidence: 'firm', input_base64: base64('{"jsonrpc":"1.0","id":1,"method":"ping"}\n') };
const broken: FramingCase = { name: 'broken', verdict: 'refuse', confidence: 'firm', input_base64: base64('{"jsonrpc":\n') };

test('the judge complains about what is wrong', async (t) => {
  const reply = (error: object, id: unknown = 1): Partial<Seen> => ({ replies: [{ jsonrpc: '2.0', id, error }] });
  const shape = { code: -32600, message: 'refused', data: { code: 'bad_version' } };
  const lies: readonly [string, FramingCase, (seen: Seen) => Partial<Seen>][] = [
    ['a lost line', passing, () => ({ forwarded: Buffer.alloc(0) })],
    ['a changed line', passing, ({ forwarded }) => ({ forwarded: Buffer.from(forwarded.toString().replace('"id":1', '"id": 1')) })],
    ['a line twice', passing, ({ forwarded }) => ({ forwarded: Buffer.concat([forwarded, forwarded]) })],
    ['a missing record', passing, ({ records }) => ({ records: records.slice(1) })],
    ['a record that lies', refused, ({ records }) => ({ records: records.map((record) => ({ ...record, decision: 'forward' })) })],
    ['a fault', refused, ({ records }) => ({ records: records.map((record) => ({ ...record, decision: 'error' })) })],
    ['a refused line that arrives', refused, ({ forwarded }) => ({ forwarded: Buffer.concat([Buffer.from(refused.input_base64 ?? '', 'base64'), forwarded]) })],
    ['no reply to a request', refused, () => ({ replies: [] })],
    ['two replies', refused, ({ replies }) => ({ replies: [...replies, ...replies] })],
    ['a reply that is no error', refused, () => ({ replies: [{ jsonrpc: '2.0', id: 1, result: {} }] })],
    ['an unknown code', refused, () => reply({ ...shape, data: { code: 'nonsense' } })],
    ['no words', refused, () => reply({ ...shape, message: '' })],
    ['a number that does not fit the code', refused, () => reply({ ...shape, code: -32700 })],
    ['another id', refused, () => reply(shape, 2)],
    ['valid JSON called broken', refused, () => reply({ code: -32700, message: 'refused', data: { code: 'not_json' } })],
    ['broken JSON called a wrong shape', broken, () => reply(shape, null)],
    ['a crash', passing, () => ({ exit: 3 })],
    ['a reply where none may be', { ...refused, no_reply: true }, ({ replies }) => ({ replies })],
    ['bytes that had to be there', { ...passing, must_contain: 'pong' }, () => ({})],
    ['a slow answer', { ...passing, max_ms: 1 }, () => ({ ms: 2 })],
  ];
  for (const [name, one, lie] of lies) t.equal((await framingCase(one, lying(lie), true)).result, 'failed', name);
  for (const one of [passing, refused, broken]) t.equal((await framingCase(one, library, true)).result, 'passed', one.name);
});

test('the judge of relay and policy cases complains too', async (t) => {
  const line = '{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"a","arguments":{"api_key":"AKIA-REAL-SECRET","b":1}}}';
  const relay = { id: 'relay', policy_text: 'default = allow\nredact_arg = api_key\n', input_base64: base64(`${line}\n`) } as const;
  const told = async (expect: RelayCase['expect'], lie: (seen: Seen) => Partial<Seen>): Promise<string> =>
    (await relayCase({ ...relay, expect }, lying(lie))).result;
  t.equal(await told('forward-redacted', () => ({})), 'passed');
  t.equal(await told('forward-redacted', () => ({ forwarded: Buffer.from(`${line}\n`) })), 'failed', 'not masked');
  t.equal(await told('forward-redacted', ({ forwarded }) => ({ forwarded: Buffer.from(forwarded.toString().replace('"b":1', '"b":2')) })), 'failed', 'something else changed');
  t.equal(await told('forward-redacted', () => ({ audit: Buffer.from('AKIA-REAL-SECRET') })), 'failed', 'logged');
  t.equal(await told('forward-redacted', () => ({ records: [] })), 'failed', 'no record');
  t.equal(await told('forward', () => ({})), 'failed', 'masked, not forwarded as it came');
  t.equal(await told('refuse', () => ({})), 'failed', 'forwarded');
  t.equal(await told('policy-error', () => ({})), 'failed', 'it loads');

  const policy = (one: Partial<PolicyCase>, lie: (seen: Seen) => Partial<Seen> = () => ({})): Promise<Outcome> => {
    const door = lying(lie);
    return policyCase(
      { id: 'policy', kind: 'tool-name', expect: 'allow', policy: { default: 'deny', rules: [] }, call: { name: 'a' }, ...one },
      door,
      door,
    );
  };
  t.equal((await policy({})).result, 'failed');
  t.equal((await policy({ expect: 'deny' })).result, 'passed');
  t.equal((await policy({ acceptable: ['deny'] })).result, 'passed');
  t.equal((await policy({ expect: 'deny' }, () => ({ records: [] }))).result, 'failed', 'no record');
  t.equal((await policy({ kind: 'policy-load', expect: 'policy_error' })).result, 'failed');
  t.equal((await policy({ kind: 'audit', expect: 'one_line' }, () => ({ audit: Buffer.from('{"decision":"deny"}\u2028') }))).result, 'failed');
  t.equal((await policy({ kind: 'rate', expect: ['allow'], sequence: [{ t: 0, name: 'a' }] })).result, 'failed');
  const order = [{ effect: 'allow', tool: { exact: 'a' } }, { effect: 'deny', tool: { exact: '*' } }];
  t.match(await policy({ policy: { default: 'deny', rules: order } }), { result: 'not run', reason: /order/ });
  t.match(await policy({ kind: 'sql' }), { result: 'not run' });
});

test('generated input, and what is not run', async (t) => {
  const part = { prefix_base64: base64('<'), repeat_base64: base64('ab'), suffix_base64: base64('>') };
  t.equal(generate({ ...part, count: 2 }, 1).toString(), '<abab>');
  t.equal(generate({ ...part, count: 'limit_bytes/4*3' }, 8).length, 14);
  t.throws(() => generate({ ...part, count: 'many' }, 1));
  const outcomes = [
    await jsonTestSuiteCase({ file: 'y.json', mode: 'A', verdict: 'refuse' }, undefined, library),
    await framingCase({ ...passing, setup: 'a request before' }, library, true),
    await framingCase(passing, library, true),
    await framingCase({ ...passing, verdict: 'refuse' }, library, true),
  ];
  t.match(summary('some', outcomes), /^some: 1 passed, 1 failed, 2 not run\n {2}FAILED passing: .*\n {2}not run 1: JSONTESTSUITE=DIR/);
});

test('how the writes are cut does not matter', async (t) => {
  for (const chunks of ['1 byte each', 'cut 10 bytes into the first line', 'in some other way', [3, 4]]) {
    check(t, await framingCase({ ...passing, chunks }, library, true));
  }
});
