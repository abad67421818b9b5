/** State images: live, and from a service that cuts them short. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, ClientMistake, Misuse, ServerMisbehaved, Unavailable, type Key, type StateImage } from "../src/index.js";
import { clientOf, endpoint, problem, refused, type Reply } from "./scripted_endpoints.js";
import { connected, freshPrefix } from "./service.js";

const first = { event: "state", store: "kv", kind: "rows", log: "1f", lsn: "7" };
const row = (key: string): object => ({ key, value: 1, version: "5" });
const [last, enough] = [{ event: "end", rows: "2" }, new Error("enough")];

async function all(image: StateImage): Promise<Key[]> {
  const keys = [];
  for await (const { key } of image) keys.push(key);
  return keys;
}

/** A service with one response, whose stream then breaks or stays open. */
async function streaming(lines: readonly object[], then: "break" | "stay", use: (client: Client) => Promise<void>): Promise<void> {
  const server = createServer((_, response) => {
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.flushHeaders();
    response.write(lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
    if (then === "break") setTimeout(() => response.destroy(), 20);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  try {
    await use(new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`));
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

test("a copy of the state and the log after it has the rows of the store", async () => {
  const [client, prefix] = [connected(), freshPrefix()];
  const store = `s${prefix.slice(3, 39)}`;
  await client.declareStore(store, { adaptor: "kv" });
  const key = (n: number): string => `${prefix}${n % 40}`;
  const write = async (n: number): Promise<void> => {
    await client.run((txn) => {
      if (n % 5 === 4) txn.put(store, key(n + 1), null);
      txn.put(store, key(n), n);
    });
  };
  for (let n = 0; n < 60; n++) await write(n);
  const writing = (async () => {
    for (let n = 60; n < 200; n++) await write(n);
  })();
  const image = await client.state<number | null>(store);
  assert.deepEqual([image.kind, /^\d+$/.test(image.lsn)], ["rows", true]);
  const copy = new Map<string, unknown>();
  for await (const { key, value, version } of image) {
    assert.ok(version !== undefined);
    copy.set(String(key), value);
  }
  await writing;
  for await (const { writes } of client.log(store, { after: image.lsn, log: image.log, follow: false })) {
    for (const { op, key, value } of writes) {
      if (op === "delete") copy.delete(String(key));
      else copy.set(String(key), value);
    }
  }
  const { rows, more } = await client.rows(store);
  assert.equal(more, false);
  assert.deepEqual(copy, new Map(rows.map(({ key, value }) => [String(key), value])));
  await assert.rejects(all(image), (error) => error instanceof Misuse && error.message.includes("once"));
  await assert.rejects(client.state("no-such-store"), (error) => error instanceof ClientMistake && error.code === "unknown_store");
});

test("an image that is cut short is an error", async () => {
  await streaming([first, row("a")], "break", async (client) => {
    await assert.rejects(all(await client.state("kv")), Unavailable);
  });
  const problems: (readonly [readonly object[], (error: unknown) => boolean])[] = [
    [[first, row("a")], (error) => error instanceof Unavailable],
    [[first, row("a"), last], (error) => error instanceof ServerMisbehaved && error.message.includes("1 rows, not 2")],
    [[first, row("a"), { event: "failed", problem: problem(503, "unavailable") }], (error) => error instanceof Unavailable && error.code === "unavailable"],
    [[first, row("a"), { event: "failed" }], (error) => error instanceof Unavailable],
    [[first, [1], last], (error) => error instanceof ServerMisbehaved],
  ];
  for (const [lines, isRight] of problems) {
    const client = clientOf([(await endpoint(() => ({ lines }))).url]);
    await assert.rejects(all(await client.state("kv")), isRight);
    assert.equal(client.channel.readers.size, 0);
  }
  await assert.rejects(clientOf([(await endpoint(() => ({ lines: [row("a")] }))).url]).state("kv"), ServerMisbehaved);
});

test("an image is requested until the service is available, within the timeout", async () => {
  const lines = [first, row("a"), { event: "moved" }, row("b"), last];
  const script = (_: string, __: readonly string[], before: number): Reply => (before < 2 ? refused(503, "overloaded") : { lines });
  const image = await clientOf([(await endpoint(script)).url]).state("kv");
  assert.deepEqual([image.lsn, image.log, await all(image)], ["7", "1f", ["a", "b"]]);
  const silent = clientOf([(await endpoint(() => "silent")).url, (await endpoint(() => ({ lines }))).url], { endpointTimeoutMs: 300 });
  assert.deepEqual(await all(await silent.state("kv")), ["a", "b"]);
  await assert.rejects(clientOf([(await endpoint(() => "silent")).url], { timeoutMs: 500 }).state("kv"), Unavailable);
});

test("a signal, the image and the client end an image, and none of them as if it were complete", async () => {
  const ways: Record<string, readonly [(client: Client, image: StateImage, stop: AbortController) => void, (error: unknown) => boolean]> = {
    signal: [(_, __, stop) => { stop.abort(enough); }, (error) => error === enough],
    image: [(_, image) => { image.close(); }, (error) => error instanceof Misuse && error.message.includes("image is closed")],
    client: [(client) => { client.close(); }, (error) => error instanceof Misuse && error.message.includes("client is closed")],
  };
  for (const [close, isRight] of Object.values(ways)) {
    await streaming([first, row("a")], "stay", async (client) => {
      const stop = new AbortController();
      const image = await client.state("kv", { signal: stop.signal });
      const rows = image[Symbol.asyncIterator]();
      assert.equal((await rows.next()).value?.key, "a");
      const next = assert.rejects(rows.next(), isRight);
      setTimeout(() => { close(client, image, stop); }, 20);
      await next;
      assert.equal(client.channel.readers.size, 0);
    });
  }
  for (const name of ["signal", "client"] as const) {
    const silent = await endpoint(() => "silent");
    const [client, stop] = [clientOf([silent.url]), new AbortController()];
    const opened = assert.rejects(client.state("kv", { signal: stop.signal }), ways[name]?.[1] ?? Misuse);
    while (silent.asked.length === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    if (name === "signal") stop.abort(enough);
    else client.close();
    await opened;
  }
});

test("a signal and the client end the wait for the first line of an image", { timeout: 20_000 }, async () => {
  for (const lines of [[], [first]]) {
    for (const name of ["signal", "client"] as const) {
      // As soon as the image may have arrived, and while it waits.
      for (const ms of [0, 1, 2, 3, 5, 10, 100]) {
        await streaming(lines, "stay", async (client) => {
          const stop = new AbortController();
          const read = client.state("kv", { signal: stop.signal }).then(all);
          const ended = assert.rejects(read, (error) => (name === "signal" ? error === enough : error instanceof Misuse && error.message.includes("client is closed")));
          setTimeout(() => {
            if (name === "signal") stop.abort(enough);
            else client.close();
          }, ms);
          await ended;
          assert.equal(client.channel.readers.size, 0);
        });
      }
    }
  }
});

test("a loop that ends early ends the stream", async () => {
  await streaming([first, row("a"), row("b")], "stay", async (client) => {
    for await (const { key } of await client.state("kv")) {
      assert.equal(key, "a");
      break;
    }
    assert.equal(client.channel.readers.size, 0);
  });
});
