// The tap: one record for each message before it may leave, its counts, and what happens when a record is not taken.
import t from 'tap';
import { Fault, verdict } from '../../lib/errors.js';
import type { Message } from '../../lib/message.js';
import type { Sink } from '../../lib/audit/sink.js';
import { auditTap } from '../../lib/stages/audit-tap.js';
import type { AuditTap } from '../../lib/stages/audit-tap.js';
import { ALLOWED, DENIED, MemorySink, messageOf, recordsOf } from '../sessions.js';

const settled = (seq: number, given = ALLOWED): Message => Object.assign(messageOf(`{"seq":${seq}}`, seq), { verdict: given });
const committed = (tap: AuditTap): Promise<Error | undefined> => new Promise((resolve) => tap.commit?.(resolve));

t.test('one record a message, one write an array', async (t) => {
  const sink = new MemorySink();
  let time = 1_000;
  const tap = auditTap('0a0b0c0d', () => time++, sink);
  const batch = [settled(1), settled(2, DENIED), settled(3, verdict('not_json'))];
  t.same(tap.step(batch), batch, 'the same messages, in order');
  t.same(sink.writes, [], 'nothing is written by the step');
  t.equal(await committed(tap), undefined);
  t.equal(sink.writes.length, 1);
  tap.step([settled(4)]);
  t.equal(await committed(tap), undefined);
  t.same(sink.records.map(({ event, ts_ms, seq, decision, code }) => [event, ts_ms, seq, decision, code]), [
    ['0a0b0c0d.c.000001', 1000, 1, 'forward', 'allowed'], ['0a0b0c0d.c.000002', 1000, 2, 'deny', 'tool_denied'],
    ['0a0b0c0d.c.000003', 1000, 3, 'drop', 'not_json'], ['0a0b0c0d.c.000004', 1001, 4, 'forward', 'allowed'],
  ]);
  t.same(batch.map(({ event }) => event), ['', '0a0b0c0d.c.000002', '0a0b0c0d.c.000003'], 'a refusal can be named in its reply');
});

t.test('counts', async (t) => {
  const tap = auditTap('00000000', () => 0, null);
  const masked = settled(5);
  masked.output = Buffer.from('12345');
  masked.edits = [{ start: 0, end: 1, bytes: Buffer.from('x'), kind: 'mask', path: 'a' }, { start: 1, end: 2, bytes: Buffer.from('x'), kind: 'mask', path: 'b' }];
  const broken = settled(6);
  broken.output = Buffer.from('123');
  broken.edits = [{ start: 0, end: 1, bytes: Buffer.from('x'), kind: 'line_break', path: 'a' }];
  tap.step([settled(1), settled(2, DENIED), settled(3, verdict('oversize')), settled(4, verdict('splice_failed')), masked, broken]);
  t.same(tap.tally, { messages: 6, forward: 3, deny: 1, drop: 1, hold: 0, error: 1, bytes_in: 6 * 9, bytes_out: 9 + 5 + 3, redacted: 1 });
  t.equal(await committed(tap), undefined, 'without a sink there is nothing to wait for');
});

t.test('an unsettled message is a fault of ours, written down before the leg ends', async (t) => {
  const sink = new MemorySink();
  const tap = auditTap('00000000', () => 0, sink);
  const unsettled = messageOf('{}', 2);
  tap.step([settled(1), unsettled]);
  const error = await committed(tap);
  t.ok(error instanceof Fault);
  t.match(error, { where: 'stage' });
  t.same(sink.records.map(({ decision, code }) => [decision, code]), [['forward', 'allowed'], ['error', 'fault']]);
  t.equal(unsettled.verdict?.decision, 'error');
  tap.step([settled(3)]);
  t.ok((await committed(tap)) instanceof Fault, 'nothing passes after it');

  const bare = auditTap('00000000', () => 0, null);
  bare.step([messageOf('{}')]);
  t.ok((await committed(bare)) instanceof Fault, 'also where no records are kept');
});

t.test('a record that is not taken', async (t) => {
  const tap = auditTap('00000000', () => 0, new MemorySink(2));
  tap.step([settled(1)]);
  t.equal(await committed(tap), undefined);
  tap.step([settled(2)]);
  t.match(await committed(tap), { message: 'disk full' });
  const both = auditTap('00000000', () => 0, new MemorySink(1));
  both.step([messageOf('{}')]);
  t.match(await committed(both), { message: 'disk full' }, 'the sink\'s failure is told first');
});

t.test('a sink that takes its time holds the array back', async (t) => {
  let take: () => void = () => undefined;
  let text = '';
  const slow: Sink = {
    write(bytes, done) {
      take = () => {
        text += Buffer.from(bytes).toString();
        done();
      };
    },
    close() {
      // Nothing is held.
    },
  };
  const tap = auditTap('00000000', () => 0, slow);
  let ended = false;
  for (const seq of [1, 2]) {
    ended = false;
    tap.step([settled(seq)]);
    tap.commit?.(() => {
      ended = true;
    });
    t.equal(ended, false);
    take();
    t.equal(ended, true);
  }
  t.same(recordsOf(text).map(({ seq }) => seq), [1, 2], 'the bytes were still those of their array');
});

t.test('a failing step leaves no old record to be written again', async (t) => {
  const sink = new MemorySink();
  let broken = false;
  const tap = auditTap('00000000', () => {
    if (broken) throw new Error('no clock');
    return 0;
  }, sink);
  tap.step([settled(1)]);
  t.equal(await committed(tap), undefined);
  broken = true;
  t.throws(() => tap.step([settled(2)]));
  t.ok((await committed(tap)) instanceof Error, 'a commit after a step that threw must fail');
  t.same(sink.records.map(({ seq }) => seq), [1]);
});
