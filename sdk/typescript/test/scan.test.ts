/** What a scan leaves in the commit, and that it excludes what the level excludes, within an epoch as well. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client, IsolationLevel, Transaction } from "../src/index.js";
import { connected, freshPrefix } from "./service.js";

/** Begins a transaction that has scanned two new rows. */
async function scanned(client: Client, isolation: IsolationLevel, prefix: string): Promise<Transaction> {
  const txn = await client.begin({ stores: ["kv"], isolation });
  assert.equal((await txn.scan("kv", { start: prefix, end: `${prefix}~` })).length, 2);
  return txn;
}

async function put(client: Client, key: string, value: number): Promise<void> {
  const txn = client.beginLocal();
  txn.put("kv", key, value);
  assert.equal((await txn.commit()).status, "committed");
}

for (const [level, reads, end] of [
  ["read-committed", 2, "committed"],
  ["repeatable-read", 2, "read_conflict"],
  ["snapshot", 2, "range_conflict"],
  ["serializable", 0, "range_conflict"],
] as const) {
  test(`at ${level}, a scanned row is sent only if its range does not cover it`, async () => {
    const [client, prefix] = [connected(), freshPrefix()];
    await put(client, `${prefix}a`, 1);
    await put(client, `${prefix}b`, 1);
    const txn = await scanned(client, level, prefix);
    const { request } = txn.prepare();
    assert.deepEqual([request.reads?.length, request.ranges?.length], [reads, 1]);
    // Nothing else is forgotten: what it saw answers later reads, and a changed row is a conflict.
    await put(client, `${prefix}a`, 2);
    assert.equal((await txn.get("kv", `${prefix}a`))?.value, 1);
    txn.put("kv", `${prefix}elsewhere`, 1);
    const verdict = await txn.commit();
    assert.equal(verdict.status === "aborted" ? verdict.reason : verdict.status, end);
  });
}

// Snapshot allows write skew.
for (const [level, skew] of [
  ["repeatable-read", false],
  ["repeatable-read", true],
  ["snapshot", false],
  ["serializable", false],
  ["serializable", true],
] as const) {
  test(`at ${level}, transactions that scanned the same rows conflict within an epoch, ${skew ? "with puts" : "with adds"}`, async () => {
    const [client, prefix] = [connected(), freshPrefix()];
    await put(client, `${prefix}a`, 1);
    await put(client, `${prefix}b`, 1);
    const both = [await scanned(client, level, prefix), await scanned(client, level, prefix)];
    both.forEach((txn, at) => {
      if (skew) txn.put("kv", `${prefix}${at === 0 ? "a" : "b"}`, 0);
      else txn.add("kv", `${prefix}a`, -1);
    });
    const results = await client.batch(both.map((txn) => txn.prepare()));
    assert.equal(results.filter((result) => "status" in result && result.status === "committed").length, 1);
  });
}

test("a row that was also read by itself is sent", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  await put(client, `${prefix}a`, 1);
  await put(client, `${prefix}b`, 1);
  const txn = await client.begin({ stores: ["kv"] });
  await txn.get("kv", `${prefix}a`);
  await txn.scan("kv", { start: prefix });
  assert.equal(txn.prepare().request.reads?.length, 1);
});
