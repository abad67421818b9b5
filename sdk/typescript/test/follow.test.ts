/**
 * Iterations that follow a log, and calls of `next`, while no endpoint answers: how long they continue, and what ends
 * them.
 */

import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, ClientMistake, Unavailable, type LogReader } from "../src/index.js";
import { clientOf, endpoint, problem, refused, type Reply } from "./scripted_endpoints.js";

function recordAt(lsn: number): object {
  const position = { lsn: String(lsn), prev_lsn: String(lsn - 1), epoch: "9", csn: "7", version: "8", txn_id: "t", store: "kv" };
  return { ...position, writes: [{ op: "put", key: "a", value: 1 }] };
}

/** A log with one record or more, whose stream stays open. */
async function logOn(port: number, count = 1): Promise<Server> {
  const beat = { event: "heartbeat", log: "1f", next: "0", head_lsn: String(count) };
  const records = Array.from({ length: count }, (_, at) => recordAt(at + 1));
  const server = createServer((request, response) => {
    const after = Number(new URL(request.url ?? "", "http://x").searchParams.get("after"));
    response.writeHead(200, { "content-type": "application/x-ndjson" });
    response.write([beat, ...records.slice(after)].map((line) => `${JSON.stringify(line)}\n`).join(""));
  });
  server.listen(port, "127.0.0.1");
  await once(server, "listening");
  return server;
}

async function stopped(server: Server): Promise<number> {
  const { port } = server.address() as AddressInfo;
  server.closeAllConnections();
  server.close();
  await once(server, "close");
  return port;
}

/** Iterates, and returns the number of records. */
async function followed(reader: LogReader): Promise<number> {
  let count = 0;
  for await (const { lsn } of reader) if (lsn !== "") count++;
  return count;
}

const within = async <T>(call: Promise<T>, ms: number): Promise<T> => {
  const begun = performance.now();
  const result = await call;
  const took = performance.now() - begun;
  assert.ok(took < ms, `${took} ms`);
  return result;
};

test("a follower outlives an outage that uses up the retries of `run`", async () => {
  const before = await logOn(0);
  const client = new Client(`http://127.0.0.1:${(before.address() as AddressInfo).port}`, { retry: { attemptsMax: 2 } });
  const records = client.log("kv")[Symbol.asyncIterator]();
  assert.equal((await records.next()).value?.lsn, "1");
  const port = await stopped(before);
  const second = records.next();
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const server = await logOn(port, 2);
  assert.equal(((await within(second, 10_000)).value)?.lsn, "2");
  client.close();
  assert.equal((await records.next()).done, true);
  await stopped(server);
});

test("a follower that has never reached an endpoint ends after the attempts of a read", async () => {
  const port = await stopped(await logOn(0));
  await within(assert.rejects(followed(clientOf([`http://127.0.0.1:${port}`]).log("kv")), Unavailable), 5_000);
  const down = await endpoint(() => "lost");
  await within(assert.rejects(followed(clientOf([down.url]).log("kv")), Unavailable), 5_000);
  assert.equal(down.asked.length, 4);
});

test("a refusal by the service proves that its address is right", async () => {
  const lines = [{ event: "heartbeat", log: "1f", next: "0", head_lsn: "1" }, recordAt(1)];
  for (const others of [[], [(await endpoint(() => "lost")).url]]) {
    const busy = await endpoint((_, __, before) => (before < 9 ? refused(503, "unavailable") : { lines }));
    const records = clientOf([busy.url, ...others], { retry: { attemptsMax: 3 } }).log("kv")[Symbol.asyncIterator]();
    assert.equal((await within(records.next(), 30_000)).value?.lsn, "1");
    await records.return();
  }
});

test("a follower waits for 2 s at most, whatever the service asks for", async () => {
  const lines = [recordAt(1)];
  const asks = (ms: number): Reply => [503, { ...problem(503, "unavailable"), retry_after_ms: ms }];
  const busy = await endpoint((_, __, before) => (before === 0 ? asks(30_000) : before === 1 ? asks(1_900) : { lines }));
  const records = clientOf([busy.url], { retry: { waitMinMs: 5_000 } }).log("kv")[Symbol.asyncIterator]();
  assert.equal((await within(records.next(), 8_000)).value?.lsn, "1");
  await records.return();
});

