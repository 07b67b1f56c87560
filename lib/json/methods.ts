// The method names MCP knows, over all revisions to 2026-07-28, and which of them expect an answer.
// Owns the list. Must not judge a message.
import { foldName } from './strings.js';

const REQUESTS = [
  // client to server
  'initialize', 'ping', 'server/discover', 'tools/list', 'tools/call', 'resources/list', 'resources/templates/list',
  'resources/read', 'resources/subscribe', 'resources/unsubscribe', 'resources/directory/read', 'prompts/list',
  'prompts/get', 'completion/complete', 'logging/setLevel', 'subscriptions/listen', 'tasks/get', 'tasks/result',
  'tasks/list', 'tasks/cancel', 'tasks/update', 'skills/list', 'skills/get',
  // server to client
  'sampling/createMessage', 'elicitation/create', 'roots/list',
];

const NOTIFICATIONS = [
  'notifications/initialized', 'notifications/cancelled', 'notifications/progress', 'notifications/message',
  'notifications/resources/updated', 'notifications/resources/list_changed', 'notifications/tools/list_changed',
  'notifications/prompts/list_changed', 'notifications/roots/list_changed', 'notifications/elicitation/complete',
  'notifications/subscriptions/acknowledged', 'notifications/tasks', 'notifications/tasks/status',
];

const KNOWN = new Set([...REQUESTS, ...NOTIFICATIONS]);
const KNOWN_REQUESTS = new Set(REQUESTS);

// A server may route case-blind, merge slashes, or ignore them at the ends.
const routed = (method: string): string => foldName(method).replace(/\/+/g, '/').replace(/^\/|\/$/g, '');
const ROUTED = new Set([...KNOWN].map(routed));

const METHOD = /^[A-Za-z0-9_./$-]{1,128}$/;

/** What is known of a method by its name alone. */
export interface MethodFacts {
  readonly name: string;
  /** `request`: must have an id. `notification`: must have none. `open`: either. */
  readonly form: 'request' | 'notification' | 'open';
  readonly problem: 'bad_method' | 'method_variant' | null;
}

export const methodFacts = (name: string): MethodFacts => ({
  name,
  form: KNOWN_REQUESTS.has(name) ? 'request' : name.startsWith('notifications/') ? 'notification' : 'open',
  problem: !METHOD.test(name) ? 'bad_method' : !KNOWN.has(name) && ROUTED.has(routed(name)) ? 'method_variant' : null,
});
