// The rule in Node.js, within milliseconds: `npm test`. `tribunal plugin test` asks the built plugin in the service's own
// engine.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { rule } from '../src/plugin.js';

// Transactions with a value in every column, all alike but for ascending arrival stamps; the rule gets those columns that
// it needs, as from the service.
function batch(count, columns = {}) {
  const of64 = (value) => new BigUint64Array(count).map((_, t) => (typeof value === 'function' ? value(t) : value));
  const all = {
    csn: of64((t) => BigInt(t + 1)),
    start: of64(9n),
    origin: of64(1n),
    priority: new Uint8Array(count).fill(100),
    reads: new Uint32Array(count),
    writes: new Uint32Array(count).fill(1),
    firstAttempt: of64(1767225600000n),
    ...columns,
  };
  const needs = rule.needs();
  const given = Object.entries(all).map(([name, column]) => [name, needs[name] ? column : column.subarray(0, 0)]);
  return { count, epoch: 9n, ...Object.fromEntries(given) };
}

// Compares the ranks of two transactions: below 0 if `a` wins.
const compare = ({ hi, lo }, a, b) => Number(hi[a] - hi[b]) || Number(lo[a] - lo[b]);

test('the first arrival wins', () => {
  const ranks = rule.rank(batch(2, { csn: BigUint64Array.of(7n, 3n) }));
  assert.ok(compare(ranks, 1, 0) < 0);
});
