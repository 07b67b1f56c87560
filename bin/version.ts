// The version of the package, kept equal to package.json by a test. Must not hold anything else.
export const VERSION = '0.1.0';
