// Where the text of a policy comes from: a shipped policy by name, or a file.
// Owns reading and nothing else. Must not parse a policy or look into the working directory for shipped ones.
import { readFileSync, realpathSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { PolicyError } from '../lib/errors.js';

/** Policies that ship with the package and go by their name. A file of such a name is reached as `./default`. */
export const SHIPPED_POLICIES: readonly string[] = Object.freeze(['default', 'strict', 'permissive']);

export interface PolicySource {
  /** As the user named it. */
  readonly file: string;
  readonly source: string;
}

const PACKAGE = 'mcp-sluice';

const packageName = (folder: string): string | null => {
  try {
    const content: unknown = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    return typeof content === 'object' && content !== null && 'name' in content ? String(content.name) : null;
  } catch {
    return null; // no package here, or not a readable one: look further up
  }
};

/** The package that holds the running script, links followed; null where the script does not lie in one. */
export const packageFolder = (script: string): string | null => {
  let folder: string;
  try {
    folder = dirname(realpathSync(script));
  } catch {
    return null;
  }
  while (packageName(folder) !== PACKAGE) {
    const above = dirname(folder);
    if (above === folder) return null;
    folder = above;
  }
  return folder;
};

const unreadable = (file: string, message: string, hint: string): PolicyError =>
  new PolicyError([{ code: 'unreadable', file, line: 1, column: 1, source: '', message, hint }]);

const reasonOf = (error: unknown): string => {
  const code = error instanceof Error && 'code' in error ? String(error.code) : '';
  return code === 'ENOENT' ? 'there is no such file'
    : code === 'EISDIR' ? 'it is a folder'
      : code === 'EACCES' || code === 'EPERM' ? 'permission denied'
        : code || String(error);
};

/**
 * Reads a policy: one of `SHIPPED_POLICIES`, looked up in the package that holds `script` (the running program's main
 * script, never the working directory), or the file at that path. Throws a PolicyError where it cannot be read.
 */
export const readPolicySource = (nameOrPath: string, script: string): PolicySource => {
  let path = nameOrPath;
  if (SHIPPED_POLICIES.includes(nameOrPath)) {
    const folder = packageFolder(script);
    if (folder === null) throw unreadable(nameOrPath, 'the shipped policies cannot be found', 'name a policy file by its path');
    path = join(folder, 'policies', `${nameOrPath}.yaml`);
  }
  let bytes: Uint8Array;
  try {
    bytes = readFileSync(path);
  } catch (error) {
    throw unreadable(nameOrPath, `the policy cannot be read: ${reasonOf(error)}`, `name a file, or one of ${SHIPPED_POLICIES.join(', ')}`);
  }
  try {
    return { file: nameOrPath, source: new TextDecoder('utf-8', { fatal: true, ignoreBOM: true }).decode(bytes) };
  } catch {
    throw unreadable(nameOrPath, 'the policy is not valid UTF-8', 'save it as UTF-8');
  }
};
