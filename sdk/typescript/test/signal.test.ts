/** Calls that their caller ends, by a signal or by closing the client. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";
import { Worker } from "node:worker_threads";

import { Client, Misuse, OutcomeUnknown, type Attempt, type ClientOptions, type LogReader } from "../src/index.js";
import { HoldingService, committed } from "./holding.js";
import { begun, committed as scriptedCommit, overloaded, start } from "./scripted.js";

const reason = new Error("the user has left");
const isReason = (error: unknown): boolean => error === reason;
const isUnknown = (error: unknown): boolean => error instanceof OutcomeUnknown && error.cause === reason;
const isClosed = (error: unknown): boolean => error instanceof Misuse && error.message.includes("closed");

/** Uses a client of a service that answers nothing. */
async function silent(use: (client: Client, arrived: () => Promise<void>) => Promise<void>, options: ClientOptions = {}): Promise<void> {
  let count = 0;
  const server = createServer(() => count++);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const arrived = async (): Promise<void> => {
    while (count === 0) await new Promise((resolve) => setTimeout(resolve, 1));
  };
  const client = new Client(`http://127.0.0.1:${port}`, options);
  try {
    await use(client, arrived);
  } finally {
    client.close();
    server.closeAllConnections();
    server.close();
  }
}

test("a signal ends a Begin, a run and its work", async () => {
  await silent(async (client, arrived) => {
    const stop = new AbortController();
    const calls = [client.begin({ signal: stop.signal }), client.run(() => 1, { signal: stop.signal }), client.begin({ signal: stop.signal, ranges: { kv: [{}] } })];
    const ended = Promise.all(calls.map((call) => assert.rejects(call, isReason)));
    await arrived();
    stop.abort(reason);
    await ended;
    await assert.rejects(client.begin({ signal: stop.signal }), isReason);
  });
  const service = await start((kind, before) => (kind === "begin" ? begun(before) : overloaded));
  const attempts: Attempt[] = [];
  const client = new Client(service.url, { onAttempt: (attempt) => attempts.push(attempt), retry: { attemptsMax: Infinity, waitMinMs: 100_000, waitMaxMs: 100_000 } });
  try {
    const stop = new AbortController();
    const hanging = client.run(() => {
      stop.abort(reason);
      return new Promise(() => undefined);
    }, { signal: stop.signal });
    await assert.rejects(hanging, isReason);
    assert.equal(attempts[0]?.error, reason);
    // While it waits before another attempt.
    const again = new AbortController();
    const retrying = client.run((txn) => { txn.put("kv", "a", 1); }, { signal: again.signal });
    while (attempts.length < 2) await new Promise((resolve) => setTimeout(resolve, 1));
    again.abort(reason);
    await assert.rejects(retrying, isReason);
  } finally {
    service.stop();
  }
});

test("a signal ends the wait for a verdict, and a commit that is queued is not sent", async () => {
  const service = await HoldingService.start();
  const client = new Client(service.url);
  try {
    const stop = new AbortController();
    const { signal } = stop;
    const commit = async (txn = client.beginLocal(), options = {}): Promise<string> => {
      txn.put("kv", txn.id, 1);
      return (await txn.commit(options)).status;
    };
    const sent = client.beginLocal();
    const first = assert.rejects(commit(sent, { signal }), isUnknown);
    const held = await service.request(0);
    // At most two requests are in flight.
    const beside = commit();
    const second = await service.request(1);
    const queued = client.beginLocal();
    const never = assert.rejects(commit(queued, { signal }), isReason);
    const other = client.beginLocal();
    const kept = commit(other);
    stop.abort(reason);
    await Promise.all([first, never]);
    assert.throws(() => { sent.put("kv", "a", 1); }, Misuse);
    queued.put("kv", "a", 1);
    await assert.rejects(commit(client.beginLocal(), { signal }), isReason);
    held.answer(200, JSON.stringify(committed(sent.id)));
    const third = await service.request(2);
    assert.deepEqual(third.ids, [other.id]);
    for (const { ids, answer } of [second, third]) answer(200, JSON.stringify(committed(ids[0] ?? "")));
    assert.deepEqual(await Promise.all([kept, beside]), ["committed", "committed"]);
  } finally {
    service.stop();
  }
});

/** Runs that share their requests, so that they proceed in step. The first one's requests are sent by themselves. */
async function inStep(client: Client, work: (run: number) => void, signal: AbortSignal): Promise<PromiseSettledResult<unknown>[]> {
  const runs = Array.from({ length: 4 }, (_, run) => client.run((txn) => { txn.put("kv", txn.id, 1); work(run); }, { signal }));
  return Promise.allSettled(runs);
}

