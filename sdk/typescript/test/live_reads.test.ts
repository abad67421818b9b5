/** Reads several rows in one request, against a live server. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client, Committed, Transaction } from "../src/index.js";
import { connected, freshPrefix } from "./service.js";

async function put(client: Client, key: string | Uint8Array, value: unknown): Promise<Committed> {
  const txn = client.beginLocal();
  txn.put("kv", key, value);
  const verdict = await txn.commit();
  assert.ok(verdict.status === "committed", JSON.stringify(verdict));
  return verdict;
}

async function reasonOf(txn: Transaction): Promise<string> {
  const verdict = await txn.commit();
  return verdict.status === "aborted" ? verdict.reason : verdict.status;
}

test("rows read at Begin are checked at commit", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const binary = new Uint8Array([0xff, ...new TextEncoder().encode(prefix)]);
  await put(client, `${prefix}a`, 1);
  const won = await put(client, binary, null);
  const begin = { stores: ["kv"], read: { kv: [`${prefix}a`, binary, `${prefix}none`] } };
  let txn = await client.begin(begin);
  assert.deepEqual(await txn.get("kv", binary), { key: binary, value: null, version: won.version });
  assert.equal(await txn.get("kv", `${prefix}none`), undefined);
  // This row was prefetched and never returned by get, so its change is no conflict.
  await put(client, `${prefix}a`, 2);
  txn.put("kv", `${prefix}b`, 1);
  assert.equal(await reasonOf(txn), "committed");

  txn = await client.begin(begin);
  assert.equal((await txn.get("kv", `${prefix}a`))?.value, 2);
  await put(client, `${prefix}a`, 3);
  txn.put("kv", `${prefix}b`, 2);
  assert.equal(await reasonOf(txn), "read_conflict");

  // Each attempt of run reads fresh rows.
  const values: unknown[] = [];
  await client.run(async (again) => {
    values.push((await again.get("kv", `${prefix}a`))?.value);
    if (values.length === 1) await put(client, `${prefix}a`, 4);
    again.put("kv", `${prefix}b`, 3);
  }, begin);
  assert.deepEqual(values, [3, 4]);
});

test("getMany includes own writes, and each row counts as read", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const won = await put(client, `${prefix}a`, 1);
  const txn = await client.begin({ stores: ["kv"] });
  txn.insert("kv", `${prefix}own`, "mine");
  const rows = await txn.getMany("kv", [`${prefix}own`, `${prefix}none`, `${prefix}a`]);
  assert.deepEqual(rows, [
    { key: `${prefix}own`, value: "mine", version: undefined },
    undefined,
    { key: `${prefix}a`, value: 1, version: won.version },
  ]);
  await put(client, `${prefix}none`, 1);
  assert.equal(await reasonOf(txn), "read_conflict");
});

test("readRows revalidates a cached row", async () => {
  const client = connected();
  const key = `${freshPrefix()}a`;
  const old = await put(client, key, 1);
  const cached = [{ key, version: old.version }, { key: `${key}none` }];
  const { applied, rows } = await client.readRows("kv", cached);
  assert.ok(BigInt(applied) >= BigInt(old.epoch));
  assert.deepEqual(rows, [{ status: "unchanged", version: old.version }, { status: "absent" }]);
  const won = await put(client, key, 2);
  const [row] = (await client.readRows<number>("kv", cached)).rows;
  assert.deepEqual(row, { status: "found", row: { key, value: 2, version: won.version } });
});
