// Reading a policy: every mistake with its place, the YAML traps, the line format, and that nothing else is ever thrown.
import fc from 'fast-check';
import t from 'tap';
import { PolicyError } from '../../lib/errors.js';
import { looksLikeLineFormat } from '../../lib/policy/line-format.js';
import { loadPolicy, readPolicy, type LoadedPolicy } from '../../lib/policy/load.js';
import { formatProblems } from '../../lib/policy/problems.js';

const HEAD = 'version: 1\ndefault: deny\n';

const problemsOf = (source: string, file: string, set: Record<string, string> = {}): string[] => {
  try {
    loadPolicy(source, { file, set });
    return [];
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error;
    return error.problems.map(({ line, column, code }) => `${line}:${column} ${code}`);
  }
};

const yaml = (source: string): LoadedPolicy => readPolicy(source, { file: 'p.yaml' });
const line = (source: string): LoadedPolicy => readPolicy(source, { file: 'p.policy' });

t.test('every YAML mistake at its place', async (t) => {
  const rows: ReadonlyArray<readonly [source: string, ...expected: string[]]> = [
    ['', '1:1 empty_policy'],
    ['# only a comment\n', '1:1 empty_policy'],
    ['null', '1:1 empty_policy'],
    ['- a', '1:1 bad_value'],
    ['text', '1:1 bad_value'],
    ['version: 1', '1:1 missing_key'],
    ['default: deny', '1:1 missing_key'],
    ['version: 2\ndefault: deny', '1:10 bad_version'],
    ["version: '1'\ndefault: deny", '1:10 bad_version'],
    ['version: 1\ndefault: no', '2:10 bad_value'],
    ['version: 1\ndefault: true', '2:10 bad_value'],
    [`${HEAD}mode: on`, '3:7 bad_value'],
    [`${HEAD}name: a b`, '3:7 bad_value'],
    [`${HEAD}alow: [a]`, '3:1 unknown_key'],
    [`${HEAD}__proto__: 1`, '3:1 unknown_key'],
    [`${HEAD}constructor: 1`, '3:1 unknown_key'],
    [`${HEAD}default: allow`, '3:1 duplicate_key'],
    [`${HEAD}"default": allow`, '3:1 duplicate_key'],
    [`${HEAD}allow:`, '3:7 bad_value'],
    [`${HEAD}allow: [true]`, '3:9 bad_value'],
    [`${HEAD}allow: [{}]`, '3:9 bad_value'],
    [`${HEAD}allow: [{ tools: [] }]`, '3:18 bad_value'],
    [`${HEAD}allow: [{ tools: 5 }]`, '3:18 bad_value'],
    [`${HEAD}allow: [{ tool: a }]`, '3:9 bad_value', '3:11 unknown_key'],
    [`${HEAD}allow: [a]\n---\nversion: 1`, '4:1 second_document'],
    ['%YAML 1.1\n---\nversion: 1\ndefault: deny', '1:1 yaml_directive'],
    ['%TAG ! x\n---\nversion: 1\ndefault: deny', '1:1 yaml_directive'],
    ['%FOO x\n---\nversion: 1\ndefault: deny', '1:1 yaml_directive'],
    [`${HEAD}allow: [*]`, '3:9 yaml_syntax'],
    [`${HEAD}allow: [*x]`, '3:9 yaml_alias'],
    [`${HEAD}allow: &x [a]`, '3:11 yaml_anchor'],
    [`${HEAD}allow: !x [a]`, '3:11 yaml_tag'],
    [`${HEAD}name: !!str p`, '3:13 yaml_tag'],
    [`${HEAD}allow: [@lifecycle]`, '3:9 yaml_syntax'],
    [`${HEAD}allow: [a`, '3:10 yaml_syntax'],
    [`${HEAD}<<: { mode: observe }`, '3:1 unknown_key'],
    // patterns
    [`${HEAD}allow: ['']`, '3:9 bad_pattern'],
    [`${HEAD}allow: ['a,b']`, '3:9 bad_pattern'],
    [`${HEAD}allow: ['[a']`, '3:9 bad_pattern'],
    [`${HEAD}deny: ['a', '[!a]']`, '3:13 bad_pattern'],
    [`${HEAD}deny: ["a\\0"]`, '3:8 bad_pattern'],
    [`${HEAD}allow: ['@lifecycle']`, '3:9 bad_pattern'],
    [`${HEAD}allow: ['\${x}']`, '3:9 unknown_variable'],
    [`${HEAD}allow: ['\${x']`, '3:9 unknown_variable'],
    [`${HEAD}vars: { 1x: a }`, '3:13 bad_value'],
    [`${HEAD}vars: { x: 5 }`, '3:12 bad_value'],
    [`${HEAD}allow: [{ methods: '@lifecycel' }]`, '3:20 unknown_group'],
    [`${HEAD}allow: [{ methods: '*' }]`, '3:20 tool_call_method'],
    [`${HEAD}deny: [{ methods: [ping, TOOLS/c*] }]`, '3:26 tool_call_method'],
    // an allow that can never speak
    [`${HEAD}allow: [fs.read]\ndeny: ['*']`, '3:9 dead_allow'],
    [`${HEAD}allow: [Fs.*, x]\ndeny: [fs.*]`, '3:9 dead_allow'],
    [`${HEAD}allow: [{ methods: '@lifecycle' }]\ndeny: [{ methods: ['@lifecycle'] }]`, '3:20 dead_allow'],
    // limits and redaction
    [`${HEAD}limits: { max_bytes: 4MB }`, '3:22 bad_value'],
    [`${HEAD}limits: { max_bytes: 0 }`, '3:22 bad_value'],
    [`${HEAD}limits: { max_bytes: 1.5 }`, '3:22 bad_value'],
    [`${HEAD}limits: { max_bytes: 1e3 }`, '3:22 bad_integer'],
    [`${HEAD}limits: { max_bytes: 0x10 }`, '3:22 bad_integer'],
    [`${HEAD}limits: { max_bytes: 9007199254740993 }`, '3:22 bad_value'],
    [`${HEAD}limits: { max_depth: 1001 }`, '3:22 bad_value'],
    [`${HEAD}limits: { names: no }`, '3:18 bad_value'],
    [`${HEAD}limits: { rate: { limit: 1, per: 1s } }`, '3:17 bad_value'],
    [`${HEAD}limits: { rate: [{ limit: 1, per: 10 }] }`, '3:35 bad_value'],
    [`${HEAD}limits: { rate: [{ limit: 1, per: 0s }] }`, '3:35 bad_value'],
    [`${HEAD}limits: { rate: [{ per: 1s }] }`, '3:18 missing_key'],
    [`${HEAD}redact: { mask: «hidden!» }`, '3:9 missing_key'],
    [`${HEAD}redact: { arguments: [] }`, '3:22 bad_value'],
    [`${HEAD}redact: { arguments: [a], depth: 0 }`, '3:34 bad_value'],
    [`${HEAD}redact: { arguments: [a], mask: «x» }`, '3:33 bad_mask'],
    [`${HEAD}redact: { arguments: [a], mask: REDACTED }`, '3:33 bad_mask'],
    [`${HEAD}redact: { arguments: [a], mask: "«redacted»\\n" }`, '3:33 bad_mask'],
    [`${HEAD}redact: { arguments: [a], mask: "«redacted»\\ud800" }`, '3:33 bad_mask'],
    // what later versions read
    [`${HEAD}rules: []`, '3:1 not_yet'],
    [`${HEAD}approve: [a]`, '3:1 not_yet'],
    [`${HEAD}allow: [{ tools: a, when: { x: 1 } }]`, '3:21 not_yet'],
    [`${HEAD}allow: [{ methods: ping, resources: x }]`, '3:26 not_yet'],
    [`${HEAD}redact: { arguments: a, secrets: all }`, '3:25 not_yet'],
    [`${HEAD}limits: { calls: 5 }`, '3:11 not_yet'],
    [`${HEAD}limits: { rate: [{ limit: 1, per: 1s, scope: client }] }`, '3:46 not_yet'],
    [`${HEAD}tests: [{ call: a, expect: approve }]`, '3:28 not_yet'],
    // tests
    [`${HEAD}tests: [{ call: a, method: b, expect: deny }]`, '3:9 bad_test'],
    [`${HEAD}tests: [{ expect: deny }]`, '3:9 bad_test'],
    [`${HEAD}tests: [{ call: a, params: {}, expect: deny }]`, '3:9 bad_test'],
    [`${HEAD}tests: [{ method: a, arguments: {}, expect: deny }]`, '3:9 bad_test'],
    [`${HEAD}tests: [{ method: tools/call, expect: deny }]`, '3:9 bad_test'],
    [`${HEAD}tests: [{ call: a, expect: deny },\n  { call: a, expect: allow }]`, '4:3 failed_test'],
    [`${HEAD}tests: [{ call: a, expect: deny, rule: 'deny:a' }]`, '3:9 failed_test'],
    // several at once, in order
    ['version: 1\ndefalt: deny\nallow: [true, "[a"]', '1:1 missing_key', '2:1 unknown_key', '3:9 bad_value', '3:15 bad_pattern'],
    ['['.repeat(3000), '1:1 too_nested'],
    ['- '.repeat(3000), '1:1 too_nested'],
    [' '.repeat(1024 * 1024 + 1), '1:1 too_large'],
  ];
  for (const [source, ...expected] of rows) t.same(problemsOf(source, 'p.yaml'), expected, JSON.stringify(source.slice(0, 90)));
});

