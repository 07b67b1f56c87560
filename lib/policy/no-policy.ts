// The policy of a run without one: nothing is refused by rule, and every record says so.
// Owns only that. Must not decide when it may be used.
import { createHash } from 'node:crypto';
import { DEFAULTS } from '../defaults.js';
import type { Policy } from '../message.js';
import { compilePolicy } from './compile.js';

/**
 * A policy that allows what is well-formed: the form of messages and tool names is still checked, and the ordinary
 * limits hold. Its records carry the flag `no_policy`. Only for `SLUICE_ALLOW_NO_POLICY=1`.
 */
export const noPolicy = (): Policy => compilePolicy({
  name: 'none',
  hash: createHash('sha256').update('').digest('hex'),
  format: 'yaml',
  mode: 'enforce',
  flags: ['no_policy'],
  fallback: 'allow',
  rules: [],
  eventsPass: true,
  redaction: null,
  limits: {
    maxBytes: DEFAULTS.maxBytes, maxDepth: DEFAULTS.maxDepth, flagDepth: null, names: 'safe', ids: 'any', rates: [],
  },
  tests: [],
});
