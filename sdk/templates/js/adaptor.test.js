// The adaptor in Node.js, within milliseconds: `npm test`. `tribunal plugin test` asks the built plugin in the service's own
// engine, and with `--storage` a real storage.
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { adaptor, lifecycle } from '../src/plugin.js';

const KINDS = ['insert', 'update', 'put', 'delete', 'add'];

// A batch of records, each a list of rows [kind, key, value], of the kinds that the adaptor takes: others are refused when
// they are to be committed.
function batch(records) {
  const taken = records.map((rows) => rows.filter(([kind]) => adaptor.takes()[kind]));
  const rows = taken.flat();
  const texts = rows.flatMap(([, key, value]) => [key, value].map((text) => new TextEncoder().encode(text)));
  const at = [];
  let length = 0;
  for (const text of texts) {
    at.push(length);
    length += text.length;
  }
  const bytes = new Uint8Array(length);
  texts.forEach((text, i) => bytes.set(text, at[i]));
  const keys = (list) => Uint32Array.from(list.filter((_, i) => i % 2 === 0));
  const values = (list) => Uint32Array.from(list.filter((_, i) => i % 2 === 1));
  const lengths = texts.map((text) => text.length);
  const of64 = (from) => BigUint64Array.from(taken, (_, i) => BigInt(from + i));
  let end = 0;
  return {
    store: 'kv',
    lsn: of64(1),
    epoch: of64(5),
    csn: of64(50),
    version: of64(5 << 20),
    txnIds: new Uint8Array(16 * taken.length),
    rowEnds: Uint32Array.from(taken, (own) => (end += own.length)),
    kind: Uint8Array.from(rows, ([kind]) => KINDS.indexOf(kind)),
    keyAt: keys(at),
    keyLen: keys(lengths),
    valueAt: values(at),
    valueLen: values(lengths),
    bytes,
  };
}

// The arguments of a request's only command.
function argumentsOf({ command }) {
  const { args, argEnds } = command.val;
  return [...argEnds].map((end, i) => new TextDecoder().decode(args.subarray(i === 0 ? 0 : argEnds[i - 1], end)));
}

test('rows become strings, and the watermark follows', () => {
  lifecycle.init('{"prefix": "p:"}');
  const requests = adaptor.encode(batch([[['put', 'a', '1'], ['delete', 'b', '']], [['insert', 'c', '3']]]));
  assert.deepEqual(requests.map(({ first, last, idempotencyKey }) => [first, last, idempotencyKey]), [[1n, 2n, 'kv:1-2']]);
  const [command, , ...rest] = argumentsOf(requests[0]);
  assert.equal(command, 'EVAL');
  assert.deepEqual(rest, ['4', '#watermark:p:', 'p:a', 'p:b', 'p:c', '0', '2', 'p', '1', 'd', '', 'p', '3']);
});

test('answers are told apart', () => {
  const answer = (tag, val) => ({ tag: 'resp', val: [{ tag, val }] });
  const text = (word) => answer('text', new TextEncoder().encode(word));
  assert.equal(adaptor.readWatermark(answer('nil')), 0n);
  assert.equal(adaptor.readWatermark(text('17')), 17n);
  assert.equal(adaptor.classify(text('OK')).tag, 'ok');
  assert.equal(adaptor.classify(answer('error', 'MOVED 9')).tag, 'moved');
  assert.equal(adaptor.classify(answer('error', 'LOADING')).tag, 'retry');
  assert.equal(adaptor.classify(answer('int', 1n)).tag, 'fatal');
});
