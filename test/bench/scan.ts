// The strict scan alone beside JSON.parse, over the same lines from the same bytes.
import { isUtf8 } from 'node:buffer';
import { readFileSync } from 'node:fs';
import { Scanner } from '../../lib/index.js';
import { interleave, timesFaster } from './measure.js';
import type { Part } from './measure.js';
import type { Setting } from './setting.js';

const measureFile = async (setting: Setting, file: string, title: string): Promise<Part> => {
  const bytes = readFileSync(file);
  const ends: number[] = [];
  for (let lf = bytes.indexOf(10); lf !== -1; lf = bytes.indexOf(10, lf + 1)) ends.push(lf);

  const time = (each: (start: number, end: number) => void) => (): number => {
    const started = performance.now();
    let start = 0;
    for (const end of ends) {
      each(start, end);
      start = end + 1;
    }
    return (performance.now() - started) / 1000;
  };
  const scanner = new Scanner();
  const scanLine = (start: number, end: number): void => {
    scanner.scan(bytes, start, end);
    if (scanner.code !== null) throw new Error(`refused: ${scanner.code}`);
  };
  const scanAll = time(scanLine);
  const samples = await interleave(setting.rounds, {
    'scan': () => {
      const started = performance.now();
      if (!isUtf8(bytes)) throw new Error('not UTF-8');
      return (performance.now() - started) / 1000 + scanAll();
    },
    'JSON.parse': time((start, end) => void JSON.parse(bytes.toString('utf8', start, end))),
  });
  return {
    title,
    caveat: `${(bytes.length / 1e6).toFixed(0)} MB in memory, lines found beforehand. Both begin with bytes: the scan after one check for UTF-8, JSON.parse after decoding the line.`,
    unit: 's',
    samples,
    targets: [{ what: 'faster than JSON.parse', value: timesFaster(samples, 'scan', 'JSON.parse'), unit: 'x', limit: 2, better: 'more' }],
  };
};

export const scan = async (setting: Setting): Promise<Part[]> => [
  await measureFile(setting, setting.mixed, 'The scan alone, mixed session'),
  await measureFile(setting, setting.long, 'The scan alone, lines of 1 MB'),
];
