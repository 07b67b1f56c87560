// Where the parts of the bench find their inputs, and how often they repeat.

export interface Setting {
  /** A folder of this run alone. */
  readonly folder: string;
  /** The mixed session, the session of long lines, the policy file. */
  readonly mixed: string;
  readonly long: string;
  readonly policy: string;
  readonly rounds: number;
}
