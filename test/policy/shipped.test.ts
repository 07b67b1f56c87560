// The shipped policies, the lint, the JSON Schema, and `sluice policy check`.
import { mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { Writable } from 'node:stream';
import { fileURLToPath } from 'node:url';
import t from 'tap';
import { policyCommand } from '../../bin/commands/policy.js';
import { packageFolder, readPolicySource, SHIPPED_POLICIES } from '../../bin/policy-source.js';
import { PolicyError } from '../../lib/errors.js';
import { policyJsonSchema } from '../../lib/policy/json-schema.js';
import { lintPolicy } from '../../lib/policy/lint.js';
import { readPolicy } from '../../lib/policy/load.js';

const SCRIPT = fileURLToPath(import.meta.url);
const HEAD = 'version: 1\ndefault: deny\n';
const OPENED = `${HEAD}tests: [{ method: initialize, expect: allow }]\n`;

const run = async (...argv: string[]): Promise<{ code: number; out: string; err: string }> => {
  const sink = (): Writable & { text: string } => {
    const stream = Object.assign(new Writable({ write: (chunk, _, done) => { stream.text += String(chunk); done(); } }), { text: '' });
    return stream;
  };
  const [stdout, stderr] = [sink(), sink()];
  const code = await policyCommand(argv, { stdout, stderr, color: false }, SCRIPT);
  return { code, out: stdout.text, err: stderr.text };
};

t.test('shipped policies', async (t) => {
  for (const name of SHIPPED_POLICIES) {
    const { file, source } = readPolicySource(name, SCRIPT);
    const loaded = readPolicy(source, { file });
    t.match(source, /^(#.*\n)*# threat: .*\n# promise: .*\n# not a promise: /);
    t.ok(loaded.shape.tests.length >= 10, `${name} has ${loaded.shape.tests.length} tests`);
    t.same(lintPolicy(loaded, source, file).filter(({ level }) => level === 'warning'), [], `${name} is free of warnings`);
    t.ok(loaded.policy.redaction?.masks('AWS_SECRET_KEY'));
    for (let length = 0; length < source.trimEnd().length; length += 61) {
      t.throws(() => readPolicy(source.slice(0, length), { file }), PolicyError, `${name} cut at ${length} does not load`);
    }
  }
  const flat = readFileSync(join(packageFolder(SCRIPT) ?? '', 'policies/flat.policy'), 'utf8');
  const { policy } = readPolicy(flat, { file: 'flat.policy' });
  t.match(policy.limits, { maxBytes: 65_536, flagDepth: 32, rates: [{ limit: 20, windowMs: 1_000, counts: 'messages' }] });
  t.equal(policy.redaction?.mask, '«redacted»');
  t.equal(policy.tool('get_metadata').code, 'allowed');
});

t.test('lint', async (t) => {
  const codes = (source: string, file = 'p.yaml'): string[] =>
    lintPolicy(readPolicy(source, { file }), source, file).map(({ line, column, code, level }) => `${line}:${column} ${code} ${level}`);
  const shaken = "{ methods: '@lifecycle' }";
  t.same(codes(`${HEAD}allow: [${shaken}]`), ['1:1 no_tests warning']);
  t.same(codes(`${OPENED}allow: [${shaken}, fs.*, fs.*]`), ['4:42 same_rule warning']);
  t.same(codes(`${OPENED}allow: [${shaken}]\ndeny: [Fs, fs]`), ['5:12 same_rule warning']);
  t.same(codes(`${OPENED}allow: [${shaken}, fs.*, net]\ndeny: [FS.delete, other]`), ['4:36 partly_denied note']);
  t.same(codes(`${OPENED}allow: [${shaken}, 'a b', tools/list]`), ['4:36 unreachable_rule warning', '4:43 method_as_tool warning']);
  t.same(codes(`version: 1\ndefault: allow\nallow: [a]\ntests: [{ call: a, expect: allow }]`), ['3:9 redundant_allow warning']);
  t.same(codes(`${HEAD}tests: [{ call: a, expect: deny }]`), ['1:1 handshake_refused warning', '1:1 handshake_refused warning', '1:1 discover_refused warning']);
  t.same(codes("version: 1\ndefault: allow\ndeny: [{ methods: server/* }]\ntests: [{ call: a, expect: allow }]"), ['3:19 discover_refused warning']);
  t.same(codes('default = allow\nallow_tool a\ndeny_tool *', 'p.policy'), ['2:12 dead_allow warning', '2:12 redundant_allow warning']);
});

t.test('JSON Schema', async (t) => {
  const schema = policyJsonSchema();
  t.match(schema, { $schema: /draft-07/, type: 'object', additionalProperties: false, required: ['version', 'default'] });
  const undescribed: string[] = [];
  const walk = (node: unknown, path: string): void => {
    if (typeof node !== 'object' || node === null) return;
    for (const [key, value] of Object.entries(node)) {
      if (key === 'properties') {
        for (const [name, property] of Object.entries(value as Record<string, object>)) {
          if (!('description' in property)) undescribed.push(`${path}.${name}`);
        }
      }
      walk(value, `${path}.${key}`);
    }
  };
  walk(schema, '');
  t.same(undescribed, [], 'every key has a description');
});

t.test('where shipped policies are found', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'policy-'));
  t.teardown(() => { rmSync(folder, { recursive: true }); });
  const link = join(folder, 'sluice');
  symlinkSync(SCRIPT, link);
  t.equal(packageFolder(link), packageFolder(SCRIPT), 'a link leads to the package');
  t.equal(packageFolder(folder), null);
  t.equal(packageFolder(join(folder, 'none')), null);
  writeFileSync(join(folder, 'alone.js'), '');
  t.throws(() => readPolicySource('default', join(folder, 'alone.js')), /shipped policies cannot be found/);
  writeFileSync(join(folder, 'bad.yaml'), Buffer.from([0x76, 0xff]));
  t.throws(() => readPolicySource(join(folder, 'bad.yaml'), SCRIPT), /not valid UTF-8/);
  t.throws(() => readPolicySource(folder, SCRIPT), /it is a folder/);
  t.throws(() => readPolicySource(join(folder, 'none.yaml'), SCRIPT), /no such file/);
});

