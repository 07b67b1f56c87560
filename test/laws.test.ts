// The laws of the house, each over random sessions and random policies.
import fc from 'fast-check';
import t from 'tap';
import type { AuditRecord } from '../lib/audit/record.js';
import { CODES } from '../lib/errors.js';
import { lineBreakEdits } from '../lib/json/splice.js';
import { createChain, createLeg } from '../lib/leg.js';
import type { Leg, LegOptions } from '../lib/leg.js';
import { passes } from '../lib/message.js';
import type { Message, Policy, Stage, Verdict } from '../lib/message.js';
import { auditTap } from '../lib/stages/audit-tap.js';
import { classifier } from '../lib/stages/classifier.js';
import { errorWriter, wantsReply } from '../lib/stages/error-writer.js';
import { lineSplitter } from '../lib/stages/line-splitter.js';
import { policyGate } from '../lib/stages/policy-gate.js';
import { rateLimiter } from '../lib/stages/rate-limiter.js';
import { redactor } from '../lib/stages/redactor.js';
import { serializer } from '../lib/stages/serializer.js';
import { bytesOf, callOf, cutAt, DENY_PATTERNS, drive, inSteps, MemorySink, policyFrom, policyOf, policyParts, recordsOf, redactionOf, session, settings, trimmed } from './sessions.js';
import type { Line } from './sessions.js';

const lineText = (message: Message): string => Buffer.from(message.bytes).toString('latin1', message.start, message.end);
const linesOf = (bytes: Buffer): string[] => (bytes.length === 0 ? [] : bytes.toString('latin1').replace(/\n$/, '').split('\n'));

/** The messages of a session and each stage after the splitter, in order. */
const stagesFor = (policy: Policy): ReadonlyArray<Stage<Message, Message>> =>
  [classifier(() => policy), policyGate(), rateLimiter(() => 0), redactor(), auditTap('00000000', () => 0, null)];
const split = (bytes: Buffer, policy: Policy): Message[] => {
  const splitter = lineSplitter('c2s', () => policy.limits.maxBytes);
  return [...splitter.step([bytes]), ...(splitter.end?.() ?? [])];
};

interface Run {
  readonly forwarded: Buffer;
  readonly replies: string;
  readonly log: string;
  readonly records: AuditRecord[];
}

const run = async (policy: Policy, chunks: readonly Uint8Array[], create: (options: LegOptions) => Leg = createLeg, now: () => number = () => 0): Promise<Run> => {
  const sink = new MemorySink();
  const { forwarded, replies, error } = await drive(create({ policy, sink, session: '00000000', now, wall: () => 0 }), chunks);
  if (error !== null) throw error;
  return { forwarded, replies, log: sink.text, records: sink.records };
};

const scenario = fc.record({ lines: session, parts: policyParts });

// Laws 1 to 4: what a stage does to an array

t.test('laws 1 and 2: synchronous; the same messages, in order and number', async () => {
  fc.assert(
    fc.property(scenario, ({ lines, parts }) => {
      const policy = policyFrom(parts);
      const messages = split(bytesOf(lines), policy);
      if (messages.length !== lines.filter((line) => !line.blank).length) throw new Error('a line was lost or made');
      if (messages.some(({ seq }, i) => seq !== i + 1)) throw new Error('numbers have gaps');
      let batch: Message[] = messages;
      for (const stage of stagesFor(policy)) {
        const out = stage.step(batch);
        if (!Array.isArray(out) || out.length !== messages.length || out.some((message, i) => message !== messages[i])) throw new Error(stage.name);
        if (stage.end !== undefined && stage.end().length > 0) throw new Error(`${stage.name} makes messages`);
        batch = out;
      }
    }),
    settings(200),
  );
});

