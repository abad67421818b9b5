// YCSB A to F, each operation a serializable transaction whose reads are validated.
//
// A read is a transaction too: it reads the row from the store, and commits the version that it saw.
import { insert, load, observed, put, row, scan, transact } from '../lib/api.js';
import { zipf } from '../lib/zipf.js';

const rows = Number(__ENV.ROWS || 10000);
const draw = zipf(rows, 0.99);
const value = 'x'.repeat(100);
const key = (number) => `ycsb/${String(number).padStart(8, '0')}`;
const any = () => key(draw());

const read = (name) => transact(() => ({ reads: [observed(row(name))] }));
const update = (name) => transact(() => ({ writes: [put(name, value)] }));

function modify(name) {
  transact(() => {
    const seen = row(name);
    return { reads: [observed(seen)], writes: [put(name, value)] };
  });
}

function scanSome() {
  const start = draw();
  transact(() => {
    const range = { store: 'kv', start: key(start), end: key(start + 1 + Math.floor(Math.random() * 100)) };
    const page = scan(range.start, range.end, 100);
    return { snapshots: { kv: page.applied }, ranges: [range] };
  });
}

// A user's own inserts, newest last: workload D reads the latest, E inserts into the ranges that other users scan.
let inserted = 0;

function grow(workload) {
  const name = `ycsb/${workload}/${__VU}/${String(inserted).padStart(8, '0')}`;
  if (transact(() => ({ writes: [insert(name, value)] }))) inserted += 1;
}

function readLatest() {
  if (inserted === 0) return read(any());
  const back = Math.min(inserted, 1 + draw());
  return read(`ycsb/d/${__VU}/${String(inserted - back).padStart(8, '0')}`);
}

const share = (part) => Math.random() < part;

export function ycsbLoad() {
  load(Array.from({ length: rows }, (_, number) => put(key(number), value)));
}
export const ycsbA = () => (share(0.5) ? read(any()) : update(any()));
export const ycsbB = () => (share(0.95) ? read(any()) : update(any()));
export const ycsbC = () => read(any());
export const ycsbD = () => (share(0.95) ? readLatest() : grow('d'));
export const ycsbE = () => (share(0.95) ? scanSome() : grow('e'));
export const ycsbF = () => (share(0.5) ? read(any()) : modify(any()));
