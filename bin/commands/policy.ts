// `sluice policy check FILE…`: loads policies, runs their tests, lints them and says what they hold.
// Owns the words of this command. Must not forward anything.
import { parseArgs } from 'node:util';
import { PolicyError, type PolicyProblem } from '../../lib/errors.js';
import { lintPolicy, type LintFinding } from '../../lib/policy/lint.js';
import { readPolicy, type LoadedPolicy } from '../../lib/policy/load.js';
import { formatProblems } from '../../lib/policy/problems.js';
import type { PolicyShape } from '../../lib/policy/shape.js';
import { readPolicySource, SHIPPED_POLICIES } from '../policy-source.js';
import { asciiJson, escapeForTerminal, formatBytes, paint, plural } from '../terminal.js';

const HELP = `Usage: sluice policy check [options] FILE...

Loads each policy, runs its own tests and prints what it holds.
FILE is a path, or a policy that ships with Sluice: ${SHIPPED_POLICIES.join(', ')}.

Options:
  --set NAME=VALUE   value of a variable, in place of the one in \`vars\` (repeatable)
  --strict           warnings count: exit 1
  --json             one JSON object for all files, on stdout
  --no-color         no colours
  --help             this text

Exit: 0 sound, 1 warnings under --strict, 2 errors.
`;

interface Io {
  readonly stdout: NodeJS.WritableStream;
  readonly stderr: NodeJS.WritableStream;
  readonly color: boolean;
}

interface Checked {
  readonly file: string;
  readonly loaded: LoadedPolicy | null;
  readonly findings: readonly LintFinding[];
  readonly problems: readonly PolicyProblem[];
}

const check = (nameOrPath: string, set: Readonly<Record<string, string>>, script: string): Checked => {
  try {
    const { file, source } = readPolicySource(nameOrPath, script);
    const loaded = readPolicy(source, { file, set });
    return { file, loaded, findings: lintPolicy(loaded, source, file), problems: [] };
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error;
    return { file: nameOrPath, loaded: null, findings: [], problems: error.problems };
  }
};

const rulesOf = (shape: PolicyShape, effect: 'allow' | 'deny'): number =>
  shape.rules.filter((rule) => rule.effect === effect).length;

const rateText = (rate: PolicyShape['limits']['rates'][number]): string =>
  `${plural(rate.limit, rate.counts === 'calls' ? 'call' : 'message')} in ${rate.windowMs} ms${rate.tools === null ? '' : ` for ${rate.tools.map((glob) => glob.text).join(', ')}`}`;

const depthText = (depth: number): string => (depth === Infinity ? 'at any depth' : `${plural(depth, 'level')} deep`);

const summary = (file: string, { policy, shape }: LoadedPolicy, color: boolean): string => {
  const { bold, green } = paint(color);
  const { limits, redaction } = shape;
  const rows: Array<readonly [string, string]> = [
    ['policy', `${shape.name} (${shape.format === 'yaml' ? 'YAML' : 'line format'}, ${shape.mode}, default ${shape.fallback})`],
    ['rules', `${rulesOf(shape, 'allow')} allow, ${rulesOf(shape, 'deny')} deny`],
    ['tests', shape.tests.length === 0 ? 'none' : `${shape.tests.length} passed`],
    ['limits', [
      `${formatBytes(limits.maxBytes)} a line`,
      `depth ${limits.maxDepth}${limits.flagDepth === null ? '' : ` (flagged from ${limits.flagDepth + 1})`}`,
      `names ${limits.names}`,
      `ids ${limits.ids}`,
    ].join(', ')],
    ['rate', limits.rates.length === 0 ? 'unlimited' : limits.rates.map(rateText).join('; ')],
    ['redacts', redaction === null ? 'nothing'
      : `${redaction.names.map((glob) => glob.text).join(', ')} ${depthText(redaction.depth)}, as ${redaction.mask}`],
    ['sha256', policy.hash],
  ];
  const lines = rows.map(([key, value]) => `  ${key.padEnd(8)} ${escapeForTerminal(value)}`);
  return `${green('ok')} ${bold(escapeForTerminal(file))}\n${lines.join('\n')}\n`;
};

