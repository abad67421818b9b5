/** Values: stored as passed, and a caller that changes a value it read changes nothing else. */

import assert from "node:assert/strict";
import { test } from "node:test";

import type { Client, Row } from "../src/index.js";
import { connected, freshPrefix } from "./service.js";

interface Tagged {
  tags: string[];
}

async function put(client: Client, key: string | Uint8Array, value: unknown): Promise<void> {
  const txn = client.beginLocal();
  txn.put("kv", key, value);
  assert.equal((await txn.commit()).status, "committed");
}

/** Changes the value of a row in place, and checks what it was. */
function change(row: Row<Tagged> | undefined): void {
  assert.ok(row !== undefined);
  assert.deepEqual(row.value, { tags: ["x"] });
  row.value.tags.push("y");
}

test("a value that was read may be changed", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  for (const name of "abc") await put(client, `${prefix}${name}`, { tags: ["x"] });
  const txn = await client.begin({ stores: ["kv"], read: { kv: [`${prefix}a`] } });
  for (let n = 0; n < 3; n++) {
    change(await txn.get("kv", `${prefix}a`));
    (await txn.getMany<Tagged>("kv", [`${prefix}a`, `${prefix}c`, `${prefix}c`])).forEach(change);
    (await txn.scan<Tagged>("kv", { start: prefix, end: `${prefix}~` })).forEach(change);
    change(await txn.get("kv", `${prefix}b`));
  }
});

test("a value that was written is changed by a further write only", async () => {
  const [client, key] = [connected(), freshPrefix()];
  const txn = await client.begin({ stores: ["kv"] });
  txn.put("kv", key, { tags: ["x"] });
  change(await txn.get("kv", key));
  (await txn.scan<Tagged>("kv", { start: key, end: `${key}~` })).forEach(change);
  assert.equal((await txn.commit()).status, "committed");
  change(await client.row("kv", key));
});

test("a key in bytes that was read may be changed", async () => {
  const [client, prefix] = [connected(), Buffer.from(freshPrefix())];
  const key = new Uint8Array([...prefix, 0xff]);
  await put(client, key, 1);
  const txn = await client.begin({ stores: ["kv"] });
  const before = await txn.get("kv", key);
  const [scanned] = await txn.scan("kv", { start: prefix, limit: 1 });
  for (const row of [before, scanned]) {
    assert.ok(row?.key instanceof Uint8Array);
    assert.deepEqual(row.key, key);
    row.key.fill(0);
  }
  assert.equal(txn.prepare().request.reads?.[0]?.key_b64, Buffer.from(key).toString("base64"));
});

test("callers whose reads share a request share no value", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  const keys = [`${prefix}a`, `${prefix}b`];
  for (const key of keys) await put(client, key, { tags: ["x"] });
  await Promise.all(
    Array.from({ length: 16 }, async () => {
      const [begun, outside] = [client.begin({ stores: ["kv"], read: { kv: keys } }), client.readRows<Tagged>("kv", keys.map((key) => ({ key })))];
      for (const state of (await outside).rows) change(state.status === "found" ? state.row : undefined);
      const txn = await begun;
      for (const key of keys) change(await txn.get<Tagged>("kv", key));
      const other = await client.begin({ stores: ["kv"] });
      (await other.getMany<Tagged>("kv", [...keys, ...keys])).forEach(change);
      // Without types, the snapshots can be changed as well.
      (other.snapshots as Record<string, string>)["kv"] = "changed";
      assert.notEqual(txn.snapshots["kv"], "changed");
    }),
  );
  const twice = await client.readRows<Tagged>("kv", [...keys, ...keys].map((key) => ({ key })));
  for (const state of twice.rows) change(state.status === "found" ? state.row : undefined);
});

test("a member named __proto__ is a member", async () => {
  const [client, key] = [connected(), freshPrefix()];
  const value: unknown = JSON.parse('{"__proto__": {"a": 1}, "b": [{"__proto__": 2}]}');
  await put(client, key, value);
  const txn = await client.begin({ stores: ["kv"] });
  assert.equal(JSON.stringify((await txn.get("kv", key))?.value), JSON.stringify(value));
});