t.test('every line format mistake at its place', async (t) => {
  const rows: ReadonlyArray<readonly [source: string, ...expected: string[]]> = [
    ['', '1:1 empty_policy'], ['# c\n\n', '1:1 empty_policy'],
    ['default = deny\nalow_tool = a', '2:1 unknown_directive'],
    ['  Default = deny', '1:3 unknown_directive'],
    ['default = maybe', '1:11 bad_value'], ['default =', '1:1 missing_value'],
    ['default deny\ndefault deny', '2:1 repeated_directive'],
    ['rate_limit 5.5', '1:12 bad_integer'], ['rate_limit -1', '1:12 bad_integer'], ['max_bytes 1e3', '1:11 bad_integer'],
    ['max_bytes 0', '1:11 bad_integer'], ['max_depth 9007199254740993', '1:11 bad_integer'],
    ['allow_tool', '1:11 bad_pattern'], ['allow_tool = ""', '1:14 bad_pattern'], ['allow_tool = # c', '1:14 bad_pattern'],
    ['deny_tool = a, b', '1:13 bad_pattern'], ['deny_tool = [a', '1:13 bad_pattern'], ['deny_tool = "a', '1:13 bad_line'],
    ['deny_tool = "a" b', '1:16 bad_line'], ['= a', '1:1 bad_line'], ['redaction_mask = "a\u0007b"', '1:18 bad_mask'],
    ['default = x\nfoo bar\nmax_bytes y', '1:11 bad_value', '2:1 unknown_directive', '3:11 bad_integer'],
  ];
  for (const [source, ...expected] of rows) t.same(problemsOf(source, 'p.policy'), expected, JSON.stringify(source));
  t.same(problemsOf('default deny', 'p.policy', { x: 'y' }), ['1:1 unknown_variable']);
});

