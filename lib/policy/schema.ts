// The YAML form of a policy: its keys, their types and a sentence on each. Editors get it as a JSON Schema.
// Owns the form. Must not read text, fill in variables or know what a rule does.
import * as v from 'valibot';

const patterns = (what: string) =>
  v.union([v.string(), v.array(v.string(), `expected ${what} or a list of them`)], `expected ${what} or a list of them`);

const entry = v.union([
  v.pipe(v.string(), v.description('A tool name or glob.')),
  v.strictObject({
    tools: v.optional(v.pipe(patterns('a tool pattern'), v.description('Tool names or globs; each is a rule of its own.'))),
    methods: v.optional(v.pipe(
      patterns('a method pattern or group'),
      v.description('Methods, globs or the groups @lifecycle, @discovery and @events. tools/call is decided by tool rules alone.'),
    )),
  }),
], 'expected a tool pattern, `{ tools: … }` or `{ methods: … }`');

const entries = (description: string) =>
  v.optional(v.pipe(v.union([entry, v.array(entry)], 'expected a list of rules'), v.description(description)));

const whole = (least: number, most: number, message: string) =>
  v.pipe(v.number(message), v.integer(message), v.minValue(least, message), v.maxValue(most, message));

const SIZE = 'expected a whole number of bytes, or one with a unit as in 256KiB or 4MiB';
const TIME = 'expected a time with its unit, as in 500ms, 1s, 1m or 1h';
const DEPTH = 'expected `any` or a whole number from 1';
const NESTING = 'expected a whole number from 1 to 1000';
const LIMIT = 'expected a whole number from 0';

const rate = v.strictObject({
  limit: v.pipe(whole(0, Number.MAX_SAFE_INTEGER, LIMIT), v.description('Calls that may pass in any window of `per`. 0 forwards nothing.')),
  per: v.pipe(v.string(TIME), v.regex(/^[1-9][0-9]{0,8}(ms|s|m|h)$/, TIME), v.description('Length of the sliding window: 500ms, 1s, 1m, 1h.')),
  tools: v.optional(v.pipe(patterns('a tool pattern'), v.description('Tools that share this counter. Default: all.'))),
  scope: v.optional(v.pipe(v.picklist(['session'], 'expected `session`'), v.description('Who shares the counter: one session (default).'))),
}, 'expected `{ limit: 20, per: 1s }`');

const limits = v.strictObject({
  max_bytes: v.optional(v.pipe(
    v.union([
      whole(1, Number.MAX_SAFE_INTEGER, SIZE),
      v.pipe(v.string(SIZE), v.regex(/^[1-9][0-9]{0,6}(KiB|MiB|GiB)$/, SIZE)),
    ], SIZE),
    v.description('Bytes of one line from the client; a longer one is refused unread. Default: 4MiB.'),
  )),
  max_depth: v.optional(v.pipe(whole(1, 1000, NESTING), v.description('Objects and arrays open at once, the message included. Default: 128.'))),
  names: v.optional(v.pipe(
    v.picklist(['safe', 'any'], 'expected `safe` or `any`'),
    v.description('safe (default): tool names of A-Z a-z 0-9 _ . : / - only, without `..` and `//`. any: every name without control characters.'),
  )),
  ids: v.optional(v.pipe(
    v.picklist(['any', 'unique'], 'expected `any` or `unique`'),
    v.description('unique: a request id that was used before is refused. Default: any.'),
  )),
  rate: v.optional(v.pipe(
    v.array(rate, 'expected a list, as in `[{ limit: 20, per: 1s }]`'),
    v.description('Rate limits; all of them must agree. No list: unlimited.'),
  )),
}, 'expected `{ max_bytes: …, rate: … }`');

const redact = v.strictObject({
  arguments: v.pipe(
    v.union([v.string(), v.pipe(v.array(v.string()), v.minLength(1, 'expected at least one name pattern'))], 'expected a list of name patterns'),
    v.description('Globs over member names; the value of a member that matches is masked. Letter case is ignored.'),
  ),
  mask: v.optional(v.pipe(
    v.string('expected text'),
    v.description('What a masked value becomes: at least 8 characters, not plain ASCII. Default: «redacted».'),
  )),
  depth: v.optional(v.pipe(
    v.union([v.literal('any'), whole(1, Number.MAX_SAFE_INTEGER, DEPTH)], DEPTH),
    v.description('Levels of arguments that are searched: any (default), or 1 for the members of arguments alone.'),
  )),
}, 'expected `{ arguments: [ … ] }`');

const test = v.strictObject({
  call: v.optional(v.pipe(v.string('expected a tool name'), v.description('A tool that is called.'))),
  arguments: v.optional(v.pipe(v.record(v.string(), v.unknown(), 'expected arguments by name'), v.description('Arguments of the call.'))),
  method: v.optional(v.pipe(v.string('expected a method'), v.description('A method that is sent, other than tools/call.'))),
  params: v.optional(v.pipe(v.record(v.string(), v.unknown(), 'expected params by name'), v.description('Params of the method.'))),
  expect: v.pipe(v.picklist(['allow', 'deny'], 'expected `allow` or `deny`'), v.description('What the policy must decide.')),
  rule: v.optional(v.pipe(v.string('expected the id of a rule'), v.description('Id of the rule that must have decided.'))),
}, 'expected `{ call: …, expect: … }` or `{ method: …, expect: … }`');

