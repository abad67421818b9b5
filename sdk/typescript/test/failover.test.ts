/** The client against several endpoints, some of which fail: services over HTTP that reply by a script. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { mock, test } from "node:test";

import { Endpoints } from "../src/endpoints.js";
import { Client, ClientMistake, Misuse, OutcomeUnknown, ServerMisbehaved, Unavailable } from "../src/index.js";
import { clientOf, commits, committed, endpoint, kindOf, prepared, problem, refused, works, type Reply } from "./scripted_endpoints.js";

/** The URL of an endpoint without a listener. A closed port of 127.0.0.1 may be reused by the next server. */
async function dead(): Promise<string> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.2", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return `http://127.0.0.2:${port}`;
}

test("a dead endpoint is passed over and the next one stays in use", async () => {
  const [first, second] = [await dead(), await endpoint(works)];
  // As in the environment variable `TRIBUNAL_URL`.
  const client = new Client(`${first}, ${second.url}/`);
  assert.equal(client.endpoint, first);
  await client.begin({ stores: ["kv"] });
  await commits(client);
  assert.equal(client.endpoint, second.url);
  assert.equal(second.asked.length, 2);
});

test("an unavailable endpoint is left until its cool-down has passed", async () => {
  const first = await endpoint((kind, ids, before) => (before === 0 ? refused(503, "stopping") : works(kind, ids)));
  // The second endpoint fails at its third request.
  const second = await endpoint((kind, ids, before) => (before < 2 ? works(kind, ids) : refused(503, "unavailable")));
  const third = await endpoint(works);
  const client = clientOf([first.url, second.url, third.url], { endpointCoolDownMs: 3_600_000 });
  const counts = (): number[] => [first, second, third].map(({ asked }) => asked.length);
  await client.stores();
  await client.stores();
  assert.deepEqual(counts(), [1, 2, 0], "the second one stays in use");
  await client.stores();
  assert.deepEqual(counts(), [1, 3, 1], "the first one has failed shortly before");
});

test("the endpoint in use stays so when an earlier one may be tried again", async () => {
  const first = await endpoint((kind, ids, before) => (before === 0 ? refused(503, "stopping") : works(kind, ids)));
  const second = await endpoint(works);
  const client = clientOf([first.url, second.url], { endpointCoolDownMs: 50 });
  await client.stores();
  await new Promise((resolve) => setTimeout(resolve, 60));
  await client.stores();
  assert.deepEqual([first.asked.length, second.asked.length, client.endpoint], [1, 2, second.url]);
});

test("a failed endpoint is tried again after its cool-down", async () => {
  const first = await endpoint((kind, ids, before) => (before === 0 ? "lost" : works(kind, ids)));
  const second = await endpoint((kind, ids, before) => (before === 1 ? refused(503, "unavailable") : works(kind, ids)));
  const client = clientOf([first.url, second.url], { endpointCoolDownMs: 50 });
  await client.stores();
  await new Promise((resolve) => setTimeout(resolve, 60));
  await client.stores();
  assert.deepEqual([first.asked.length, second.asked.length], [2, 2]);
});

for (const [name, lost] of [["lost", "lost"], ["unknown", refused(504, "outcome_unknown")], ["silent", "silent"]] as const) {
  test(`a commit without a reply (${name}) is sent elsewhere with the same id and body`, async () => {
    const [first, second] = [await endpoint(() => lost), await endpoint(works)];
    const client = clientOf([first.url, second.url], { endpointTimeoutMs: 2000 });
    await commits(client);
    assert.equal(first.asked.length, 1);
    assert.deepEqual(first.asked, second.asked, "the same request, and no question about its status");
    assert.equal(client.endpoint, second.url);
  });
}

for (const [name, lost] of [["lost", "lost"], ["unknown", refused(504, "outcome_unknown")]] as const) {
  test(`a refusal after a lost reply (${name}) does not tell the outcome`, async () => {
    const first = await endpoint(() => lost);
    const second = await endpoint((kind, ids) => (kind === "commit" ? refused(429, "quota_exceeded") : works(kind, ids)));
    const client = clientOf([first.url, second.url]);
    await commits(client);
    assert.match(second.asked[1]?.[0] ?? "", /fence=true/, "the verdict is requested");
  });
}

test("a commit whose verdict is forgotten is unknown and not a mistake", async () => {
  for (const code of ["txn_id_forgotten", "verdict_truncated"]) {
    const service = await endpoint((kind) =>
      kind === "batch" ? [200, { results: [{ status: "problem", problem: problem(422, code) }] }] : refused(422, code),
    );
    const client = clientOf([service.url]);
    await assert.rejects(client.commit(prepared(client)), (error: unknown) => error instanceof OutcomeUnknown && error.message.includes(code));
    const [result] = await client.batch([prepared(client)]);
    assert.ok(result instanceof OutcomeUnknown);
  }
});