t.test('the line format as a whole', async (t) => {
  const { policy, shape } = line([
    '# comment', 'default = deny # why', 'allow_tool "read_*"', "allow_tool = 'a#b'", 'deny_tool=read_secret', 'redact_arg *token*',
    'rate_limit 5', 'max_depth = 9', 'redaction_mask "***"', '',
  ].join('\r\n'));
  t.equal(policy.tool('read_file').rule, 'allow:read_*');
  t.equal(policy.tool('READ_SECRET').rule, 'deny:read_secret');
  t.equal(policy.tool('other').code, 'default_deny');
  t.equal(shape.rules[1]?.pattern, 'a#b', 'a quoted # is no comment');
  for (const method of ['initialize', 'notifications/message', null]) t.equal(policy.method(method).code, 'default_deny', String(method));
  t.same({ ...policy.limits, rates: policy.limits.rates.length }, { maxBytes: 262_144, maxDepth: 128, flagDepth: 9, ids: 'any', rates: 1 });
  t.match(policy.limits.rates[0], { limit: 5, windowMs: 1_000, counts: 'messages', tools: null });
  t.equal(policy.redaction?.mask, '***', 'old masks keep working');
  t.equal(policy.redaction?.depth, Infinity);
  const bare = line('allow_tool x\nrate_limit 0').policy;
  t.equal(bare.tool('y').code, 'default_deny', 'no default means deny');
  t.same(bare.limits.rates, [], '0 is unlimited here');
  t.equal(bare.redaction, null);
  t.equal(line('allow_tool x\ndeny_tool *').policy.tool('x').code, 'tool_denied', 'a dead allow is no error here');
});

t.test('which format a source is in', async (t) => {
  const rows: ReadonlyArray<readonly [string, boolean]> = [
    ['default = deny', true], ['default deny', true], ['default=deny', true], ['# c\n\n  foo bar', true], ['max-bytes 5', true],
    ['default: deny', false], ['default : deny', false], ['version: 1', false], ['"a": 1', false], ['- a', false], ['---', false], ['{ a: 1 }', false], ['', false], ['word', false],
  ];
  for (const [source, lines] of rows) t.equal(looksLikeLineFormat(source), lines, JSON.stringify(source));
  t.equal(readPolicy('default = deny', { file: 'x' }).shape.format, 'line');
  t.equal(readPolicy('\ufeffdefault = deny', { file: '/a/b.conf' }).shape.name, 'b.conf');
  t.equal(readPolicy(HEAD, { file: 'a b.yml' }).policy.name, 'a_b');
  t.same(problemsOf('default = deny', 'x.yaml'), ['1:1 bad_value'], 'the ending decides first');
  t.same(problemsOf(HEAD, 'x.policy'), ['1:1 unknown_directive', '2:1 unknown_directive']);
});

