// What a compiled policy answers, and the laws that hold for every policy.
import fc from 'fast-check';
import t from 'tap';
import { DEFAULTS } from '../../lib/defaults.js';
import { PolicyError } from '../../lib/errors.js';
import type { Policy } from '../../lib/message.js';
import { loadPolicy } from '../../lib/policy/load.js';
import { noPolicy } from '../../lib/policy/no-policy.js';

const load = (source: string): Policy => loadPolicy(`version: 1\n${source}`, { file: 'p.yaml' });

const DENYING = load(`default: deny
allow: [read_*, { tools: [list, get] }, { methods: ['@lifecycle', 'resources/*'] }]
deny: [read_secret*, '*secret*', shell.*, { methods: [resources/read, notifications/message] }]`);
const OPEN = load('default: allow\ndeny: [shell.*, { methods: ping }]');

t.test('tools', async (t) => {
  const rows: ReadonlyArray<readonly [policy: Policy, name: string, code: string, rule: string | null]> = [
    [DENYING, 'read_file', 'allowed', 'allow:read_*'],
    [DENYING, 'list', 'allowed', 'allow:list'],
    [DENYING, 'READ_FILE', 'default_deny', 'default'], // an allow compares exactly
    [DENYING, 'read_secret_key', 'tool_denied', 'deny:read_secret*'], // the first deny in the file is named
    [DENYING, 'read_the_SECRET', 'tool_denied', 'deny:*secret*'],
    [DENYING, 'Shell.Exec', 'tool_denied', 'deny:shell.*'],
    [DENYING, 'deploy', 'default_deny', 'default'],
    [OPEN, 'deploy', 'default_allow', 'default'],
    [OPEN, 'SHELL.x', 'tool_denied', 'deny:shell.*'],
    [OPEN, 'a'.repeat(128), 'default_allow', 'default'],
  ];
  for (const [policy, name, code, rule] of rows) {
    const got = policy.tool(name);
    t.match(got, { code, rule }, name);
    t.equal(policy.tool(name), got, 'the same object again');
    t.ok(Object.isFrozen(got));
    t.equal(got.hint === '', got.decision === 'forward', 'a refusal says what would be allowed');
  }
  t.equal(DENYING.tool('read_file'), DENYING.tool('read_other'), 'one verdict a rule');
  t.match(DENYING.tool('deploy').hint, 'allowed tools: read_*, list, get');
  t.match(DENYING.tool('shell.x').reason, '`deny:shell.*`');
  t.match(OPEN.tool('shell.x').hint, 'all but shell.*');
  t.match(load('default: deny').tool('x').hint, 'allows no tools');
  t.match(load(`default: deny\nallow: [${Array.from({ length: 9 }, (_, i) => `t${i}`).join(', ')}]`).tool('x').hint, 't5 and 3 more');
});

t.test('names that no rule can let through', async (t) => {
  const any = load('default: allow\nlimits: { names: any }');
  const rows: ReadonlyArray<readonly [name: string, safe: boolean, any: boolean]> = [
    ['', false, false], ['a b', false, true], ['a/../b', false, true], ['..', false, true], ['a//b', false, true], ['.', true, true], ['a/b', true, true],
    ['ａ', false, true], ['a\u0000', false, false], ['a\u0002b', false, false], ['a\u009b', false, false], ['\ud800', false, false], ['a'.repeat(129), false, false], ['x\n', false, false],
  ];
  for (const [name, safe, lifted] of rows) {
    t.equal(OPEN.tool(name).code, safe ? 'default_allow' : 'invalid_name', `safe ${JSON.stringify(name)}`);
    t.equal(any.tool(name).code, lifted ? 'default_allow' : 'invalid_name', `any ${JSON.stringify(name)}`);
  }
  t.equal(OPEN.tool('a b').rule, null);
});

