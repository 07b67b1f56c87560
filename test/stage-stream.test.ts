// The adapter between stages and streams: order, backpressure, what a throw does, and that both ways of joining agree.
import fc from 'fast-check';
import t from 'tap';
import { PassThrough, Readable, Writable } from 'node:stream';
import type { Duplex } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { DEFAULTS } from '../lib/defaults.js';
import { Fault } from '../lib/errors.js';
import { Message } from '../lib/message.js';
import type { Stage } from '../lib/message.js';
import { chain, compose, stageStream } from '../lib/stage-stream.js';
import type { AnyStage } from '../lib/stage-stream.js';
import { auditTap } from '../lib/stages/audit-tap.js';
import { classifier } from '../lib/stages/classifier.js';
import { lineSplitter } from '../lib/stages/line-splitter.js';
import { policyGate } from '../lib/stages/policy-gate.js';
import { serializer } from '../lib/stages/serializer.js';
import { callOf, inSteps, MemorySink, policyOf, settings } from './sessions.js';

const FORMS = { compose, chain } as const;
const forms = Object.entries(FORMS) as ReadonlyArray<readonly [string, (...stages: AnyStage[]) => Duplex]>;

const stage = <In, Out>(name: string, step: (batch: readonly In[]) => Out[], more: Partial<Stage<In, Out>> = {}): Stage<In, Out> => ({ name, emits: 'messages', step, ...more });
const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));

/** What came in time, or undefined: a stall must fail one row, not the run. */
const inTime = async <Value>(milliseconds: number, promise: Promise<Value>): Promise<Value | undefined> => {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<undefined>((resolve) => {
    timer = setTimeout(resolve, milliseconds, undefined);
  });
  const first = await Promise.race([promise, late]);
  clearTimeout(timer);
  return first;
};

/** Bytes in, messages of `size` bytes out: one for each byte that came. */
const source = (size: number): Stage<Uint8Array, Message> =>
  stage('source', (chunks) => chunks.flatMap((chunk) => [...chunk].map((byte) => new Message('c2s', Buffer.alloc(size, byte), 0, size, size))));
const bytesOfMessages: Stage<Message, Uint8Array> = stage('bytes', (batch) => batch.map((message) => message.bytes));
const bytesJoined: Stage<Message, Uint8Array> = stage('joined', (batch) => [Buffer.concat(batch.map((message) => message.bytes))]);
const nothing: Stage<Message, Message> = stage('nothing', () => []);
const passing = (commit?: Stage<Message, Message>['commit']): Stage<Message, Message> => stage('passing', (batch) => [...batch], commit === undefined ? {} : { commit });

const collect = async (stream: Duplex, chunks: Iterable<Uint8Array>, slow = false): Promise<{ out: Buffer; error: Error | null }> => {
  const pieces: Uint8Array[] = [];
  try {
    await pipeline(Readable.from(chunks), stream, new Writable({
      objectMode: true,
      highWaterMark: 1,
      write(piece: unknown, _encoding, callback) {
        if (!(piece instanceof Uint8Array)) {
          callback(new TypeError('what leaves is not bytes'));
          return;
        }
        pieces.push(piece);
        if (slow) setImmediate(callback);
        else callback();
      },
    }));
    return { out: Buffer.concat(pieces), error: null };
  } catch (error) {
    return { out: Buffer.concat(pieces), error: error as Error };
  }
};

// Backpressure

t.test('a slow reader gets everything, whatever the arrays look like', async (t) => {
  // A regression: after `push` had returned false inside `_read`, the stream once waited for ever.
  const large = DEFAULTS.arrayBytes / 2 + 1; // two of them make an array that is cut
  const later = (done: (error?: Error) => void): void => void setImmediate(done);
  const soon = (done: (error?: Error) => void): void => queueMicrotask(done);
  const shapes: ReadonlyArray<readonly [name: string, chunks: readonly Buffer[], size: number]> = [
    ['many arrays of one', Array.from({ length: 60 }, (_, i) => Buffer.from([65 + (i % 26)])), 100],
    ['many arrays of many', Array.from({ length: 20 }, (_, i) => Buffer.alloc(30, 65 + i)), 100],
    ['one array of many', [Buffer.from('abcdefghijklmnopqrstuvwxyz'.repeat(4))], 100],
    ['huge arrays that are cut', [Buffer.from('abcde'), Buffer.from('fg'), Buffer.from('h')], large],
  ];
  for (const [form, join] of forms) {
    for (const [name, chunks, size] of shapes) {
      for (const [how, commit] of [['no', undefined], ['a synchronous', (done: (error?: Error) => void) => done()], ['a deferred', later], ['a microtask', soon]] as const) {
        for (const out of [bytesOfMessages, bytesJoined]) {
          for (const slow of [false, true]) {
            const wanted = Buffer.concat(chunks.map((chunk) => Buffer.concat([...chunk].map((byte) => Buffer.alloc(size, byte)))));
            const result = await inTime(10_000, collect(join(source(size), passing(commit), out), chunks, slow));
            if (result === undefined) t.fail(`${form} stalls: ${name}, ${how} commit, ${out.name}, ${slow ? 'slow' : 'fast'} reader`);
            else if (result.error !== null || !result.out.equals(wanted)) t.fail(`${form} loses: ${name}, ${how} commit, ${out.name}: ${String(result.error)}`);
          }
        }
      }
    }
    t.pass(form);
  }
});

