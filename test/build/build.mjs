// The whole build: compiled JS, the one-file command, the policy schema. Runs before anything is compiled, so it is plain JS.
// Must not need more than devDependencies, and must not leave outputs whose source is gone.
import { spawnSync } from 'node:child_process';
import { chmodSync, copyFileSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join, relative } from 'node:path';
import { fileURLToPath, pathToFileURL } from 'node:url';
import { build } from 'esbuild';

const root = fileURLToPath(new URL('../..', import.meta.url));
const out = join(root, 'build');
const command = join(out, 'sluice.cjs');
const bundle = join(out, 'sluice-bundle.cjs');
const cache = `${bundle}.cache`;

/** Compiles lib, bin and test. A type error still emits, so that work can go on, but fails the build. */
const compile = () => {
  const typescript = createRequire(import.meta.url).resolve('typescript/package.json');
  const tsc = join(dirname(typescript), 'bin', 'tsc');
  // Sources go into the maps: the package ships no .ts, and a map that points nowhere is worse than none.
  return spawnSync(process.execPath, [tsc, '-p', root, '--inlineSources'], { stdio: 'inherit', cwd: root }).status === 0;
};

/** Removes outputs of deleted sources: tap would still run such a test, and `npm pack` still ship such a module. */
const prune = (folder) => {
  for (const name of existsSync(folder) ? readdirSync(folder) : []) {
    const path = join(folder, name);
    if (statSync(path).isDirectory()) {
      prune(path);
      if (readdirSync(path).length === 0) rmSync(path, { recursive: true });
    } else {
      const source = join(root, relative(out, path)).replace(/(\.d\.ts|\.js\.map|\.js)$/, '.ts');
      if (source.endsWith('.ts') && !existsSync(source)) rmSync(path);
    }
  }
};

/** Licence texts of the packages whose code went into the bundle, which their licences ask for. */
const notices = (inputs) => {
  const packages = new Set(
    Object.keys(inputs).flatMap((path) => /^(.*node_modules\/(?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? []),
  );
  return [...packages].sort().map((path) => {
    const folder = join(root, path);
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const file = readdirSync(folder).find((entry) => /^licen[cs]e/i.test(entry));
    const text = file === undefined ? '' : readFileSync(join(folder, file), 'utf8').trim();
    return `${name} ${version} (${license})\n\n${text}\n`;
  });
};

/**
 * One CommonJS file: it starts in half the time of many ES modules. `await import()` stays lazy inside it. Beside it lies
 * the code that V8 compiled for a run of the filter; the command itself is the few lines that bring the two together.
 */
const bundleCommand = async () => {
  const { metafile } = await build({
    absWorkingDir: root,
    entryPoints: ['bin/sluice.ts'],
    outfile: bundle,
    bundle: true,
    platform: 'node',
    target: 'node20',
    format: 'cjs',
    // Names stay, so that a stack trace can be read; dropping them was not measurably faster to start.
    minifySyntax: true,
    minifyWhitespace: true,
    legalComments: 'none',
    metafile: true,
    logLevel: 'warning',
    // CommonJS has no `import.meta`; the code asks where it runs from. Strict mode is lost unless it comes first.
    define: { 'import.meta.url': 'importMetaUrl' },
    banner: { js: `"use strict";const importMetaUrl=require("node:url").pathToFileURL(__filename).href;` },
  });
  copyFileSync(join(root, 'bin/start.cjs'), command);
  chmodSync(command, 0o755);
  rmSync(cache, { force: true });
  writeFileSync(join(out, 'THIRD-PARTY.txt'), notices(metafile.inputs).join(`\n${'-'.repeat(80)}\n\n`));
};

/** Runs the filter once on a real session and keeps what V8 compiled on the way. */
const cacheCode = () => {
  const { status, stderr } = spawnSync(process.execPath, [join(root, 'test/build/code-cache.cjs'), bundle, cache], {
    input: readFileSync(join(root, 'fixtures/demo/ten-messages/session.jsonl')),
    encoding: 'utf8',
  });
  if (status !== 0) throw new Error(`the code cache could not be made:\n${stderr}`);
};

const writeSchema = async () => {
  const { policyJsonSchema } = await import(pathToFileURL(join(out, 'lib/policy/json-schema.js')).href);
  writeFileSync(join(out, 'policy.schema.json'), `${JSON.stringify(policyJsonSchema(), null, 2)}\n`);
};

mkdirSync(out, { recursive: true });
const compiled = compile();
for (const folder of ['lib', 'bin', 'test']) prune(join(out, folder));
await bundleCommand();
cacheCode();
await writeSchema();
if (!compiled) process.exitCode = 1;
