/** The parts of a scan in a commit, and the anomalies that each level excludes, even within an epoch. */

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

async function put(client: Client, key: string, value: unknown): Promise<void> {
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
    // Nothing else is forgotten: the rows that it read answer later reads, and a changed row is a conflict.
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

async function keysOf(txn: Transaction, prefix: string, limit: number): Promise<string[]> {
  const rows = await txn.scan("kv", { start: prefix, end: `${prefix}~`, limit });
  return rows.map(({ key }) => String(key).slice(prefix.length));
}

test("rows that the transaction has deleted do not count towards the limit of a scan", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  for (const name of "abcde") await put(client, `${prefix}${name}`, 1);
  const txn = await client.begin({ stores: ["kv"] });
  for (const due of "abc") {
    // Like a queue: it takes the first row and removes it.
    assert.deepEqual(await keysOf(txn, prefix, 1), [due]);
    txn.delete("kv", `${prefix}${due}`);
  }
  txn.put("kv", `${prefix}dd`, 1);
  assert.deepEqual(await keysOf(txn, prefix, 2), ["d", "dd"]);
  // Rows read past the last row that was returned do not count as read.
  await put(client, `${prefix}e`, 2);
  assert.equal((await txn.commit()).status, "committed");
  assert.deepEqual(await keysOf(await client.begin({ stores: ["kv"] }), prefix, 1000), ["d", "dd", "e"]);
});

test("a range that was read at Begin is read further if the transaction has deleted its rows", async () => {
  const asked: number[] = [];
  const prefix = freshPrefix();
  const client = connected({
    fetch: async (request) => {
      if (request.url.endsWith("/rows/read")) {
        const { ranges } = (await request.clone().json()) as { ranges: { limit: number }[] };
        asked.push(...ranges.map(({ limit }) => limit));
      }
      return fetch(request);
    },
  });
  for (const name of "abcdefgh") await put(client, `${prefix}${name}`, 1);
  const txn = await client.begin({ stores: ["kv"], ranges: { kv: [{ start: prefix, end: `${prefix}~`, limit: 3 }] } });
  for (const name of "abdf") txn.delete("kv", `${prefix}${name}`);
  txn.insert("kv", `${prefix}g0`, 1);
  assert.deepEqual(await keysOf(txn, prefix, 3), ["c", "e", "g"]);
  assert.deepEqual(asked, [4], "the two that are missing, and as many more as may be deleted");
  await put(client, `${prefix}h`, 2);
  assert.equal((await txn.validate()).status, "would_commit");
  assert.deepEqual(await keysOf(txn, prefix, 1000), ["c", "e", "g", "g0", "h"]);
  const verdict = await txn.commit();
  assert.equal(verdict.status === "aborted" && verdict.reason, "range_conflict");
});

test("further pages of a scan are as large as what is missing", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  for (const name of "abcdefgh") await put(client, `${prefix}${name}`, 1);
  const txn = await client.begin({ stores: ["kv"], ranges: { kv: [{ start: prefix, end: `${prefix}~`, limit: 3 }] } });
  for (const name of "abf") txn.delete("kv", `${prefix}${name}`);
  const limits: (number | undefined)[] = [];
  const page = client.reads.page.bind(client.reads);
  client.reads.page = (store, range, options, snapshot) => {
    limits.push(range.limit);
    return page(store, range, options, snapshot);
  };
  assert.deepEqual(await keysOf(txn, prefix, 3), ["c", "d", "e"]);
  assert.deepEqual(limits, [3], "two rows, and one that was deleted");
});

test("a scan of large values returns all rows", async () => {
  const [client, prefix, names] = [connected(), freshPrefix(), Array.from("abcdefghijkl")];
  for (const name of names) await put(client, `${prefix}${name}`, "x".repeat(1_000_000));
  const range = { start: prefix, end: `${prefix}~` };
  assert.ok((await client.rows("kv", range)).more, "one page has 8 MiB at most");
  assert.deepEqual(await keysOf(await client.begin({ stores: ["kv"] }), prefix, 1000), names);
  const scanned = await client.begin({ stores: ["kv"], ranges: { kv: [range] } });
  assert.deepEqual(await keysOf(scanned, prefix, 1000), names);
  await put(client, `${prefix}m`, 1);
  scanned.put("kv", prefix, 1);
  const verdict = await scanned.commit();
  assert.equal(verdict.status === "aborted" && verdict.reason, "range_conflict");
});
