// Loaded into a child by NODE_OPTIONS=--require: writes its peak resident set in KiB to descriptor 3 as it exits.
// VmHWM, not ru_maxrss: the latter still counts what the parent held when it forked.
const { readFileSync, writeSync } = require('node:fs');

process.on('exit', () => writeSync(3, /VmHWM:\s+(\d+)/.exec(readFileSync('/proc/self/status', 'latin1'))[1]));
