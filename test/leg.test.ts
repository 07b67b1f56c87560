// One direction as a whole: records before bytes, replies, counts, and what the failure of any part lets through (nothing).
import t from 'tap';
import { Readable, Writable } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { DEFAULTS } from '../lib/defaults.js';
import { Fault } from '../lib/errors.js';
import { createChain, createLeg, newSession } from '../lib/leg.js';
import type { Leg, LegOptions } from '../lib/leg.js';
import type { Sink } from '../lib/audit/sink.js';
import { callOf, DENIED, drive, inSteps, limitsOf, MemorySink, policyOf, rateOf, recordsOf, redactionOf } from './sessions.js';

type Form = readonly [name: string, create: (options: LegOptions) => Leg];
const FORMS: readonly Form[] = [['leg', createLeg], ['chain', createChain]];

const POLICY = policyOf({ tool: (name) => (name === 'denied' ? DENIED : policyOf().tool(name)), redaction: redactionOf('token') });
const fixed = (parts: Partial<LegOptions> = {}): LegOptions => ({ policy: POLICY, sink: null, session: '0a0b0c0d', now: () => 0, wall: () => 7, ...parts });

const SESSION = [
  callOf('read', { path: 'a' }, 1), callOf('denied', {}, 2), '', callOf('read', { token: 'x' }, 3), 'not JSON', '{"jsonrpc":"2.0","method":"vendor/x"}', ' ', callOf('read', {}, '\u2028'),
];
const INPUT = Buffer.from(SESSION.join('\n'));

t.test('a session', async (t) => {
  for (const [form, create] of FORMS) {
    const sink = new MemorySink();
    const leg = create(fixed({ sink }));
    const { forwarded, replies, error } = await drive(leg, [INPUT]);
    t.equal(error, null);
    t.equal(forwarded.toString(), `${[SESSION[0], SESSION[3]?.replace('"x"', '"«redacted»"'), SESSION[5], SESSION[7]?.replace('\u2028', '\\u2028')].join('\n')}\n`, form);
    t.same(replies.trimEnd().split('\n').map((line) => JSON.parse(line) as { id: unknown; error: { data: { event: string } } }).map(({ id, error: { data } }) => [id, data.event]), [[2, '0a0b0c0d.c.000002'], [null, '0a0b0c0d.c.000004']]);
    t.same(sink.records.map(({ seq, code, bytes_out }) => [seq, code, bytes_out > 0]), [[1, 'allowed', true], [2, 'tool_denied', false], [3, 'allowed', true], [4, 'not_json', false], [5, 'allowed', true], [6, 'allowed', true]]);
    t.match(leg.stats(), { messages: 6, forward: 4, deny: 1, drop: 1, error: 0, blank: 2, replies: 2, replies_unwritten: 0, redacted: 1, bytes_out: forwarded.length - 4 });
    t.equal(leg.stats().bytes_in, SESSION.filter((line) => line.trim() !== '').reduce((sum, line) => sum + Buffer.byteLength(line), 0));
    t.equal(leg.sent(forwarded.length), 6);
    t.equal(leg.sent(0), 0);
  }
});

t.test('options', async (t) => {
  const s2c = new MemorySink();
  await drive(createLeg(fixed({ sink: s2c, dir: 's2c' })), [INPUT]);
  t.match(s2c.records[0], { dir: 's2c', event: '0a0b0c0d.s.000001', ts_ms: 7 });
  t.match(newSession(), /^[0-9a-f]{8}$/);
  t.not(newSession(), newSession());
  const sink = new MemorySink();
  const leg = createLeg({ policy: POLICY, sink });
  const before = Date.now();
  await drive(leg, [INPUT]);
  t.ok((sink.records[0]?.ts_ms ?? 0) >= before, 'the wall clock');
  t.equal(sink.records[0]?.event, `${leg.session}.c.000001`);
  let policy = POLICY;
  const asking = createLeg(fixed({ policy: () => policy }));
  asking.replies.resume();
  const taken = (text: string): Promise<void> => new Promise((resolve) => asking.stream.write(Buffer.from(text), () => resolve()));
  const read = asking.stream.toArray();
  await taken(`${callOf('read', {}, 1)}\n`);
  policy = policyOf({ tool: () => DENIED });
  await taken(`${callOf('read', {}, 2)}\n`);
  asking.stream.end();
  t.equal(Buffer.concat((await read) as Buffer[]).toString(), `${callOf('read', {}, 1)}\n`, 'a policy may change between arrays');
});