/** The whole file. Every key that is not optional here must be written. */
export const PolicySchema = v.strictObject({
  version: v.pipe(v.literal(1, 'expected 1'), v.description('Version of the policy language: 1.')),
  name: v.optional(v.pipe(
    v.string('expected a name'),
    v.regex(/^[A-Za-z0-9_.-]{1,64}$/, 'expected 1 to 64 letters, digits, `_`, `.` or `-`'),
    v.description('Name of the policy in records. Default: the file name.'),
  )),
  mode: v.optional(v.pipe(
    v.picklist(['enforce', 'observe'], 'expected `enforce` or `observe`'),
    v.description('observe: rules decide and are recorded, but refuse nothing. Default: enforce.'),
  )),
  default: v.pipe(v.picklist(['allow', 'deny'], 'expected `allow` or `deny`'), v.description('What happens to all that no rule speaks about.')),
  vars: v.optional(v.pipe(
    v.record(v.string(), v.string('expected text; quote it'), 'expected names and their text'),
    v.description('Values for ${name} in patterns and tests; --set name=value overrides them.'),
  )),
  allow: entries('What may pass. A bare string names a tool.'),
  deny: entries('What may not pass, whatever allows it. A bare string names a tool.'),
  redact: v.optional(v.pipe(redact, v.description('Argument values that are masked before they are forwarded.'))),
  limits: v.optional(v.pipe(limits, v.description('Sizes, names and rates.'))),
  tests: v.optional(v.pipe(
    v.array(test, 'expected a list of tests'),
    v.description('Questions with the answers this policy must give; run each time it is loaded.'),
  )),
}, 'expected a policy: keys with their values');

/** A sound file's content, variables not yet filled in. */
export type PolicyFile = v.InferOutput<typeof PolicySchema>;
export type EntryFile = v.InferOutput<typeof entry>;
export type TestFile = v.InferOutput<typeof test>;

/** Keys of the full language that this version does not read, by where they stand. */
export const NOT_YET: Readonly<Record<string, readonly string[]>> = Object.freeze({
  '': ['approve', 'rules', 'profiles', 'risk', 'anomalies', 'suppress', 'audit', 'approval', 'stop'],
  allow: ['resources', 'prompts', 'asks', 'matches', 'when', 'unless', 'id', 'reason', 'severity', 'answer', 'mode', 'stop'],
  deny: ['resources', 'prompts', 'asks', 'matches', 'when', 'unless', 'id', 'reason', 'severity', 'answer', 'mode', 'stop'],
  redact: ['results', 'secrets'],
  limits: ['max_result_bytes', 'calls', 'concurrent', 'duration', 'budget', 'breaker'],
});

/** Values of the full language that this version does not read, by the key they stand at. */
export const NOT_YET_VALUES: Readonly<Record<string, string>> = Object.freeze({ scope: 'client', expect: 'approve' });

interface SchemaNode {
  readonly wrapped?: SchemaNode;
  readonly options?: ReadonlyArray<SchemaNode | string>;
  readonly entries?: Readonly<Record<string, SchemaNode>>;
  readonly item?: SchemaNode;
}

const alternatives = (schema: SchemaNode): SchemaNode[] => {
  if (schema.wrapped !== undefined) return alternatives(schema.wrapped);
  if (schema.options === undefined) return [schema];
  return schema.options.flatMap((option) => (typeof option === 'string' ? [] : alternatives(option)));
};

/** The keys that may stand in the object at `path` of a policy; null where names are free or no object belongs. */
export const keysAt = (path: ReadonlyArray<string | number>): readonly string[] | null => {
  let nodes = alternatives(PolicySchema as unknown as SchemaNode);
  for (const step of path) {
    nodes = nodes.flatMap((node) => {
      const next = typeof step === 'number' ? node.item : node.entries !== undefined && Object.hasOwn(node.entries, step) ? node.entries[step] : undefined;
      return next === undefined ? [] : alternatives(next);
    });
  }
  const object = nodes.find((node) => node.entries !== undefined);
  return object?.entries === undefined ? null : Object.keys(object.entries);
};

/** One thing that does not fit the schema. */
export interface SchemaIssue {
  readonly path: ReadonlyArray<string | number>;
  /** The key itself is absent. */
  readonly missing: boolean;
  readonly input: unknown;
  readonly message: string;
}

const flatten = (issue: v.BaseIssue<unknown>, above: ReadonlyArray<string | number>): SchemaIssue[] => {
  const path = [...above, ...(issue.path ?? []).map((item) => item.key as string | number)];
  // Of a union, the alternative that got furthest is the one that was meant.
  const inner = (issue.issues ?? []).filter((one) => one.path !== undefined);
  if (inner.length > 0) return inner.flatMap((one) => flatten(one, path));
  if (issue.expected === 'never') return []; // unknown keys: `keysAt` finds all of them, valibot the first
  return [{ path, missing: issue.type === 'strict_object' && issue.input === undefined, input: issue.input, message: issue.message }];
};

/** What in a plain value does not fit, one issue a place; unknown keys are not among them. */
export const schemaIssues = (value: unknown): SchemaIssue[] => {
  const result = v.safeParse(PolicySchema, value);
  const seen = new Set<string>();
  return (result.issues ?? []).flatMap((issue) => flatten(issue, [])).filter((issue) => {
    const key = JSON.stringify(issue.path);
    return !seen.has(key) && seen.add(key);
  });
};
