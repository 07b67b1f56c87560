// The policy form as a JSON Schema for editors. For the build and tests alone: it needs a development dependency.
// Must not be imported by anything that ships.
import { toJsonSchema } from '@valibot/to-json-schema';
import { PolicySchema } from './schema.js';

/** JSON Schema (draft-07) of a policy file, every key with its description. */
export const policyJsonSchema = (): Record<string, unknown> => ({
  ...toJsonSchema(PolicySchema, { target: 'draft-07' }),
  title: 'Sluice policy',
});
