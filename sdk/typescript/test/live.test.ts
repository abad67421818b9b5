/** The client against a live server: commits, conflicts, retries, batches, log readers. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { ClientMistake, Misuse, TransactionAborted, Unavailable, Client, type Aborted, type Committed, type Verdict } from "../src/index.js";
import { connected, freshPrefix, url } from "./service.js";

function committed(verdict: Verdict): Committed {
  assert.ok(verdict.status === "committed", JSON.stringify(verdict));
  return verdict;
}

function aborted(verdict: Verdict): Aborted {
  assert.ok(verdict.status === "aborted", JSON.stringify(verdict));
  return verdict;
}

test("a commit writes rows that later transactions read", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const first = await client.begin({ stores: ["kv"] });
  assert.equal(await first.get("kv", `${prefix}a`), undefined);
  first.insert("kv", `${prefix}a`, { balance: 100 });
  first.put("kv", new Uint8Array([0xff, ...new TextEncoder().encode(prefix)]), [1, "two", null]);
  assert.deepEqual((await first.get("kv", `${prefix}a`))?.value, { balance: 100 }, "own writes are read");
  const won = committed(await first.commit());
  assert.ok(won.version !== undefined && BigInt(won.lsn["kv"] ?? "0") > 0n);

  const second = await client.begin({ stores: ["kv"], session: won.session, waitMs: 60_000 });
  const row = await second.get<{ balance: number }>("kv", `${prefix}a`);
  assert.equal(row?.version, won.version);
  assert.deepEqual(row.value, { balance: 100 });
  const binary = await client.row("kv", new Uint8Array([0xff, ...new TextEncoder().encode(prefix)]));
  assert.deepEqual(binary?.value, [1, "two", null]);
  second.update("kv", `${prefix}a`, { balance: 90 });
  second.delete("kv", new Uint8Array([0xff, ...new TextEncoder().encode(prefix)]));
  committed(await second.commit());
});

test("keys that resemble paths or escapes are taken literally", async () => {
  const client = connected();
  for (const key of [".", "..", "a/../b", "%2e%2e", "gr\u00fcn ?&#+", new Uint8Array([0xff, 0])]) {
    const txn = client.beginLocal();
    txn.put("kv", key, "here");
    const { session } = committed(await txn.commit());
    const again = await client.begin({ stores: ["kv"], session, waitMs: 60_000 });
    assert.deepEqual(await again.get("kv", key), (await again.scan("kv", { start: key, limit: 1 }))[0]);
    assert.equal((await again.get("kv", key))?.value, "here", String(key));
  }
});

test("an abort names the conflicting row and its versions", async () => {
  const client = connected();
  const key = `${freshPrefix()}a`;
  const setUp = client.beginLocal();
  setUp.put("kv", key, 1);
  const { version } = committed(await setUp.commit());
  const [one, two] = [client.beginLocal(), client.beginLocal()];
  for (const txn of [one, two]) {
    txn.observe("kv", key, version);
    txn.update("kv", key, 2);
  }
  const winner = committed(await one.commit());
  assert.equal((await two.validate()).status, "would_abort");
  const loser = aborted(await two.commit());
  assert.equal(loser.reason, "read_conflict");
  assert.equal(loser.retryable, true);
  assert.deepEqual(
    loser.conflicts.map(({ store, key, readVersion, currentVersion }) => ({ store, key, readVersion, currentVersion })),
    [{ store: "kv", key, readVersion: version, currentVersion: winner.version }],
  );
});

test("a phantom in a scanned range aborts", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const txn = await client.begin({ stores: ["kv"] });
  const range = { start: prefix, end: `${prefix}~` };
  txn.put("kv", `${prefix}own`, 0);
  assert.deepEqual((await txn.scan("kv", range)).map((row) => row.key), [`${prefix}own`]);
  const other = client.beginLocal();
  other.insert("kv", `${prefix}phantom`, 1);
  const { session } = committed(await other.commit());
  assert.equal(aborted(await txn.commit()).reason, "range_conflict");
  const again = await client.begin({ stores: ["kv"], session, waitMs: 60_000 });
  assert.deepEqual(await again.scan("kv", range), [{ key: `${prefix}phantom`, value: 1, version: (await client.row("kv", `${prefix}phantom`))?.version }]);
});

test("run repeats the work on fresh reads after a conflict", async () => {
  const client = connected();
  const key = `${freshPrefix()}a`;
  const put = async (value: number): Promise<string | undefined> => {
    const txn = client.beginLocal();
    txn.put("kv", key, value);
    return committed(await txn.commit()).session;
  };
  const session = await put(1);
  const read: unknown[] = [];
  const { value } = await client.run(
    async (txn) => {
      const row = await txn.get<number>("kv", key);
      read.push(row?.value);
      // Another client commits first, once.
      if (read.length === 1) await put(10);
      txn.put("kv", key, Number(row?.value) + 1);
      return Number(row?.value) + 1;
    },
    { stores: ["kv"], session, waitMs: 60_000 },
  );
  assert.equal(read[0], 1);
  assert.ok(read.length > 1);
  assert.equal(value, 11);
  assert.equal((await client.run((txn) => txn.get<number>("kv", key))).value?.value, 11);
});

test("no increment of many concurrent ones is lost", async () => {
  const client = connected();
  const key = `${freshPrefix()}counter`;
  const setUp = client.beginLocal();
  setUp.put("kv", key, 0);
  const { session } = committed(await setUp.commit());
  const [workers, rounds] = [8, 5];
  await Promise.all(
    Array.from({ length: workers }, async () => {
      for (let round = 0; round < rounds; round++) {
        await client.run(
          async (txn) => {
            const row = await txn.get<number>("kv", key);
            assert.ok(row !== undefined);
            txn.update("kv", key, row.value + 1);
          },
          { stores: ["kv"], session, waitMs: 60_000 },
        );
      }
    }),
  );
  const last = await client.run((txn) => txn.get<number>("kv", key), { stores: ["kv"] });
  assert.equal(last.value?.value, workers * rounds, "no increment was lost");
});

test("run does not repeat final aborts or errors of the work", async () => {
  const client = connected();
  const key = `${freshPrefix()}a`;
  const setUp = client.beginLocal();
  setUp.put("kv", key, "text");
  committed(await setUp.commit());
  let attempts = 0;
  const insert = client.run((txn) => {
    attempts++;
    txn.insert("kv", key, 2);
  });
  await assert.rejects(insert, (error) => error instanceof TransactionAborted && error.aborted.reason === "row_exists" && error.attempts === 1 && error.message.endsWith(", after 1 attempt"));
  const add = client.run(async (txn) => {
    attempts++;
    await txn.get("kv", `${key}/other`);
    txn.add("kv", key, 2);
  });
  await assert.rejects(add, (error) => error instanceof TransactionAborted && error.aborted.reason === "not_a_number");
  await assert.rejects(client.run(() => Promise.reject(new Error("mine"))), /^Error: mine$/);
  assert.equal(attempts, 2);
});

test("adds of one row all count", async () => {
  const client = connected();
  const key = `${freshPrefix()}sum`;
  const setUp = client.beginLocal();
  setUp.put("kv", key, 10);
  committed(await setUp.commit());
  await Promise.all(
    Array.from({ length: 10 }, async (_, delta) => {
      const txn = client.beginLocal();
      txn.add("kv", key, delta);
      committed(await txn.commit());
    }),
  );
  assert.equal((await client.run((txn) => txn.get<number>("kv", key))).value?.value, 55);
});

test("a batch returns the result of each commit in order", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const [good, blocked, lost] = [client.beginLocal(), client.beginLocal(), client.beginLocal()];
  good.insert("kv", `${prefix}a`, 1);
  blocked.update("kv", `${prefix}missing`, 1);
  lost.put("nowhere", "a", 1);
  const [first, second, third] = await client.batch([good, blocked, lost].map((txn) => txn.prepare()));
  assert.ok(first !== undefined && "status" in first && first.status === "committed");
  assert.ok(second !== undefined && "status" in second && second.status === "aborted" && second.reason === "row_missing");
  assert.ok(third instanceof ClientMistake, JSON.stringify(third));
  assert.equal(third.code, "unknown_store");
});

test("the log is read in order from an offset and waits for further records", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const commit = async (name: string, value: number): Promise<bigint> => {
    const txn = client.beginLocal();
    txn.put("kv", prefix + name, value);
    return BigInt(committed(await txn.commit()).lsn["kv"] ?? "0");
  };
  const first = await commit("a", 1);
  await commit("b", 2);
  const seen: unknown[] = [];
  let offset = String(first - 1n);
  const page = client.log("kv", { after: offset, follow: false, pageMax: 1 });
  for await (const record of page) {
    for (const write of record.writes) {
      if (typeof write.key === "string" && write.key.startsWith(prefix)) seen.push([write.op, write.key.slice(prefix.length), write.value]);
    }
  }
  offset = page.offset;
  assert.equal(offset, page.head);
  const stop = new AbortController();
  const tail = (async () => {
    for await (const record of client.log("kv", { after: offset, signal: stop.signal })) {
      const mine = record.writes.find((write) => write.key === `${prefix}c`);
      if (mine === undefined) continue;
      seen.push([mine.op, "c", mine.value]);
      stop.abort(new Error("enough"));
    }
  })();
  // The record may come before the reply to its commit.
  await Promise.all([assert.rejects(tail, /enough/), commit("c", 3)]);
  assert.deepEqual(seen, [["put", "a", 1], ["put", "b", 2], ["put", "c", 3]]);
});

test("mistakes have a code and pointers and are not retried", async () => {
  const client = connected();
  const txn = client.beginLocal();
  const { txnId, request } = txn.prepare();
  const bad = { txnId, request: { ...request, writes: [{ op: "put", store: "kv" } as const] } };
  await assert.rejects(client.commit(bad), (error) => {
    assert.ok(error instanceof ClientMistake);
    assert.equal(error.retryable, false);
    assert.ok(error.errors.some((fault) => fault.pointer.startsWith("/writes/0")), error.message);
    return true;
  });
  await assert.rejects(client.begin({ stores: ["nowhere"] }), (error) => {
    assert.ok(error instanceof ClientMistake);
    assert.equal(error.message.split("nowhere").length, 2, error.message);
    return true;
  });
  assert.throws(() => { txn.put("kv", "a", undefined); }, Misuse);
  assert.throws(() => { txn.put("kv", "\ud800", 1); }, Misuse);
  assert.throws(() => new Client("localhost:7420"), Misuse);
  const nobody = new Client("http://127.0.0.1:2", { retry: { attemptsMax: 2 } });
  await assert.rejects(nobody.run(() => undefined), (error) => error instanceof Unavailable && error.code === "unreachable");
});

test("the state of stores is reported", async () => {
  const client = connected();
  const stores = await client.stores();
  assert.ok(stores.some((store) => store.store === "kv"));
  assert.equal((await client.store("kv")).existence, "tracked");
  const declared = await client.declareStore("only-log-ts", { existence: "declared" });
  assert.equal(declared.push.state, "log_only");
  assert.equal(url.protocol, "http:");
});

test("a consumer resumes where its offset is", async () => {
  const client = connected();
  const prefix = freshPrefix();
  const consumer = `search-${prefix.replaceAll("/", "-")}`;
  const commit = async (name: string): Promise<void> => {
    const txn = client.beginLocal();
    txn.put("kv", prefix + name, 1);
    committed(await txn.commit());
  };
  await commit("a");
  assert.equal(await client.offset(consumer, "kv"), undefined);
  const log = client.log("kv", { follow: false });
  for await (const record of log) assert.ok(record.lsn);
  const set = await client.setOffset(consumer, "kv", { lsn: log.offset, log: log.logId });
  assert.deepEqual(set.offsets.map(({ store, lsn }) => [store, lsn]), [["kv", log.offset]]);
  await commit("b");
  const offset = await client.offset(consumer, "kv");
  assert.ok(offset !== undefined);
  assert.deepEqual(offset, { lsn: log.offset, log: log.logId });
  const next = await client.log("kv", { after: offset.lsn, log: offset.log }).next();
  assert.equal(next?.lsn, String(BigInt(offset.lsn) + 1n));
  const refused = (code: string) => (error: unknown) => error instanceof ClientMistake && error.code === code;
  await assert.rejects(client.setOffset(consumer, "kv", { lsn: "1000000000" }), refused("position_beyond_head"));
  await assert.rejects(client.setOffset(consumer, "kv", { lsn: "1", log: "0".repeat(32) }), refused("log_replaced"));
  assert.ok((await client.consumers()).some(({ name }) => name === consumer));
  await client.forgetConsumer(consumer);
  assert.equal(await client.offset(consumer, "kv"), undefined);
  await assert.rejects(client.forgetConsumer(consumer), refused("unknown_consumer"));
});