t.test('stages that give nothing for a while do not stall it', async (t) => {
  for (const [form, join] of forms) {
    let count = 0;
    const sieve: Stage<Message, Message> = stage('sieve', (batch) => (count++ % 7 === 0 ? [...batch] : []));
    const chunks = Array.from({ length: 200 }, (_, i) => Buffer.from([i % 256]));
    const result = await inTime(10_000, collect(join(source(10), sieve, bytesOfMessages), chunks, true));
    t.equal(result?.out.length, 290, form);
    t.same(await collect(join(source(10), nothing, bytesOfMessages), chunks), { out: Buffer.alloc(0), error: null }, `${form}: nothing at all`);
    t.same(await collect(join(source(10), bytesOfMessages), []), { out: Buffer.alloc(0), error: null }, `${form}: no input`);
  }
});

t.test('a reader that stops holds the source back, and goes on where it stopped', async (t) => {
  const MESSAGE = 1024 * 1024;
  for (const [form, join] of forms) {
    let taken = 0;
    const input = Readable.from((function* chunks() {
      for (let i = 0; i < 100; i++) {
        taken++;
        yield Buffer.from([i]);
      }
    })());
    const stream = join(source(MESSAGE), passing(), bytesOfMessages);
    input.pipe(stream);
    const pieces: Buffer[] = [];
    stream.once('readable', () => undefined);
    await pause(100);
    const before = taken;
    t.ok(before < 30, `${form}: ${before} of 100 chunks were taken while nobody read`);
    t.ok(stream.readableLength <= 2 * MESSAGE, `${form}: ${stream.readableLength} wait to be read`);
    t.ok(stream.writableLength <= 2, `${form}: ${stream.writableLength} chunks wait to be taken`);
    for await (const piece of stream) pieces.push(piece as Buffer);
    t.equal(taken, 100);
    t.same(pieces.map((piece) => piece[0]), Array.from({ length: 100 }, (_, i) => i), `${form}: all in order`);
  }
});

t.test('huge chunks are cut between messages, so that they do not pile up', async (t) => {
  const sizes: number[] = [];
  const watching: Stage<Message, Message> = stage('watching', (batch) => {
    sizes.push(batch.reduce((sum, message) => sum + message.end - message.start, 0));
    return [...batch];
  });
  for (const [form, join] of forms) {
    sizes.length = 0;
    const size = DEFAULTS.arrayBytes / 4 - DEFAULTS.messageBytes; // four fill an array
    const { out } = await collect(join(source(size), watching, bytesOfMessages), [Buffer.alloc(21, 'x')]);
    t.equal(out.length, 21 * size);
    t.ok(Math.max(...sizes) <= DEFAULTS.arrayBytes, `${form}: ${sizes.join(' ')}`);
    t.equal(sizes.length, 6);
    sizes.length = 0;
    await collect(join(source(2 * DEFAULTS.arrayBytes), watching, bytesOfMessages), [Buffer.alloc(3, 'x')]);
    t.equal(sizes.length, 3, `${form}: a message larger than an array travels alone`);
  }
});

// One stage alone

t.test('one stage as a stream', async (t) => {
  const doubled = stageStream(stage('double', (batch: readonly Message[]) => [...batch]));
  const given = [[new Message('c2s', Buffer.from('a\n'), 0, 1, 1)], [new Message('c2s', Buffer.from('b\n'), 0, 1, 1), new Message('c2s', Buffer.from('c\n'), 0, 1, 1)]];
  const out: Message[][] = [];
  for await (const batch of Readable.from(given).pipe(doubled)) out.push(batch as Message[]);
  t.same(out.map((batch) => batch.length), [1, 2], 'messages travel as arrays');
  const lines: Message[][] = [];
  for await (const batch of Readable.from([Buffer.from('a\nb\nc')]).pipe(stageStream(lineSplitter('c2s', () => 10)))) lines.push(batch as Message[]);
  t.same(lines.map((batch) => batch.map(({ seq }) => seq)), [[1, 2], [3]], 'bytes in, arrays out, the last line at the end');
  const alone = chain(stage('upper', (chunks: readonly Uint8Array[]) => chunks.map((chunk) => Buffer.from(Buffer.from(chunk).toString().toUpperCase()))));
  t.equal((await collect(alone, [Buffer.from('a'), Buffer.from('b')])).out.toString(), 'AB', 'a chain of one');
});

