// `npm run corpus`: every case file through the built product. SLUICE_CORPUS=DIR takes the files of another folder,
// JSONTESTSUITE=DIR names the parsing suite's test_parsing. Prints a summary a file; exits 1 if any case fails.
import { fileURLToPath } from 'node:url';
import { caseFiles, readCases } from './cases.js';
import type { FramingCase, JsonTestSuiteCase, OtherCase, PolicyCase, RelayCase } from './cases.js';
import { command, library } from './doors.js';
import { framingCase, jsonTestSuiteCase } from './framing.js';
import { notRun, summary } from './outcome.js';
import type { Outcome } from './outcome.js';
import { policyCase } from './policy.js';
import { relayCase } from './relay.js';

const PROCESSES = 2;

/** At most two at once: more would only measure the machine. */
const each = async <T>(cases: readonly T[], run: (one: T) => Promise<Outcome>): Promise<Outcome[]> => {
  const outcomes: Outcome[] = [];
  const queue = [...cases.entries()];
  const worker = async (): Promise<void> => {
    for (let next = queue.shift(); next !== undefined; next = queue.shift()) outcomes[next[0]] = await run(next[1]);
  };
  await Promise.all(Array.from({ length: PROCESSES }, worker));
  return outcomes;
};

/** Runs of one file by how they go in. */
const runFile = async (path: string, format: string): Promise<[door: string, outcomes: Outcome[]][]> => {
  switch (format) {
    case 'framing': {
      const cases = readCases<FramingCase>(path);
      return [
        ['library', await each(cases, (one) => framingCase(one, library, true))],
        // A process has its start to pay: its time says nothing about a line.
        ['command', await each(cases, (one) => framingCase(one, command, false))],
      ];
    }
    case 'relay':
      return [['command', await each(readCases<RelayCase>(path), (one) => relayCase(one, command))]];
    case 'jsontestsuite': {
      const folder = process.env['JSONTESTSUITE'];
      return [['library', await each(readCases<JsonTestSuiteCase>(path), (one) => jsonTestSuiteCase(one, folder, library))]];
    }
    case 'policy':
      return [['library', await each(readCases<PolicyCase>(path), (one) => policyCase(one, library, library))]];
    default:
      return [['', readCases<OtherCase>(path).map(({ id, kind }) => notRun(id, `${format === 'responses' ? `${kind}` : format}: comes with a later issue`))]];
  }
};

const folder = process.env['SLUICE_CORPUS'] ?? fileURLToPath(new URL('../../../fixtures/corpus', import.meta.url));
const files = caseFiles(folder);
let failed = 0;
for (const { path, name, format } of files) {
  for (const [door, outcomes] of await runFile(path, format)) {
    console.log(summary(door === '' ? name : `${name} (${door})`, outcomes));
    failed += outcomes.filter((outcome) => outcome.result === 'failed').length;
  }
}
if (files.length === 0) console.error('No *.jsonl.gz files there: nothing was run.');
process.exitCode = failed > 0 || files.length === 0 ? 1 : 0;
