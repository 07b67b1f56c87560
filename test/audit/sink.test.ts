// Where records go: a file that is held alone, whole batches or nothing, and streams that may stall or break.
import t from 'tap';
import { spawnSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, renameSync, rmSync, symlinkSync, truncateSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { PassThrough, Writable } from 'node:stream';
import { Fault } from '../../lib/errors.js';
import { fileSink, streamSink } from '../../lib/audit/sink.js';
import type { Sink } from '../../lib/audit/sink.js';

const put = (sink: Sink, text: string): Promise<Error | undefined> => new Promise((resolve) => sink.write(Buffer.from(text), resolve));
const pause = (milliseconds: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, milliseconds));
const BETWEEN_CHECKS = 130; // a file is looked after every 100 ms

// Files

t.test('a file', async (t) => {
  const path = join(t.testdir({}), 'audit.jsonl');
  writeFileSync(path, 'old\n');
  const sink = fileSink(path);
  t.equal(readFileSync(path, 'utf8'), '', 'created fresh');
  t.equal(await put(sink, 'a\n'), undefined);
  t.equal(readFileSync(path, 'utf8'), 'a\n', 'there before done is called');
  t.equal(await put(sink, ''), undefined);
  const large = `${'x'.repeat(3_000_000)}\n`;
  t.equal(await put(sink, large), undefined);
  t.equal(readFileSync(path, 'utf8'), `a\n${large}`);
  sink.close();
  t.notOk(existsSync(`${path}.lock`), 'nothing is left behind');
});

t.test('appending', async (t) => {
  const path = join(t.testdir({}), 'audit.jsonl');
  for (const [before, after] of [[null, 'n\n'], ['', 'n\n'], ['old\n', 'old\nn\n'], ['old\n{"torn":', 'old\n{"torn":\nn\n']] as const) {
    if (before === null) rmSync(path, { force: true });
    else writeFileSync(path, before);
    const sink = fileSink(path, { append: true });
    t.equal(await put(sink, 'n\n'), undefined);
    sink.close();
    t.equal(readFileSync(path, 'utf8'), after, JSON.stringify(before));
  }
});

t.test('only its owner may read a new file', { skip: process.platform === 'win32' }, async (t) => {
  const { statSync } = await import('node:fs');
  const path = join(t.testdir({}), 'audit.jsonl');
  const sink = fileSink(path);
  t.equal(statSync(path).mode & 0o077, 0);
  sink.close();
});

t.test('one process a file', async (t) => {
  const path = join(t.testdir({}), 'audit.jsonl');
  const first = fileSink(path);
  t.equal(await put(first, 'a\n'), undefined);
  for (const append of [false, true]) t.throws(() => fileSink(path, { append }), new RegExp(`process ${process.pid} .*audit\\.jsonl\\.lock`), 'the second is told who holds it');
  t.equal(readFileSync(path, 'utf8'), 'a\n', 'and has touched nothing');
  t.equal(await put(first, 'b\n'), undefined, 'the first goes on');
  first.close();
  const next = fileSink(path, { append: true });
  t.equal(await put(next, 'c\n'), undefined);
  next.close();
  t.equal(readFileSync(path, 'utf8'), 'a\nb\nc\n');
});

t.test('a lock whose owner is gone is taken over', async (t) => {
  const path = join(t.testdir({}), 'audit.jsonl');
  const gone = spawnSync(process.execPath, ['-e', '']).pid;
  for (const stale of [String(gone), '', 'not a number', '-1', '0']) {
    writeFileSync(`${path}.lock`, stale);
    const sink = fileSink(path);
    t.equal(readFileSync(`${path}.lock`, 'utf8'), String(process.pid), `after ${JSON.stringify(stale)}`);
    sink.close();
  }
  writeFileSync(`${path}.lock`, '1'); // alive, but not ours to signal or to push aside
  t.throws(() => fileSink(path), /process 1 /);
  t.equal(readFileSync(`${path}.lock`, 'utf8'), '1', 'a lock that is not ours stays');
});

t.test('what cannot be opened throws, before anything is written', async (t) => {
  const folder = t.testdir({ folder: {} });
  t.throws(() => fileSink(join(folder, 'missing', 'audit.jsonl')), { code: 'ENOENT' });
  t.throws(() => fileSink(join(folder, 'folder')), { code: 'EISDIR' });
});

t.test('a full disk', { skip: !existsSync('/dev/full') }, async (t) => {
  const sink = fileSink('/dev/full');
  for (let i = 0; i < 2; i++) {
    const error = await put(sink, 'a\n');
    t.ok(error instanceof Fault);
    t.match(error, { where: 'sink', message: /could not be written to \/dev\/full: ENOSPC/ });
  }
  sink.close();
  t.notOk(existsSync('/dev/full.lock'), 'a device has no lock');
});

/** Writes batches to a file that the shell lets grow to `blocks` kilobytes at most. */
const WRITER = `
import { fileSink } from ${JSON.stringify(new URL('../../lib/audit/sink.js', import.meta.url).href)};
process.on('SIGXFSZ', () => undefined);
const sink = fileSink(process.argv[1]);
const batch = Buffer.from('0123456789abcde\\n'.repeat(100));
for (let i = 0; i < 10; i++) sink.write(batch, (error) => console.log(error ? error.message : 'taken'));
sink.close();
`;

