// `sluice tail`: one compact line an event, as a log has it or as it grows.
// Owns the line's look and the following of a file. Must not count or judge anything.
import { open, stat } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { addAbortSignal } from 'node:stream';
import type { Readable } from 'node:stream';
import { setTimeout as sleep } from 'node:timers/promises';
import { parseArgs } from 'node:util';
import { readLog } from '../../lib/audit/read.js';
import { DECISIONS, maskedName, selects } from '../../lib/audit/report.js';
import type { Filters } from '../../lib/audit/report.js';
import { isAuditRecord } from '../../lib/audit/record.js';
import type { AuditRecord, FaultLine, LogLine, SessionLine, SummaryLine } from '../../lib/audit/record.js';
import { decisionColor, fileOf, filtersOf, LOG_FLAGS, openLogFile, runLogCommand } from '../audit-log.js';
import type { LogCommandIo } from '../audit-log.js';
import { escapeForTerminal, field, formatCount, openOutput, pad, paint, plural } from '../terminal.js';
import type { Paint } from '../terminal.js';

const HELP = `Usage: sluice tail FILE [-f] [--decision D] [--tool GLOB] [--no-color]

Shows an audit log, one line an event: time (UTC), decision, leg and number, method and tool, code and rule,
bytes in and out, masked names. Session, summary and fault lines are shown between them; with a filter, faults only.

  FILE          an audit log; - reads standard input
  -f, --follow  goes on as the log grows, over truncation and rotation, until interrupted
  --decision D  only records of one decision: ${DECISIONS.join(', ')}
  --tool GLOB   only records whose tool name matches, e.g. 'read_*'
  --no-color    no colours

Exit code: 0 done, 2 wrong usage or no such log.
`;

/** Milliseconds between two looks at a log that has not grown. */
const POLL_MS = 200;
const CHUNK_BYTES = 64 * 1024;

/** Time of day in UTC, `HH:MM:SS.mmm`. */
const clock = (ms: number): string => new Date(ms).toISOString().slice(-13, -1);

const word = (text: string): string => pad(text, 7);

const recordLine = (record: AuditRecord, style: Paint): string => {
  const { decision, redacted = [], would } = record;
  const what = [record.method ?? record.kind, ...(record.tool === null ? [] : [record.tool])].map((part) => field(part));
  const names = redacted.map((path) => field(maskedName(path), 40));
  return [
    style.dim(clock(record.ts_ms)),
    decisionColor(style, decision)(word(decision)),
    pad(`${record.dir} ${record.seq}`, 8),
    what.join(' '),
    style.dim(field(record.code) + (record.rule === undefined ? '' : ` (${field(record.rule)})`)),
    `${record.bytes_in}→${record.bytes_out}`,
    ...(names.length === 0 ? [] : [style.yellow(`[redacted: ${names.join(', ')}]`)]),
    ...(would === undefined ? [] : [style.yellow(`(would ${would})`)]),
  ].join('  ');
};

const sessionLine = (line: SessionLine): string =>
  `${word('session')}  ${field(line.session)}  sluice ${field(line.version)}  policy ${field(line.policy)} ${field(line.policy_sha256, 12)}  ${line.mode}`;

const summaryLine = (line: SummaryLine): string =>
  `${word('summary')}  ${plural(line.messages, 'message')}: ` +
  `${DECISIONS.map((decision) => `${decision} ${formatCount(line[decision])}`).join(', ')}; ${line.bytes_in}→${line.bytes_out} bytes`;

const faultLine = (line: FaultLine): string =>
  `${word('fault')}  ${field(line.where)}: ${escapeForTerminal(line.reason.slice(0, 500))}`;

/** The line to show, or null where the filters hide it. A fault is never hidden. */
const lineOf = (value: LogLine, filters: Filters, style: Paint): string | null => {
  if (isAuditRecord(value)) return selects(filters, value) ? recordLine(value, style) : null;
  if (value.type === 'fault') return `${style.dim(clock(value.ts_ms))}  ${style.red(faultLine(value))}`;
  if (filters.decision !== undefined || filters.tool !== undefined) return null;
  return style.dim(`${clock(value.ts_ms)}  ${value.type === 'session' ? sessionLine(value) : summaryLine(value)}`);
};

