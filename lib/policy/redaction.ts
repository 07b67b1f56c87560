// Which members a policy's redaction masks, the protocol's own members excepted.
// Owns that exception. Must not search or mask anything.
import { NameWatch } from '../json/name-watch.js';
import type { Redaction } from '../message.js';

// What the protocol itself puts into `params` to say what is called and to tell messages apart: never masked, whatever
// a glob says, since the message would be another one. `arguments` and `_meta` are searched, not masked whole.
const PROTOCOL: ReadonlySet<string> = new Set([
  'name', 'uri', 'cursor', 'requestState', 'progressToken', 'requestId', 'taskId', 'arguments', '_meta',
]);

/** A fresh watch for the names a redaction masks: each stage that looks for them has its own. */
export const redactionWatch = (redaction: Redaction): NameWatch =>
  new NameWatch((name, where) => {
    if (where === 'params' && PROTOCOL.has(name)) return false;
    if (where === 'meta' && (name === 'progressToken' || name.startsWith('io.modelcontextprotocol/'))) return false;
    return redaction.masks(name);
  });
