// Runs the bundle's filter over standard input, then writes what V8 compiled for it: node code-cache.cjs BUNDLE CACHE
// Must load the bundle exactly as bin/start.cjs does, or V8 would refuse the cache.
'use strict';
const { readFileSync, writeFileSync } = require('node:fs');
const { createRequire, wrap } = require('node:module');
const { dirname } = require('node:path');
const { Script } = require('node:vm');

const [, , bundle, cache] = process.argv;
const script = new Script(wrap(readFileSync(bundle, 'utf8')), { filename: bundle });
process.argv = [process.execPath, bundle, 'filter', '--policy', 'default', '--audit', '/dev/null', '--stats'];
process.once('exit', () => writeFileSync(cache, script.createCachedData()));
script.runInThisContext()(exports, createRequire(bundle), module, bundle, dirname(bundle));
