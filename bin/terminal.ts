// How words and figures reach a terminal: escaping, colour, columns, bars, progress, a reader that goes away.
// Owns everything between a string and a screen. Must not know commands, records or policies.

// Controls, format and bidi characters, private and unassigned code points, lone surrogates, separators, every
// code point that renders as nothing, white space that only looks like a space, and the escape character itself.
const UNSAFE = /[\\\p{C}\p{Zl}\p{Zp}\p{Default_Ignorable_Code_Point}]|(?! )\p{Zs}/gu;

const hex = (code: number, width: number): string => code.toString(16).toUpperCase().padStart(width, '0');

const escapeCharacter = (character: string): string => {
  if (character === '\\') return '\\\\';
  const code = character.codePointAt(0) ?? 0;
  return code <= 0xff ? `\\x${hex(code, 2)}` : `\\u{${hex(code, 4)}}`;
};

/**
 * Makes untrusted text harmless and unambiguous on a terminal. Whatever could move the cursor, change colours, turn
 * the reading direction, hide or break a line becomes a visible `\xNN` or `\u{NNNN}`; a backslash becomes two.
 */
export const escapeForTerminal = (text: string): string => text.replace(UNSAFE, escapeCharacter);

/**
 * One untrusted value as one field of a line: names of plain letters, digits and `_ . / $ : @ # -` as they are,
 * anything else escaped and in double quotes, so that no value can pass for two fields. Cut after `most` code points.
 */
