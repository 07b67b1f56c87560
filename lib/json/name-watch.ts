// Remembers, by spelling, which member names somebody is looking for, and where a name means something else.
// Owns that memory. Must not walk or change bytes.
import { NameCache } from './name-cache.js';

/** Where a member stands: some names are the protocol's own directly in `params` or in its `_meta`. */
export type Where = 'params' | 'meta' | 'elsewhere';

export class NameWatch {
  readonly params: NameCache<boolean>;
  readonly meta: NameCache<boolean>;
  readonly elsewhere: NameCache<boolean>;

  /** `wants` must give the same answer for the same name and place; it is asked once a spelling. */
  constructor(wants: (name: string, where: Where) => boolean) {
    this.params = new NameCache((name) => wants(name, 'params'));
    this.meta = new NameCache((name) => wants(name, 'meta'));
    this.elsewhere = new NameCache((name) => wants(name, 'elsewhere'));
  }
}
