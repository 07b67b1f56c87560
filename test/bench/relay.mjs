// What a proxy does that parses each message and writes it again: split, JSON.parse, JSON.stringify, with backpressure.
// The measure that the filter is held against, so written to be fast; it judges nothing, masks nothing, records nothing.
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';

/** Pieces of a line whose end has not come yet; joined once. */
let pieces = [];

const again = (line) => (line.length === 0 ? '' : `${JSON.stringify(JSON.parse(line.toString('utf8')))}\n`);

const relay = new Transform({
  transform(chunk, _encoding, done) {
    let out = '';
    let start = 0;
    for (let lf = chunk.indexOf(10); lf !== -1; lf = chunk.indexOf(10, start)) {
      const end = chunk.subarray(start, lf);
      out += again(pieces.length === 0 ? end : Buffer.concat([...pieces, end]));
      pieces = [];
      start = lf + 1;
    }
    if (start < chunk.length) pieces.push(chunk.subarray(start));
    done(null, out);
  },
  flush(done) {
    done(null, again(Buffer.concat(pieces)));
  },
});

await pipeline(process.stdin, relay, process.stdout);
