// The validator in Node.js, within milliseconds: `npm test`. `tribunal plugin test` asks the built plugin in the service's
// own engine.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { lifecycle, validator } from '../src/plugin.js';

const READ_CONFLICT = 128;
const NO_WITNESS = 0xffffffff;

// Transactions with values in every group: each has read a row that is still as it was, and writes it. The validator gets
// the groups that it needs, as from the service.
function evidence(count, groups = {}) {
  const [written, epoch] = [5n, 9n];
  const of64 = (value) => new BigUint64Array(count).fill(value);
  const each = (column) => column.map((_, t) => t + 1);
  const ends = each(new Uint32Array(count));
  const version = written << 20n;
  const all = {
    txns: {
      csn: of64(0n).map((_, t) => BigInt(t + 1)),
      start: of64(epoch),
      origin: of64(1n),
      priority: new Uint8Array(count).fill(100),
      reads: new Uint32Array(count).fill(1),
      writes: new Uint32Array(count).fill(1),
      firstAttempt: of64(1767225600000n),
    },
    snapshots: {
      named: of64(epoch - 1n),
      currentFrom: of64(written),
      currentUntil: of64(2n ** 64n - 1n),
      multiVersion: new Uint8Array(count),
    },
    reads: { ends, seen: of64(version), latest: of64(version) },
    ranges: { ends: new Uint32Array(count), changed: new Uint8Array(0) },
    // 2 puts; the row exists, was read, and that read is current.
    writes: { ends, kind: new Uint8Array(count).fill(2), flags: new Uint8Array(count).fill(7), latest: of64(version) },
    epochs: { seen: of64(written), latest: of64(written), written: of64(written) },
    ...groups,
  };
  const needs = validator.needs();
  const emptied = (group) => Object.fromEntries(Object.entries(group).map(([name, list]) => [name, list.subarray(0, 0)]));
  const given = Object.entries(all).map(([name, group]) => [name, needs[name] ? group : emptied(group)]);
  return { count, epoch, ...Object.fromEntries(given) };
}

test('reads that are current are accepted', () => {
  const { code, witness } = validator.validate(evidence(2));
  assert.deepEqual([[...code], [...witness]], [[0, 0], [NO_WITNESS, NO_WITNESS]]);
});

test('a read of an old version is rejected', () => {
  const reads = {
    ends: Uint32Array.of(2, 2, 3),
    seen: BigUint64Array.of(1n, 1n << 40n, 7n),
    latest: BigUint64Array.of(1n, 2n << 40n, 7n),
  };
  const { code, witness } = validator.validate(evidence(3, { reads }));
  assert.deepEqual([[...code], [...witness]], [[READ_CONFLICT, 0, 0], [1, NO_WITNESS, NO_WITNESS]]);
});

test('a configuration is refused', () => {
  lifecycle.init(' { } ');
  assert.throws(() => lifecycle.init('{"a": 1}'), /no configuration/);
});
