// What the template of a validator answers, asked as the host asks.
import assert from 'node:assert/strict';
import { lifecycle, validator } from './strict-reads/src/plugin.js';

lifecycle.init('');
lifecycle.init(' { } ');
assert.throws(() => lifecycle.init('{"a": 1}'), /takes none/);

const reads = {
  ends: Uint32Array.of(2, 2, 3),
  seen: BigUint64Array.of(1n, 1n << 40n, 7n),
  latest: BigUint64Array.of(1n, 2n << 40n, 7n),
};
const judged = validator.validate({ count: 3, reads });
assert.deepEqual([...judged.code], [128, 0, 0]);
assert.deepEqual([...judged.witness], [1, 0xffffffff, 0xffffffff]);
console.log('all held');
