// Opens what the filter writes beside standard output, and refuses a target that is in use for something else.
// Must not write a byte: a file is cut to nothing only after every target was found to be its own.
import { constants, createWriteStream, fstatSync, openSync, readdirSync, readlinkSync, statSync } from 'node:fs';
import type { Stats } from 'node:fs';
import { Socket } from 'node:net';
import type { Writable } from 'node:stream';

/** A place that bytes come from or go to, as the user knows it. */
export interface Place {
  readonly what: string;
  /** A path, or the number of an open descriptor. */
  readonly at: string | number;
}

const statOf = (at: string | number): Stats | null => {
  try {
    return typeof at === 'number' ? fstatSync(at) : statSync(at);
  } catch {
    return null; // not there yet, or not open: nothing to share
  }
};

/** True where what is written to a descriptor is thrown away. */
export const isNull = (fd: number): boolean => {
  const stat = statOf(fd);
  return stat === null || (stat.isCharacterDevice() && stat.rdev === statOf('/dev/null')?.rdev);
};

/** Terminals and devices may be shared; a file, a pipe or a socket may not. */
const identity = (place: Place): string | null => {
  const stat = statOf(place.at);
  return stat !== null && (stat.isFile() || stat.isFIFO() || stat.isSocket()) ? `${stat.dev}:${stat.ino}` : null;
};

/** Says which of the places `target` is the same as; null where it is its own. */
export const sharedWith = (target: Place, places: readonly Place[]): string | null => {
  const wanted = identity(target);
  if (wanted === null) return null;
  return places.find((place) => identity(place) === wanted)?.what ?? null;
};

/**
 * True for a descriptor that the shell opened for us, as far as the system tells: Node has a dozen of its own (event
 * queues, and pipes both ends of which are in this process), and writing there would wreck it.
 */
const isInherited = (fd: number): boolean => {
  let target: string;
  try {
    target = readlinkSync(`/proc/self/fd/${fd}`);
  } catch {
    return fstatSync(fd).isFile(); // no such list on this system: only a file is beyond doubt
  }
  // Node opens the null device for itself; whoever wants to drop the errors leaves --errors out.
  if (target.startsWith('anon_inode:') || target === '/dev/null') return false;
  if (!target.startsWith('pipe:')) return true;
  const both = readdirSync('/proc/self/fd').filter((other) => {
    try {
      return readlinkSync(`/proc/self/fd/${other}`) === target;
    } catch {
      return false; // the descriptor that lists the folder is gone by now
    }
  });
  return both.length === 1;
};

/** An open descriptor as a stream; a pipe gets a socket, so that a slow reader blocks no thread. Throws where it is not ours to write to. */
const openDescriptor = (fd: number): Writable => {
  if (fd < 2) throw new Error(fd === 0 ? 'it is standard input' : 'it is standard output, which belongs to forwarded lines');
  if (!isInherited(fd)) throw new Error(`descriptor ${fd} was not opened by the shell (write ${fd}>FILE behind the command)`);
  const stat = fstatSync(fd);
  return stat.isFIFO() || stat.isSocket() ? new Socket({ fd, readable: false, writable: true }) : createWriteStream('', { fd });
};

/** A named pipe as a stream, which a reader that is slow or absent cannot block; null where the path is none. Throws without a reader. */
export const openPipe = (path: string): Writable | null => {
  if (statOf(path)?.isFIFO() !== true) return null;
  const fd = openSync(path, constants.O_WRONLY | constants.O_NONBLOCK);
  return new Socket({ fd, readable: false, writable: true });
};

/** Resolves to true when `stream` has ended and given everything away, to false when it makes no progress for `patienceMs`. */
export const drained = (stream: Writable, waiting: () => number, patienceMs: number): Promise<boolean> =>
  new Promise((resolve) => {
    let last = Infinity;
    let checked = process.hrtime.bigint();
    const end = (all: boolean): void => {
      clearInterval(timer);
      resolve(all);
    };
    const look = (): void => {
      if (stream.writableFinished) end(true);
      else if (stream.destroyed) end(false);
      else if (waiting() < last) {
        last = waiting();
        checked = process.hrtime.bigint();
      } else if (process.hrtime.bigint() - checked > BigInt(patienceMs) * 1_000_000n) end(false);
    };
    const timer = setInterval(look, 20);
    stream.once('close', look);
    stream.once('finish', look);
    look();
  });

/** What `--errors` names: a path, or `fd:N`. */
export const errorsPlace = (errors: string): Place => {
  const fd = /^fd:(\d{1,6})$/.exec(errors)?.[1];
  return { what: 'the errors', at: fd === undefined ? errors : Number(fd) };
};

/** Opens it; a file is created fresh. Rejects where that is not possible. */
export const openErrors = async ({ at }: Place): Promise<Writable> => {
  if (typeof at === 'number') return openDescriptor(at);
  const stream = createWriteStream(at, { mode: 0o600 });
  await new Promise<void>((resolve, reject) => {
    stream.once('open', () => resolve());
    stream.once('error', reject);
  });
  return stream;
};