const isAborted = (signal: AbortSignal | undefined): boolean => signal?.aborted === true;

/** Waits; ends early on abort. */
const pause = (signal: AbortSignal | undefined): Promise<void> =>
  sleep(POLL_MS, undefined, signal === undefined ? {} : { signal }).catch(() => undefined);

/**
 * The bytes of a file from its start, and then as it grows. Ends where the file was truncated or another file has
 * taken its name, after the last byte of the old one; or on abort.
 */
async function* grow(handle: FileHandle, file: string, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array> {
  try {
    const { ino, dev } = await handle.stat();
    let position = 0;
    let replaced = false;
    while (!isAborted(signal)) {
      const { bytesRead, buffer } = await handle.read(Buffer.alloc(CHUNK_BYTES), 0, CHUNK_BYTES, position);
      if (bytesRead > 0) {
        position += bytesRead;
        yield buffer.subarray(0, bytesRead);
        continue;
      }
      if (replaced || (await handle.stat()).size < position) return;
      // While the name is gone the writer may still hold the old file. Once it is another's, one more look for what
      // came between the last read and the change.
      const named = await stat(file).catch(() => null);
      replaced = named !== null && (named.ino !== ino || named.dev !== dev);
      if (!replaced) await pause(signal);
    }
  } finally {
    await handle.close();
  }
}

/** What a pipe gives until its end, or until an abort. */
async function* drain(stream: NodeJS.ReadableStream, signal: AbortSignal | undefined): AsyncGenerator<Uint8Array | string> {
  if (signal !== undefined) addAbortSignal(signal, stream as Readable);
  try {
    yield* stream;
  } catch (error) {
    if (!isAborted(signal)) throw error;
  }
}

/** Opens a log that was replaced a moment ago, as soon as it is there. Null on abort. */
const reopen = async (file: string, signal: AbortSignal | undefined): Promise<FileHandle | null> => {
  while (!isAborted(signal)) {
    const handle = await open(file).catch(() => null);
    if (handle !== null) return handle;
    await pause(signal);
  }
  return null;
};

/** Passes chunks on; before each further read it flushes what the last one gave, and ends where the reader is gone. */
async function* flushing(
  source: AsyncIterable<Uint8Array | string>,
  flush: () => Promise<boolean>,
): AsyncGenerator<Uint8Array | string> {
  for await (const chunk of source) {
    yield chunk;
    if (!await flush()) return;
  }
}

/**
 * Runs `sluice tail`; resolves with the exit code, 0 also where `io.signal` ended it or the reader of stdout left.
 * Rejects only where reading or writing itself fails.
 */
export async function tailCommand(argv: string[], io: LogCommandIo & { readonly signal?: AbortSignal }): Promise<number> {
  return runLogCommand('tail', io, async () => {
    const { values, positionals } = parseArgs({
      args: argv,
      allowPositionals: true,
      options: { ...LOG_FLAGS, follow: { type: 'boolean', short: 'f' } },
    });
    const write = openOutput(io.stdout);
    if (values.help === true) {
      await write(HELP);
      return 0;
    }
    const file = fileOf(positionals);
    const filters = filtersOf(values);
    const style = paint(io.color && values['no-color'] !== true);

    let ready = '';
    const flush = async (): Promise<boolean> => {
      const lines = ready;
      ready = '';
      return write(lines);
    };
    /** Shows one log to its end. False: nobody reads on. */
    const show = async (source: AsyncIterable<Uint8Array | string>): Promise<boolean> => {
      for await (const entry of readLog(flushing(source, flush))) {
        if (isAborted(io.signal)) break;
        const line = 'problem' in entry
          ? style.yellow(`line ${entry.line} is no record: ${entry.problem}`)
          : lineOf(entry.value, filters, style);
        if (line !== null) ready += `${line}\n`;
      }
      return flush();
    };

    let handle = file === '-' ? null : await openLogFile(file);
    const follows = values.follow === true && (await handle?.stat())?.isFile() === true;
    if (handle === null || !follows) {
      await show(drain(handle?.createReadStream() ?? io.stdin, io.signal));
      return 0;
    }
    while (handle !== null && await show(grow(handle, file, io.signal))) handle = await reopen(file, io.signal);
    return 0;
  });
}