t.test('law 3: no input makes a stage throw', async () => {
  const policy = policyOf({ redaction: redactionOf('token', 'a', 'cfg') });
  const feed = (bytes: Buffer): void => {
    let batch = split(bytes, policy);
    for (const stage of stagesFor(policy)) batch = stage.step(batch);
    const refused: Message[] = [];
    serializer({ refused: (messages) => void refused.push(...messages) }).step(batch);
    errorWriter().step(refused);
  };
  // Escapes of every sort at every level of quoting: halves of pairs are nothing the strict scan sees there.
  const piece = fc.constantFrom('\\ud800', '\\udc00', '\\ud83d\\ude00', '\\n', '\\"', '\\\\', '\\u0000', 'é', '[', ']', '{', '}', '"', ',', ':', 'token', '\u2028', ' ', '1');
  const inner = fc.oneof(
    fc.array(piece, { maxLength: 12 }).map((pieces) => pieces.join('')),
    fc.array(piece.filter((one) => !'[]{}",:'.includes(one)), { maxLength: 8 }).map((pieces) => `{"a":"${pieces.join('')}","token":["${pieces.reverse().join('')}"]}`),
  );
  const quoted = fc.tuple(inner, fc.integer({ min: 1, max: 4 })).map(([text, levels]) => {
    let value: string = text;
    for (let i = 1; i < levels; i++) value = JSON.stringify({ cfg: value });
    return callOf('t', { x: value, token: 1 });
  });
  fc.assert(
    fc.property(fc.oneof(session.map(bytesOf), fc.uint8Array({ maxLength: 300 }).map((bytes) => Buffer.from(bytes)), quoted.map((line) => Buffer.from(line))), feed),
    settings(2_500),
  );
});

t.test('law 4: refusal is final, and every verdict is one of the table', async () => {
  fc.assert(
    fc.property(scenario, ({ lines, parts }) => {
      const policy = policyFrom(parts);
      const messages = split(bytesOf(lines), policy);
      let before: Array<Verdict | null> = messages.map(() => null);
      for (const stage of stagesFor(policy)) {
        stage.step(messages);
        for (const [i, message] of messages.entries()) {
          const earlier = before[i] ?? null;
          if (earlier !== null && earlier.decision !== 'forward' && message.verdict !== earlier) throw new Error(`${stage.name} changed a refusal`);
          if (message.verdict !== null) {
            const { code, decision } = message.verdict;
            if (!Object.hasOwn(CODES, code) || CODES[code as keyof typeof CODES].decision !== decision) throw new Error(`${code} is not ${decision}`);
          }
        }
        before = messages.map(({ verdict }) => verdict);
      }
      for (const { verdict } of messages) if (verdict === null) throw new Error('unsettled after the tap');
    }),
    settings(200),
  );
});

// Law 5

t.test('law 5: refused messages spend nothing: without them all others fare the same', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async ({ lines, parts }) => {
      const policy = policyFrom(parts);
      const spoken = lines.filter((line) => !line.blank).map((line) => ({ ...line, end: '\n' }));
      const all = await run(policy, [bytesOf(spoken)]);
      const passing = spoken.filter((_, i) => all.records[i]?.decision === 'forward');
      const alone = await run(policy, [bytesOf(passing)]);
      if (!alone.forwarded.equals(all.forwarded)) throw new Error('they do not');
      const codes = (records: readonly AuditRecord[]): string => JSON.stringify(records.filter(({ decision }) => decision === 'forward').map(({ code, rule, would }) => [code, rule, would]));
      if (codes(alone.records) !== codes(all.records)) throw new Error('their verdicts differ');
    }),
    settings(80),
  );
});

// Laws 6 and 8

t.test('laws 6 and 8: chunking changes nothing, in either form', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, fc.array(fc.nat(20_000), { maxLength: 12 }), async ({ lines, parts }, cuts) => {
      const policy = policyFrom(parts);
      const bytes = bytesOf(lines);
      const wanted = await run(policy, bytes.length === 0 ? [] : [bytes]);
      const perLine = lines.map((line) => bytesOf([line])).filter((chunk) => chunk.length > 0);
      const chunkings = { 'per line': perLine, 'seven bytes': inSteps(bytes, 7), 'one byte': inSteps(bytes, bytes.length > 3_000 ? 3 : 1), random: cutAt(bytes, cuts) };
      for (const [name, chunks] of Object.entries({ coalesced: bytes.length === 0 ? [] : [bytes], ...chunkings })) {
        for (const create of name === 'one byte' ? [createLeg] : [createLeg, createChain]) {
          const got = await run(policy, chunks, create);
          for (const what of ['forwarded', 'replies', 'log'] as const) {
            if (String(got[what]) !== String(wanted[what])) throw new Error(`${what} differ: ${name}, ${create.name}`);
          }
        }
      }
    }),
    settings(40),
  );
});

