// Who may import whom, read off the import lines of the sources. A law broken here is a design changed by accident.
import { readdirSync, readFileSync } from 'node:fs';
import { builtinModules } from 'node:module';
import { dirname, join, posix } from 'node:path';
import { fileURLToPath } from 'node:url';
import { test } from 'tap';

const root = fileURLToPath(new URL('../..', import.meta.url));

interface Source {
  readonly file: string;
  readonly text: string;
  /** Files of ours by path from the root, packages by name, built-in modules with `node:`. */
  readonly imports: readonly string[];
  /** Those of `imports` that are more than types, which are gone when the program runs. */
  readonly atRunTime: readonly string[];
}

const sourcesOf = (folder: string): Source[] =>
  readdirSync(join(root, folder), { recursive: true, encoding: 'utf8' })
    .map((name) => `${folder}/${name.replaceAll('\\', '/')}`)
    .filter((file) => file.endsWith('.ts'))
    .sort()
    .map((file) => {
      const text = readFileSync(join(root, file), 'utf8');
      const found = [...text.matchAll(/^(?:import|export)( type)?\b[^;'"]*?from\s+'([^']+)'|^import\s+'([^']+)'|\bimport\(\s*'([^']+)'/gms)];
      const named = found.map(([, type, from, bare, dynamic]) => {
        const specifier = from ?? bare ?? dynamic ?? '';
        if (specifier.startsWith('.')) return { type, name: posix.join(dirname(file), specifier).replace(/\.js$/, '.ts') };
        if (specifier.startsWith('node:')) return { type, name: specifier };
        return { type, name: specifier.split('/', specifier.startsWith('@') ? 2 : 1).join('/') };
      });
      const imports = named.map(({ name }) => name);
      const atRunTime = named.flatMap(({ type, name }) => (type === undefined ? [name] : []));
      return { file, text, imports, atRunTime };
    });

const lib = sourcesOf('lib');
const bin = sourcesOf('bin');
const isStage = (file: string): boolean => file.startsWith('lib/stages/');

/** From the ground up; a file imports from its own floor and those below. The first pattern that fits is its floor. */
const FLOORS: readonly RegExp[] = [
  /^lib\/(message|errors|defaults)\.ts$/,
  /^lib\/(json\/.*|policy\/glob)\.ts$/,
  /^lib\/policy\/.*\.ts$/,
  /^lib\/audit\/(record|record-writer)\.ts$/,
  /^lib\/stages\/.*\.ts$/,
  /^lib\/(stage-stream|leg|checkpoint|index|audit\/.*|server\/.*)\.ts$/,
  /^bin\/.*\.ts$/,
];
const floorOf = (file: string): number => FLOORS.findIndex((pattern) => pattern.test(file));

test('every file has a floor and imports nothing from above it', async (t) => {
  for (const { file, atRunTime } of [...lib, ...bin]) {
    t.not(floorOf(file), -1, `${file} has a floor`);
    const above = atRunTime.filter((name) => /^(lib|bin)\//.test(name) && floorOf(name) > floorOf(file));
    t.same(above, [], `${file} imports nothing from above`);
  }
});

test('message imports nothing', async (t) => {
  t.same(lib.find(({ file }) => file === 'lib/message.ts')?.imports, []);
});

test('a stage imports no other stage, no files, no policy language', async (t) => {
  const stages = lib.filter(({ file }) => isStage(file));
  t.not(stages.length, 0, 'there are stages');
  for (const { file, imports } of stages) {
    const forbidden = imports.filter((name) => isStage(name) || /^(node:fs|node:fs\/promises|yaml|minimatch)$/.test(name));
    t.same(forbidden, [], file);
  }
});

test('each third-party package has one importing file in lib', async (t) => {
  const importers = new Map<string, string[]>();
  for (const { file, imports } of lib) {
    for (const name of new Set(imports)) {
      if (!name.startsWith('node:') && !name.startsWith('lib/')) importers.set(name, [...(importers.get(name) ?? []), file]);
    }
  }
  for (const [name, files] of importers) t.equal(files.length, 1, `${name} is imported by ${files.join(', ')}`);
});

test('built-in modules are named with node:', async (t) => {
  for (const { file, imports } of [...lib, ...bin]) {
    t.same(imports.filter((name) => builtinModules.includes(name)), [], file);
  }
});

test('commands import no other command', async (t) => {
  for (const { file, imports } of bin.filter((source) => source.file.startsWith('bin/commands/'))) {
    t.same(imports.filter((name) => name.startsWith('bin/commands/')), [], file);
  }
});

test('no default exports, nothing left for later', async (t) => {
  for (const { file, text } of [...lib, ...bin]) {
    t.notMatch(text, /^export default|^export \{[^}]*\bas default\b/m, `${file} has named exports only`);
    t.notMatch(text, /\b(TODO|FIXME|XXX)\b/, `${file} is finished`);
  }
});
