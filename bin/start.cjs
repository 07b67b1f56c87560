#!/usr/bin/env node
// Starts the one-file command with the code cache that its build made, which saves most of V8's compiling.
// Owns nothing else. Must not read a cache from anywhere but beside the code itself: a cache is executable code.
'use strict';
const { readFileSync } = require('node:fs');
const { wrap } = require('node:module');
const { join } = require('node:path');
const { Script } = require('node:vm');

const file = join(__dirname, 'sluice-bundle.cjs');
let cachedData;
try {
  cachedData = readFileSync(`${file}.cache`);
} catch {
  // Not made: everything is compiled as usual. The same happens inside V8 where its version or flags differ.
}
const script = new Script(wrap(readFileSync(file, 'utf8')), { filename: file, cachedData });
script.runInThisContext()(exports, require, module, file, __dirname);
