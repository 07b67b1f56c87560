// The one file that knows both stages and Node streams.
// Owns the adapter: backpressure, order, and what happens when a stage throws. Must not know what a stage does.
import { Duplex, pipeline, Transform } from 'node:stream';
import type { TransformCallback } from 'node:stream';
import { DEFAULTS } from './defaults.js';
import { Fault, verdict } from './errors.js';
import { Message, passes } from './message.js';
import type { Stage } from './message.js';

/** A stage whose types no longer matter: what flows between stages is an array, and the composer has checked the order. */
export type AnyStage = Stage<never, unknown>;

type Batch = unknown[];
type Done = (error: Error | null, out?: Batch) => void;

/** The kind of an error alone: messages of V8 quote what they were given, and this goes into the record. */
const failure = (stage: AnyStage, when: string, cause: unknown): Fault => {
  if (cause instanceof Fault) return cause;
  return new Fault('stage', `stage ${stage.name} failed ${when} (${cause instanceof Error ? cause.name : typeof cause})`, cause);
};

/**
 * A throw is a bug of ours. What was on its way must not pass, and the record must say so: the messages of the array go
 * on to the tap, each that is not refused already with a `fault` verdict, and the tap ends the leg after writing them.
 * Where no tap can see them any more, the leg ends at once.
 */
const poisoned = (stage: AnyStage, batch: Batch, fault: Fault): Batch | Fault => {
  const recordable = stage.emits === 'messages' && stage.commit === undefined && batch.length > 0 && batch.every((item) => item instanceof Message);
  if (!recordable) return fault;
  const verdictOfFault = verdict('fault', { reason: fault.message });
  for (const message of batch) {
    message.fault = fault.message;
    if (passes(message)) message.verdict = verdictOfFault;
  }
  return batch;
};

const commit = (stage: AnyStage, out: Batch, done: Done): void => {
  if (stage.commit === undefined) {
    done(null, out);
    return;
  }
  try {
    stage.commit((error) => done(error ?? null, out));
  } catch (cause) {
    done(failure(stage, 'to commit', cause));
  }
};

const run = (stage: AnyStage, batch: Batch, done: Done): void => {
  let out: Batch;
  try {
    out = (stage as unknown as Stage<unknown, unknown>).step(batch);
  } catch (cause) {
    const result = poisoned(stage, batch, failure(stage, 'over an array', cause));
    if (result instanceof Fault) {
      done(result);
      return;
    }
    out = result;
  }
  commit(stage, out, done);
};

const ended = (stage: AnyStage, done: Done): void => {
  let out: Batch;
  try {
    out = stage.end?.() ?? [];
  } catch (cause) {
    done(failure(stage, 'at the end of input', cause));
    return;
  }
  if (out.length === 0) done(null, out);
  else commit(stage, out, done);
};

/** Arrays above `DEFAULTS.arrayBytes` are cut, so that one huge chunk does not pile up behind a slow reader. */
const slices = (batch: Batch): Batch[] => {
  const cuts: Batch[] = [];
  let from = 0;
  let bytes = 0;
  for (let i = 0; i < batch.length; i++) {
    const item = batch[i];
    if (!(item instanceof Message)) return [batch];
    const size = item.end - item.start + DEFAULTS.messageBytes;
    if (i > from && bytes + size > DEFAULTS.arrayBytes) {
      cuts.push(batch.slice(from, i));
      from = i;
      bytes = 0;
    }
    bytes += size;
  }
  if (from === 0) return [batch];
  cuts.push(batch.slice(from));
  return cuts;
};

/** Does `each` for every item, one after the other; a stack that cannot grow, since most steps finish at once. */
const inTurn = <Item>(items: readonly Item[], each: (item: Item, next: (error?: Error | null) => void) => void, done: (error?: Error | null) => void): void => {
  let i = 0;
  let running = false;
  let waiting = false;
  const advance = (error?: Error | null): void => {
    if (error) {
      done(error);
      return;
    }
    waiting = false;
    if (running) return;
    running = true;
    while (!waiting) {
      if (i === items.length) {
        done();
        return;
      }
      waiting = true;
      each(items[i++] as Item, advance);
    }
    running = false;
  };
  advance();
};

/** A Transform that lets its maker wait for the reader between two pushes. */
class Paced extends Transform {
  #resume: (() => void) | null = null;

  /** Pushes, and goes on when the reader wants more. */
  pushPaced(item: unknown, next: () => void): void {
    if (this.push(item)) next();
    else this.#resume = next;
  }

  override _read(size: number): void {
    const resume = this.#resume;
    this.#resume = null;
    resume?.();
    // Also after a resume: when it pushed nothing, Node takes this read for still pending and asks no second time.
    super._read(size);
  }
}