test("definite answers are not repeated elsewhere", async () => {
  for (const [status, code] of [[422, "bad_write"], [429, "quota_exceeded"], [503, "overloaded"], [401, "unauthenticated"]] as const) {
    const [first, second] = [await endpoint(() => refused(status, code)), await endpoint(works)];
    const client = clientOf([first.url, second.url]);
    await assert.rejects(client.commit(prepared(client)), (error) => (error instanceof ClientMistake || error instanceof Unavailable) && error.code === code);
    assert.deepEqual([first.asked.length, second.asked.length, client.endpoint], [1, 0, first.url]);
  }
  const aborts = await endpoint((_, ids) => [200, { status: "aborted", txn_id: ids[0], epoch: "9", reason: "write_conflict", retryable: true }]);
  const second = await endpoint(works);
  const client = clientOf([aborts.url, second.url]);
  assert.equal((await client.commit(prepared(client))).status, "aborted");
  assert.equal(second.asked.length, 0);
});

test("the error after all have failed names each endpoint and its reason", async () => {
  const [first, second] = [await dead(), await endpoint(() => refused(503, "no_majority"))];
  const third = await endpoint(() => [503, "a proxy"]);
  const client = clientOf([first, second.url, third.url]);
  await assert.rejects(client.begin(), (error: unknown) => {
    assert.ok(error instanceof Unavailable);
    for (const part of [first, second.url, third.url, "ECONNREFUSED", "no_majority: says so", "status 503"]) {
      assert.ok(error.message.includes(part), `${part} is missing: ${error.message}`);
    }
    assert.equal(error.code, "no_majority");
    return true;
  });
  assert.deepEqual([second.asked.length, third.asked.length], [2, 2], "each is tried twice");
  await assert.rejects(clientOf([first, second.url]).commit(prepared(client)), Unavailable, "nothing was taken");
  await assert.rejects(client.commit(prepared(client)), OutcomeUnknown, "the proxy may have passed it on");
});

test("what is not Tribunal is passed over", async () => {
  for (const status of [301, 404, 500]) {
    const [first, second] = [await endpoint(() => [status, "a proxy"]), await endpoint(works)];
    const client = clientOf([first.url, second.url]);
    assert.equal((await client.commit(prepared(client))).status, "committed");
    assert.deepEqual(first.asked, second.asked);
    assert.equal(client.endpoint, second.url);
  }
});

test("a refusal for the size of a request is not repeated elsewhere", async () => {
  const [first, second] = [await endpoint(() => [413, "a proxy"]), await endpoint(works)];
  await assert.rejects(clientOf([first.url, second.url]).begin(), ServerMisbehaved);
  assert.equal(second.asked.length, 0);
});

test("an answer that is not of Tribunal names its endpoint", async () => {
  const only = await endpoint(() => [404, "a proxy"]);
  await assert.rejects(clientOf([only.url]).begin(), (error: unknown) => {
    assert.ok(error instanceof ServerMisbehaved);
    assert.ok(error.message.startsWith(`${only.url}: status 404 without a problem document`), error.message);
    return true;
  });
});

test("the timeout is shared by the endpoints", async () => {
  const endpoints = [await endpoint(() => "silent"), await endpoint(() => "silent")];
  const client = clientOf(endpoints.map(({ url }) => url), { timeoutMs: 4000 });
  const begun = performance.now();
  await assert.rejects(client.begin(), Unavailable);
  assert.ok(performance.now() - begun >= 3990);
  assert.deepEqual(endpoints.map(({ asked }) => asked.length), [1, 1]);
});

test("commits of a batch without an outcome are sent elsewhere", async () => {
  // The first of a batch is decided, the second was not accepted, and the third one's outcome is unknown.
  const first = await endpoint((kind, ids) =>
    kind === "batch" && ids.length === 3
      ? {
          lines: [
            committed(ids[0]),
            { status: "problem", problem: problem(503, "unavailable") },
            { status: "problem", problem: problem(504, "outcome_unknown") },
          ],
        }
      : works(kind, ids),
  );
  const second = await endpoint(works);
  const client = clientOf([first.url, second.url]);
  // The first commit is sent alone; the commits that arrive while it is in flight form a batch. The clock is stopped
  // meanwhile: after the short head start, the second commit would be sent alone as well.
  const now = performance.now();
  const clock = mock.method(performance, "now", () => now);
  const sent = [0, 1, 2, 3].map(async () => commits(client));
  clock.mock.restore();
  await Promise.all(sent);
  assert.deepEqual(second.asked.map(([path]) => kindOf(path)), ["batch"]);
  const lines = first.asked.find(([path]) => kindOf(path) === "batch")?.[1].split("\n");
  assert.deepEqual(second.asked[0]?.[1].split("\n"), lines?.slice(1), "the same lines");
});

