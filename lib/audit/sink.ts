// Where records go, and the promise that they are there before a message moves on.
// Owns durability. Must not know what a record says.
import { closeSync, constants, fstatSync, ftruncateSync, linkSync, openSync, readFileSync, readSync, realpathSync, unlinkSync, writeFileSync, writeSync } from 'node:fs';
import type { Writable } from 'node:stream';
import { DEFAULTS } from '../defaults.js';
import { Fault } from '../errors.js';

/** `done` is called once: without an error when all bytes were taken, else with a Fault. */
export interface Sink {
  write(bytes: Uint8Array, done: (error?: Error) => void): void;
  /** Releases what the sink holds; nothing may be written after it. */
  close(): void;
}

const failed = (what: string, cause: unknown): Fault =>
  new Fault('sink', `the audit record could not be written to ${what}: ${cause instanceof Error ? cause.message : String(cause)}`, cause);

const remove = (path: string): void => {
  try {
    unlinkSync(path);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error;
  }
};

const refuseLive = (lockPath: string): void => {
  const holder = Number(readFileSync(lockPath, 'utf8'));
  if (isAlive(holder)) throw new Error(`process ${holder} writes to it already (${lockPath})`);
};

/** One process a log: a second filter on the same file would tear its lines. */
const lock = (path: string): (() => void) => {
  const lockPath = `${path}.lock`;
  const own = `${lockPath}.${process.pid}`;
  const taking = `${lockPath}.taking`;
  // Written aside and then linked: a lock is never seen without its owner's number in it.
  writeFileSync(own, String(process.pid), { mode: 0o600 });
  try {
    try {
      linkSync(own, lockPath);
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error;
      refuseLive(lockPath);
      // Its owner was killed. Only one may take it over, and only after another look: the next may be there by now.
      linkSync(own, taking);
      try {
        refuseLive(lockPath);
        remove(lockPath);
        linkSync(own, lockPath);
      } finally {
        remove(taking);
      }
    }
  } finally {
    remove(own);
  }
  return () => remove(lockPath);
};

const isAlive = (pid: number): boolean => {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return true;
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM';
  }
};

/**
 * A file, written synchronously: one write an array, looped over short writes. When a write fails the file is cut back
 * to where that array began and nothing of the array may leave. Created fresh unless `append`. Throws where the file
 * cannot be opened or another process holds it.
 */
export const fileSink = (path: string, options: { append?: boolean } = {}): Sink => {
  const flags = constants.O_WRONLY | constants.O_CREAT | constants.O_APPEND;
  const fd = openSync(path, flags, 0o600);
  const stat = fstatSync(fd);
  const regular = stat.isFile();
  let release: () => void = () => undefined;
  let size = 0;
  try {
    if (regular) release = lock(realpathSync(path)); // one log, by whatever link it is named
    if (regular && options.append !== true) ftruncateSync(fd, 0);
    size = regular ? fstatSync(fd).size : 0;
    if (regular && options.append === true && size > 0 && !endsLine(path, size)) {
      writeSync(fd, '\n'); // a torn last line must not swallow the first new one
      size++;
    }
  } catch (error) {
    closeSync(fd);
    throw error;
  }
  let checked = 0n; // nanoseconds

  const vanished = (): boolean => {
    const now = process.hrtime.bigint();
    if (now - checked < 100_000_000n) return false;
    checked = now;
    const current = fstatSync(fd);
    return current.nlink === 0 || current.size !== size;
  };

  return {
    write(bytes, done) {
      let offset = 0;
      try {
        if (regular && vanished()) throw new Error('the file was deleted, or somebody else writes to it');
        while (offset < bytes.length) {
          const written = writeSync(fd, bytes, offset);
          if (written === 0) throw new Error('nothing more can be written');
          offset += written;
        }
        size += bytes.length;
      } catch (error) {
        try {
          // Only what this write added is cut off, and only where nobody else wrote or cut meanwhile.
          if (regular && offset > 0 && fstatSync(fd).size === size + offset) ftruncateSync(fd, size);
        } catch {
          // The record of the failure is the Fault itself.
        }
        done(failed(path, error));
        return;
      }
      done();
    },
    close() {
      closeSync(fd);
      release();
    },
  };
};

const endsLine = (path: string, size: number): boolean => {
  const fd = openSync(path, 'r');
  try {
    const last = Buffer.alloc(1);
    readSync(fd, last, 0, 1, size - 1);
    return last[0] === 0x0a;
  } finally {
    closeSync(fd);
  }
};

/** A pipe or a terminal: a write counts when the stream has taken it, and no progress for `timeoutMs` is a failure. */
export const streamSink = (stream: Writable, name: string, timeoutMs: number = DEFAULTS.sinkTimeoutMs): Sink => {
  let broken: Error | null = null;
  stream.on('error', (error) => {
    broken ??= failed(name, error);
  });
  return {
    write(bytes, done) {
      if (broken !== null) {
        done(broken);
        return;
      }
      let settled = false;
      const settle = (error?: Error): void => {
        if (settled) return;
        settled = true;
        clearTimeout(timer);
        done(error);
      };
      const timer = setTimeout(() => {
        broken ??= failed(name, `no progress in ${timeoutMs} ms`);
        settle(broken);
      }, timeoutMs);
      // The buffer is written over by the next array, which may come only after `done`.
      stream.write(bytes, (error) => settle(error ? (broken ??= failed(name, error)) : undefined));
    },
    close() {
      // The stream belongs to whoever made it.
    },
  };
};
