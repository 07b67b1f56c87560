// `sluice report`: the figures of one audit log, for people or as JSON.
// Owns how figures look. Must not count anything itself.
import { parseArgs } from 'node:util';
import { readLog } from '../../lib/audit/read.js';
import { createReport, DECISIONS } from '../../lib/audit/report.js';
import type { Ranking, ReasonRow, Report } from '../../lib/audit/report.js';
import { decisionColor, fileOf, filtersOf, LOG_FLAGS, openLogFile, runLogCommand } from '../audit-log.js';
import type { LogCommandIo } from '../audit-log.js';
import {
  asciiJson, bar, escapeForTerminal, field, formatBytes, formatCount, openOutput, padColumns, paint, plural, progressLine,
} from '../terminal.js';
import type { Paint, ProgressLine } from '../terminal.js';

const HELP = `Usage: sluice report FILE [--decision D] [--tool GLOB] [--json] [--no-color]

Counts an audit log: decisions, reasons, tools, masked keys, bytes. Then counts again what each session's
summary line says, over the whole log, and tells MATCHES, MISMATCH or that there is no summary.

  FILE          an audit log; - reads standard input
  --decision D  only records of one decision: ${DECISIONS.join(', ')}
  --tool GLOB   only records whose tool name matches, e.g. 'read_*'
  --json        one JSON object with every figure, keys as in the log
  --no-color    no colours

Exit code: 0 done, 1 MISMATCH, 2 wrong usage or no such log.
`;

const ROWS_SHOWN = 20;

/** A table under a title; nothing where it has no rows. The first row of cells is its head. */
const table = (
  style: Paint,
  title: string,
  head: readonly string[],
  rows: ReadonlyArray<readonly string[]>,
  align: ReadonlyArray<'left' | 'right'>,
  hidden = 0,
): string[] => {
  if (rows.length === 0) return [];
  const lines = padColumns([head, ...rows], align).map((cells) => `  ${cells.join('  ')}`.trimEnd());
  const more = hidden > 0 ? [style.dim(`  and ${formatCount(hidden)} more; --json lists them`)] : [];
  return ['', style.bold(title), style.dim(lines[0] ?? ''), ...lines.slice(1), ...more];
};

const decisionLines = (style: Paint, { decisions, messages }: Report): string[] => {
  const rows = padColumns(
    DECISIONS.map((decision) => [
      decision,
      formatCount(decisions[decision]),
      `${messages === 0 ? '0.0' : ((100 * decisions[decision]) / messages).toFixed(1)} %`,
    ]),
    ['left', 'right', 'right'],
  );
  return rows.map((cells, i) => {
    const decision = DECISIONS[i] ?? 'error';
    const share = messages === 0 ? 0 : decisions[decision] / messages;
    return `  ${cells.join('  ')}  ${decisionColor(style, decision)(bar(share, 30).trimEnd())}`.trimEnd();
  });
};

const reasonTable = (style: Paint, title: string, reasons: Ranking<ReasonRow>, pick: (row: ReasonRow) => boolean): string[] => {
  const rows = reasons.rows.filter(pick);
  return table(
    style,
    title,
    ['decision', 'code', 'rule', 'messages'],
    rows.slice(0, ROWS_SHOWN).map((row) => [
      row.would === null ? row.decision : `would ${row.would}`,
      field(row.code),
      row.rule === null ? '-' : field(row.rule),
      formatCount(row.count),
    ]),
    ['left', 'left', 'left', 'right'],
    rows.length - ROWS_SHOWN,
  );
};

const timeLine = ({ first_ts_ms: first, last_ts_ms: last }: Report): string =>
  first === null || last === null
    ? 'no record'
    : `${new Date(first).toISOString()} to ${new Date(last).toISOString()}`;

const recountLines = (style: Paint, { recount, problems }: Report): string[] => {
  const { result, matching, differing, without_summary: without } = recount;
  if (result === 'no summary') return ['', `${style.bold('Recount')}  no summary: nothing to compare with`];
  const paintResult = result === 'MATCHES' ? style.green : style.red;
  const parts = [
    differing > 0 ? `${plural(differing, 'session')} differing` : '',
    matching > 0 ? `${plural(matching, 'session')} matching` : '',
    without > 0 ? `${plural(without, 'session')} without a summary` : '',
  ].filter((part) => part !== '');
  return [
    '',
    `${style.bold('Recount')}  ${paintResult(result)}  ${parts.join(', ')}`,
    ...recount.differences.map(({ session, field: name, summary, counted }) =>
      `  session ${field(session)}: ${name} is ${formatCount(summary)} in its summary, ${formatCount(counted)} in the log`),
    ...(differing > 0 && problems.count > 0 ? ['  records may be missing where the log has lines that are no records'] : []),
  ];
};