t.test('refusals that are not answered are counted', async (t) => {
  for (const [form, create] of FORMS) {
    const leg = create(fixed({ answer: false }));
    const { replies } = await drive(leg, [INPUT, Buffer.from('\n{"jsonrpc":"2.0","id":1,"result":[]}\n{"jsonrpc":"2.0","method":"vendor/x","params":1}\n')]);
    t.equal(replies, '', form);
    t.match(leg.stats(), { replies: 0, replies_unwritten: 2 }, `${form}: only those that wanted an answer`);
  }
});

t.test('replies that nobody reads: up to the cap, then a Fault', async (t) => {
  const line = `${callOf('denied', {}, 1)}\n`;
  const chunk = Buffer.from(line.repeat(500));
  for (const [form, create] of FORMS) {
    const leg = create(fixed());
    let sent = 0;
    let error: Error | null = null;
    const out: unknown[] = [];
    const endless = (function* chunks() {
      for (; sent < 400; sent++) yield chunk;
      yield Buffer.from(`${callOf('read', {}, 2)}\n`);
    })();
    try {
      await pipeline(Readable.from(endless), leg.stream, new Writable({
        objectMode: true,
        write(piece, _encoding, callback) {
          out.push(piece);
          callback();
        },
      }));
    } catch (cause) {
      error = cause as Error;
    }
    t.ok(error instanceof Fault, `${form}: ${String(error)}`);
    t.equal((error as Fault | null)?.where, 'replies', form);
    t.equal(out.length, 0, `${form}: nothing was forwarded`);
    t.ok(sent * chunk.length < 4 * DEFAULTS.replyBytes, `${form}: it took ${sent} chunks`);
    t.ok(leg.replies.readableLength < DEFAULTS.replyBytes + 1024 * 1024, `${form}: ${leg.replies.readableLength} bytes are queued`);
  }
});

// Nothing leaves without its record

const LINES = Array.from({ length: 6 }, (_, i) => callOf(i === 3 ? 'denied' : 'read', { token: 's', i }, i));

t.test('a sink that fails at its Nth write, for every N until a run passes untouched', async (t) => {
  for (const [form, create] of FORMS) {
    for (const later of [false, true]) {
      let untouched = false;
      for (let n = 1; !untouched; n++) {
        const memory = new MemorySink(n);
        const sink: Sink = later
          ? { write: (bytes, done) => memory.write(Uint8Array.from(bytes), (error) => void setImmediate(done, error)), close: () => undefined }
          : memory;
        const leg = create(fixed({ sink }));
        const { forwarded, error } = await drive(leg, LINES.map((line) => Buffer.from(`${line}\n`)));
        const left = forwarded.toString().split('\n').filter((line) => line !== '').map((line) => (JSON.parse(line) as { id: number }).id);
        const recorded = memory.records.filter(({ decision }) => decision === 'forward').map(({ rpc_id }) => Number(rpc_id));
        untouched = error === null;
        const name = `${form}, ${later ? 'deferred' : 'synchronous'}, write ${n}`;
        t.same(left, recorded.slice(0, left.length), `${name}: what left was recorded`);
        t.equal(memory.writes.length, untouched ? LINES.length : n - 1, `${name}: nothing is written after the failure`);
        if (untouched) t.equal(n, LINES.length + 1, `${name}: the run without a failure`);
        if (n > 20) break;
      }
    }
  }
});

t.test('the record is in the sink before the first byte of its message leaves', async (t) => {
  for (const [form, create] of FORMS) {
    const events: string[] = [];
    const sink = new MemorySink(0, (text) => {
      for (const record of recordsOf(text)) events.push(`record ${record.rpc_id ?? ''}`);
    });
    await drive(create(fixed({ sink })), inSteps(Buffer.from(`${LINES.join('\n')}\n`), 50), (piece) => {
      for (const line of Buffer.from(piece).toString().trimEnd().split('\n')) events.push(`left ${(JSON.parse(line) as { id: number }).id}`);
    });
    for (const id of [0, 1, 2, 4, 5]) {
      const [recorded, left] = [events.indexOf(`record ${id}`), events.indexOf(`left ${id}`)];
      t.ok(recorded >= 0 && left > recorded, `${form}: ${id}`);
    }
    t.ok(events.includes('record 3') && !events.includes('left 3'));
  }
});

