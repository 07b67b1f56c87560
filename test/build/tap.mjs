// Rebuilds tap's Test class where the installed one still has the TypeScript plugin, which cannot work with TypeScript 7.
// tap would rebuild by itself, but only after it has loaded the old class: the first `npm test` of a fresh clone would fail.
import { spawnSync } from 'node:child_process';
import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';

const fromTap = createRequire(createRequire(import.meta.url).resolve('tap'));
const builtClass = fromTap.resolve('@tapjs/test/test-built');
if (readFileSync(builtClass, 'utf8').includes('@tapjs/typescript')) {
  console.log('tap build: once after an install');
  const { status } = spawnSync('npx', ['--no-install', 'tap', 'build'], { stdio: ['ignore', 'ignore', 'inherit'] });
  process.exitCode = status ?? 1;
}
