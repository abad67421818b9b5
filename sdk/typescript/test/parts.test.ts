/** Parts that need no server: merged writes, waits, keys, ids. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { identity, keyFields, keyOf, normal, order, percentEncoded, successor } from "../src/keys.js";
import { waitMs } from "../src/retry.js";
import { uuidv7 } from "../src/uuid.js";
import { merge, type PendingWrite, type WriteOp } from "../src/writes.js";

const ops: readonly WriteOp[] = ["insert", "update", "put", "delete", "add"];

/** Applies an operation to a row like a storage; "aborts" if it must not be applied. */
function apply(row: number | undefined, write: PendingWrite): number | undefined | "aborts" {
  const value = Number(write.value);
  switch (write.op) {
    case "insert":
      return row === undefined ? value : "aborts";
    case "put":
      return value;
    case "update":
      return row === undefined ? "aborts" : value;
    case "delete":
      return row === undefined ? "aborts" : undefined;
    case "add":
      return row === undefined && write.or === undefined ? "aborts" : Number(row ?? write.or) + value;
  }
}

test("a merged operation has the effect of both", () => {
  let merged = 0;
  const all: [WriteOp, number | undefined][] = [...ops.map((op): [WriteOp, undefined] => [op, undefined]), ["add", 5]];
  for (const first of all) {
    for (const second of all) {
      for (const row of [undefined, 10]) {
        const [one, two] = [
          { op: first[0], value: first[0] === "delete" ? undefined : 3, or: first[1] },
          { op: second[0], value: second[0] === "delete" ? undefined : 4, or: second[1] },
        ];
        const half = apply(row, one);
        const whole = half === "aborts" ? half : apply(half, two);
        const name = `${String(first)} ${String(second)} ${String(row)}`;
        let both: PendingWrite | undefined;
        try {
          both = merge(one, two, row === undefined ? "absent" : "present");
        } catch {
          assert.equal(whole, "aborts", name);
          continue;
        }
        if (both === undefined) assert.equal(whole, row, name);
        // A merged operation may abort later than the first one would; a commit has the same effect.
        else if (whole !== "aborts") assert.equal(apply(row, both), whole, name);
        merged++;
      }
    }
  }
  assert.ok(merged > 20);
});

test("waits are random up to a bound that doubles and are limited in number", () => {
  const policy = { attemptsMax: 20, waitMinMs: 2, waitMaxMs: 100 };
  for (let failed = 1; failed < 20; failed++) {
    const waits = Array.from({ length: 200 }, () => waitMs(policy, failed, 7) ?? 0);
    const bound = Math.min(2 ** failed, 100);
    assert.ok(waits.every((wait) => wait >= 7 && wait <= 7 + bound));
    assert.ok(Math.max(...waits) - Math.min(...waits) > bound / 2, "full jitter");
  }
  assert.equal(waitMs(policy, 20, 0), undefined);
});

test("keys of any bytes survive a round trip in the order of their bytes", () => {
  const keys = ["", "acct/1", "gr\u00fcn \"%\"", "\uffff", "\u{1f600}", new Uint8Array([0xff, 0, 0x80])].map(normal);
  for (const key of keys) {
    const { key: text, key_b64: base64 } = keyFields(key) as { key?: string; key_b64?: string };
    assert.deepEqual(keyOf(text, base64), key);
    assert.ok(order(key, successor(key)) < 0);
  }
  assert.deepEqual([...keys].reverse().sort(order), keys);
  assert.equal(identity(normal(new TextEncoder().encode("a"))), identity("a"));
  assert.equal(percentEncoded(new Uint8Array([0x61, 0x2f, 0x20, 0xff, 0x7e])), "a%2F%20%FF~");
});

test("a key of bytes is a copy", () => {
  const bytes = Buffer.from([0xff, 1]);
  const key = normal(bytes);
  bytes[1] = 2;
  assert.deepEqual(keyFields(key), { key_b64: "/wE=" });
});

test("new ids are UUIDv7 of the current time", () => {
  const before = Date.now();
  const id = uuidv7();
  assert.match(id, /^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/);
  const time = parseInt(id.slice(0, 8) + id.slice(9, 13), 16);
  assert.ok(time >= before && time <= Date.now());
  assert.notEqual(uuidv7(), uuidv7());
});