t.test('what stages still hold at the end goes through the stages after them', async (t) => {
  const seen: string[] = [];
  const holding = (name: string): Stage<Message, Message> => {
    const kept: Message[] = [];
    return stage(name, (batch) => {
      seen.push(`${name} ${batch.length}`);
      kept.push(...batch);
      return [];
    }, { end: () => kept.splice(0) });
  };
  for (const [form, join] of forms) {
    seen.length = 0;
    let commits = 0;
    const { out } = await collect(join(source(1), holding('first'), holding('second'), passing((done) => {
      commits++;
      done();
    }), bytesOfMessages), [Buffer.from('ab'), Buffer.from('c')]);
    t.equal(out.toString(), 'abc', form);
    t.same(seen, ['first 2', 'first 1', 'second 3'], form);
    t.equal(commits, 1, `${form}: made durable before it leaves`);
  }
});

t.test('both forms give the same', async () => {
  const stages = (): AnyStage[] => {
    const policy = policyOf();
    return [lineSplitter('c2s', () => 200), classifier(() => policy), policyGate(), auditTap('00000000', () => 0, null), serializer({ refused: () => undefined })];
  };
  await fc.assert(
    fc.asyncProperty(fc.array(fc.constantFrom(callOf('t', {}), 'x', '', ' ', callOf('u', { pad: 'x'.repeat(200) }), '{"jsonrpc":"2.0","method":"m"}'), { maxLength: 12 }), fc.integer({ min: 1, max: 300 }), async (lines, step) => {
      const chunks = inSteps(Buffer.from(lines.join('\n')), step);
      const [one, many] = await Promise.all([collect(compose(...stages()), chunks), collect(chain(...stages()), chunks)]);
      return one.error === null && many.error === null && one.out.equals(many.out);
    }),
    settings(40),
  );
});

// Faults

const LINES = [1, 2, 3, 4].map((id) => Buffer.from(`${callOf('t', {}, id)}\nnot JSON\n${callOf('u', {}, id)}\n`));

/** A leg by hand, with a stage of ours at `place`: 0 is right after the splitter, 4 right after the tap. */
const legWith = (join: (...stages: AnyStage[]) => Duplex, place: number, extra: AnyStage) => {
  const sink = new MemorySink();
  const policy = policyOf();
  const refused: Message[] = [];
  const stages: AnyStage[] = [classifier(() => policy), policyGate(), passing(), auditTap('00000000', () => 0, sink), serializer({ refused: (messages) => void refused.push(...messages) })];
  stages.splice(place, 0, extra);
  return { stream: join(lineSplitter('c2s', () => 1_000), ...stages), sink, refused };
};

const failingAt = (array: number, what: unknown): Stage<Message, Message> => {
  let count = 0;
  return stage('broken', (batch) => {
    count++;
    if (count === array) throw what;
    return [...batch];
  });
};

t.test('a stage that throws before the tap: a record for each message, then nothing', async (t) => {
  for (const [form, join] of forms) {
    for (const place of [0, 1, 2, 3]) {
      for (const [what, said] of [[new TypeError('x is undefined'), 'TypeError'], ['a string', 'string']] as const) {
        const { stream, sink } = legWith(join, place, failingAt(2, what));
        const { out, error } = await collect(stream, LINES);
        t.ok(error instanceof Fault, `${form}: a throw at ${place} is a Fault`);
        t.same(sink.records.map(({ code }) => code), ['allowed', 'not_json', 'allowed', 'fault', place === 0 ? 'fault' : 'not_json', 'fault'], `${form} at ${place}`);
        const written = sink.records.filter(({ code }) => code === 'fault');
        t.ok(written.every(({ decision, reason, bytes_out }) => decision === 'error' && bytes_out === 0 && reason === `stage broken failed over an array (${said})`));
        t.ok(!out.toString().includes('"id":2') && !out.toString().includes('"id":3'), `${form}: nothing of that array or after it`);
      }
    }
  }
});