test("commits of an explicit batch are sent elsewhere", async () => {
  const unknown = { status: "problem", problem: problem(504, "outcome_unknown") };
  const first = await endpoint((_, __, before) => (before === 0 ? [200, { results: [unknown] }] : refused(503, "stopping")));
  const second = await endpoint(works);
  const client = clientOf([first.url, second.url]);
  const commit = prepared(client);
  const [verdict] = await client.batch([commit]);
  assert.ok(verdict !== undefined && "status" in verdict && verdict.status === "committed", JSON.stringify(verdict));
  assert.equal(second.asked[0]?.[0], `/v1/txns/${commit.txnId}/commit`);
});

test("an error of a commit that is sent again leaves the results of the others", async () => {
  const script = (_: string, ids: readonly string[], before: number): Reply => {
    const results = [committed(ids[0]), { status: "problem", problem: problem(503, "unavailable") }];
    return before === 0 ? [200, { results }] : refused(503, "stopping");
  };
  const first = await endpoint(script);
  const second = await endpoint(() => [413, "a proxy"]);
  const client = clientOf([first.url, second.url]);
  const [decided, refusal] = await client.batch([prepared(client), prepared(client)]);
  assert.ok(decided !== undefined && "status" in decided && decided.status === "committed");
  assert.ok(refusal instanceof ServerMisbehaved, JSON.stringify(refusal));

  const closing = clientOf([(await endpoint(script)).url, second.url], {
    fetch: async (request) => {
      const response = await fetch(request);
      const body = await response.text();
      closing.close();
      return new Response(body, response);
    },
  });
  const [kept, own] = await closing.batch([prepared(client), prepared(client)]);
  assert.ok(kept !== undefined && "status" in kept && kept.status === "committed");
  assert.ok(own instanceof Unavailable && own.code === "unavailable", JSON.stringify(own));
});

const record = (lsn: number): object => ({
  store: "kv", lsn: String(lsn), prev_lsn: String(lsn - 1), epoch: "9", csn: "1", version: "5", txn_id: "x", writes: [],
});

test("a log reader at its quota stays at its endpoint", async () => {
  const ends = { event: "end", next: "1", reason: "quota_exceeded", problem: { ...problem(429, "quota_exceeded"), retryable: true } };
  const first = await endpoint((_, __, before) => ({ lines: before === 0 ? [record(1), ends] : [record(2)] }));
  const second = await endpoint(() => ({ lines: [record(2)] }));
  const client = clientOf([first.url, second.url]);
  const log = client.log("kv");
  for (const lsn of ["1", "2"]) assert.equal((await log.next())?.lsn, lsn);
  log.close();
  assert.deepEqual([first.asked.length, second.asked.length, client.endpoint], [2, 0, first.url]);
});

test("a log reader continues at its position on another endpoint", async () => {
  const first = await endpoint(() => ({ lines: [record(1), record(2), { event: "end", reason: "stopping" }] }));
  const second = await endpoint(() => ({ lines: [record(3)] }));
  const client = clientOf([first.url, second.url]);
  const log = client.log("kv");
  for (const lsn of ["1", "2", "3"]) assert.equal((await log.next())?.lsn, lsn);
  log.close();
  assert.equal(first.asked.length, 1);
  assert.match(second.asked[0]?.[0] ?? "", /after=2/);
  assert.equal(client.endpoint, second.url);
});

test("a node that lags is asked once and remains in use", async () => {
  const first = await endpoint((kind, ids, before) => (before === 0 ? refused(503, "store_lagging") : works(kind, ids)));
  const second = await endpoint(works);
  const client = clientOf([first.url, second.url]);
  await client.begin({ stores: ["kv"] });
  assert.deepEqual([first.asked.length, second.asked.length, client.endpoint], [1, 1, first.url]);
});

test("an endpoint that failed for another call is passed over until its cool-down has passed", (t) => {
  let now = 10_000;
  t.mock.method(performance, "now", () => now);
  const endpoints = new Endpoints("http://a:1, http://b:2/,http://c:3,http://a:1", 1000, 1000);
  assert.deepEqual(endpoints.urls, ["http://a:1", "http://b:2", "http://c:3"]);
  // For example, a log reader that is still connected to the second one.
  endpoints.failed(1);
  assert.equal(endpoints.inUse, 0);
  now += 600;
  endpoints.failed(0);
  assert.equal(endpoints.inUse, 2);
  now += 500;
  endpoints.failed(2);
  assert.equal(endpoints.inUse, 1, "unlike the first one, it has rested");
  // Of three failed endpoints, the first to answer is used.
  endpoints.failed(1);
  endpoints.works(0);
  assert.equal(endpoints.inUse, 0);
});

