// A minor garbage collection on demand. Buffers lie outside V8's heap, which hardly counts them: while one endless line
// is skipped, nothing else is made and nothing is collected, so that dead buffers pile up without need.
// Must not be called where messages flow: there V8 collects by itself.
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';

let collect: ((options: { type: 'minor' }) => void) | null = null;

/** Collects the young generation; one or two milliseconds. */
export const collectYoungGarbage = (): void => {
  if (collect === null) {
    // The function exists only in contexts made while the flag is up; it is never put into ours.
    setFlagsFromString('--expose-gc');
    collect = runInNewContext('gc') as (options: { type: 'minor' }) => void;
    setFlagsFromString('--no-expose-gc');
  }
  collect({ type: 'minor' });
};