/** What a stream is given, as an array: messages come as one, bytes one by one, and text as the bytes it stands for. */
const batchOf = (chunk: unknown, encoding: BufferEncoding): Batch => {
  if (Array.isArray(chunk)) return chunk;
  return [typeof chunk === 'string' ? Buffer.from(chunk, encoding) : chunk];
};

const isBytes = (item: unknown): boolean => item instanceof Uint8Array;

const pushAll = (stream: Paced, out: Batch, done: (error?: Error | null) => void): void => {
  if (out.length === 0) {
    done();
    return;
  }
  // Bytes leave one by one; messages travel as arrays.
  const items = out.every(isBytes) ? out : [out];
  inTurn(items, (item, next) => stream.pushPaced(item, next), done);
};

/**
 * Any one stage as a Transform. Bytes go in and out as Buffers, messages as arrays; `highWaterMark` is 1 everywhere,
 * because every buffered array may hold a message of several MiB.
 */
export const stageStream = (stage: AnyStage): Transform => {
  const push = (stream: Paced, out: Batch, callback: TransformCallback): void =>
    inTurn(slices(out), (slice, next) => pushAll(stream, slice, next), callback);
  const stream: Paced = new Paced({
    objectMode: true,
    highWaterMark: 1,
    transform(chunk: unknown, encoding, callback) {
      run(stage, batchOf(chunk, encoding), (error, out) => {
        if (error) callback(error);
        else push(stream, out ?? [], callback);
      });
    },
    flush(callback) {
      ended(stage, (error, out) => {
        if (error) callback(error);
        else push(stream, out ?? [], callback);
      });
    },
  });
  return stream;
};

/** The stages as so many Transforms, piped; an error in one ends them all. */
export const chain = (...stages: AnyStage[]): Duplex => {
  const streams = stages.map(stageStream);
  const first = streams[0] as Transform;
  const last = streams.at(-1) as Transform;
  // Not `Duplex.from`, which buffers sixteen arrays on either side.
  const duplex = new Duplex({
    objectMode: true,
    highWaterMark: 1,
    // What went wrong is told by the pipeline; a write to a stream that it has ended says only that.
    write: (chunk, encoding, callback) => void first.write(chunk, encoding, (error) => (error ? undefined : callback())),
    final: (callback) => void first.end(() => callback()),
    read: () => void last.resume(),
    destroy(error, callback) {
      for (const stream of streams) stream.destroy();
      callback(error);
    },
  });
  last.on('data', (item) => {
    if (!duplex.push(item)) last.pause();
  });
  last.on('end', () => duplex.push(null));
  last.pause();
  const failed = (error: Error): void => void duplex.destroy(error);
  if (streams.length > 1) {
    pipeline(streams, (error) => {
      if (error) failed(error);
    });
  } else first.on('error', failed);
  return duplex;
};

/** The stages as one Transform that calls them one after the other: same messages, a fraction of the memory. */
export const compose = (...stages: AnyStage[]): Transform => {
  const [first, ...rest] = stages as [AnyStage, ...AnyStage[]];

  /** Takes an array through the stages from `index` on. */
  const through = (index: number, batch: Batch, done: Done): void => {
    const stage = rest[index];
    if (stage === undefined || batch.length === 0) {
      done(null, batch);
      return;
    }
    run(stage, batch, (error, out) => {
      if (error) done(error);
      else through(index + 1, out ?? [], done);
    });
  };

  const onward = (stream: Paced, batch: Batch, callback: TransformCallback): void =>
    inTurn(
      slices(batch),
      (slice, next) =>
        through(0, slice, (error, out) => {
          if (error) next(error);
          else pushAll(stream, out ?? [], next);
        }),
      callback,
    );

  /** At the end of input each stage may still give something, which the ones after it see. */
  const drain = (stream: Paced, callback: TransformCallback): void =>
    inTurn(
      stages.map((_, index) => index),
      (index, next) =>
        ended(stages[index] as AnyStage, (error, out) => {
          if (error) next(error);
          else
            through(index, out ?? [], (failure, last) => {
              if (failure) next(failure);
              else pushAll(stream, last ?? [], next);
            });
        }),
      callback,
    );

  const stream: Paced = new Paced({
    readableObjectMode: false,
    writableObjectMode: true,
    readableHighWaterMark: 1,
    writableHighWaterMark: 1,
    transform(chunk: unknown, encoding, callback) {
      run(first, batchOf(chunk, encoding), (error, out) => {
        if (error) callback(error);
        else onward(stream, out ?? [], callback);
      });
    },
    flush(callback) {
      drain(stream, callback);
    },
  });
  return stream;
};