t.test('variables, sizes, times and names', async (t) => {
  const source = `${HEAD}vars: { dir: 'a*', n: x }\nallow: ['\${dir}_b', '$\${n}', { tools: ['\${n}\${n}'] }]\ntests: [{ call: '\${n}\${n}', expect: allow }]`;
  const { policy, shape } = yaml(source);
  t.same(shape.rules.map((rule) => rule.pattern), ['a\\*_b', '${n}', 'xx'], 'a value is text, never a wildcard');
  t.equal(policy.tool('xx').rule, 'allow:xx');
  const other = readPolicy(source, { file: 'p.yaml', set: { n: 'y' } });
  t.equal(other.policy.tool('yy').code, 'allowed');
  t.not(other.policy.hash, policy.hash, 'set values are part of the hash');
  t.match(policy.hash, /^[0-9a-f]{64}$/);
  t.equal(yaml(source).policy.hash, policy.hash);
  t.same(problemsOf(source, 'p.yaml', { m: 'z' }), ['3:7 unknown_variable']);

  const limits = (text: string) => yaml(`${HEAD}limits: { ${text} }`).policy.limits;
  t.equal(limits('max_bytes: 256KiB').maxBytes, 262_144);
  t.equal(limits('max_bytes: 4MiB').maxBytes, 4_194_304);
  t.equal(limits('max_bytes: 1GiB').maxBytes, 1_073_741_824);
  t.equal(limits('max_bytes: 77').maxBytes, 77);
  const rates = limits("rate: [{ limit: 0, per: 500ms }, { limit: 2, per: 1s, scope: session }, { limit: 3, per: 1m, tools: 'a*' }, { limit: 4, per: 1h, tools: [b, c] }]").rates;
  t.same(rates.map(({ id, windowMs, counts }) => [id, windowMs, counts]), [
    ['rate:0/500ms', 500, 'calls'], ['rate:2/1s', 1_000, 'calls'], ['rate:a*:3/1m', 60_000, 'calls'], ['rate:b|c:4/1h', 3_600_000, 'calls'],
  ]);
  t.same(['a', 'AB', 'c'].map((name) => rates[2]?.tools?.(name)), [true, true, false]);
  t.equal(yaml(`${HEAD}name: my-policy`).policy.name, 'my-policy');
  t.equal(yaml(`${HEAD}mode: observe`).policy.mode, 'observe');
  t.equal(yaml(`${HEAD}redact: { arguments: pass*, depth: 1 }`).policy.redaction?.depth, 1);
});

t.test('problems as text', async (t) => {
  const text = (source: string, color = false): string => {
    try {
      loadPolicy(source, { file: 'policy.yaml' });
      return '';
    } catch (error) {
      if (!(error instanceof PolicyError)) throw error;
      return formatProblems(error.problems, color);
    }
  };
  t.equal(text(`${HEAD}alow: [read_file]`), [
    'policy.yaml:3:1: error: unknown key `alow`', '    3 | alow: [read_file]', '      | ^', '   help: did you mean `allow`?', '',
  ].join('\n'));
  t.match(text(`${HEAD}rules: []`), /`rules` is part of the language but not yet supported by this version/);
  t.match(text('version: 1\ndefault: no'), /YAML 1\.2 reads this word as text/);
  const hostile = text(`${HEAD}"x\u009b\u202e": 1 # \u001b]0;x\u0007`);
  t.notMatch(hostile, /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/, 'nothing that a terminal acts upon');
  t.match(hostile, /\\u\{202e\}/);
  const long = text(`${HEAD}allow: [${'a, '.repeat(200)}true]`);
  const [, shown = '', caret = ''] = long.split('\n');
  t.ok([...shown].length < 140, 'long lines are cut');
  t.equal([...shown].slice(caret.indexOf('^')).join('').slice(0, 4), 'true', 'and the caret still points');
  t.match(text(`${HEAD}alow: 1`, true), /\u001b\[31merror/);
});

t.test('nothing but a PolicyError is ever thrown', async (t) => {
  const words = ['version: 1\n', 'default: deny\n', 'default = deny\n', 'allow:', 'deny:', 'tests:', ' - ', '[', ']', '{', '}', "'", '"', '*', '&a', '!t', '@x', '%', '\n', '  ',
    ': ', 'tools: ', 'methods: ', 'limits: ', 'rate: ', 'redact: ', 'arguments: ', 'vars: ', '${x}', '---\n', '...', '? ', '|', '>', '#', '\t', '\u0000', '\ud800', '1e999', 'null', '<<: ', '__proto__: '];
  const text = fc.oneof(fc.string({ unit: 'binary', maxLength: 60 }), fc.array(fc.constantFrom(...words), { maxLength: 25 }).map((list) => list.join('')));
  fc.assert(fc.property(text, fc.constantFrom('p', 'p.yaml', 'p.policy'), (source, file) => Array.isArray(problemsOf(source, file))), { numRuns: 1500 });
  t.pass();
});
