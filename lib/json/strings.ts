// JSON strings as bytes: decode one, encode one, fold a name the way lenient peers do.
// Owns spelling only. Must not know about messages or policies. Input is proven JSON in valid UTF-8.

const BACKSLASH = 0x5c;

/** The bytes as a Buffer over the same memory. */
export const view = (bytes: Uint8Array): Buffer =>
  Buffer.isBuffer(bytes) ? bytes : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);

/** Decodes what stands between the quotes of a JSON string, `bytes[start, end)`. */
export const decodeString = (bytes: Uint8Array, start: number, end: number): string => {
  const text = view(bytes).toString('utf8', start, end);
  return bytes.subarray(start, end).includes(BACKSLASH) ? (JSON.parse(`"${text}"`) as string) : text;
};

/** JSON text with everything beyond printable ASCII as `\uXXXX`: raw U+2028 or U+202E would forge lines for naive readers. */
export const escapeNonAscii = (json: string): string =>
  json.replace(/[\u007f-\uffff]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** A string as JSON text in printable ASCII. */
export const encodeAscii = (text: string): string => escapeNonAscii(JSON.stringify(text));

/**
 * A name without letter case, as the most lenient peer reads it: NULs gone, and what any case mapping takes for the
 * same letter made the same (long s, Kelvin sign, dotted and dotless i, both small sigmas). Context-free, so that a
 * folded prefix stays a prefix of the folded name.
 */
export const foldName = (name: string): string =>
  /^[a-z0-9_.:/-]*$/.test(name) ? name : name
    .replaceAll('\u0000', '')
    .replaceAll('\u0130', 'i')
    .toLowerCase() // capital sharp s has no capital of its own: there and back leads to `ss` for both
    .toUpperCase()
    .toLowerCase()
    .replaceAll('ς', 'σ');

/** The identity of a JSON-RPC id, given as JSON text: ids are the same when type and decoded value are. */
export const idKey = (bytes: Uint8Array, start: number, end: number): string => {
  const text = view(bytes).toString('utf8', start, end);
  // Numbers stay text: as doubles, ids beyond 2^53 would merge.
  return text.startsWith('"') ? `"${JSON.parse(text) as string}` : text;
};
