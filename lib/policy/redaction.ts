// Which members a policy's redaction masks, the protocol's own members excepted.
// Owns that exception. Must not search or mask anything.
import { NameWatch } from '../json/name-watch.js';
import type { Redaction } from '../message.js';

// What the protocol itself puts into `params`: never masked, whatever a glob says, since the call would be another one.
const PROTOCOL: ReadonlySet<string> = new Set([
  'name', 'arguments', '_meta', 'uri', 'cursor', 'requestState', 'inputResponses', 'progressToken', 'requestId', 'taskId',
  'ref', 'level', 'protocolVersion', 'capabilities', 'clientInfo',
]);

/** A fresh watch for the names a redaction masks: each stage that looks for them has its own. */
export const redactionWatch = (redaction: Redaction): NameWatch =>
  new NameWatch((name, where) => {
    if (where === 'params' && PROTOCOL.has(name)) return false;
    if (where === 'meta' && (name === 'progressToken' || name.startsWith('io.modelcontextprotocol/'))) return false;
    return redaction.masks(name);
  });
