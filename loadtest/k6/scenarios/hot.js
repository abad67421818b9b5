// All virtual users add to one counter, and no add may be lost or applied twice.
import { add, load, must, put, replay, row, transact } from '../lib/api.js';
import { Counter } from 'k6/metrics';

// Acknowledged adds minus the counter's value at the end; the threshold is 0.
export const unaccounted = new Counter('hot_unaccounted');
const key = 'hot/counter';

export function hotLoad() {
  load([put(key, 0)]);
}

export function hotAdd() {
  if (transact(() => ({ writes: [add(key, 1)] }))) unaccounted.add(1);
}

export function hotCheck(after) {
  let told = 0;
  replay(after, (record) => record.writes.filter((write) => write.key === key).forEach((write) => {
    told = write.op === 'add' ? told + write.value : write.value;
  }));
  const { value } = row(key);
  must(value === told, `the counter is ${value}, its log adds up to ${told}`);
  unaccounted.add(-value);
}
