/** How long reads and Begins last against a service that does not answer, and what ends them earlier. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Unavailable, type Client, type SignalOptions } from "../src/index.js";
import { clientOf, endpoint, refused, works } from "./scripted_endpoints.js";

const timeoutMs = 2000;

/** Each read outside of transactions. */
const reads: Record<string, (client: Client, options: SignalOptions) => Promise<unknown>> = {
  row: (client, options) => client.row("kv", "a", options),
  rows: (client, options) => client.rows("kv", {}, options),
  readRows: (client, options) => client.readRows("kv", [{ key: "a" }], options),
  readRanges: (client, options) => client.readRanges("kv", [{}], options),
};

/** Each read of a transaction. */
const txnReads: typeof reads = {
  get: async (client, options) => client.beginLocal().get("kv", "a", options),
  getMany: async (client, options) => client.beginLocal().getMany("kv", ["a"], options),
  scan: async (client, options) => client.beginLocal().scan("kv", {}, options),
};

async function elapsed(call: () => Promise<unknown>): Promise<number> {
  const begun = performance.now();
  await call();
  return performance.now() - begun;
}

test("the timeout bounds a read as a whole", async () => {
  for (const count of [1, 2]) {
    const silent = await Promise.all(Array.from({ length: count }, () => endpoint(() => "silent")));
    const client = clientOf(silent.map(({ url }) => url), { timeoutMs });
    const begin = (client: Client, options: SignalOptions): Promise<unknown> => client.begin({ stores: ["kv"], ...options });
    const each = Object.values({ ...reads, ...txnReads, begin });
    const took = await elapsed(() => Promise.all(each.map((read) => assert.rejects(read(client, {}), Unavailable))));
    assert.ok(took >= timeoutMs - 50 && took < 2 * timeoutMs, `${took} ms with ${count}`);
  }
});

test("the timeout bounds the repetitions of a read, however many the policy has", async () => {
  const busy = await endpoint(() => refused(503, "overloaded"));
  const client = clientOf([busy.url], { timeoutMs, retry: { attemptsMax: Infinity } });
  const took = await elapsed(() => assert.rejects(client.row("kv", "a"), Unavailable));
  assert.ok(took < 2 * timeoutMs, `${took} ms`);
  assert.ok(busy.asked.length > 2);
});

test("the timeout bounds a read or a Begin that waits for the requests of others", async () => {
  const silent = await endpoint(() => "silent");
  const client = clientOf([silent.url], { timeoutMs });
  const late = async (call: () => Promise<unknown>): Promise<void> => {
    // Two requests of each kind are in flight.
    const others = [0, 1, 2].map(async (n) => {
      await new Promise((resolve) => setTimeout(resolve, 50 * n));
      await assert.rejects(call(), Unavailable);
    });
    await new Promise((resolve) => setTimeout(resolve, timeoutMs / 2));
    const took = await elapsed(() => assert.rejects(call(), Unavailable));
    assert.ok(took < 1.5 * timeoutMs, `${took} ms`);
    await Promise.all(others);
  };
  await Promise.all([late(() => client.row("kv", "a")), late(() => client.begin({ stores: ["kv"] }))]);
});

test("a read that another endpoint answers stays within the bound of its endpoint", async () => {
  const silent = await endpoint(() => "silent");
  const second = await endpoint((kind, ids) => (kind === "other" ? [200, { applied: "9", rows: [{ store: "kv", key: "a", value: 1, version: "5" }] }] : works(kind, ids)));
  const client = clientOf([silent.url, second.url], { endpointTimeoutMs: 300 });
  assert.equal((await client.row("kv", "a"))?.value, 1);
});

for (const [name, read] of Object.entries({ ...reads, ...txnReads })) {
  test(`a signal ends ${name}`, async () => {
    const silent = await endpoint(() => "silent");
    const client = clientOf([silent.url]);
    const [stop, reason] = [new AbortController(), new Error("enough")];
    const ended = assert.rejects(read(client, { signal: stop.signal }), reason);
    while (silent.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    const took = await elapsed(async () => {
      stop.abort(reason);
      await ended;
    });
    assert.ok(took < 1000, `${took} ms`);
    await assert.rejects(read(client, { signal: stop.signal }), reason);
    assert.equal(silent.asked.length, 1, "not sent once the signal has fired");
    await assert.rejects(read(client, { signal: stop as never }), /pass its `signal`/);
  });
}

test("a signal that ends one read leaves another one that shares its request", async () => {
  const held = await endpoint((_, __, before) => ({ afterMs: before === 0 ? 100 : 500, reply: [200, { applied: "9", rows: [{ store: "kv", key: "a", value: 1, version: "5" }] }] }));
  const client = clientOf([held.url]);
  const first = client.row("kv", "a");
  const stop = new AbortController();
  const ended = assert.rejects(client.row("kv", "a", { signal: stop.signal }), (error) => error === stop.signal.reason);
  const kept = client.row("kv", "a");
  await first;
  while (held.asked.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
  stop.abort();
  await ended;
  assert.equal((await kept)?.value, 1);
});
