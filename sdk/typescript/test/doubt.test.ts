/** Commits whose response does not determine their outcome: they are resolved by their ids. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { OutcomeUnknown, Unavailable } from "../src/index.js";
import { clientOf, committed, endpoint, prepared, refused, works, type Reply } from "./scripted_endpoints.js";

const unclear: Readonly<Record<string, Reply>> = {
  "503 of a proxy": { page: "upstream connect error or disconnect/reset before headers", type: "text/plain", status: 503 },
  "520 of a proxy": { page: "<html>unknown error</html>", type: "text/html", status: 520 },
  "page of a proxy": { page: "<html>Please log in</html>", type: "text/html" },
  "success without content": { empty: 200 },
  "success without content or length": { page: "", type: "application/json" },
  "204": { empty: 204 },
  broken: { page: '{"status":"commit', type: "application/json" },
};

for (const [name, reply] of Object.entries(unclear)) {
  test(`a commit whose response is unclear (${name}) is resolved by its id`, async () => {
    const script = (kind: string, ids: readonly string[]): Reply => (kind === "status" ? works(kind, ids) : reply);
    for (const count of [1, 2]) {
      const endpoints = await Promise.all(Array.from({ length: count }, () => endpoint(script)));
      const client = clientOf(endpoints.map(({ url }) => url));
      const traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
      const verdicts = [
        await client.commit(prepared(client)),
        await client.commit({ ...prepared(client), traceparent }),
        ...(await client.batch([prepared(client), prepared(client)])),
        ...(await Promise.all(Array.from({ length: 5 }, () => client.commit(prepared(client))))),
      ];
      for (const verdict of verdicts) {
        assert.ok("status" in verdict && verdict.status === "committed" && verdict.replayed, `${count} endpoints: ${JSON.stringify(verdict)}`);
      }
      // The transaction stays closed while its outcome is unknown.
      const down = await endpoint((kind, ids) => (kind === "begin" ? works(kind, ids) : kind === "commit" ? reply : refused(503, "stopping")));
      const txn = await clientOf([down.url], { resolveTimeoutMs: 1000 }).begin({ stores: ["kv"] });
      txn.put("kv", "a", 1);
      await assert.rejects(txn.commit(), OutcomeUnknown);
      assert.throws(() => {
        txn.put("kv", "a", 2);
      });
    }
  });
}

test("a batch with too few results is resolved by its ids", async () => {
  for (const body of [{ results: [committed("one")] }, {}, [], null]) {
    const service = await endpoint((kind, ids) => (kind === "status" ? works(kind, ids) : [200, body]));
    const client = clientOf([service.url]);
    const results = await client.batch([prepared(client), prepared(client)]);
    assert.ok(results.every((result) => "status" in result && result.status === "committed" && result.replayed), JSON.stringify(results));
  }
});

test("commits of a batch that an endpoint could not decide are sent again within one timeout", async () => {
  const count = 6 * 64;
  const line = { status: "problem", problem: { type: "about:blank", title: "x", status: 503, detail: "x", code: "stopping", retryable: true, errors: [] } };
  const script = (kind: string): Reply => {
    if (kind === "batch") return [200, { results: Array.from({ length: count }, () => line) }];
    return kind === "status" ? [200, { status: "in_flight" }] : "silent";
  };
  const client = clientOf([(await endpoint(script)).url, (await endpoint(script)).url], { timeoutMs: 2000, resolveTimeoutMs: 1000 });
  const begun = performance.now();
  const results = await client.batch(Array.from({ length: count }, () => prepared(client)));
  const took = performance.now() - begun;
  assert.ok(took < 60_000, `${took} ms`);
  // A commit that was not resent was not accepted.
  assert.ok(results[0] instanceof OutcomeUnknown && results.at(-1) instanceof Unavailable);
});