export const field = (text: string, most = 200): string => {
  const characters = text.length <= most ? null : Array.from(text.slice(0, 2 * most));
  const cut = characters !== null && (characters.length > most || text.length > 2 * most);
  const shown = cut ? characters.slice(0, most).join('') : text;
  if (!cut && /^[\w./$:@#-]+$/.test(shown)) return shown;
  return `"${escapeForTerminal(shown).replaceAll('"', '\\x22')}"${cut ? '...' : ''}`;
};

/** JSON text in ASCII alone, indented by two spaces: as harmless on a terminal as in a file. */
export const asciiJson = (value: unknown): string =>
  JSON.stringify(value, null, 2).replace(/[^\n -~]/g, (unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, '0')}`);

/** Styles as functions; each returns its text unchanged where colour is off. */
export interface Paint {
  readonly bold: (text: string) => string;
  readonly dim: (text: string) => string;
  readonly red: (text: string) => string;
  readonly green: (text: string) => string;
  readonly yellow: (text: string) => string;
  readonly cyan: (text: string) => string;
}

/** The styles of a terminal (SGR), or none. Styles do not nest: the inner one's end ends both. */
export const paint = (color: boolean): Paint => {
  const style = (on: number, off: number) => (text: string): string =>
    color && text !== '' ? `\x1b[${on}m${text}\x1b[${off}m` : text;
  return {
    bold: style(1, 22),
    dim: style(2, 22),
    red: style(31, 39),
    green: style(32, 39),
    yellow: style(33, 39),
    cyan: style(36, 39),
  };
};

/**
 * Should `stream` get colour? The flag `--no-color` decides first, then FORCE_COLOR (`0` and `false` mean no), then
 * NO_COLOR (any text), then whether the stream is a terminal that is not `dumb`. This is Node's own order.
 */
export const wantsColor = (
  stream: { readonly isTTY?: boolean | undefined },
  env: Readonly<Record<string, string | undefined>>,
  noColor = false,
): boolean => {
  if (noColor) return false;
  const force = env['FORCE_COLOR'];
  if (force !== undefined && force !== '') return force !== '0' && force !== 'false';
  if (env['NO_COLOR'] !== undefined && env['NO_COLOR'] !== '') return false;
  return stream.isTTY === true && env['TERM'] !== 'dumb';
};

const WIDE = /[\u1100-\u115F\u2E80-\uA4CF\uAC00-\uD7A3\uF900-\uFAFF\uFE30-\uFE6F\uFF01-\uFF60\uFFE0-\uFFE6\u{20000}-\u{3FFFD}]|\p{Emoji_Presentation}/u;

/** Terminal cells of text that is escaped already and holds no styles. */
export const displayWidth = (text: string): number => {
  if (/^[ -~]*$/.test(text)) return text.length;
  let width = 0;
  for (const character of text) {
    if (WIDE.test(character)) width += 2;
    else if (!/\p{M}/u.test(character)) width += 1;
  }
  return width;
};

/** Pads unstyled text to `width` cells, at its right, or at its left for `right` alignment. Never cuts. */
export const pad = (text: string, width: number, align: 'left' | 'right' = 'left'): string => {
  const space = ' '.repeat(Math.max(0, width - displayWidth(text)));
  return align === 'left' ? text + space : space + text;
};

/** Pads every cell to the width of its column. `align` names each column; columns without one go left. */
export const padColumns = (
  rows: ReadonlyArray<readonly string[]>,
  align: ReadonlyArray<'left' | 'right'> = [],
): string[][] => {
  const widths: number[] = [];
  for (const row of rows) row.forEach((cell, i) => { widths[i] = Math.max(widths[i] ?? 0, displayWidth(cell)); });
  return rows.map((row) => row.map((cell, i) => pad(cell, widths[i] ?? 0, align[i] ?? 'left')));
};

const EIGHTHS = ['', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];

/** A bar of `width` cells, filled to `fraction` (0 to 1). Anything above nothing shows at least a sliver. */
export const bar = (fraction: number, width: number): string => {
  const share = fraction > 0 ? Math.min(1, fraction) : 0;
  const eighths = share === 0 ? 0 : Math.max(1, Math.round(share * width * 8));
  return pad('█'.repeat(Math.floor(eighths / 8)) + (EIGHTHS[eighths % 8] ?? ''), width);
};

/** A whole number with commas between thousands. */
export const formatCount = (count: number): string => count.toLocaleString('en-US');

/** Bytes for people: `512 B`, `1.5 KiB`, `3.2 GiB`. */
export const formatBytes = (bytes: number): string => {
  if (bytes < 1024) return `${Math.round(bytes)} B`;
  const power = Math.min(5, Math.floor(Math.log2(bytes) / 10));
  return `${(bytes / 1024 ** power).toFixed(1)} ${['', 'Ki', 'Mi', 'Gi', 'Ti', 'Pi'][power]}B`;
};

/** `1 message`, `2 messages`. */
export const plural = (count: number, noun: string): string => `${formatCount(count)} ${noun}${count === 1 ? '' : 's'}`;

export interface ProgressLine {
  /** Tells how many bytes are done; redraws at most ten times a second. */
  update(done: number): void;
  /** Wipes the line. Nothing is drawn after it. */
  end(): void;
}

/**
 * One line that shows how far a long read is, redrawn in place. It draws only where `stream` is a terminal, and not
 * in the first 100 ms, so that short work leaves no trace. `total` in bytes, or null where it is unknown.
 */
export const progressLine = (
  stream: NodeJS.WritableStream & { readonly isTTY?: boolean; readonly columns?: number },
  total: number | null,
  now: () => number = () => Number(process.hrtime.bigint() / 1_000_000n),
): ProgressLine => {
  const every = 100;
  const began = now();
  let drawn = began;
  let width = 0;
  const redraw = (line: string): void => {
    if (line === '' && width === 0) return;
    stream.write(`\r${pad(line, width)}${line === '' ? '\r' : ''}`);
    width = displayWidth(line);
  };
  return {
    update(done) {
      const time = now();
      if (stream.isTTY !== true || time - drawn < every) return;
      drawn = time;
      const rate = `${formatBytes((done * 1000) / (time - began))}/s`;
      const room = (stream.columns || 80) - 1; // some terminals say 0
      const words = total === null
        ? `${formatBytes(done)}  ${rate}`
        : `${formatBytes(done)} of ${formatBytes(total)}  ${rate}`;
      const cells = Math.min(30, room - words.length - 2);
      const line = total !== null && cells >= 8 ? `${bar(total === 0 ? 1 : done / total, cells)}  ${words}` : words;
      redraw(line.length <= room ? line : '');
    },
    end() {
      redraw('');
      drawn = Infinity;
    },
  };
};

/**
 * Writes to a standard output whose reader may leave at any time (`| head`): that is an end, not an error.
 * The returned function waits until the text was taken; false means that the reader is gone. It throws on any other
 * failure, such as a full disk.
 */
export const openOutput = (stream: NodeJS.WritableStream): ((text: string) => Promise<boolean>) => {
  let gone = false;
  let failure: Error | null = null;
  const settle = (error: NodeJS.ErrnoException | null | undefined): void => {
    if (error === null || error === undefined) return;
    if (error.code === 'EPIPE' || error.code === 'ERR_STREAM_DESTROYED') gone = true;
    else failure ??= error;
  };
  // For good, not for the length of a write: an EPIPE may arrive after the last one.
  stream.on('error', settle);
  return async (text) => {
    if (!gone && failure === null && text !== '') {
      await new Promise<void>((resolve) => {
        stream.write(text, (error) => {
          settle(error);
          resolve();
        });
      });
    }
    if (failure !== null) throw failure;
    return !gone;
  };
};