t.test('methods', async (t) => {
  const rows: ReadonlyArray<readonly [policy: Policy, name: string | null, code: string, rule: string]> = [
    [DENYING, 'initialize', 'allowed', 'allow:methods:@lifecycle'],
    [DENYING, 'server/discover', 'allowed', 'allow:methods:@lifecycle'],
    [DENYING, 'resources/list', 'allowed', 'allow:methods:resources/*'],
    [DENYING, 'resources/read', 'method_denied', 'deny:methods:resources/read'],
    [DENYING, 'RESOURCES/READ', 'method_denied', 'deny:methods:resources/read'],
    [DENYING, 'notifications/tools/list_changed', 'allowed', 'allow:methods:@events'],
    [DENYING, 'notifications/message', 'method_denied', 'deny:methods:notifications/message'],
    [DENYING, 'tools/list', 'default_deny', 'default'],
    [DENYING, 'read_file', 'default_deny', 'default'],
    [DENYING, null, 'default_deny', 'default'],
    [OPEN, 'ping', 'method_denied', 'deny:methods:ping'],
    [OPEN, 'x/y', 'default_allow', 'default'],
    [OPEN, null, 'default_allow', 'default'],
  ];
  for (const [policy, name, code, rule] of rows) t.match(policy.method(name), { code, rule }, String(name));
  t.equal(load("default: allow\ndeny: [{ methods: '@events' }]").method('notifications/message').rule, 'deny:methods:@events');
});

t.test('redaction', async (t) => {
  const { redaction } = load("default: deny\nredact: { arguments: ['*token*', api_key, 'x-[0-9]'] }");
  for (const [name, hit] of [['token', true], ['AuthTOKEN', true], ['API_KEY', true], ['api_key2', false], ['x-1', true], ['', false], ['to\u0000ken', true]] as const) {
    t.equal(redaction?.masks(name), hit, JSON.stringify(name));
    t.equal(redaction?.masks(name), hit);
  }
  t.match(redaction, { mask: DEFAULTS.mask, depth: Infinity });
});

t.test('a policy is frozen', async (t) => {
  for (const part of [DENYING, DENYING.limits, DENYING.limits.rates, DENYING.flags]) t.ok(Object.isFrozen(part));
});

t.test('no policy', async (t) => {
  const policy = noPolicy();
  t.match(policy, { name: 'none', mode: 'enforce', flags: ['no_policy'], redaction: null });
  t.equal(policy.tool('anything').code, 'default_allow');
  t.equal(policy.tool('a b').code, 'invalid_name', 'the form of names is still checked');
  t.equal(policy.method('x/y').code, 'default_allow');
});

t.test('inventing names takes no memory and changes no answer', async (t) => {
  for (let i = 0; i < DEFAULTS.cachedNames + 50; i++) DENYING.tool(`made_up_${i}`);
  t.equal(DENYING.tool('made_up_x').code, 'default_deny');
  t.equal(DENYING.tool('read_anything').code, 'allowed');
  t.equal(DENYING.tool('shell.late').code, 'tool_denied');
  t.equal(DENYING.redaction, null);
});

const names = ['a', 'A', 'ab', 'aB', 'a.b', 'b', 'abc', 'c.a', 'B.C'];
const pattern = fc.constantFrom('a', 'A', 'ab', 'a*', '*b', 'A.*', '?', 'b', '*c*', '[a-b]*', 'c.a');
const fallback = fc.constantFrom('allow', 'deny');
const source = (def: string, allow: readonly string[], deny: readonly string[]): string =>
  `default: ${def}\nallow: ${JSON.stringify(allow)}\ndeny: ${JSON.stringify(deny)}`;
const attempt = (text: string): Policy | null => {
  try {
    return load(text);
  } catch (error) {
    if (error instanceof PolicyError) return null;
    throw error;
  }
};

t.test('laws', async (t) => {
  fc.assert(fc.property(fallback, fc.array(pattern, { maxLength: 3 }), fc.array(pattern, { maxLength: 3 }), pattern, (def, allow, deny, more) => {
    const before = attempt(source(def, allow, deny));
    const after = attempt(source(def, allow, [...deny, more]));
    return before === null || after === null
      || names.every((name) => before.tool(name).decision === 'forward' || after.tool(name).decision !== 'forward');
  }), { numRuns: 300 });
  t.pass('one more deny never forwards more');
  fc.assert(fc.property(fallback, fc.array(pattern, { maxLength: 4 }), fc.array(pattern, { maxLength: 4 }), (def, allow, deny) => {
    const one = attempt(source(def, allow, deny));
    const other = attempt(source(def, [...allow].reverse(), [...deny].reverse()));
    if (one === null || other === null) return one === other;
    return names.every((name) => one.tool(name).decision === other.tool(name).decision);
  }), { numRuns: 300 });
  t.pass('order never changes a decision, nor whether a policy loads');
});
