/** Reads of several rows and results of batches, against a scripted service: what is requested, and how often. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, ClientMistake, Misuse, ServerMisbehaved, Unavailable } from "../src/index.js";
import { begun, committed, start, type Scripted, type Service } from "./scripted.js";

async function withService(
  script: (kind: string, before: number) => Scripted,
  use: (client: Client, service: Service) => Promise<void>,
): Promise<void> {
  const service = await start(script);
  try {
    await use(new Client(service.url), service);
  } finally {
    service.stop();
  }
}

function begunWith(rows: readonly unknown[]): Scripted {
  const [status, body] = begun(0);
  return [status, { ...(body as object), rows }];
}

test("rows read at Begin need no further request, and count as read once get returns them", async () => {
  const rows = [{ store: "kv", key: "a", value: null, version: "5" }, { store: "kv", key: "b" }, { store: "kv", key: "c", value: 3, version: "6" }];
  await withService(
    () => begunWith(rows),
    async (client, service) => {
      const txn = await client.begin({ stores: ["kv"], read: { kv: ["a", "b", "c"] } });
      assert.ok(txn.blind, "rows that get has not returned are no reads");
      for (let n = 0; n < 2; n++) {
        assert.deepEqual(await txn.get("kv", "a"), { key: "a", value: null, version: "5" });
        assert.equal(await txn.get("kv", "b"), undefined);
      }
      assert.equal(service.arrived.length, 1);
      assert.deepEqual(service.arrived[0]?.body["read"], ["a", "b", "c"].map((key) => ({ store: "kv", key })));
      assert.deepEqual(txn.prepare().request.reads, [{ store: "kv", key: "a", version: "5" }, { store: "kv", key: "b" }]);
    },
  );
});

test("reading nothing makes no request", async () => {
  await withService(
    () => [404, {}],
    async (client, service) => {
      assert.deepEqual(await client.readRows("kv", []), { applied: "0", session: undefined, rows: [] });
      assert.deepEqual(await client.readRanges("kv", [], { consistency: "fresh" }), { applied: "0", session: undefined, ranges: [] });
      assert.deepEqual(await client.begin().catch(() => "asked"), "asked");
      assert.equal(service.arrived.length, 1);
    },
  );
});

test("rows of ranges have the type of their values, and options may be undefined", async () => {
  const rows = [{ key: "a", value: { balance: 1 }, version: "5" }];
  await withService(
    (kind) => (kind === "begin" ? begun(0) : [200, { applied: "9", ranges: [{ store: "kv", rows, more: false }] }]),
    async (client) => {
      interface Account { readonly balance: number }
      const page = await client.rows<Account>("kv", { start: undefined, limit: undefined }, { waitMs: undefined, consistency: undefined });
      const { ranges } = await client.readRanges<Account>("kv", [{}], { session: undefined, signal: undefined });
      const balances: (number | undefined)[] = [page.rows[0]?.value.balance, ranges[0]?.rows[0]?.value.balance];
      assert.deepEqual(balances, [1, 1]);
      await client.begin({ stores: undefined, isolation: undefined, consistency: undefined, waitMs: undefined, read: undefined, ranges: undefined });
      new Client("http://127.0.0.1:1", { timeoutMs: undefined, clientName: undefined, retry: { attemptsMax: undefined }, onAttempt: undefined, fetch: undefined });
    },
  );
});

test("a client can be disposed of", async () => {
  const [client, other] = [new Client("http://127.0.0.1:1"), new Client("http://127.0.0.1:1")];
  client[Symbol.dispose]();
  await other[Symbol.asyncDispose]();
  for (const closed of [client, other]) await assert.rejects(closed.stores(), Misuse);
});

test("getMany sends one request for the rows not read yet", async () => {
  const found = [{ store: "kv", key: "seen", value: 2, version: "6" }, { store: "kv", key: "new" }, { store: "kv", key: "sum", value: 40, version: "8" }];
  await withService(
    (kind) => (kind === "begin" ? begunWith([{ store: "kv", key: "ahead", value: 1, version: "5" }]) : [200, { applied: "9", rows: found }]),
    async (client, service) => {
      const txn = await client.begin({ read: { kv: ["ahead"] } });
      txn.observe("kv", "seen", "4");
      txn.put("kv", "own", "mine");
      txn.add("kv", "sum", 2);
      for (let n = 0; n < 2; n++) {
        const rows = await txn.getMany("kv", ["ahead", "seen", "own", "new", "sum", "new"]);
        assert.deepEqual(rows.map((row) => row?.value), [1, 2, "mine", undefined, 42, undefined]);
      }
      assert.deepEqual(service.arrived.map(({ kind }) => kind), ["begin", "rows"]);
      assert.deepEqual(service.arrived[1]?.body, { read: [{ key: "seen" }, { key: "new" }, { key: "sum" }] });
      // The first observed version counts, so that the commit detects the change.
      const reads = txn.prepare().request.reads ?? [];
      assert.deepEqual(
        Object.fromEntries(reads.map(({ key, version }) => [key, version])),
        { seen: "4", ahead: "5", new: undefined, sum: "8" },
      );
    },
  );
});

test("what a Begin or a read must include is sent", async () => {
  const found = { applied: "9", rows: [{ store: "kv", key: "a" }], ranges: [{ store: "kv", rows: [], more: false }] };
  await withService(
    (kind) => (kind === "begin" ? begun(0) : [200, found]),
    async (client, service) => {
      await client.begin({ stores: ["kv"], consistency: "fresh", waitMs: 70 });
      await client.readRows("kv", [{ key: "a" }], { consistency: "fresh", waitMs: 80 });
      await client.readRanges("kv", [{}], { session: "v1-7" });
      await client.readRows("kv", [{ key: "a" }]);
      const asked = service.arrived.map(({ body }) => [body["consistency"], body["wait_ms"], body["session"]]);
      const none = undefined;
      assert.deepEqual(asked, [["fresh", 70, none], ["fresh", 80, none], [none, none, "v1-7"], [none, none, none]]);
    },
  );
});

test("a reply with the wrong number of rows is refused", async () => {
  await withService(
    (kind) => (kind === "begin" ? begunWith([]) : [200, { applied: "9", rows: [] }]),
    async (client) => {
      await assert.rejects(client.begin({ read: { kv: ["a"] } }), ServerMisbehaved);
      await assert.rejects(client.readRows("kv", [{ key: "a" }]), ServerMisbehaved);
    },
  );
});

test("a commit of a batch with an unknown outcome is resolved by its id", async () => {
  const statuses = [504, 409, 500, 502, 503, 404];
  const results = statuses.map((status) => ({
    status: "problem",
    problem: { type: "about:blank", title: "x", status, detail: "x", code: `c${status}`, retryable: status !== 404, errors: [] },
  }));
  await withService(
    (kind, before) => (kind === "status" ? committed(9 + before) : [200, { results }]),
    async (client, service) => {
      const commits = statuses.map(() => {
        const txn = client.beginLocal();
        txn.put("kv", "a", 1);
        return txn.prepare();
      });
      const found = await client.batch(commits);
      for (const one of found.slice(0, 4)) assert.ok("status" in one && one.status === "committed" && one.replayed, JSON.stringify(one));
      assert.ok(found[4] instanceof Unavailable && found[5] instanceof ClientMistake);
      assert.equal(service.arrived.filter(({ kind }) => kind === "status").length, 4);
    },
  );
});
