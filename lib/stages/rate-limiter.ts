// The ledger of a leg: request ids and rates, checked together and committed together for one message.
// The last stage that may refuse. Must not refuse a response or what keeps a session alive, and must not charge a refusal.
import { DEFAULTS } from '../defaults.js';
import { verdict } from '../errors.js';
import { idKey } from '../json/strings.js';
import { passes } from '../message.js';
import type { Message, RateLimit, Stage, Verdict } from '../message.js';

/** Monotonic milliseconds. */
export type Now = () => number;

/** Methods that a rate never refuses: without them a session dies. */
const LIFECYCLE: ReadonlySet<string> = new Set([
  'initialize', 'notifications/initialized', 'ping', 'server/discover', 'notifications/cancelled',
  'notifications/progress', 'logging/setLevel',
]);

/** The last `limit` times something was forwarded; the oldest one tells whether the window has room. */
class Window {
  readonly #limit: number;
  readonly #windowMs: number;
  #times: Float64Array;
  #next = 0;

  constructor(rate: RateLimit) {
    this.#limit = rate.limit;
    this.#windowMs = rate.windowMs;
    this.#times = new Float64Array(Math.min(rate.limit, 64)).fill(-Infinity);
  }

  /** Milliseconds until one more fits: 0 is now, Infinity is never. The window is half-open: at its very end a place is free. */
  wait(now: number): number {
    if (this.#limit === 0) return Infinity;
    if (this.#next < this.#times.length || this.#times.length < this.#limit) return 0;
    return Math.max(0, (this.#times[this.#next % this.#limit] as number) + this.#windowMs - now);
  }

  spend(now: number): void {
    if (this.#next >= this.#times.length && this.#times.length < this.#limit) {
      const larger = new Float64Array(Math.min(this.#limit, this.#times.length * 4)).fill(-Infinity);
      larger.set(this.#times);
      this.#times = larger;
    }
    this.#times[this.#next % this.#times.length] = now;
    this.#next++;
  }
}

/** The last request ids, by type and decoded value: 1 and "1" are two. */
class RecentIds {
  readonly #seen = new Set<string>();

  has(key: string): boolean {
    return this.#seen.has(key);
  }

  add(key: string): void {
    this.#seen.add(key);
    if (this.#seen.size > DEFAULTS.rememberedIds) this.#seen.delete(this.#seen.values().next().value as string);
  }
}

const ID_IN_USE = verdict('id_in_use', { hint: 'give each request an id of its own' });

const counts = (rate: RateLimit, message: Message): boolean => {
  if (rate.counts === 'messages') return true;
  return message.tool !== null && message.kind === 'request' && (rate.tools === null || rate.tools(message.tool));
};

export const rateLimiter = (now: Now): Stage<Message, Message> => {
  const windows = new Map<string, Window>();
  const ids = new RecentIds();
  let latest = -Infinity;

  const windowOf = (rate: RateLimit): Window => {
    let window = windows.get(rate.id);
    if (window === undefined) {
      window = new Window(rate);
      windows.set(rate.id, window);
    }
    return window;
  };

  const limited = (rate: RateLimit, wait: number): Verdict =>
    verdict('rate_limited', {
      rule: rate.id,
      reason: `more than ${rate.limit} in ${rate.windowMs} ms (${rate.id})`,
      hint: rate.limit === 0 ? 'nothing passes under a limit of 0' : `it may pass in ${Math.ceil(wait)} ms`,
      ...(Number.isFinite(wait) ? { retryAfterMs: Math.ceil(wait) } : {}),
    });

  /** Under observe it passes, and the record shows what spoke first, as it would be without observing. */
  const withhold = (message: Message, refusal: Verdict): void => {
    if (message.verdict?.would !== undefined) return;
    message.verdict = verdict('observed', { rule: refusal.rule, reason: `observed only: ${refusal.reason}`, would: refusal.decision });
  };

  const judge = (message: Message, time: number): void => {
    const policy = message.policy;
    if (policy === null || (policy.limits.ids === 'any' && policy.limits.rates.length === 0)) return;
    const unique = policy.limits.ids === 'unique' && message.kind === 'request';
    const key = unique ? idKey(message.bytes, message.idStart, message.idEnd) : '';
    const observes = policy.mode === 'observe';
    if (unique && ids.has(key)) {
      if (!observes) {
        message.verdict = ID_IN_USE;
        message.idUsable = false; // two answers under one id could not be told apart
        return;
      }
      withhold(message, ID_IN_USE);
    }
    const rates = policy.limits.rates;
    for (const rate of rates) {
      if (!counts(rate, message) || message.kind === 'response' || LIFECYCLE.has(message.method ?? '')) continue;
      const wait = windowOf(rate).wait(time);
      if (wait === 0) continue;
      const refusal = limited(rate, wait);
      if (!observes) {
        message.verdict = refusal;
        return;
      }
      withhold(message, refusal);
    }
    // Checked all, now commit all: a refused message has spent nothing.
    for (const rate of rates) if (counts(rate, message)) windowOf(rate).spend(time);
    if (unique) ids.add(key);
  };

  return {
    name: 'rate-limiter',
    emits: 'messages',
    step(batch) {
      // A clock that steps back must neither lock a caller out nor refill a window.
      latest = Math.max(latest, now());
      for (const message of batch) if (passes(message)) judge(message, latest);
      return batch as Message[];
    },
  };
};