test("a signal that fires between the Begin and the work ends a run before its work", async () => {
  const service = await start((_, before) => begun(before));
  try {
    const stop = new AbortController();
    const worked: number[] = [];
    const results = await inStep(new Client(service.url), (run) => {
      worked.push(run);
      if (run > 0) stop.abort(reason);
    }, stop.signal);
    assert.deepEqual(results.map((result) => result.status === "rejected" && (result.reason === reason || isUnknown(result.reason))), [true, true, true, true]);
    assert.deepEqual(worked.filter((run) => run > 0), [1]);
  } finally {
    service.stop();
  }
});

test("an attempt that ends after the signal has fired announces no other", async () => {
  const service = await start((_, before) => (before === 0 ? begun(before) : overloaded));
  try {
    const stop = new AbortController();
    const attempts: Attempt[] = [];
    const onAttempt = (attempt: Attempt): void => {
      attempts.push(attempt);
      stop.abort(reason);
    };
    const client = new Client(service.url, { onAttempt });
    const first = client.begin();
    const runs = [1, 2, 3].map(() => assert.rejects(client.run(() => undefined, { signal: stop.signal }), isReason));
    await Promise.all([first, ...runs]);
    assert.deepEqual(attempts.map(({ waitMs }) => waitMs !== undefined), [true, false, false]);
  } finally {
    service.stop();
  }
});

test("a signal that does not fire changes nothing", async () => {
  const service = await start((kind, before) => (kind === "begin" ? begun(before) : scriptedCommit()));
  try {
    const client = new Client(service.url);
    const { signal } = new AbortController();
    const { value, committed: verdict } = await client.run((txn) => { txn.put("kv", "a", 1); return 5; }, { signal });
    assert.deepEqual([value, verdict.status], [5, "committed"]);
  } finally {
    service.stop();
  }
});

test("many calls with one signal, or none, cause no warning of a leak", async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error): void => {
    warnings.push(warning);
  };
  process.on("warning", warned);
  // The runs wait before a second attempt.
  const service = await start(() => overloaded);
  try {
    const [stop, other] = [new AbortController(), new AbortController()];
    const retrying = new Client(service.url, { retry: { waitMinMs: 100_000, waitMaxMs: 100_000 } });
    await silent(async (client, arrived) => {
      const calls = Array.from({ length: 30 }, (_, at) => {
        const signal = at % 2 === 0 ? stop.signal : other.signal;
        const txn = client.beginLocal();
        txn.put("kv", txn.id, 1);
        return [
          client.stores(),
          client.begin({ signal, ranges: { kv: [{}] } }),
          txn.commit({ signal }),
          client.log("kv", { signal }).next(),
          retrying.run(() => 1, { signal }),
        ];
      });
      const ended = Promise.allSettled(calls.flat());
      await arrived();
      while (service.arrived.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => setTimeout(resolve, 20));
      stop.abort(reason);
      other.abort(reason);
      client.close();
      const results = await ended;
      assert.deepEqual(results.filter(({ status }) => status === "fulfilled"), []);
      await new Promise((resolve) => setImmediate(resolve));
      assert.deepEqual(warnings.map(({ message }) => message), []);
    }, { coalesce: false });
  } finally {
    service.stop();
    process.off("warning", warned);
  }
});

test("calls of one signal end apart, and leave no listener", async () => {
  const stop = new AbortController();
  const listeners = new Set<unknown>();
  const { signal } = stop;
  const [add, remove] = [signal.addEventListener.bind(signal), signal.removeEventListener.bind(signal)];
  signal.addEventListener = (...given: Parameters<typeof add>) => { listeners.add(given[1]); add(...given); };
  signal.removeEventListener = (...given: Parameters<typeof remove>) => { listeners.delete(given[1]); remove(...given); };
  const service = await HoldingService.start();
  const client = new Client(service.url, { coalesce: false });
  try {
    const txns = [client.beginLocal(), client.beginLocal()];
    const commits = txns.map(async (txn) => (await txn.commit({ signal })).status);
    for (const at of [0, 1]) await service.request(at);
    assert.equal(listeners.size, 1);
    const [first] = service.held;
    first?.answer(200, JSON.stringify(committed(first.ids[0] ?? "")));
    const done = txns.findIndex(({ id }) => id === first?.ids[0]);
    assert.equal(await commits[done], "committed");
    assert.equal(listeners.size, 1, "the other call still waits");
    const second = service.held[1];
    second?.answer(200, JSON.stringify(committed(second.ids[0] ?? "")));
    assert.equal(await commits[1 - done], "committed");
    assert.equal(listeners.size, 0);
  } finally {
    service.stop();
  }
});

