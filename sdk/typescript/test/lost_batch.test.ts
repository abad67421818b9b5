/** A large batch whose response is lost, against a service that answers by a script. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, OutcomeUnknown, type ClientOptions } from "../src/index.js";
import { committed } from "./holding.js";

/** Sends a batch of 200 commits that gets no response. `answer` gets the requests for its commits, by the id. */
async function lost(options: ClientOptions, answer: (id: string, response: ServerResponse) => void): ReturnType<Client["batch"]> {
  const server = createServer((request, response) => {
    const { method, url = "" } = request;
    request.resume().on("end", () => {
      if (method === "GET") answer(url.split("/")[3]?.split("?")[0] ?? "", response);
      else response.destroy();
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, options);
  const commits = Array.from({ length: 200 }, () => client.beginLocal().prepare());
  try {
    const results = await client.batch(commits);
    assert.deepEqual(results.map((result) => ("txnId" in result ? result.txnId : result.message)), commits.map(({ txnId }) => txnId));
    return results;
  } finally {
    client.close();
    server.closeAllConnections();
    server.close();
  }
}

test("the outcomes of a lost batch are requested a bounded number at a time", async () => {
  let [now, most] = [0, 0];
  const results = await lost({}, (id, response) => {
    most = Math.max(most, ++now);
    setTimeout(() => {
      now--;
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify(committed(id)));
    }, 600);
  });
  assert.ok(results.every((result) => "status" in result && result.status === "committed"));
  assert.ok(most <= 64, String(most));
});

test("the outcomes of a lost batch have one deadline", async () => {
  let asked = 0;
  const results = await lost({ resolveTimeoutMs: 300, timeoutMs: 1000 }, (id, response) => {
    asked++;
    // In flight until the deadline has passed.
    setTimeout(() => {
      response.writeHead(200, { "content-type": "application/json" });
      response.end(JSON.stringify({ status: "in_flight", txn_id: id }));
    }, 1000);
  });
  assert.ok(results.every((result) => result instanceof OutcomeUnknown));
  assert.ok(asked <= 64, String(asked));
});