t.test('one call, split at every byte', async (t) => {
  const policy = policyOf({ redaction: redactionOf('token') });
  const line = Buffer.from(`${callOf('read', { token: 'é😀', note: '{"token":1}', b: '\u2028' }, 'id')}\r\n`);
  const whole = await run(policy, [line]);
  t.match(whole.forwarded.toString(), /«redacted».*\\"«redacted»\\".*\\u2028/);
  for (let cut = 1; cut < line.length; cut++) {
    const got = await run(policy, [line.subarray(0, cut), line.subarray(cut)]);
    if (!got.forwarded.equals(whole.forwarded) || got.log !== whole.log || got.replies !== '') t.fail(`split at ${cut}`);
  }
  t.pass(`${line.length - 1} splits`);
});

// Law 7

t.test('law 7: the record is taken before the first byte of its message leaves, and before its reply', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, fc.constantFrom(createLeg, createChain), fc.constantFrom(40, 400, 10_000), async ({ lines, parts }, create, step) => {
      const policy = policyFrom(parts);
      // One list that sink, output and replies all write to.
      let recorded: AuditRecord[] = [];
      let left = 0;
      const sink = new MemorySink(0, (text) => {
        recorded = [...recorded, ...recordsOf(text)];
      });
      const leg = create({ policy, sink, session: '00000000', now: () => 0, wall: () => 0 });
      leg.replies.on('data', (bytes: Buffer) => {
        for (const line of linesOf(bytes)) {
          const { event } = (JSON.parse(line) as { error: { data: { event: string } } }).error.data;
          if (!recorded.some((record) => record.event === event)) throw new Error('a reply without a record');
        }
      });
      await drive(leg, inSteps(bytesOf(lines), step), (piece) => {
        left += linesOf(Buffer.from(piece)).length;
        if (recorded.filter(({ decision }) => decision === 'forward').length < left) throw new Error('bytes without a record');
      });
      if (recorded.filter(({ decision }) => decision === 'forward').length !== left) throw new Error('a record without its bytes');
      if (recorded.length !== lines.filter((line) => !line.blank).length) throw new Error('not one record a message');
    }),
    settings(60),
  );
});

// Law 9

/** A line with its masked values put aside: what must be equal before and after, whatever was masked. */
const withoutEdits = (message: Message): { before: string; after: string } => {
  const before: string[] = [];
  const after: string[] = [];
  const output = message.output === null ? lineText(message) : Buffer.from(message.output).toString('latin1');
  const input = Buffer.from(message.bytes).toString('latin1');
  let from = message.start;
  let shift = -message.start;
  for (const edit of message.edits ?? []) {
    before.push(input.slice(from, edit.start));
    after.push(output.slice(from + shift, edit.start + shift));
    shift += edit.bytes.length - (edit.end - edit.start);
    from = edit.end;
  }
  before.push(input.slice(from, message.end));
  after.push(output.slice(from + shift));
  return { before: before.join('\u0000'), after: after.join('\u0000') };
};

