// `sluice demo`: recorded sessions through the real chain, told to a person.
// Owns the telling. Must not judge anything itself: what it shows are the bytes, records and replies of a leg.
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import type { Writable } from 'node:stream';
import { finished } from 'node:stream/promises';
import { parseArgs } from 'node:util';
import type { AuditRecord } from '../../lib/audit/record.js';
import type { Sink } from '../../lib/audit/sink.js';
import { createLeg } from '../../lib/leg.js';
import type { LegStats } from '../../lib/leg.js';
import { loadPolicy } from '../../lib/policy/load.js';
import { packageFolder } from '../policy-source.js';
import { escapeForTerminal, pad, paint } from '../terminal.js';
import type { Paint } from '../terminal.js';

const HELP = `Usage: sluice demo [--no-color]

Puts two recorded sessions through the whole chain and shows what passed, what was refused and why, and what was masked.
`;

export interface DemoIo {
  readonly stdout: Writable;
  readonly stderr: Writable;
  readonly color: boolean;
  /** The running script, from which the recorded sessions and shipped policies are found. */
  readonly script: string;
}

const ACTS = [
  {
    title: 'A flat policy: deny by default, four tools allowed (policies/flat.policy)',
    session: 'ten-messages',
    policy: 'flat.policy',
  },
  {
    title: 'The same ten messages under the shipped default, which lets a real client shake hands (policies/default.yaml)',
    session: 'ten-messages',
    policy: 'default.yaml',
  },
  {
    title: 'An attack on the framing: lines that two parsers would read differently (policies/default.yaml)',
    session: 'framing',
    policy: 'default.yaml',
  },
] as const;

interface Shown {
  readonly records: readonly AuditRecord[];
  readonly forwarded: string;
  readonly replies: string;
  readonly stats: LegStats;
}

const play = async (session: Buffer, source: string, file: string): Promise<Shown> => {
  let records = '';
  let forwarded = '';
  let replies = '';
  const sink: Sink = {
    write(bytes, done) {
      records += Buffer.from(bytes).toString();
      done();
    },
    close: () => undefined,
  };
  const leg = createLeg({ policy: loadPolicy(source, { file }), sink, session: '00000000' });
  leg.stream.on('data', (bytes: Buffer) => (forwarded += bytes.toString()));
  leg.replies.on('data', (bytes: Buffer) => (replies += bytes.toString()));
  leg.stream.end(session);
  await Promise.all([finished(leg.stream), finished(leg.replies)]);
  return {
    records: records.trimEnd().split('\n').map((line) => JSON.parse(line) as AuditRecord),
    forwarded,
    replies,
    stats: leg.stats(),
  };
};

const what = (record: AuditRecord): string => escapeForTerminal(record.tool ?? record.method ?? '(not a message)');

const row = (record: AuditRecord, style: Paint): string => {
  const passed = record.decision === 'forward';
  const word = (passed ? style.green : record.decision === 'drop' ? style.yellow : style.red)(pad(record.decision, 8));
  const masked = record.redacted === undefined ? '' : style.cyan(` [masked: ${record.redacted.map(escapeForTerminal).join(', ')}]`);
  const edits = record.edits === undefined ? '' : style.cyan(` [escaped: ${record.edits.map((edit) => escapeForTerminal(edit.path)).join(', ')}]`);
  return `  ${pad(String(record.seq), 3, 'right')}  ${word} ${pad(what(record), 27)} ${style.dim(pad(record.code, 17))} ${escapeForTerminal(record.reason)}${masked}${edits}`;
};

/** A line of JSON as it is, its own backslashes not doubled. */
const json = (line: string): string => line.split('\\').map(escapeForTerminal).join('\\');

const firstLine = (text: string, wanted: (line: string) => boolean): string => json(text.split('\n').find(wanted) ?? '');

const tell = (title: string, shown: Shown, style: Paint): string => {
  const { stats } = shown;
  const lines = [style.bold(title), '', ...shown.records.map((record) => row(record, style)), ''];
  const counts = `${stats.forward} forwarded, ${stats.deny} denied, ${stats.drop} dropped; ${stats.redacted} with masked values, ${stats.replies} refusals answered`;
  lines.push(`  ${style.bold(counts)}`, '');
  const masked = firstLine(shown.forwarded, (line) => line.includes('redacted'));
  if (masked !== '') lines.push(style.dim('  What the server got of a masked call:'), `  ${masked}`, '');
  const refusal = firstLine(shown.replies, (line) => line !== '');
  if (refusal !== '') lines.push(style.dim('  What the client was told of the first refusal:'), `  ${refusal}`, '');
  return `${lines.join('\n')}\n`;
};

/** Runs the demo; resolves to the exit code. */
export const demoCommand = async (argv: string[], io: DemoIo): Promise<number> => {
  try {
    const { values } = parseArgs({ args: argv, options: { 'no-color': { type: 'boolean' }, help: { type: 'boolean', short: 'h' } }, strict: true });
    if (values.help === true) {
      io.stdout.write(HELP);
      return 0;
    }
  } catch (error) {
    io.stderr.write(`sluice demo: ${escapeForTerminal((error as Error).message)}\nTry: sluice demo --help\n`);
    return 2;
  }
  const folder = packageFolder(io.script);
  if (folder === null) {
    io.stderr.write('sluice demo: the recorded sessions cannot be found; run it from the installed package.\n');
    return 2;
  }
  const style = paint(io.color);
  for (const { title, session, policy } of ACTS) {
    const input = readFileSync(join(folder, 'fixtures', 'demo', session, 'session.jsonl'));
    const source = readFileSync(join(folder, 'policies', policy), 'utf8');
    io.stdout.write(tell(title, await play(input, source, policy), style));
  }
  io.stdout.write(
    `${style.bold('Try it in a pipe:')}\n  sluice --policy default --audit audit.jsonl --stats < session.jsonl > forwarded.jsonl\n  sluice report audit.jsonl\n`,
  );
  return 0;
};