test("a follower ends with the last error after `reconnectMs`, from each loss on", async () => {
  const server = await logOn(0);
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`);
  const records = client.log("kv", { reconnectMs: 700 })[Symbol.asyncIterator]();
  assert.equal((await records.next()).value?.lsn, "1");
  await new Promise((resolve) => setTimeout(resolve, 1000));
  const lost = performance.now();
  await stopped(server);
  await assert.rejects(records.next(), Unavailable);
  const took = performance.now() - lost;
  assert.ok(took > 200 && took < 2000, `${took} ms`);
  const silent = await endpoint(() => "silent");
  await within(assert.rejects(followed(clientOf([silent.url], { timeoutMs: 500 }).log("kv", { reconnectMs: 500, follow: true })), Unavailable), 5_000);
  await assert.rejects(async () => followed(client.log("kv", { reconnectMs: -1 })), /`reconnectMs` must be/);
});

test("without a time to reconnect, a follower connects, and ends with the connection", async () => {
  const server = await logOn(0);
  const records = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`).log("kv", { reconnectMs: 0 })[Symbol.asyncIterator]();
  assert.equal((await records.next()).value?.lsn, "1");
  await stopped(server);
  await within(assert.rejects(records.next(), Unavailable), 1000);
  const slow = await endpoint(() => ({ afterMs: 300, reply: { lines: [recordAt(1)] } }));
  const late = clientOf([slow.url]).log("kv", { reconnectMs: 0 })[Symbol.asyncIterator]();
  assert.equal((await late.next()).value?.lsn, "1");
  await assert.rejects(late.next(), Unavailable);
  assert.equal(slow.asked.length, 1);
  const down = await endpoint(() => "lost");
  await within(assert.rejects(followed(clientOf([down.url]).log("kv", { reconnectMs: 0 })), Unavailable), 1000);
  assert.equal(down.asked.length, 1);
});

test("an answer ends a follower at once", async () => {
  for (const status of [401, 403, 404, 410, 422]) {
    const service = await endpoint(() => refused(status, "refused"));
    await assert.rejects(followed(clientOf([service.url]).log("kv")), ClientMistake);
    assert.equal(service.asked.length, 1);
  }
});

test("a call of `next` ends after its wait and the timeout", async () => {
  const silent = await endpoint(() => "silent");
  const reader = clientOf([silent.url], { timeoutMs: 1000, retry: { attemptsMax: Infinity } }).log("kv");
  await within(assert.rejects(reader.next(500), Unavailable), 3000);
  const busy = await endpoint(() => refused(503, "overloaded"));
  const other = clientOf([busy.url], { timeoutMs: 500, retry: { attemptsMax: Infinity } }).log("kv");
  await within(assert.rejects(other.next(100), Unavailable), 2000);
});

for (const [name, close] of Object.entries({
  "the reader": (_: Client, reader: LogReader) => { reader.close(); },
  "the client": (client: Client) => { client.close(); },
})) {
  test(`closing ${name} ends an iteration whose request has no answer, or that waits to reconnect`, async () => {
    const silent = await endpoint(() => "silent");
    const down = await endpoint((_, __, before) => (before === 0 ? refused(503, "unavailable") : "lost"));
    for (const { url, asked } of [silent, down]) {
      const client = clientOf([url]);
      const reader = client.log("kv");
      const count = followed(reader);
      while (asked.length < (url === down.url ? 6 : 1)) await new Promise((resolve) => setTimeout(resolve, 1));
      close(client, reader);
      assert.equal(await within(count, 1000), 0);
    }
  });

  test(`a process ends once ${name} is closed`, async () => {
    const server = await logOn(0);
    const script = `
      import { Client } from ${JSON.stringify(new URL("../src/index.js", import.meta.url).href)};
      const client = new Client("http://127.0.0.1:${(server.address() as AddressInfo).port}");
      const reader = client.log("kv");
      for await (const record of reader) setTimeout(() => ${name === "the client" ? "client" : "reader"}.close(), 50);
    `;
    const child = spawn(process.execPath, ["--input-type=module", "--eval", script], { stdio: "inherit" });
    const late = setTimeout(() => child.kill(), 20_000);
    assert.deepEqual(await once(child, "exit"), [0, null]);
    clearTimeout(late);
    await stopped(server);
  });
}

test("a reader continues at an endpoint that has the records", async () => {
  const truncated: Reply = refused(410, "log_truncated");
  const beat = { event: "heartbeat", log: "1f", next: "0", head_lsn: "2" };
  const end = { event: "end", next: "1", reason: "log_truncated", problem: problem(410, "log_truncated") };
  const first = await endpoint(() => truncated);
  const second = await endpoint((_, __, before) => (before === 0 ? { lines: [beat, recordAt(1), end] } : truncated));
  const third = await endpoint(() => ({ lines: [beat, recordAt(2)] }));
  const log = clientOf([first.url, second.url, third.url]).log("kv");
  assert.equal((await log.next())?.lsn, "1");
  assert.equal((await log.next())?.lsn, "2");
  assert.deepEqual([first.asked.length, second.asked.length, third.asked.length], [2, 2, 1]);
  log.close();
});

test("a reader whose records no endpoint has ends, and is told which was not reached", async () => {
  const nowhere = `http://127.0.0.1:${await stopped(await logOn(0))}`;
  for (const [isReached, text] of [
    [true, "none of this client's endpoints has enough of the log"],
    [false, `and these did not: ${nowhere}: `],
  ] as const) {
    const [first, second] = [await endpoint(() => refused(410, "log_truncated")), await endpoint(() => refused(410, "log_truncated"))];
    const log = clientOf([isReached ? second.url : nowhere, first.url]).log("kv");
    await assert.rejects(log.next(), (error) => {
      assert.ok(error instanceof ClientMistake && error.code === "log_truncated", String(error));
      assert.ok(error.message.includes(text), error.message);
      return true;
    });
    assert.deepEqual([first.asked.length, second.asked.length], [1, isReached ? 1 : 0]);
  }
});