t.test('a stage that throws where every message was refused already is a Fault all the same', async (t) => {
  for (const [form, join] of forms) {
    let count = 0;
    const { stream, sink } = legWith(join, 2, stage('broken', (batch: readonly Message[]) => {
      if (++count === 2) throw new Error('ours');
      return [...batch];
    }));
    const { out, error } = await collect(stream, [LINES[0] as Buffer, Buffer.from('not JSON\n'), LINES[2] as Buffer]);
    t.ok(error instanceof Fault, `${form}: the throw is told`);
    t.notOk(out.toString().includes('"id":3'), `${form}: nothing passes after it`);
    t.notOk(sink.records.some(({ rpc_id, decision }) => rpc_id === '3' && decision === 'forward'));
  }
});

t.test('a stage that throws after the tap ends the leg', async (t) => {
  for (const [form, join] of forms) {
    const { stream, sink } = legWith(join, 4, failingAt(2, new Error('ours')));
    const { out, error } = await collect(stream, LINES);
    t.ok(error instanceof Fault, `${form}: ${String(error)}`);
    t.notOk(out.toString().includes('"id":2') || out.toString().includes('"id":3'), `${form}: nothing passes after it`);
    t.ok(sink.records.length <= 6, `${form}: and nothing more is recorded`);

    const last = legWith(join, 5, stage('broken', () => {
      throw new Error('ours');
    }));
    const ended = await collect(last.stream, LINES);
    t.ok(ended.error instanceof Fault, `${form}: in the last stage: ${String(ended.error)}`);
    t.equal(ended.out.length, 0);
  }
});

t.test('a serializer whose error writer fails ends the leg', async (t) => {
  for (const [form, join] of forms) {
    const policy = policyOf();
    const stream = join(lineSplitter('c2s', () => 1_000), classifier(() => policy), policyGate(), auditTap('00000000', () => 0, null), serializer({
      refused: () => {
        throw new Fault('replies', 'nobody reads the replies');
      },
    }));
    const { out, error } = await collect(stream, LINES);
    t.ok(error instanceof Fault, `${form}: ${String(error)}`);
    t.equal((error as Fault | null)?.where, 'replies', `${form}: the Fault that was thrown is the one that is told`);
    t.equal(out.length, 0, `${form}: nothing passes`);
  }
});

t.test('a tap that throws ends the leg and writes no record twice', async (t) => {
  for (const [form, join] of forms) {
    const sink = new MemorySink();
    const policy = policyOf();
    let arrays = 0;
    const stream = join(lineSplitter('c2s', () => 1_000), classifier(() => policy), policyGate(), auditTap('00000000', () => {
      if (++arrays === 2) throw new Error('no clock');
      return 0;
    }, sink), serializer({ refused: () => undefined }));
    const { out, error } = await collect(stream, LINES);
    t.ok(error instanceof Fault, `${form}: ${String(error)}`);
    t.same(sink.records.map(({ seq }) => seq), [1, 2, 3], form);
    t.notOk(out.toString().includes('"id":2') || out.toString().includes('"id":3'), form);
  }
});

t.test('a stage that throws at the end, or in its commit', async (t) => {
  for (const [form, join] of forms) {
    const atEnd = legWith(join, 2, stage('broken', (batch: readonly Message[]) => [...batch], {
      end() {
        throw new Error('ours');
      },
    }));
    const ended = await collect(atEnd.stream, LINES);
    t.match(ended.error, { name: 'Fault', where: 'stage', message: /broken/ }, `${form} at the end`);
    t.equal(atEnd.sink.records.length, 12, `${form}: what came before is recorded`);

    for (const [how, commit] of [
      ['throws', (): void => { throw new Error('ours'); }],
      ['fails', (done: (error?: Error) => void): void => done(new Fault('sink', 'ours'))],
      ['fails later', (done: (error?: Error) => void): void => void setImmediate(done, new Fault('sink', 'ours'))],
    ] as const) {
      const { stream } = legWith(join, 4, passing(commit));
      const { out, error } = await collect(stream, LINES);
      t.ok(error instanceof Fault, `${form}: a commit that ${how}`);
      t.equal(out.length, 0, `${form}: nothing leaves before it is durable`);
    }
  }
  const bytes = await collect(compose(stage('broken', () => {
    throw new Error('ours');
  })), [Buffer.from('a')]);
  t.match(bytes.error, { name: 'Fault', where: 'stage' }, 'a throw over bytes has no message to mark');
});

t.test('a reader that goes away ends the leg, without a throw', async (t) => {
  for (const [form, join] of forms) {
    const stream = join(source(1_000), passing(), bytesOfMessages);
    const reader = new PassThrough();
    let error: Error | null = null;
    const ended = pipeline(Readable.from((function* endless() {
      for (;;) yield Buffer.from('xx');
    })()), stream, reader).catch((cause: unknown) => {
      error = cause as Error;
    });
    await pause(10);
    reader.destroy(Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }));
    await ended;
    t.match(error, { code: 'EPIPE' }, form);
    t.ok(stream.destroyed, form);
  }
});
