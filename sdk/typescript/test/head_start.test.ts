/** When a second request follows the first, with a service that holds requests back and with a live one. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, request as open } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, uuidv7, type PreparedCommit } from "../src/index.js";
import { Coalescer, headStartMs } from "../src/coalescer.js";
import { commitBounds } from "../src/commit_batch.js";
import { aborted, committed, HoldingService, lines } from "./holding.js";
import { url } from "./service.js";
import { sessions } from "./sessions.js";

/** Sets how long a request of a client is in flight before another may follow. */
function setHeadStart(ms: number): void {
  (commitBounds as { headStartMs: number }).headStartMs = ms;
}

const anHour = 3_600_000;

function prepared(client: Client): PreparedCommit {
  const txn = client.beginLocal();
  txn.put("kv", "a", 1);
  return { ...txn.prepare(), txnId: uuidv7() };
}

/** Uses a client with one request in flight and three later commits. */
async function withThreeQueued(use: (service: HoldingService, ids: string[], statuses: Promise<string>[]) => Promise<void>): Promise<void> {
  const service = await HoldingService.start();
  try {
    const client = new Client(service.url);
    const status = async (commit: PreparedCommit): Promise<string> => (await client.commit(commit)).status;
    const first = status(prepared(client));
    await service.request(0);
    const commits = Array.from({ length: 3 }, () => prepared(client));
    await use(service, commits.map(({ txnId }) => txnId), commits.map(status));
    assert.equal(await first, "committed");
  } finally {
    setHeadStart(headStartMs);
    service.stop();
  }
}

test("commits gather while a request is not slow", async () => {
  setHeadStart(anHour);
  await withThreeQueued(async (service, ids, statuses) => {
    // Long enough for an immediate request.
    await new Promise((resolve) => setTimeout(resolve, 50));
    assert.equal(service.held.length, 1, "no request beside one that is not slow");
    service.held[0]?.answer(200, JSON.stringify(committed(service.held[0].ids[0] ?? "")));
    const batch = await service.request(1);
    assert.deepEqual(batch.ids, ids);
    batch.answer(200, lines([committed(ids[0] ?? ""), aborted(ids[1] ?? ""), committed(ids[2] ?? "")]));
    assert.deepEqual(await Promise.all(statuses), ["committed", "aborted", "committed"]);
  });
});

test("a second request follows a slow one", async () => {
  await withThreeQueued(async (service, ids, statuses) => {
    const answered = async (left: number, at: number): Promise<void> => {
      const { batch, ids: some, answer } = await service.request(at);
      answer(200, batch ? lines(some.map(committed)) : JSON.stringify(committed(some[0] ?? "")));
      if (left > some.length) await answered(left - some.length, at + 1);
    };
    await answered(ids.length, 1);
    assert.deepEqual(await Promise.all(statuses), ["committed", "committed", "committed"]);
    service.held[0]?.answer(200, JSON.stringify(committed(service.held[0].ids[0] ?? "")));
  });
});

// Otherwise batches would alternate between two halves of the callers.
test("callers that were just answered are in the next batch", async () => {
  const sizes: number[] = [];
  const coalescer = new Coalescer<number, number>({ inFlightMax: 2, headStartMs: anHour, itemsMax: 100, bytesMax: 100 }, async (items) => {
    sizes.push(items.length);
    await new Promise((resolve) => setTimeout(resolve, 1));
    return items;
  });
  await Promise.all(
    Array.from({ length: 8 }, async (_, caller) => {
      for (let round = 0; round < 50; round++) assert.equal(await coalescer.submit({ bytes: 1 }, caller), caller);
    }),
  );
  assert.deepEqual([sizes.length, sizes.filter((size) => size === 8).length], [51, 49], String(sizes));
});

test("callers that were answered slowly leave together, too", async () => {
  const sizes: number[] = [];
  const bounds = { inFlightMax: 2, headStartMs: anHour, itemsMax: 100, bytesMax: 100 };
  const coalescer = new Coalescer<number, number>(bounds, async (items) => {
    sizes.push(items.length);
    await new Promise((resolve) => setTimeout(resolve, 1));
    // From the second request on, all are slow.
    bounds.headStartMs = 0;
    return items;
  });
  const first = coalescer.submit({ bytes: 1 }, -1);
  await Promise.all(
    Array.from({ length: 8 }, async (_, caller) => {
      for (let round = 0; round < 50; round++) assert.equal(await coalescer.submit({ bytes: 1 }, caller), caller);
    }),
  );
  assert.equal(await first, -1);
  assert.deepEqual(sizes, [1, ...Array.from({ length: 50 }, () => 8)]);
});

test("a queue may have more items than a call may have arguments", async () => {
  const bounds = { inFlightMax: 2, headStartMs: anHour, itemsMax: 10_000, bytesMax: 1_000_000 };
  const coalescer = new Coalescer<number, number>(bounds, async (items) => {
    await new Promise((resolve) => setTimeout(resolve, 1));
    return items;
  });
  const items = Array.from({ length: 160_000 }, (_, item) => item);
  const replies = await Promise.all(items.map((item) => coalescer.submit({ bytes: 1 }, item)));
  assert.ok(replies.every((reply, at) => reply === at));
});

/** A proxy that delays replies, and counts the requests with commits that are in flight at the same time. */
async function withCounting(use: (proxied: string, inFlightMax: () => number) => Promise<void>): Promise<void> {
  let inFlight = 0;
  let most = 0;
  const proxy = createServer((request, response) => {
    const { method, headers, url: path = "" } = request;
    const counts = path.endsWith("commit") ? 1 : 0;
    inFlight += counts;
    most = Math.max(most, inFlight);
    const onward = open(new URL(path, url), { method, headers }, (reply) => {
      void (async () => {
        const body: Buffer[] = [];
        for await (const chunk of reply) body.push(chunk as Buffer);
        await new Promise((resolve) => setTimeout(resolve, 2));
        // Before the reply is sent: the client may send its next request as soon as it receives it.
        inFlight -= counts;
        response.writeHead(reply.statusCode ?? 0, reply.headers).end(Buffer.concat(body));
      })();
    });
    request.pipe(onward);
  });
  proxy.listen(0, "127.0.0.1");
  await once(proxy, "listening");
  try {
    await use(`http://127.0.0.1:${(proxy.address() as AddressInfo).port}`, () => most);
  } finally {
    proxy.closeAllConnections();
    proxy.close();
  }
}

test("one request with commits is in flight as long as none is slow", async () => {
  setHeadStart(anHour);
  try {
    await withCounting(async (proxied, inFlightMax) => {
      await sessions(new Client(proxied), 5);
      assert.equal(inFlightMax(), 1);
    });
  } finally {
    setHeadStart(headStartMs);
  }
});
