// What a user installs: the files of the package, the one-file command, and a lock file that names no registry.
import { spawnSync } from 'node:child_process';
import { readFileSync, statSync } from 'node:fs';
import { isBuiltin } from 'node:module';
import { join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';

const root = fileURLToPath(new URL('../../..', import.meta.url));
const text = (file: string): string => readFileSync(join(root, file), 'utf8');

interface Manifest {
  readonly version: string;
  readonly dependencies: Readonly<Record<string, string>>;
  readonly bin: Readonly<Record<string, string>>;
  readonly exports: { readonly '.': Readonly<Record<string, string>> };
}
const manifest = JSON.parse(text('package.json')) as Manifest;

const ALLOWED = [
  /^build\/lib\/.+\.(js|js\.map|d\.ts)$/,
  /^build\/(sluice\.cjs|sluice-bundle\.cjs|sluice-bundle\.cjs\.cache|policy\.schema\.json|THIRD-PARTY\.txt)$/,
  /^policies\/([^/]+\.(yaml|policy)|README\.md)$/,
  /^fixtures\/demo\/[^/]+\/session\.jsonl$/,
  /^(package\.json|LICENSE|[A-Z]+\.md)$/,
];

/** Without scripts: packing would build, under the feet of the tests that run beside this one. */
const packedFiles = (): string[] => {
  const packed = spawnSync('npm', ['pack', '--dry-run', '--json', '--ignore-scripts'], { cwd: root, encoding: 'utf8' });
  const [{ files }] = JSON.parse(packed.stdout) as [{ files: { path: string }[] }];
  return files.map(({ path }) => path);
};

test('the package holds what runs and nothing else', async (t) => {
  const paths = packedFiles();
  t.same(paths.filter((path) => !ALLOWED.some((pattern) => pattern.test(path))), [], 'nothing else');
  for (const path of ['LICENSE', 'SECURITY.md', 'README.md', 'CHANGELOG.md', 'build/policy.schema.json', 'build/THIRD-PARTY.txt', 'policies/default.yaml']) {
    t.ok(paths.includes(path), `${path} is in it`);
  }
  for (const path of [...Object.values(manifest.bin), ...Object.values(manifest.exports['.'])]) {
    t.ok(paths.includes(path.replace(/^\.\//, '')), `${path} is in it`);
  }
  t.ok(paths.some((path) => path.startsWith('fixtures/demo/')), 'the demo has its sessions');
  for (const path of paths.filter((one) => one.endsWith('.js'))) t.ok(paths.includes(`${path}.map`), `${path} comes with its map`);
});

test('no module that ships needs a development dependency', async (t) => {
  const modules = packedFiles().filter((path) => path.endsWith('.js'));
  const packages = modules.flatMap((path) => [...text(path).matchAll(/from '((?:@[^/']+\/)?[^./'][^/']*)/g)].map((match) => match[1] ?? ''));
  t.not(packages.length, 0, 'they import packages');
  t.same([...new Set(packages)].filter((name) => !name.startsWith('node:') && !Object.hasOwn(manifest.dependencies, name)), []);
});

test('the command is one strict, executable file', async (t) => {
  const bundle = text('build/sluice-bundle.cjs');
  t.ok(text('build/sluice.cjs').startsWith('#!/usr/bin/env node\n'), 'a shebang');
  t.ok(bundle.startsWith('"use strict";'), 'strict mode');
  t.not(statSync(join(root, 'build/sluice.cjs')).mode & 0o111, 0, 'executable');
  t.notMatch(bundle, 'sourceMappingURL', 'it points to no map');
  const version = spawnSync(process.execPath, [join(root, 'build/sluice.cjs'), '--version'], { encoding: 'utf8' });
  t.equal(version.stdout, `${manifest.version}\n`);
  const names = [...bundle.matchAll(/\brequire\("([^"]+)"\)/g)].map((match) => match[1] ?? '');
  t.not(names.length, 0, 'it requires modules');
  t.same(names.filter((name) => !isBuiltin(name)), [], 'built-in ones only');
});

test('the lock file names no registry', async (t) => {
  t.notMatch(text('package-lock.json'), /"resolved"/);
});