test("a success without content is no answer, except where none is expected", async () => {
  for (const status of [200, 204]) {
    const [proxy, second] = [await endpoint(() => ({ empty: status })), await endpoint(works)];
    const client = clientOf([proxy.url, second.url]);
    assert.deepEqual(await client.stores(), []);
    await assert.rejects(clientOf([proxy.url]).state("kv"), Unavailable);
    const only = clientOf([proxy.url]);
    await only.forgetConsumer("view");
    await assert.rejects(only.stores(), (error: unknown) => error instanceof Unavailable && error.message.endsWith(`status ${status} without content`));
  }
});

test("a consumer's offset that may have been taken is not sent elsewhere", async () => {
  const info = { name: "view", log: "l", offsets: [] };
  for (const lost of ["lost", refused(504, "outcome_unknown"), refused(503, "stopping"), [502, "a proxy"], { empty: 200 }] as const) {
    const [first, second] = [await endpoint(() => lost), await endpoint(() => [200, info])];
    const client = clientOf([first.url, second.url]);
    await assert.rejects(client.setOffset("view", "kv", { lsn: "1" }), (error: unknown) => {
      assert.ok(error instanceof Unavailable, String(error));
      if (lost === "lost") assert.match(error.message, /the offset may have been set$/);
      return true;
    });
    assert.deepEqual([first.asked.length, second.asked.length], [1, 0], JSON.stringify(lost));
    assert.deepEqual(await client.setOffset("view", "kv", { lsn: "1" }), info, "set again");
  }
  const [first, second] = [await endpoint(() => refused(503, "unavailable")), await endpoint(() => [200, info])];
  for (const url of [await dead(), first.url]) {
    assert.deepEqual(await clientOf([url, second.url]).setOffset("view", "kv", { lsn: "1" }), info);
  }
});

test("a read waits for the client's own commits", async () => {
  const first = await endpoint((kind, ids, before) => (before === 0 ? works(kind, ids) : refused(503, "stopping")));
  // The commit belongs to epoch 9.
  const second = await endpoint((_, __, before) => [200, { applied: String(8 + before), rows: [{ store: "kv", key: "n", value: 1, version: "5" }] }]);
  const client = clientOf([first.url, second.url]);
  await commits(client);
  assert.equal((await client.readRows("kv", [{ key: "n" }])).applied, "9");
  assert.equal(second.asked.length, 2);
});

test("URLs that cannot be used are named", () => {
  for (const urls of [["http://a:1,b:2"], ["http://a:1", "ftp://b:2"], ["http://a:1,"], []]) assert.throws(() => new Client(urls), Misuse);
});

test("an endpoint that does not answer is left before its share of the timeout is over", async () => {
  for (const kind of ["begin", "commit"]) {
    const [paused, second, third] = [await endpoint(() => "silent"), await endpoint(works), await endpoint(works)];
    const client = clientOf([paused.url, second.url, third.url], { timeoutMs: 90_000, endpointTimeoutMs: 2000 });
    for (let n = 0; n < 2; n++) {
      const begun = performance.now();
      if (kind === "begin") await client.begin({ stores: ["kv"] });
      else await commits(client);
      assert.ok(performance.now() - begun < 30_000, kind);
    }
    assert.deepEqual([paused, second, third].map(({ asked }) => asked.length), [1, 2, 0], kind);
  }
});

test("the last endpoint has the time that is left", async () => {
  const paused = [await endpoint(() => "silent"), await endpoint(() => "silent")];
  const client = clientOf(paused.map(({ url }) => url), { timeoutMs: 5000, endpointTimeoutMs: 2000 });
  const begun = performance.now();
  await assert.rejects(client.begin({ stores: ["kv"] }), Unavailable);
  assert.ok(performance.now() - begun >= 4900);
  assert.deepEqual(paused.map(({ asked }) => asked.length), [1, 1]);
});

test("a page of a proxy is no answer", async () => {
  for (const [type, page] of [["text/html", "<html>Please log in</html>"], ["text/plain", "Please log in"], ["application/json", "<"]] as const) {
    const [proxy, second] = [await endpoint(() => ({ type, page })), await endpoint(works)];
    const client = clientOf([proxy.url, second.url]);
    await client.begin({ stores: ["kv"] });
    assert.equal(client.endpoint, second.url, type);
    await commits(clientOf([proxy.url, second.url]));
    assert.deepEqual(proxy.asked.at(-1), second.asked.at(-1), "the same commit");
    await assert.rejects(clientOf([proxy.url]).begin({ stores: ["kv"] }), Unavailable);
  }
});
