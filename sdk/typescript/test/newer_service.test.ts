/** Answers of a newer service, with values that this client does not know. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, OutcomeUnknown, ServerMisbehaved, TransactionAborted, type ClientOptions } from "../src/index.js";
import { aborted, begun, committed, start, type Scripted } from "./scripted.js";

const unknown = "status `parked`, which this client does not know: the client is older than the server";

function outcome(status: string, fields: object = {}): Scripted {
  return [200, { status, txn_id: "txn", epoch: "9", ...fields }];
}

/** Uses a client of a service that replies by a script. Returns the kinds of the requests. */
async function served(script: (kind: string, before: number) => Scripted, use: (client: Client) => Promise<void>, options: ClientOptions = {}): Promise<string[]> {
  const service = await start(script);
  const client = new Client(service.url, options);
  try {
    await use(client);
  } finally {
    client.close();
    service.stop();
  }
  return service.arrived.map(({ kind }) => kind);
}

for (const coalesce of [true, false]) {
  test(`an abort for an unknown reason is an abort, with coalesce: ${coalesce}`, async () => {
    const conflicts = [{ store: "kv", key: "a", op: "lease", stage: "later" }];
    await served(() => outcome("aborted", { reason: "lease_lost", retryable: true, conflicts }), async (client) => {
      const verdict = await client.beginLocal().commit();
      assert.ok(verdict.status === "aborted");
      assert.deepEqual([verdict.reason, verdict.retryable, verdict.conflicts[0]?.op], ["lease_lost", true, "lease"]);
      const again = await client.status("txn");
      assert.ok(again.status === "aborted");
      assert.equal(again.reason, "lease_lost");
    }, { coalesce });
  });

  test(`a commit with an unknown status has an unknown outcome, with coalesce: ${coalesce}`, async () => {
    const kinds = await served(() => outcome("parked"), async (client) => {
      const txn = client.beginLocal();
      await assert.rejects(txn.commit(), (error) => error instanceof OutcomeUnknown && error.txnId === txn.id && error.message.includes(unknown));
    }, { coalesce });
    // Another request would get the same answer.
    assert.ok(!kinds.includes("status"));
  });
}

for (const [says, attempts] of [[{ retryable: true }, 2], [{ retryable: false }, 1], [{}, 1]] as const) {
  test(`run repeats an unknown abort only if the service says so: ${JSON.stringify(says)}`, async () => {
    const kinds = await served(
      (kind, before) => (kind === "begin" ? begun(before) : before === 1 ? committed() : outcome("aborted", { reason: "lease_lost", ...says })),
      async (client) => {
        const ran = client.run((txn) => { txn.put("kv", "a", 1); }, { stores: ["kv"] });
        if (attempts === 2) await ran;
        else await assert.rejects(ran, TransactionAborted);
      },
    );
    assert.equal(kinds.filter((kind) => kind === "commit").length, attempts);
  });
}

test("an unknown status in a batch leaves the other verdicts", async () => {
  const results = [committed(), outcome("parked"), aborted("lease_lost")].map(([, body]) => body);
  await served(() => [200, { results }], async (client) => {
    const [first, second, third] = await client.batch(results.map(() => client.beginLocal().prepare()));
    assert.ok(first !== undefined && "status" in first && first.status === "committed");
    assert.ok(second instanceof OutcomeUnknown && second.message.includes(unknown));
    assert.ok(third !== undefined && "status" in third && third.status === "aborted" && third.reason === "lease_lost");
  });
});

test("an unknown status is an error that names it", async () => {
  await served(() => outcome("parked"), async (client) => {
    for (const asked of [client.status("txn"), client.abort("txn"), client.validate(client.beginLocal().prepare())]) {
      await assert.rejects(asked, (error) => error instanceof ServerMisbehaved && error.message.includes(unknown));
    }
  });
});