t.test('a reader that goes away', async (t) => {
  for (const [form, create] of FORMS) {
    const sink = new MemorySink();
    const leg = create(fixed({ sink }));
    leg.replies.resume();
    let pieces = 0;
    const gone = new Writable({
      write(_piece, _encoding, callback) {
        callback(++pieces === 2 ? Object.assign(new Error('write EPIPE'), { code: 'EPIPE' }) : null);
      },
    });
    const input = Readable.from((function* endless() {
      for (let id = 0; ; id++) yield Buffer.from(`${callOf('read', {}, id)}\n`);
    })());
    await t.rejects(pipeline(input, leg.stream, gone), { code: 'EPIPE' }, form);
    t.ok(leg.stream.destroyed && input.destroyed, `${form}: both ends are let go`);
    t.ok(sink.records.length < 100, `${form}: ${sink.records.length} records`);
  }
});

t.test('a bug of ours in a policy: a fault record, and nothing after it', async (t) => {
  const broken = policyOf({
    tool: (name) => {
      if (name === 'boom') throw new RangeError('policy bug');
      return policyOf().tool(name);
    },
  });
  const chunks = [callOf('read', {}, 1), `${callOf('read', {}, 2)}\n${callOf('boom', {}, 3)}\nnot JSON`, callOf('read', {}, 4)].map((text) => Buffer.from(`${text}\n`));
  for (const [form, create] of FORMS) {
    const sink = new MemorySink();
    const leg = create(fixed({ sink, policy: broken }));
    const { forwarded, error } = await drive(leg, chunks);
    t.match(error, { name: 'Fault', where: 'stage' }, form);
    t.same(sink.records.map(({ decision, code }) => [decision, code]), [['forward', 'allowed'], ['error', 'fault'], ['error', 'fault'], ['drop', 'not_json']], form);
    t.match(sink.records[1]?.reason, /policy-gate failed over an array \(RangeError\)$/);
    t.ok(!/"id":[234]/.test(forwarded.toString()), `${form}: nothing of that array or after it`);
  }
});

t.test('a clock that fails', async (t) => {
  for (const [form, create] of FORMS) {
    const sink = new MemorySink();
    let asked = 0;
    const leg = create(fixed({
      sink,
      policy: policyOf({ limits: limitsOf({ rates: [rateOf({ limit: 100 })] }) }),
      now: () => {
        if (++asked === 2) throw new Error('no clock');
        return 0;
      },
    }));
    const { forwarded, error } = await drive(leg, LINES.map((line) => Buffer.from(`${line}\n`)));
    t.match(error, { name: 'Fault', where: 'stage' }, form);
    t.same(sink.records.map(({ code }) => code), ['allowed', 'fault'], form);
    t.ok(!/"id":[12345]/.test(forwarded.toString()), form);
  }
});

t.test('memory with a stalled reader', async (t) => {
  const line = Buffer.from(`${callOf('read', { pad: 'x'.repeat(1024 * 1024) })}\n`);
  const leg = createLeg(fixed({ policy: policyOf({ limits: limitsOf({ maxBytes: 4 * 1024 * 1024 }) }), sink: null }));
  let taken = 0;
  const input = Readable.from((function* chunks() {
    for (let i = 0; i < 100; i++) {
      for (const piece of inSteps(line, 64 * 1024)) {
        taken += piece.length;
        yield piece;
      }
    }
  })());
  input.pipe(leg.stream);
  await new Promise((resolve) => setTimeout(resolve, 300));
  t.ok(taken < 20 * 1024 * 1024, `${Math.round(taken / 1024 / 1024)} MiB were taken while nobody read`);
  let read = 0;
  for await (const piece of leg.stream) read += (piece as Buffer).length;
  t.equal(read, 100 * line.length, 'and all of it comes when somebody does');
});
