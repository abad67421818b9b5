/** A transaction after its verdict or during its commit, and work that reads or writes too late. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, ClientMistake, Misuse, OutcomeUnknown, Unavailable, type Transaction, type Verdict } from "../src/index.js";
import { begun, committed, overloaded, start, type Scripted } from "./scripted.js";
import { connected, freshPrefix } from "./service.js";
import { HoldingService, committed as outcome, refused } from "./holding.js";

const misuse = (text: string) => (error: unknown): boolean => error instanceof Misuse && error.message.includes(text);

/** Each read and write, of a row that the transaction has not read. */
const late: Record<string, (txn: Transaction) => unknown> = {
  put: (txn) => { txn.put("kv", "late", 1); },
  insert: (txn) => { txn.insert("kv", "late", 1); },
  update: (txn) => { txn.update("kv", "late", 1); },
  delete: (txn) => { txn.delete("kv", "late"); },
  add: (txn) => { txn.add("kv", "late", 1); },
  observe: (txn) => { txn.observe("kv", "late"); },
  observeRange: (txn) => { txn.observeRange("kv", {}); },
  get: (txn) => txn.get("kv", "late"),
  "get of a row that was read ahead": (txn) => txn.get("kv", "ahead"),
  getMany: (txn) => txn.getMany("kv", ["late"]),
  scan: (txn) => txn.scan("kv"),
};

async function rejects(txn: Transaction, use: (txn: Transaction) => unknown, text: string): Promise<void> {
  // Some throw at once, others reject.
  await assert.rejects(async () => { await use(txn); }, misuse(text));
}

for (const [name, use] of Object.entries(late)) {
  test(`a transaction that has its verdict takes no ${name}`, async () => {
    const [client, prefix] = [connected(), freshPrefix()];
    const txn = await client.begin({ stores: ["kv"], read: { kv: ["ahead"] } });
    assert.equal(await txn.get("kv", prefix), undefined);
    txn.put("kv", prefix, 1);
    assert.equal((await txn.commit()).status, "committed");
    await rejects(txn, use, "has committed already: begin another one");
    assert.equal((await txn.get("kv", prefix))?.value, 1, "what it has read and written already is known");
    assert.equal((await txn.commit()).status, "committed", "the verdict can be requested again");
    const lost = await client.begin({ stores: ["kv"], read: { kv: ["ahead"] } });
    await lost.abort();
    await rejects(lost, use, "has aborted already");
  });

  test(`a transaction whose commit is under way takes no ${name}`, async () => {
    const service = await HoldingService.start();
    try {
      const txn = new Client(service.url).beginLocal();
      txn.put("kv", "a", 1);
      const verdict = txn.commit();
      const held = await service.request(0);
      await rejects(txn, use, "is under way");
      held.answer(200, JSON.stringify(outcome(txn.id)));
      await verdict;
      await rejects(txn, use, "has committed already");
    } finally {
      service.stop();
    }
  });
}

async function scripted(script: (kind: string, before: number) => Scripted, use: (client: Client) => Promise<void>): Promise<void> {
  const service = await start(script);
  try {
    await use(new Client(service.url));
  } finally {
    service.stop();
  }
}

test("a commit that was not decided leaves the transaction open", async () => {
  await scripted(
    (_, before) => (before === 0 ? overloaded : committed()),
    async (client) => {
      const txn = client.beginLocal();
      txn.put("kv", "a", 1);
      await assert.rejects(txn.commit(), Unavailable);
      txn.put("kv", "b", 1);
      assert.equal((await txn.commit()).status, "committed");
    },
  );
});

test("a read that ends after the verdict is a misuse", async () => {
  await scripted(
    (kind) => (kind === "rows" ? [200, { applied: "9", rows: [{ store: "kv", key: "a", value: 1, version: "5" }] }] : committed()),
    async (client) => {
      const txn = client.beginLocal();
      const verdict: Verdict = await client.beginLocal().commit();
      const read = txn.get("kv", "a");
      txn.decided(verdict);
      await assert.rejects(read, misuse("has committed already"));
    },
  );
});

