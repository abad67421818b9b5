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
  // A row that was read can be passed to read it again.
  const page = await client.rows("kv", { start: key, limit: 1 });
  assert.deepEqual((await client.readRows("kv", page.rows)).rows, [{ status: "unchanged", version: won.version }]);
});

test("sessions whose requests are batched read their own writes", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const ids = new Set<string>();
  await Promise.all(
    Array.from({ length: 64 }, async (_, number) => {
      const own = `${prefix}own/${number}`;
      const shared = `${prefix}shared/${number % 4}`;
      for (let round = 0; round < 10; round++) {
        const txn = await client.begin({ stores: ["kv"], read: { kv: [own] } });
        ids.add(txn.id);
        assert.equal((await txn.get("kv", own))?.value, round === 0 ? undefined : round - 1, "at Begin");
        txn.put("kv", own, round);
        txn.put("kv", shared, number);
        const won = await txn.commit();
        assert.ok(won.status === "committed", JSON.stringify(won));
        assert.deepEqual(await client.row("kv", own), { key: own, value: round, version: won.version });
        assert.ok(BigInt((await client.row("kv", shared))?.version ?? 0) >= BigInt(won.version ?? 0), "after the commit");
      }
    }),
  );
  assert.equal(ids.size, 640, "each transaction has an id of its own");
});

test("ranges are read by Begin and outside transactions", async () => {
  const client = connected();
  const prefix = freshPrefix();
  for (const key of ["a/1", "a/2", "a/3", "b/1"]) await put(client, prefix + key, 1);
  const all = { start: `${prefix}a/`, end: `${prefix}a0`, limit: 10 };
  const two = { ...all, limit: 2 };
  const { ranges } = await client.readRanges("kv", [two, { start: `${prefix}b/`, end: `${prefix}c` }]);
  assert.deepEqual(ranges.map(({ rows, more }) => [rows.map(({ key }) => key), more]), [
    [[`${prefix}a/1`, `${prefix}a/2`], true],
    [[`${prefix}b/1`], false],
  ]);

  const begin = { stores: ["kv"], ranges: { kv: [all, two] } };
  const [unused, scanned, part] = [await client.begin(begin), await client.begin(begin), await client.begin(begin)];
  scanned.put("kv", `${prefix}a/4`, 4);
  assert.equal((await scanned.scan("kv", all)).length, 4, "own writes included");
  assert.equal((await part.scan("kv", two)).length, 2);
  await put(client, `${prefix}a/35`, 1);
  // Only the scanned part of a range belongs to the read set of a transaction.
  for (const txn of [unused, part]) {
    txn.put("kv", `${prefix}c`, 1);
    assert.equal(await reasonOf(txn), "committed");
  }
  assert.equal(await reasonOf(scanned), "range_conflict");
});

test("the checksums of records of all kinds are right", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const values = [1, 1.5, -0.25, "gr\u00fcn \"\\ \u2028", null, true, [], {}, { nested: { value: ["]", "}", { writes: [] }] } }];
  const txn = client.beginLocal();
  values.forEach((value, at) => {
    txn.put("kv", `${prefix}${at}`, value);
  });
  txn.put("kv", new Uint8Array([0xff, ...new TextEncoder().encode(prefix)]), "binary");
  const won = await txn.commit();
  assert.ok(won.status === "committed");
  const gone = client.beginLocal();
  gone.delete("kv", `${prefix}0`);
  await gone.commit();
  const after = String(BigInt(won.lsn["kv"] ?? "0") - 1n);
  const log = client.log("kv", { after, follow: false });
  const found: unknown[] = [];
  for await (const record of log) found.push(...record.writes.map(({ value }) => value));
  assert.deepEqual(found.slice(0, values.length), values);
});