test("a closed client ends its calls and takes no others", async () => {
  await silent(async (client, arrived) => {
    const txn = client.beginLocal();
    txn.put("kv", "a", 1);
    const reader = client.log("kv");
    const calls = [
      assert.rejects(txn.commit(), (error) => error instanceof OutcomeUnknown && error.message.includes("closed")),
      assert.rejects(client.begin(), isClosed),
      assert.rejects(client.run(() => 1), isClosed),
      assert.rejects(client.row("kv", "a"), isClosed),
      assert.rejects(client.stores(), isClosed),
    ];
    const record = reader.next();
    await arrived();
    client.close();
    await Promise.all(calls);
    assert.equal(await record, undefined);
    await assert.rejects(reader.next(), isClosed);
    await assert.rejects(client.begin(), isClosed);
    const late = client.beginLocal();
    await assert.rejects(late.commit(), isClosed);
    client.close();
  });
});

test("a commit that is queued when the client is closed is a misuse, and is not sent", async () => {
  const service = await HoldingService.start();
  const client = new Client(service.url);
  try {
    const commit = async (): Promise<unknown> => {
      const txn = client.beginLocal();
      txn.put("kv", txn.id, 1);
      return txn.commit();
    };
    const sent = [commit()];
    await service.request(0);
    sent.push(commit());
    await service.request(1);
    const ended = [...sent.map((one) => assert.rejects(one, OutcomeUnknown)), assert.rejects(commit(), isClosed)];
    client.close();
    await Promise.all(ended);
    assert.equal(service.held.length, 2);
  } finally {
    service.stop();
  }
});

for (const [name, close] of [["its client", (client: Client) => { client.close(); }], ["the reader", (_: Client, reader: LogReader) => { reader.close(); }]] as const) {
  test(`a log reader that waits before another attempt ends quietly with ${name}`, async () => {
    const service = await start(() => overloaded);
    const client = new Client(service.url, { retry: { waitMinMs: 30_000, waitMaxMs: 30_000 } });
    try {
      const reader = client.log("kv");
      const record = reader.next();
      while (service.arrived.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
      await new Promise((resolve) => setTimeout(resolve, 50));
      close(client, reader);
      const late = new Promise((resolve) => setTimeout(resolve, 60_000, "late").unref());
      assert.equal(await Promise.race([record, late]), undefined);
      assert.equal(client.channel.readers.size, 0);
    } finally {
      service.stop();
    }
  });
}

test("an endpoint has not failed if a caller, or the end of the client, ended the call", async () => {
  const server = createServer(() => undefined);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const first = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
  const client = new Client([first, await refusing()]);
  try {
    const stop = new AbortController();
    const reader = client.log("kv", { signal: stop.signal });
    const [begin, record] = [client.begin({ signal: stop.signal }), reader.next()];
    setTimeout(() => { stop.abort(reason); }, 50);
    await Promise.all([assert.rejects(begin, isReason), assert.rejects(record, isReason)]);
    assert.equal(client.endpoint, first);
    const closed = assert.rejects(client.begin(), isClosed);
    setTimeout(() => { client.close(); }, 50);
    await closed;
    assert.equal(client.endpoint, first);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

/** The URL of a port that refuses connections. A closed port of 127.0.0.1 may be reused by the next server. */
async function refusing(): Promise<string> {
  const server = createServer();
  server.listen(0, "127.0.0.2");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return `http://127.0.0.2:${port}`;
}

/** A service in its own thread, which answers after 50 ms with a Begin or the start of a log. */
const thread = `
  const { parentPort } = require("node:worker_threads");
  const server = require("node:http").createServer((request, response) => setTimeout(() => {
    response.writeHead(request.method === "POST" ? 201 : 200, { "content-type": "application/json" });
    const begun = { txn_id: "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", snapshots: { kv: "9" }, epoch: "10", expires_at: "", session: "s" };
    response.end(JSON.stringify(begun));
  }, 50));
  server.listen(0, "127.0.0.1", () => parentPort.postMessage(server.address().port));
`;

test("an endpoint whose response arrived while the program blocked its event loop has not failed", async () => {
  const service = new Worker(thread, { eval: true });
  try {
    const [port] = (await once(service, "message")) as [number];
    const first = `http://127.0.0.1:${port}`;
    // The connection is already established, so that the response arrives while the program is blocked, however slow it
    // is.
    await new Client(first).begin();
    const client = new Client([first, await refusing()], { endpointTimeoutMs: 1500 });
    const begin = client.begin();
    await new Promise((resolve) => setTimeout(resolve, 20));
    // Afterwards, timers run before sockets.
    await new Promise((resolve) => setImmediate(resolve));
    for (const until = performance.now() + 3000; performance.now() < until; );
    await begin;
    assert.equal(client.endpoint, first);
  } finally {
    await service.terminate();
  }
});
