// What the commands that read an audit log share: flags, filters, opening a log, wrong usage, decision colours.
// Must not count, render or follow anything.
import { open } from 'node:fs/promises';
import type { FileHandle } from 'node:fs/promises';
import { DECISIONS } from '../lib/audit/report.js';
import type { Filters } from '../lib/audit/report.js';
import type { Decision } from '../lib/message.js';
import { GlobSet, readGlob } from '../lib/policy/glob.js';
import { escapeForTerminal, field } from './terminal.js';
import type { Paint } from './terminal.js';

export interface LogCommandIo {
  readonly stdin: NodeJS.ReadableStream;
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream;
  /** May `stdout` be coloured? */
  readonly color: boolean;
}

/** Flags of every command that reads a log, for `parseArgs`. */
export const LOG_FLAGS = {
  decision: { type: 'string' },
  tool: { type: 'string' },
  'no-color': { type: 'boolean' },
  help: { type: 'boolean', short: 'h' },
} as const;

/** What was typed cannot be done: exit 2, with this message, in which what was typed is escaped already. */
class UsageError extends Error {}

/** Runs a command; wrong usage becomes a message on stderr and exit 2, anything else is thrown on. */
export const runLogCommand = async (
  name: string,
  io: LogCommandIo,
  run: () => Promise<number>,
): Promise<number> => {
  try {
    return await run();
  } catch (error) {
    const { code, message } = error as NodeJS.ErrnoException;
    if (!(error instanceof UsageError) && code?.startsWith('ERR_PARSE_ARGS') !== true) throw error;
    const told = error instanceof UsageError ? message : escapeForTerminal(message);
    io.stderr.write(`sluice ${name}: ${told}\nTry: sluice ${name} --help\n`);
    return 2;
  }
};

/** The one file a command was given. */
export const fileOf = (positionals: readonly string[]): string => {
  const [file, second] = positionals;
  if (file === undefined) throw new UsageError('which log? Name one audit log, or - for standard input.');
  if (second !== undefined) throw new UsageError(`one log at a time: ${field(second)} is one too many.`);
  return file;
};

/** What `--decision` and `--tool` ask for. */
export const filtersOf = (flags: { readonly decision?: string | undefined; readonly tool?: string | undefined }): Filters => {
  const decision = DECISIONS.find((known) => known === flags.decision);
  if (flags.decision !== undefined && decision === undefined) {
    throw new UsageError(`--decision ${field(flags.decision)} is none of ${DECISIONS.join(', ')}.`);
  }
  if (flags.tool === undefined) return { decision };
  const glob = readGlob(flags.tool, false);
  if ('problem' in glob) throw new UsageError(`--tool ${field(flags.tool)}: ${glob.problem}; ${glob.hint}.`);
  const globs = new GlobSet([glob], false);
  return { decision, tool: (name) => globs.first(name) !== -1 };
};

/** The colour of a decision, everywhere. */
export const decisionColor = (style: Paint, decision: Decision): ((text: string) => string) =>
  ({ forward: style.green, deny: style.red, drop: style.yellow, hold: style.cyan, error: style.red })[decision];

/** Opens the file of a log. The caller closes it. */
export const openLogFile = async (file: string): Promise<FileHandle> => {
  const handle = await open(file).catch((error: NodeJS.ErrnoException) => {
    const why = error.code === 'ENOENT' ? 'there is no such file' : error.code === 'EACCES' ? 'you may not read it' : escapeForTerminal(error.message);
    throw new UsageError(`cannot open ${field(file)}: ${why}.`);
  });
  if ((await handle.stat()).isDirectory()) {
    await handle.close();
    throw new UsageError(`${field(file)} is a folder; name one log in it.`);
  }
  return handle;
};