const report = ({ file, loaded, findings, problems }: Checked): Record<string, unknown> => ({
  file,
  ok: loaded !== null,
  ...(loaded === null ? {} : {
    name: loaded.shape.name,
    hash: loaded.shape.hash,
    format: loaded.shape.format,
    mode: loaded.shape.mode,
    default: loaded.shape.fallback,
    rules: { allow: rulesOf(loaded.shape, 'allow'), deny: rulesOf(loaded.shape, 'deny') },
    tests: loaded.shape.tests.length,
    limits: {
      max_bytes: loaded.shape.limits.maxBytes,
      max_depth: loaded.shape.limits.maxDepth,
      flag_depth: loaded.shape.limits.flagDepth,
      names: loaded.shape.limits.names,
      ids: loaded.shape.limits.ids,
      rate: loaded.shape.limits.rates.map(({ id, limit, windowMs, counts }) => ({ id, limit, window_ms: windowMs, counts })),
    },
    redact: loaded.shape.redaction === null ? null : {
      arguments: loaded.shape.redaction.names.map((glob) => glob.text),
      depth: loaded.shape.redaction.depth === Infinity ? 'any' : loaded.shape.redaction.depth,
      mask: loaded.shape.redaction.mask,
    },
  }),
  findings,
  problems,
});

const usage = (io: Io, message: string): number => {
  io.stderr.write(`sluice policy: ${escapeForTerminal(message)}\nTry \`sluice policy --help\`.\n`);
  return 2;
};

/**
 * Runs `sluice policy …`; `argv` is what follows the word `policy`. `script` is the running program's main script, from
 * which the shipped policies are found. Resolves to the exit code: 0 sound, 1 warnings under --strict, 2 errors.
 */
export async function policyCommand(argv: string[], io: Io, script: string): Promise<number> {
  let parsed;
  try {
    parsed = parseArgs({
      args: argv,
      strict: true,
      allowPositionals: true,
      options: {
        set: { type: 'string', multiple: true },
        strict: { type: 'boolean' },
        json: { type: 'boolean' },
        'no-color': { type: 'boolean' },
        help: { type: 'boolean', short: 'h' },
      },
    });
  } catch (error) {
    return usage(io, error instanceof Error ? error.message : String(error));
  }
  const { values, positionals: [verb, ...files] } = parsed;
  if (values.help === true) {
    io.stdout.write(HELP);
    return 0;
  }
  if (verb !== 'check') return usage(io, verb === undefined ? 'what to do? `check`' : `unknown command \`${verb}\`; there is \`check\``);
  if (files.length === 0) return usage(io, 'check which file?');

  const set: Record<string, string> = {};
  for (const pair of values.set ?? []) {
    const at = pair.indexOf('=');
    if (at < 1) return usage(io, `--set takes NAME=VALUE, not \`${pair}\``);
    set[pair.slice(0, at)] = pair.slice(at + 1);
  }

  const checked = files.map((file) => check(file, set, script));
  if (values.json === true) {
    io.stdout.write(`${asciiJson({ files: checked.map(report) })}\n`);
  } else {
    for (const { file, loaded, findings, problems } of checked) {
      if (loaded !== null) io.stdout.write(summary(file, loaded, io.color));
      io.stderr.write(formatProblems(problems, io.color));
      for (const finding of findings) io.stderr.write(formatProblems([finding], io.color, finding.level));
    }
  }
  if (checked.some(({ loaded }) => loaded === null)) return 2;
  const warned = checked.some(({ findings }) => findings.some(({ level }) => level === 'warning'));
  return values.strict === true && warned ? 1 : 0;
}
