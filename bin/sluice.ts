// argv in, exit code out. Owns which command runs and how the process ends.
// Must not know what a command does. The filter is part of the program, since bundled code runs faster so; any other
// command is loaded only when it is asked for.
import { DEFAULTS } from '../lib/defaults.js';
import { escapeForTerminal, wantsColor } from './terminal.js';
import { fileURLToPath } from 'node:url';
import { filterCommand } from './commands/filter.js';
import { VERSION } from './version.js';

const HELP = `Usage: sluice COMMAND [options]

A fail-closed checkpoint for the Model Context Protocol: each message is proven, judged by a policy, and recorded
before it passes.

Commands:
  filter         judge a session on standard input (the default when input is piped in)
  demo           put recorded sessions through the whole chain and show what happened
  report FILE    count what an audit log holds
  tail FILE      show an audit log, one line an event; -f follows it
  policy check   load, test and lint policies

sluice COMMAND --help tells more. sluice --version prints ${VERSION}.
`;

const script = fileURLToPath(import.meta.url);

/** Ends as soon as all is delivered, and after a fault or a signal at the latest when the time is up. */
const finish = (code: number): void => {
  process.exitCode = code;
  if (code !== 0) setTimeout(() => process.exit(code), DEFAULTS.exitMs).unref();
};

const withSignal = async (run: (signal: AbortSignal) => Promise<number>): Promise<number> => {
  const controller = new AbortController();
  let stoppedBy = 0;
  const stop = (number: number) => (): void => {
    stoppedBy = number;
    controller.abort();
  };
  process.once('SIGINT', stop(2));
  process.once('SIGTERM', stop(15));
  const code = await run(controller.signal);
  return stoppedBy === 0 ? code : 128 + stoppedBy;
};

const main = async (argv: string[]): Promise<number> => {
  const { stdin, stdout, stderr, env } = process;
  // A reader who leaves early, as `head` does, is no fault of a command that talks to people; the filter listens for itself.
  stdout.on('error', (error: NodeJS.ErrnoException) => {
    if (error.code !== 'EPIPE') finish(3);
  });
  const first = argv[0];
  const rest = argv.slice(1);
  const plain = argv.includes('--no-color');
  const io = { stdin, stdout, stderr, color: wantsColor(stdout, env, plain) };
  switch (first) {
    case '--version':
      stdout.write(`${VERSION}\n`);
      return 0;
    case 'report':
      return (await import('./commands/report.js')).reportCommand(rest, io);
    case 'tail':
      return withSignal(async (signal) => (await import('./commands/tail.js')).tailCommand(rest, { ...io, signal }));
    case 'policy':
      return (await import('./commands/policy.js')).policyCommand(rest, io, script);
    case 'demo':
      return (await import('./commands/demo.js')).demoCommand(rest, { ...io, script });
    case '--help':
    case '-h':
    case 'help':
      stdout.write(HELP);
      return 0;
  }
  if (first === undefined && stdin.isTTY) {
    stdout.write(HELP);
    return 0;
  }
  if (first !== undefined && first !== 'filter' && !first.startsWith('-')) {
    stderr.write(`sluice: there is no command "${escapeForTerminal(first)}".\n\n${HELP}`);
    return 2;
  }
  return filterCommand(first === 'filter' ? rest : argv, { stdin, stdout, stderr, env, color: wantsColor(stderr, env, plain), script });
};

main(process.argv.slice(2)).then(finish, (error: unknown) => {
  process.stderr.write(`sluice: fault: ${escapeForTerminal(error instanceof Error ? (error.stack ?? error.message) : String(error))}\n`);
  finish(3);
});
