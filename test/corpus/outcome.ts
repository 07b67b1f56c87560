// What became of one case, and how a file of cases is summed up for people. Runs nothing.

export type Outcome =
  | { readonly id: string; readonly result: 'passed' }
  | { readonly id: string; readonly result: 'failed'; readonly why: string }
  | { readonly id: string; readonly result: 'not run'; readonly reason: string };

/** The first complaint makes the case fail. */
export const judged = (id: string, complaints: readonly string[]): Outcome =>
  complaints.length === 0 ? { id, result: 'passed' } : { id, result: 'failed', why: complaints.join('; ') };

export const notRun = (id: string, reason: string): Outcome => ({ id, result: 'not run', reason });

export const summary = (name: string, outcomes: readonly Outcome[]): string => {
  const count = (result: Outcome['result']): number => outcomes.filter((outcome) => outcome.result === result).length;
  const reasons = new Map<string, number>();
  for (const outcome of outcomes) {
    if (outcome.result === 'not run') reasons.set(outcome.reason, (reasons.get(outcome.reason) ?? 0) + 1);
  }
  return [
    `${name}: ${count('passed')} passed, ${count('failed')} failed, ${count('not run')} not run`,
    ...outcomes.flatMap((outcome) => (outcome.result === 'failed' ? [`  FAILED ${outcome.id}: ${outcome.why}`] : [])),
    ...[...reasons].map(([reason, cases]) => `  not run ${cases}: ${reason}`),
  ].join('\n');
};