t.test('sluice policy check', async (t) => {
  const folder = mkdtempSync(join(tmpdir(), 'policy-'));
  t.teardown(() => { rmSync(folder, { recursive: true }); });
  const file = (name: string, text: string): string => {
    writeFileSync(join(folder, name), text);
    return join(folder, name);
  };
  const bad = file('bad.yaml', `${HEAD}alow: [a]\n`);
  const warned = file('warned.yaml', HEAD);
  const vars = file('vars.yaml', `${HEAD}vars: { x: a }\nallow: ['\${x}']\ntests: [{ call: b, expect: allow }]\n`);

  const sound = await run('check', ...SHIPPED_POLICIES, '--strict');
  t.equal(sound.code, 0, sound.err);
  t.match(sound.out, /ok default\n {2}policy {3}default \(YAML, enforce, default deny\)\n {2}rules {4}\d+ allow, \d+ deny\n {2}tests {4}\d+ passed/);
  t.match(sound.out, /20 calls in 1000 ms/);

  const failed = await run('check', bad, 'default');
  t.equal(failed.code, 2);
  t.match(failed.err, `${bad}:3:1: error: unknown key \`alow\`\n    3 | alow: [a]\n      | ^\n   help: did you mean \`allow\`?\n`);
  t.match(failed.out, /ok default/, 'the others are still checked');

  t.equal((await run('check', warned)).code, 0);
  const strict = await run('check', '--strict', warned);
  t.equal(strict.code, 1);
  t.match(strict.err, /warning: the policy has no tests/);

  t.equal((await run('check', vars)).code, 2);
  t.equal((await run('check', vars, '--set', 'x=b')).code, 0);
  t.equal((await run('check', vars, '--set', 'x')).code, 2);

  const json = await run('check', '--json', bad, warned);
  t.equal(json.code, 2);
  t.match(JSON.parse(json.out), { files: [
    { file: bad, ok: false, problems: [{ code: 'unknown_key', line: 3, column: 1 }] },
    { file: warned, ok: true, default: 'deny', format: 'yaml', rules: { allow: 0, deny: 0 }, tests: 0, limits: { max_bytes: 4_194_304 }, redact: null, findings: [{ code: 'handshake_refused' }, {}, {}, { code: 'no_tests' }] },
  ] });
  t.match(JSON.parse((await run('check', '--json', 'strict')).out), { files: [{ redact: { depth: 'any', mask: '«redacted»' }, limits: { rate: [{ limit: 20, window_ms: 1_000 }, {}] } }] });

  t.match(await run('--help'), { code: 0, out: /^Usage: sluice policy check/ });
  t.match(await run(), { code: 2, err: /what to do/ });
  t.match(await run('chek', 'x'), { code: 2, err: /unknown command `chek`/ });
  t.match(await run('check'), { code: 2, err: /which file/ });
  t.match(await run('check', '--nope', 'x'), { code: 2, err: /nope/ });
  t.match(await run('check', join(folder, 'a\u001b[2J.yaml')), { code: 2, err: /a\\u\{1b\}\[2J/ });
});
