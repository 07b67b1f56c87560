// The method groups a policy may name with `@`, and the one method that is none of theirs.
// Owns the lists. Must not decide what a policy does with them.

/** Decided by its tool's name alone, never by a rule about methods. */
export const TOOL_CALL = 'tools/call';

export const GROUPS: ReadonlyMap<string, readonly string[]> = new Map([
  ['@lifecycle', [
    'initialize', 'notifications/initialized', 'ping', 'server/discover', 'notifications/cancelled',
    'notifications/progress', 'logging/setLevel',
  ]],
  ['@discovery', [
    'tools/list', 'prompts/list', 'resources/list', 'resources/templates/list', 'skills/list', 'completion/complete',
  ]],
  ['@events', [
    'notifications/tools/list_changed', 'notifications/prompts/list_changed', 'notifications/resources/list_changed',
    'notifications/roots/list_changed', 'notifications/message', 'notifications/resources/updated',
    'notifications/subscriptions/acknowledged', 'notifications/tasks', 'notifications/tasks/status',
  ]],
]);
