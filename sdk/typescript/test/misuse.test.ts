/** Mistakes of a caller that are found before a request is sent. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, Misuse, type Key } from "../src/index.js";

const nowhere = "http://127.0.0.1:1";

test("an API key that no header can have is a misuse", () => {
  for (const apiKey of ["a\nb", "a\u20acb", "a\0"]) assert.throws(() => new Client(nowhere, { apiKey }), Misuse);
  // As read from a file.
  new Client(nowhere, { apiKey: "trb_0\n" });
});

test("one store is no list of stores", async () => {
  await assert.rejects(new Client(nowhere).begin({ stores: "kv" as unknown as string[] }), Misuse);
});

test("a request that is too large is not sent", async () => {
  const client = new Client(nowhere);
  const txn = client.beginLocal();
  txn.put("kv", "a", "x".repeat(11 << 20));
  const isTooLarge = (error: unknown): boolean => error instanceof Misuse && error.message.includes("limit");
  await assert.rejects(txn.commit(), isTooLarge);
  await assert.rejects(client.batch([txn.prepare()]), isTooLarge);
});

test("a key is text or bytes, and a number in a value is finite", () => {
  const txn = new Client(nowhere).beginLocal();
  const keys: unknown[] = [5, null, undefined, {}];
  for (const key of keys) {
    assert.throws(() => {
      txn.put("kv", key as Key, 1);
    }, (error) => error instanceof Misuse && error.message.includes(String(key)));
  }
  for (const value of [NaN, Infinity, { a: [1, -Infinity] }]) {
    assert.throws(() => {
      txn.put("kv", "a", value);
    }, Misuse);
  }
  assert.ok(txn.readOnly);
});

test("what JSON would turn into something else is a misuse", () => {
  const txn = new Client(nowhere).beginLocal();
  const values = [new Uint8Array([1]), Buffer.from("a"), new ArrayBuffer(1), new Map([["a", 1]]), [new Set([1])], { a: Buffer.from("a") }];
  for (const value of values) {
    assert.throws(() => {
      txn.put("kv", "a", value);
    }, Misuse);
  }
  txn.put("kv", "a", { at: new Date(0), optional: undefined, ofBytes: { $b64: "AQ==" } });
});