t.test('law 9: what is forwarded is an ordered part of the input, changed in named spans alone', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async ({ lines, parts }) => {
      const policy = policyFrom(parts);
      const { forwarded, records } = await run(policy, [bytesOf(lines)].filter((chunk) => chunk.length > 0));
      const spoken = lines.filter((line) => !line.blank);
      const out = linesOf(forwarded);
      const passing = records.filter(({ decision }) => decision === 'forward');
      if (passing.length !== out.length) throw new Error('not one line a forward');
      for (const [i, record] of passing.entries()) {
        const came = trimmed(spoken[record.seq - 1] as Line).toString('latin1');
        const line = out[i] as string;
        if (record.bytes_out !== line.length) throw new Error('bytes_out is wrong');
        if (!line.startsWith('{') || !line.endsWith('}')) throw new Error('outer white space was forwarded');
        const named = record.redacted !== undefined || record.edits !== undefined;
        if (!named && line !== came) throw new Error(`changed without a name: ${came} to ${line}`);
        if (named && line === came) throw new Error('named without a change');
        if (/\u00c2\u0085|\u00e2\u0080[\u00a8\u00a9]/.test(line)) throw new Error('a raw line break was forwarded');
        JSON.parse(Buffer.from(line, 'latin1').toString());
      }
      // The spans themselves, message by message.
      const messages = split(bytesOf(lines), policy);
      for (const stage of stagesFor(policy)) stage.step(messages);
      for (const message of messages.filter(passes)) {
        const { before, after } = withoutEdits(message);
        if (before !== after) throw new Error(`bytes outside the spans changed: ${lineText(message)}`);
        for (const edit of message.edits ?? []) if (!/^params\.|^id$|^result/.test(edit.path)) throw new Error(`a span at ${edit.path}`);
        const raw = lineBreakEdits(message.bytes, message.start, message.end).length;
        if (raw > 0 && message.edits === null) throw new Error('raw line breaks without an edit');
      }
    }),
    settings(120),
  );
});

t.test('law 9: one more deny rule never forwards more', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, fc.constantFrom(...DENY_PATTERNS), async ({ lines, parts }, pattern) => {
      const free = { ...parts, rate: null, unique: false, observe: false };
      const chunks = [bytesOf(lines)].filter((chunk) => chunk.length > 0);
      const few = await run(policyFrom(free), chunks);
      const more = await run(policyFrom({ ...free, deny: [...new Set([...free.deny, pattern])] }), chunks);
      const passed = (records: readonly AuditRecord[]): Set<number> => new Set(records.filter(({ decision }) => decision === 'forward').map(({ seq }) => seq));
      const before = passed(few.records);
      for (const seq of passed(more.records)) if (!before.has(seq)) throw new Error(`message ${seq} passes only under one more deny`);
    }),
    settings(100),
  );
});

// Law 10

interface Reply {
  readonly id: string;
  readonly event: string;
  readonly code: number;
}

/** Replies with their ids as they are spelled. */
const repliesOf = (text: string): Reply[] =>
  text.split('\n').filter((line) => line !== '').map((line) => {
    const { error } = JSON.parse(line) as { error: { code: number; data: { event: string } } };
    const id = /^\{"jsonrpc":"2\.0","id":(.*?),"error":\{"code":/s.exec(line)?.[1] ?? '';
    return { id, event: error.data.event, code: error.code };
  });

t.test('law 10: every refused request gets one reply with its id or null; refused notifications and responses none', async () => {
  await fc.assert(
    fc.asyncProperty(scenario, async ({ lines, parts }) => {
      const policy = policyFrom(parts);
      const { replies, records } = await run(policy, [bytesOf(lines)].filter((chunk) => chunk.length > 0));
      const spoken = lines.filter((line) => !line.blank);
      const refused = records.filter(({ decision }) => decision !== 'forward');
      const answered = refused.filter(({ kind }) => kind === 'request' || kind === 'invalid');
      const got = repliesOf(replies);
      if (JSON.stringify(got.map(({ event }) => event)) !== JSON.stringify(answered.map(({ event }) => event))) throw new Error('not one reply each, in order');
      for (const [i, record] of answered.entries()) {
        const wanted = record.code === 'id_in_use' ? 'null' : spoken[record.seq - 1]?.id ?? 'null';
        if (got[i]?.id !== wanted) throw new Error(`id ${got[i]?.id ?? ''} instead of ${wanted}`);
        if (got[i]?.code !== CODES[record.code as keyof typeof CODES].rpc) throw new Error(`wrong code for ${record.code}`);
      }
      const messages = split(bytesOf(lines), policy);
      for (const stage of stagesFor(policy)) stage.step(messages);
      if (messages.filter((message) => !passes(message) && wantsReply(message)).length !== got.length) throw new Error('replies of their own making');
    }),
    settings(150),
  );
});
