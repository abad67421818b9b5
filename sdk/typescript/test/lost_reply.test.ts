/** Lost replies, against a live server through a proxy that cuts connections. */

import assert from "node:assert/strict";
import { after, before, test } from "node:test";

import { Client, OutcomeUnknown } from "../src/index.js";
import { Proxy } from "./proxy.js";
import { connected, freshPrefix, url } from "./service.js";

let proxy: Proxy;
before(async () => { proxy = await Proxy.start(url); });
after(() => proxy.stop());

test("a lost reply is resolved by id and the commit is kept", async () => {
  const [client, lost] = [new Client(proxy.url), proxy.lost];
  const key = `${freshPrefix()}a`;
  const txn = client.beginLocal();
  txn.insert("kv", key, 1);
  proxy.lose("reply", "/commit");
  const verdict = await txn.commit();
  assert.equal(proxy.lost, lost + 1);
  assert.ok(verdict.status === "committed" && verdict.replayed, JSON.stringify(verdict));
  const again = await client.begin({ stores: ["kv"], session: verdict.session, waitMs: 60_000 });
  assert.equal((await again.get("kv", key))?.version, verdict.version);
});

test("a lost request is fenced and run repeats the work", async () => {
  const client = new Client(proxy.url);
  const key = `${freshPrefix()}a`;
  const txn = client.beginLocal();
  txn.insert("kv", key, 1);
  proxy.lose("request", "/commit");
  const verdict = await txn.commit();
  assert.ok(verdict.status === "aborted" && verdict.reason === "fenced", JSON.stringify(verdict));
  // The request arrives late.
  const late = await connected().commit(txn.prepare());
  assert.ok(late.status === "aborted" && late.reason === "fenced", JSON.stringify(late));

  const ids: string[] = [];
  proxy.lose("request", "/commit");
  const { committed } = await client.run((again) => {
    ids.push(again.id);
    again.insert("kv", key, 2);
  });
  assert.equal(ids.length, 2);
  assert.equal(ids[1], committed.txnId, "under a new id");
});

test("a reply that never arrives is requested after the timeout", async () => {
  const client = new Client(proxy.url, { timeoutMs: 3000 });
  const txn = client.beginLocal();
  txn.put("kv", `${freshPrefix()}a`, 1);
  proxy.lose("silence", "/commit");
  const verdict = await txn.commit();
  assert.ok(verdict.status === "committed" && verdict.replayed, JSON.stringify(verdict));
});

test("each commit of a lost batch is resolved", async () => {
  const client = new Client(proxy.url);
  const prefix = freshPrefix();
  const txns = [1, 2, 3].map((n) => {
    const txn = client.beginLocal();
    txn.insert("kv", `${prefix}${n % 2}`, n);
    return txn.prepare();
  });
  proxy.lose("reply", "/batch-commit");
  const verdicts = await client.batch(txns);
  const states = verdicts.map((verdict) => ("status" in verdict ? verdict.status : verdict.message));
  assert.deepEqual(states, ["committed", "committed", "aborted"]);
});

test("a repeated commit gets the same verdict and is executed once", async () => {
  const client = connected();
  const key = `${freshPrefix()}counter`;
  const setUp = client.beginLocal();
  setUp.put("kv", key, 0);
  await setUp.commit();
  const txn = client.beginLocal();
  txn.add("kv", key, 5);
  const prepared = txn.prepare();
  const [first, second] = [await client.commit(prepared), await client.commit(prepared)];
  assert.ok(first.status === "committed" && second.status === "committed");
  assert.deepEqual([first.replayed, second.replayed], [false, true]);
  assert.equal(first.version, second.version);
  assert.equal((await client.run((last) => last.get<number>("kv", key))).value?.value, 5);
  const status = await client.status(prepared.txnId);
  assert.ok(status.status === "committed" && status.version === first.version);
});

test("an outcome that cannot be determined is unknown", async () => {
  const own = await Proxy.start(url);
  const client = new Client(own.url, { timeoutMs: 5000, resolveTimeoutMs: 1000 });
  const txn = client.beginLocal();
  txn.put("kv", `${freshPrefix()}a`, 1);
  own.lose("silence", "/commit");
  const commit = txn.commit();
  while (own.lost === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  await own.stop();
  await assert.rejects(commit, (error) => error instanceof OutcomeUnknown && error.txnId === txn.id);
  // Once the service can be reached, the id determines the outcome: the commit arrived, or never will.
  const { status } = await connected().status(txn.id, { fence: true });
  assert.ok(status === "committed" || status === "aborted", status);
});
