// What a proxy does that parses each message and writes it again: split, JSON.parse, JSON.stringify, with backpressure.
// The measure that the filter is held against; it judges nothing, masks nothing and records nothing.
import { Transform } from 'node:stream';
import { pipeline } from 'node:stream/promises';
import { StringDecoder } from 'node:string_decoder';

const decoder = new StringDecoder('utf8');
let rest = '';

const relay = new Transform({
  transform(chunk, _encoding, done) {
    const lines = (rest + decoder.write(chunk)).split('\n');
    rest = lines.pop() ?? '';
    let out = '';
    for (const line of lines) {
      if (line !== '') out += `${JSON.stringify(JSON.parse(line))}\n`;
    }
    done(null, out);
  },
  flush(done) {
    const line = rest + decoder.end();
    done(null, line === '' ? '' : `${JSON.stringify(JSON.parse(line))}\n`);
  },
});

await pipeline(process.stdin, relay, process.stdout);
