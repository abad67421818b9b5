/**
 * Freshness of requests: the snapshot of a scan, the client's session and its end, and the time that the service waits
 * for it.
 */

import assert from "node:assert/strict";
import { after, test } from "node:test";

import { Client, ClientMistake } from "../src/index.js";
import { Session } from "../src/session.js";
import type { Committed } from "../src/verdict.js";
import { begun, committed, start, type Scripted, type Service } from "./scripted.js";
import { clientOf, commits, endpoint, problem, refused, works, type Reply } from "./scripted_endpoints.js";

const services: Service[] = [];
after(() => {
  for (const service of services) service.stop();
});

async function scripted(script: (kind: string, before: number) => Scripted): Promise<Service> {
  const service = await start(script);
  services.push(service);
  return service;
}

const sessions = ({ arrived }: Service, kind: string): unknown[] => arrived.filter((one) => one.kind === kind).map(({ body }) => body["session"]);

test("a scan is never older than the snapshot", async () => {
  const page = (applied: number, keys: readonly string[], more: boolean): Scripted => [
    200,
    { applied: String(applied), ranges: [{ store: "kv", rows: keys.map((key) => ({ key, value: 1, version: "8388608" })), more }] },
  ];
  // The first and the third page come from a lagging node.
  const pages = [page(6, [], false), page(7, ["a"], true), page(6, [], false), page(8, ["b"], false)];
  const service = await scripted((kind, before) => (kind === "begin" ? begun(before) : (pages[before] ?? page(8, [], false))));
  const txn = await new Client(service.url).begin({ stores: ["kv"] });
  assert.deepEqual((await txn.scan("kv")).map(({ key }) => key), ["a", "b"]);
  assert.deepEqual(sessions(service, "rows"), ["s", "s", "s", "s"]);
});

test("an own token that the service does not know is forgotten", async () => {
  const unknown = [422, problem(422, "session_unknown")] as const;
  const service = await scripted((kind, before) => {
    if (kind !== "begin") return committed(9000);
    return before === 0 || before === 3 ? unknown : begun(before);
  });
  const client = new Client(service.url);
  const txn = client.beginLocal();
  txn.put("kv", "a", 1);
  await txn.commit();
  // Refused, resent without the token, and sent without it from then on.
  await client.begin({ stores: ["kv"] });
  await client.begin({ stores: ["kv"] });
  assert.deepEqual(sessions(service, "begin"), ["token-9000", undefined, undefined]);
  // A token that the caller named is the caller's to omit.
  await assert.rejects(client.begin({ session: "mine" }), (error: unknown) => error instanceof ClientMistake && error.code === "session_unknown");
  assert.deepEqual(sessions(service, "begin").slice(3), ["mine"]);
});

test("forgetting a token forgets those of the same log after it", () => {
  const session = new Session();
  for (const [epoch, store] of [[7, "a"], [8, "b"], [9, "c"]] as const) {
    session.record({ epoch: String(epoch), session: `token-${epoch}`, lsn: { [store]: "1" } } as unknown as Committed);
  }
  session.forget("other");
  assert.equal(session.token(), "token-9");
  session.forget("token-8");
  assert.equal(session.token(), "token-7");
});

test("reads go on after the log has been replaced", async () => {
  for (const way of ["rows", "range"]) {
    const first = await endpoint((kind, ids, before) => (before === 0 ? works(kind, ids) : refused(503, "stopping")));
    // The commit belonged to epoch 9.
    const second = await endpoint((_, __, before) =>
      before === 1 ? refused(422, "session_unknown") : [200, { applied: "5", rows: [{ store: "kv" }], ranges: [{ store: "kv", rows: [], more: false }] }],
    );
    const client = clientOf([first.url, second.url]);
    await commits(client);
    const { applied } = await (way === "rows" ? client.readRows("kv", [{ key: "n" }]) : client.rows("kv"));
    assert.equal(applied, "5");
    assert.deepEqual(second.asked.map(([, body]) => (JSON.parse(body) as { session?: string }).session), [undefined, "s", undefined]);
  }
});

test("an endpoint may wait for what a request must include", async () => {
  // The service waits 5 s by default, which is not a failure of its endpoint.
  const slow = (kind: string, ids: readonly string[]): Reply => {
    if (kind === "commit") return works(kind, ids);
    const rows = { applied: "9", rows: [{ store: "kv" }], ranges: [{ store: "kv", rows: [], more: false }] };
    return { afterMs: 3000, reply: kind === "begin" ? works(kind, ids) : [200, rows] };
  };
  const [first, second] = [await endpoint(slow), await endpoint(works)];
  const client = clientOf([first.url, second.url], { endpointTimeoutMs: 2000 });
  await commits(client);
  await client.begin({ stores: ["kv"] });
  await client.readRows("kv", [{ key: "n" }], { consistency: "fresh" });
  await client.readRanges("kv", [{}], { session: "s" });
  assert.deepEqual([second.asked.length, client.endpoint], [0, first.url]);
});

test("a verdict that was asked for counts as an own commit", async () => {
  const service = await scripted((kind, before) => (kind === "begin" ? begun(before) : kind === "status" ? committed(9) : committed(12)));
  const client = new Client(service.url);
  await client.status("a");
  await client.begin({ stores: ["kv"] });
  await client.abort("b");
  await client.begin({ stores: ["kv"] });
  assert.deepEqual(sessions(service, "begin"), ["token-9", "token-12"]);
});
