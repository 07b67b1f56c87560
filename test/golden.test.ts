// All golden cases, in the literal chain and the composed leg, however the session is cut; and what the cases must cover.
import t from 'tap';
import { CODES } from '../lib/errors.js';
import type { AuditRecord } from '../lib/audit/record.js';
import { checkCase, findCases, parseSession } from './golden.js';
import type { Cut, Output } from './golden.js';

const recordsOf = (output: Output): AuditRecord[] =>
  output['audit.jsonl'].split('\n').filter((line) => line !== '').map((line) => JSON.parse(line) as AuditRecord);

const outputs = new Map<string, Output>();

t.test('every case gives its golden files, whatever the form and the cut', async (t) => {
  for (const name of findCases()) {
    const { output, disagreement, changes } = await checkCase(name);
    outputs.set(name, output);
    t.equal(disagreement, '', `${name}: forms and cuts agree`);
    t.equal(changes, '', `${name}: goldens`);
  }
});

t.test('every code that bytes alone can cause stands in a case', async (t) => {
  const caused = new Set([...outputs.values()].flatMap(recordsOf).map(({ code }) => code));
  const ours = ['fault', 'splice_failed']; // faults of the product itself, which no input brings about
  t.same(Object.keys(CODES).filter((code) => !caused.has(code) && !ours.includes(code)), []);
});

t.test('the demo session: 4 of 10 pass a flat deny-by-default posture, 6 the shipped default', async (t) => {
  const decisions = (name: string): Record<string, number> => {
    const count: Record<string, number> = { forward: 0, deny: 0, drop: 0 };
    for (const { decision } of recordsOf(outputs.get(name) as Output)) count[decision] = (count[decision] ?? 0) + 1;
    return count;
  };
  t.same(decisions('demo/ten-messages/flat'), { forward: 4, deny: 6, drop: 0 });
  t.same(decisions('demo/ten-messages/default'), { forward: 6, deny: 4, drop: 0 });
});

t.test('no golden holds a secret of its session', async (t) => {
  for (const [name, output] of outputs) {
    t.notMatch(output['audit.jsonl'] + output['to-client.jsonl'], /not-a-real/, name);
  }
});

t.test('one tool call split at every byte boundary', async (t) => {
  const name = 'redactor/flat';
  const line = Math.max(...recordsOf(outputs.get(name) as Output).map((record) => record.bytes_in));
  const cuts = Array.from({ length: line }, (_, index): Cut => [
    `split after byte ${index + 1}`,
    (bytes) => [bytes.subarray(0, index + 1), bytes.subarray(index + 1)],
  ]);
  const { disagreement, changes } = await checkCase(name, cuts);
  t.equal(disagreement, '');
  t.equal(changes, '');
});

t.test('session.txt: bytes and clock', async (t) => {
  const read = (text: string): unknown =>
    parseSession(`# proves\n${text}`, 's').map(({ at, bytes }) => [at, bytes.toString('latin1')]);
  const rows: ReadonlyArray<readonly [text: string, segments: ReadonlyArray<readonly [number, string]>]> = [
    ['', [[0, '']]],
    ['> a\\n\n# note\n\n>\n>  b ', [[0, 'a\\n\n\n b \n']]],
    ['>\\ a\\n\\r\\t\\0\\\\\\"\\xff b', [[0, 'a\n\r\t\0\\"\xff b']]],
    ['>* 3 ab\n>* 2 \\#,\\n', [[0, 'ababab0,\n1,\n']]],
    ['> a\n@ 250\n> b\n@ 0\n> c', [[0, 'a\n'], [250, 'b\n'], [0, 'c\n']]],
  ];
  for (const [text, segments] of rows) t.same(read(text), segments, JSON.stringify(text));
});

t.test('session.txt: mistakes are named with their line', async (t) => {
  const rows: ReadonlyArray<readonly [source: string, message: RegExp]> = [
    ['> a', /^s:1: a session opens with/],
    ['# x\n< {}', /^s:2: `<` speaks for the server/],
    ['# x\n<\\ {}', /^s:2: `<\\` speaks for the server/],
    ['# x\n! exit 1', /^s:2: `!` speaks for the server/],
    ['# x\n\n>a', /^s:3: expected/],
    ['# x\n@ soon', /^s:2: expected/],
    ['# x\n>* a', /^s:2: expected `>\* COUNT TEXT`/],
    ['# x\n>\\ \\q', /^s:2: unknown escape \\q/],
    ['# x\n>\\ \\#', /^s:2: unknown escape \\#/],
    ['# x\n>\\ a\\', /^s:2: unknown escape \\/],
  ];
  for (const [source, message] of rows) t.throws(() => parseSession(source, 's'), { message }, JSON.stringify(source));
});
