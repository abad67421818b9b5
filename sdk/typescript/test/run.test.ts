/** Retries, sessions, trace contexts and certificates, against a scripted service. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:https";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, ClientMistake, Misuse, TransactionAborted, TribunalError, type Attempt, type ClientOptions, type Transaction } from "../src/index.js";
import { aborted, begun, certificate, committed, overloaded, start, type Scripted } from "./scripted.js";

const row: Scripted = [200, { applied: "9", rows: [{ store: "kv", key: "a", value: 1, version: "5" }] }];

async function withService(
  script: (kind: string, before: number) => Scripted,
  use: (client: Client, arrived: (kind: string) => Record<string, unknown>[], attempts: Attempt[]) => Promise<void>,
  options: ClientOptions = {},
): Promise<void> {
  const service = await start(script);
  const attempts: Attempt[] = [];
  const client = new Client(service.url, { ...options, onAttempt: (attempt) => attempts.push(attempt) });
  const arrived = (kind: string): Record<string, unknown>[] =>
    service.arrived.filter((one) => one.kind === kind).map(({ traceparent, body }) => ({ ...body, traceparent }));
  try {
    await use(client, arrived, attempts);
  } finally {
    service.stop();
  }
}

const readAndInsert = async (txn: Transaction): Promise<void> => {
  await txn.get("kv", "b");
  txn.insert("kv", "a", 1);
};

test("an attempt of each kind is reported and a read is retried in place", async () => {
  await withService(
    (kind, before) => {
      if (kind === "begin") return before === 0 ? overloaded : begun(before);
      if (kind === "rows") return before === 0 ? overloaded : row;
      return before === 0 ? aborted("read_conflict") : committed();
    },
    async (client, arrived, attempts) => {
      await client.run(async (txn) => {
        txn.put("kv", "a", (await txn.get("kv", "a"))?.value);
      });
      assert.deepEqual(
        attempts.map(({ number, verdict, waitMs }) => [number, verdict?.status, waitMs === undefined]),
        [[1, undefined, false], [2, "aborted", false], [3, "committed", true]],
      );
      assert.equal(arrived("rows").length, 3);
      assert.deepEqual(arrived("commit").map((body) => body["first_attempt_ms"]), [undefined, "1722655016596"]);
    },
  );
});

const expired: Scripted = [422, { type: "about:blank", title: "x", status: 422, detail: "too old", code: "txn_id_expired", retryable: false, errors: [] }];

test("an outage that outlasts the id of a transaction does not end the retries", async () => {
  await withService(
    (kind, before) => (kind === "begin" ? begun(before) : before < 2 ? overloaded : before === 2 ? expired : committed()),
    async (client, arrived, attempts) => {
      await client.run((txn) => { txn.put("kv", "a", 1); });
      assert.equal(arrived("begin").length, 2);
      assert.deepEqual(arrived("commit").map((body) => body["first_attempt_ms"]), [undefined, undefined, undefined, "1718360049300"]);
      assert.deepEqual(attempts.map(({ verdict, waitMs }) => [verdict?.status, waitMs === undefined]), [
        [undefined, false], [undefined, false], [undefined, false], ["committed", true],
      ]);
    },
  );
});

test("work that outlasts the id of its transaction is not repeated", async () => {
  await withService(
    (kind, before) => (kind === "begin" ? begun(before) : expired),
    async (client, arrived) => {
      await assert.rejects(client.run((txn) => { txn.put("kv", "a", 1); }), (error) => error instanceof ClientMistake && error.code === "txn_id_expired");
      assert.equal(arrived("commit").length, 1);
    },
  );
});

test("a refused insert gets one fresh read", async () => {
  await withService(
    // The snapshots of the first two attempts do not include the epoch of the refusal.
    (kind, before) => (kind === "begin" ? begun(before, before < 2 ? 8 : 9) : kind === "rows" ? row : aborted("row_exists")),
    async (client, arrived) => {
      await assert.rejects(client.run(readAndInsert), (error) => error instanceof TransactionAborted && error.attempts === 3 && error.message.endsWith(", after 3 attempts"));
      assert.equal(arrived("commit").length, 3);
    },
  );
});

test("a row that is missing because of a further commit does not end the retries", async () => {
  // Like a move between two index entries that other moves of the same document overtake.
  const changed = (before: number): Scripted => [200, { applied: "9", rows: [{ store: "kv", key: "a", value: before % 2, version: String(5 + before) }] }];
  await withService(
    (kind, before) => {
      if (kind === "begin") return begun(before, 9 + before);
      return kind === "rows" ? changed(before) : before < 3 ? aborted("row_missing", 9 + before) : committed();
    },
    async (client, arrived) => {
      await client.run(async (txn) => {
        txn.delete("kv", `index/${(await txn.get<number>("kv", "a"))?.value}`);
      }, { stores: ["kv"] });
      assert.equal(arrived("commit").length, 4);
    },
  );
});

test("own commits are visible to later transactions of their stores", async () => {
  const script = (kind: string, before: number): Scripted => (kind === "begin" ? begun(before) : committed(9 - before));
  const commitTwice = async (client: Client): Promise<void> => {
    for (const txn of [client.beginLocal(), client.beginLocal()]) {
      txn.put("kv", "a", 1);
      await txn.commit();
    }
    await client.begin({ stores: ["kv"] });
    await client.begin({ stores: ["other"] });
    await client.begin({ stores: ["kv"], session: "given" });
  };
  await withService(script, async (client, arrived) => {
    await commitTwice(client);
    assert.deepEqual(arrived("begin").map(({ session }) => session), ["token-9", undefined, "given"]);
  });
  await withService(
    script,
    async (client, arrived) => {
      await commitTwice(client);
      assert.deepEqual(arrived("begin").map(({ session }) => session), [undefined, undefined, "given"]);
    },
    { readOwnWrites: false },
  );
});

test("a trace context goes with the commit and comes back with the verdict", async () => {
  await withService(
    (kind, before) => (kind === "begin" ? begun(before) : committed()),
    async (client, arrived) => {
      const { committed: verdict } = await client.run((txn) => { txn.put("kv", "a", 1); }, { traceparent: "00-mine" });
      assert.equal(arrived("commit")[0]?.["traceparent"], "00-mine");
      assert.equal(verdict.traceparent, "00-server");
    },
  );
});

test("a refusal that comes before a large request is read ends no process", async () => {
  const tls = certificate();
  const server = createServer({ cert: tls.cert, key: tls.key }, (request, response) => {
    const problem = { type: "about:blank", title: "x", status: 400, detail: "x", code: "refused", retryable: false };
    response.writeHead(400, { "content-type": "application/problem+json" });
    response.end(JSON.stringify(problem), () => setTimeout(() => request.socket.destroy(), 5));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    const client = new Client(`https://localhost:${(server.address() as AddressInfo).port}`, { caFile: tls.file });
    for (let at = 0; at < 20; at++) {
      const txn = client.beginLocal();
      txn.put("kv", "a", "x".repeat(9 << 20));
      await assert.rejects(txn.commit(), TribunalError);
    }
  } finally {
    server.closeAllConnections();
    server.close();
    tls.remove();
  }
});

test("an untrusted certificate is final, and a CA file makes it trusted", async () => {
  const tls = certificate();
  const service = await start((kind, before) => (kind === "begin" ? begun(before) : committed()), tls);
  try {
    const attempts: Attempt[] = [];
    const stranger = new Client(service.url, { onAttempt: (attempt) => attempts.push(attempt) });
    await assert.rejects(stranger.run(() => undefined), (error) => error instanceof Misuse && error.message.includes("caFile"));
    assert.equal(attempts.length, 1);
    const client = new Client(service.url, { caFile: tls.file });
    assert.equal((await client.run((txn) => { txn.put("kv", "a", 1); })).committed.epoch, "9");
    const wrongName = new Client(service.url.replace("localhost", "127.0.0.1"), { caFile: tls.file });
    await assert.rejects(wrongName.begin(), Misuse);
    await assert.rejects(new Client(service.url, { caFile: `${tls.file}.missing` }).begin(), Misuse);
  } finally {
    service.stop();
    tls.remove();
  }
});