test("work that writes after its end is a misuse, also between two requests of its commit", async () => {
  let txn: Transaction | undefined;
  const errors: unknown[] = [];
  const write = (): void => {
    try {
      txn?.put("kv", "b", 1);
      errors.push(undefined);
    } catch (error) {
      errors.push(error);
    }
  };
  await scripted(
    (kind, before) => {
      if (kind === "begin") return begun(before);
      if (before > 0) return committed();
      write();
      // After the refusal arrived, but before the second request is sent.
      setTimeout(write, 50);
      return [503, { ...(overloaded[1] as object), retry_after_ms: 200 }];
    },
    async (client) => {
      await client.run((own) => {
        txn = own;
        own.put("kv", "a", 1);
        void Promise.resolve().then(() => undefined).then(() => undefined).then(write);
      });
      assert.equal(errors.length, 3);
      for (const error of errors) assert.ok(misuse("no verdict would cover")(error), String(error));
    },
  );
});

/** Starts a commit and ends its wait by a signal once the request has arrived. */
async function abandoned(service: HoldingService): Promise<Transaction> {
  const txn = new Client(service.url).beginLocal();
  txn.put("kv", "a", 1);
  const stop = new AbortController();
  const verdict = txn.commit({ signal: stop.signal });
  await service.request(0);
  stop.abort(new Error("the user has left"));
  await assert.rejects(verdict, OutcomeUnknown);
  return txn;
}

for (const [name, again] of [
  ["is unavailable", async (txn, service) => {
    const second = txn.commit();
    (await service.request(1)).answer(503, JSON.stringify(refused(txn.id, 503, "overloaded").problem));
    await assert.rejects(second, Unavailable);
  }],
  ["is a misuse", async (txn) => {
    txn.priority = 1n as unknown as number;
    await assert.rejects(txn.commit(), Misuse);
    txn.priority = undefined;
  }],
  ["is aborted before it is sent", async (txn) => {
    const reason = new Error("too late");
    await assert.rejects(txn.commit({ signal: AbortSignal.abort(reason) }), (error) => error === reason);
  }],
] as const satisfies readonly (readonly [string, (txn: Transaction, service: HoldingService) => Promise<void>])[]) {
  test(`a transaction whose commit may have been taken stays closed if a repeated commit ${name}`, async () => {
    const service = await HoldingService.start();
    try {
      const txn = await abandoned(service);
      await again(txn, service);
      await rejects(txn, (one) => { one.put("kv", "late", 1); }, "no verdict would cover");
    } finally {
      service.stop();
    }
  });
}

test("a transaction whose id has been committed with another body stays closed", async () => {
  await scripted(
    (_, before) => (before === 0 ? [422, refused("", 422, "body_mismatch").problem] : before === 1 ? overloaded : committed()),
    async (client) => {
      const txn = client.beginLocal();
      txn.put("kv", "a", 1);
      await assert.rejects(txn.commit(), ClientMistake);
      await rejects(txn, (one) => { one.put("kv", "late", 1); }, "no verdict would cover");
      await assert.rejects(txn.commit(), Unavailable);
      await rejects(txn, (one) => { one.put("kv", "late", 1); }, "no verdict would cover");
    },
  );
});

test("a transaction of `run` stays closed once its attempts are used up", async () => {
  const service = await start((kind, before) => (kind === "begin" ? begun(before) : overloaded));
  try {
    const client = new Client(service.url, { retry: { attemptsMax: 3 } });
    let txn: Transaction | undefined;
    const run = client.run((own) => {
      txn = own;
      own.put("kv", "a", 1);
    });
    await assert.rejects(run, Unavailable);
    assert.ok(txn !== undefined);
    await rejects(txn, (one) => { one.put("kv", "late", 1); }, "no verdict would cover");
    await assert.rejects(txn.commit(), Unavailable);
    await rejects(txn, (one) => { one.put("kv", "late", 1); }, "no verdict would cover");
  } finally {
    service.stop();
  }
});

test("a transaction of an earlier attempt takes no writes", async () => {
  const [client, key, txns] = [connected(), freshPrefix(), [] as Transaction[]];
  await client.run(async (txn) => {
    txns.push(txn);
    await txn.get("kv", key);
    if (txns.length === 1) {
      const other = client.beginLocal();
      other.put("kv", key, 1);
      await other.commit();
    }
    txn.put("kv", key, 2);
  }, { stores: ["kv"] });
  assert.equal(txns.length, 2);
  for (const [at, status] of ["aborted", "committed"].entries()) {
    const txn = txns[at];
    assert.ok(txn !== undefined);
    await rejects(txn, (one) => { one.put("kv", key, 3); }, `has ${status} already`);
  }
});

test("a verdict of a prepared commit does not end the transaction", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  const txn = await client.begin({ stores: ["kv"] });
  txn.update("kv", prefix, 1);
  assert.equal((await client.commit(txn.prepare())).status, "aborted");
  assert.equal(await txn.get("kv", `${prefix}b`), undefined);
});