t.test('a write that is cut short leaves no part of its batch', { skip: process.platform === 'win32' }, async (t) => {
  const path = join(t.testdir({}), 'audit.jsonl');
  const { stdout } = spawnSync('bash', ['-c', 'ulimit -f 4; exec "$0" --input-type=module -e "$1" "$2"', process.execPath, WRITER, path], { encoding: 'utf8' });
  const results = stdout.trim().split('\n');
  t.same(results.slice(0, 2), ['taken', 'taken'], '4 kB hold two batches of 1 600 bytes');
  t.equal(results.length, 10);
  t.ok(results.slice(2).every((line) => /could not be written/.test(line)), 'the others are refused');
  t.equal(readFileSync(path, 'utf8'), '0123456789abcde\n'.repeat(200), 'and leave nothing behind');
});

t.test('a file that vanishes is noticed', async (t) => {
  const folder = t.testdir({});
  const deleted = join(folder, 'deleted.jsonl');
  const sink = fileSink(deleted);
  t.equal(await put(sink, 'a\n'), undefined);
  rmSync(deleted);
  await pause(BETWEEN_CHECKS);
  t.match(await put(sink, 'b\n'), { where: 'sink', message: /deleted, or somebody else writes/ });
  sink.close();

  const short = join(folder, 'short.jsonl');
  const second = fileSink(short);
  t.equal(await put(second, 'aaaa\nbbbb\n'), undefined);
  truncateSync(short, 5);
  await pause(BETWEEN_CHECKS);
  t.match(await put(second, 'c\n'), { where: 'sink', message: /deleted, or somebody else writes/ });
  t.equal(readFileSync(short, 'utf8'), 'aaaa\n', 'what is left of it is not padded with zeros');
  second.close();

  const moved = join(folder, 'moved.jsonl');
  const third = fileSink(moved);
  t.equal(await put(third, 'a\n'), undefined);
  renameSync(moved, `${moved}.1`);
  await pause(BETWEEN_CHECKS);
  t.equal(await put(third, 'b\n'), undefined, 'a renamed file is still there');
  t.equal(readFileSync(`${moved}.1`, 'utf8'), 'a\nb\n');
  third.close();
});

t.test('closing is not spoiled by a lock that somebody removed', async (t) => {
  const path = join(t.testdir({}), 'audit.jsonl');
  const sink = fileSink(path);
  rmSync(`${path}.lock`);
  t.doesNotThrow(() => sink.close(), 'what was written is safe, so an end is an end');
});

t.test('a link to a file is the file', { skip: process.platform === 'win32' }, async (t) => {
  const folder = t.testdir({});
  mkdirSync(join(folder, 'there'));
  const target = join(folder, 'there', 'audit.jsonl');
  writeFileSync(target, 'old\n');
  symlinkSync(target, join(folder, 'link.jsonl'));
  const sink = fileSink(join(folder, 'link.jsonl'), { append: true });
  t.equal(await put(sink, 'a\n'), undefined);
  sink.close();
  t.equal(readFileSync(target, 'utf8'), 'old\na\n');
});

// Streams

t.test('a stream takes a record when its write is done', async (t) => {
  const order: string[] = [];
  const sink = streamSink(new Writable({
    highWaterMark: 1,
    write(chunk: Buffer, _encoding, callback) {
      setTimeout(() => {
        order.push(`stream ${chunk.toString()}`);
        callback();
      }, 5);
    },
  }), 'the log');
  t.equal(await put(sink, 'a'), undefined);
  order.push('done');
  t.equal(await put(sink, 'b'), undefined);
  t.same(order, ['stream a', 'done', 'stream b']);
  sink.close();
});

t.test('a stream that breaks is broken for good', async (t) => {
  let writes = 0;
  const sink = streamSink(new Writable({
    write(_chunk, _encoding, callback) {
      writes++;
      callback(writes === 2 ? new Error('EPIPE') : null);
    },
  }), 'the log');
  t.equal(await put(sink, 'a'), undefined);
  for (let i = 0; i < 3; i++) t.match(await put(sink, 'b'), { where: 'sink', message: /could not be written to the log: EPIPE/ });
  t.equal(writes, 2);

  const closed = new PassThrough();
  const late = streamSink(closed, 'the log');
  closed.destroy(new Error('gone'));
  await pause(5);
  t.match(await put(late, 'a'), { where: 'sink', message: /gone/ });
  const ended = new PassThrough();
  ended.end();
  t.match(await put(streamSink(ended, 'the log'), 'a'), { where: 'sink' }, 'a stream that has ended takes nothing');
});

t.test('a stream that stalls', async (t) => {
  let release: () => void = () => undefined;
  const sink = streamSink(new Writable({
    write(_chunk, _encoding, callback) {
      release = callback;
    },
  }), 'the log', 30);
  let calls = 0;
  const error = await new Promise<Error | undefined>((resolve) => {
    sink.write(Buffer.from('a'), (failure) => {
      calls++;
      resolve(failure);
    });
  });
  t.match(error, { where: 'sink', message: /no progress in 30 ms/ });
  release();
  await pause(5);
  t.equal(calls, 1, 'done is called once');
  t.match(await put(sink, 'b'), { where: 'sink' }, 'and what comes late does not mend it');
});