/** The report for people, ending with a newline. */
const render = (report: Report, style: Paint, source: { readonly file: string; readonly filter: string }): string => {
  const { redacted, depth, would, tools, methods, faults, problems } = report;
  const withheld = DECISIONS.filter((decision) => would[decision] > 0);
  const lines = [
    `${style.bold('Audit report')}  ${field(source.file)}`,
    ...(source.filter === '' ? [] : [`  only      ${source.filter}`]),
    `  time      ${timeLine(report)}`,
    `  messages  ${formatCount(report.messages)} in ${plural(report.sessions, 'session')}`,
    `  bytes     ${formatBytes(report.bytes_in)} in, ${formatBytes(report.bytes_out)} out`,
    `  depth     ${depth.max === null || depth.mean === null ? 'nothing parsed' : `${depth.max} at most, ${depth.mean} on average`}`,
    `  masked    ${redacted.values === 0 ? 'nothing' : `${plural(redacted.values, 'value')} in ${plural(redacted.messages, 'message')}`}`,
    ...(report.repeated === 0 ? [] : [`  repeated  ${plural(report.repeated, 'record')}, counted once`]),
    '',
    style.bold('Decisions'),
    ...decisionLines(style, report),
    ...(withheld.length === 0 ? [] : [
      style.yellow(`  observe mode let pass: ${withheld.map((decision) => `${formatCount(would[decision])} would ${decision}`).join(', ')}`),
    ]),
    ...reasonTable(style, 'Refused, by reason', report.reasons, (row) => row.decision !== 'forward'),
    ...reasonTable(style, 'Only observed, by reason', report.reasons, (row) => row.decision === 'forward' && row.would !== null),
    ...reasonTable(style, 'Allowed, by reason', report.reasons, (row) => row.decision === 'forward' && row.would === null),
    ...table(
      style,
      'Tools',
      ['tool', 'forwarded', 'refused', 'masked', 'bytes in'],
      tools.rows.slice(0, ROWS_SHOWN).map((row) => [
        field(row.tool, 60), formatCount(row.forwarded), formatCount(row.refused), formatCount(row.redacted), formatBytes(row.bytes_in),
      ]),
      ['left', 'right', 'right', 'right', 'right'],
      tools.rows.length - ROWS_SHOWN,
    ),
    ...table(
      style,
      'Other messages',
      ['method', 'kind', 'forwarded', 'refused', 'bytes in'],
      methods.rows.slice(0, ROWS_SHOWN).map((row) => [
        row.method === null ? '-' : field(row.method, 60), row.kind, formatCount(row.forwarded), formatCount(row.refused), formatBytes(row.bytes_in),
      ]),
      ['left', 'left', 'right', 'right', 'right'],
      methods.rows.length - ROWS_SHOWN,
    ),
    ...table(
      style,
      'Masked keys',
      ['key', 'values'],
      redacted.keys.rows.slice(0, ROWS_SHOWN).map((row) => [field(row.key, 60), formatCount(row.count)]),
      ['left', 'right'],
      redacted.keys.rows.length - ROWS_SHOWN,
    ),
    ...(faults.count === 0 ? [] : [
      '',
      style.red(`Faults  ${formatCount(faults.count)}`),
      ...faults.first.map(({ line, where, reason }) => `  line ${line}: ${field(where)}: ${escapeForTerminal(reason.slice(0, 500))}`),
    ]),
    ...(problems.count === 0 ? [] : [
      '',
      style.yellow(`Lines that are no records  ${formatCount(problems.count)}`),
      ...problems.first.map(({ line, problem }) => `  line ${line}: ${problem}`),
      ...(problems.count > problems.first.length ? [`  and ${formatCount(problems.count - problems.first.length)} more`] : []),
    ]),
    ...recountLines(style, report),
  ];
  return `${lines.join('\n')}\n`;
};

async function* withProgress(
  source: AsyncIterable<Uint8Array | string>,
  progress: ProgressLine,
): AsyncGenerator<Uint8Array | string> {
  let done = 0;
  for await (const chunk of source) {
    done += chunk.length;
    progress.update(done);
    yield chunk;
  }
}

/** Runs `sluice report`; resolves with the exit code. Rejects only where reading or writing itself fails. */
export async function reportCommand(argv: string[], io: LogCommandIo): Promise<number> {
  return runLogCommand('report', io, async () => {
    const { values, positionals } = parseArgs({
      args: argv,
      allowPositionals: true,
      options: { ...LOG_FLAGS, json: { type: 'boolean' } },
    });
    const write = openOutput(io.stdout);
    if (values.help === true) {
      await write(HELP);
      return 0;
    }
    const file = fileOf(positionals);
    const counting = createReport(filtersOf(values));
    const handle = file === '-' ? null : await openLogFile(file);
    const stats = await handle?.stat();
    const progress = progressLine(io.stderr, stats?.isFile() === true ? stats.size : null);
    try {
      const source = handle?.createReadStream() ?? io.stdin;
      for await (const entry of readLog(withProgress(source, progress))) counting.add(entry);
    } finally {
      progress.end();
    }
    const report = counting.finish();
    const filter = [
      values.decision === undefined ? '' : `decision ${values.decision}`,
      values.tool === undefined ? '' : `tool ${field(values.tool)}`,
    ].filter((part) => part !== '').join(', ');
    await write(values.json === true
      ? `${asciiJson(report)}\n`
      : render(report, paint(io.color && values['no-color'] !== true), { file, filter }));
    return report.recount.result === 'MISMATCH' ? 1 : 0;
  });
}
