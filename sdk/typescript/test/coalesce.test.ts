/** Coalesced commits, against a service that holds requests back and against a live one. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, ClientMistake, Unavailable, uuidv7, type ClientOptions, type PreparedCommit, type Verdict } from "../src/index.js";
import { commitBounds } from "../src/commit_batch.js";
import { aborted, committed, HoldingService, lines, refused, type Held } from "./holding.js";
import { Proxy } from "./proxy.js";
import { connected, url } from "./service.js";
import { sessions } from "./sessions.js";

function prepared(client: Client, options: { id?: string; ack?: "applied"; traceparent?: string; value?: string } = {}): PreparedCommit {
  const txn = client.beginLocal();
  txn.put("kv", "a", options.value ?? 1);
  txn.ack = options.ack;
  txn.traceparent = options.traceparent;
  return { ...txn.prepare(), txnId: options.id ?? uuidv7() };
}

/** The outcome of a commit: its status, the code of its error, and whether it was resolved. */
async function end(commit: Promise<Verdict>): Promise<string> {
  try {
    const verdict = await commit;
    return verdict.replayed ? `${verdict.status} again` : verdict.status;
  } catch (error) {
    if (error instanceof ClientMistake || error instanceof Unavailable) return `${error.name} ${error.code}`;
    throw error;
  }
}

/** Uses a client with the maximum number of requests in flight; `release` answers the requests in flight. */
async function withAllFlightsTaken(
  use: (client: Client, service: HoldingService, release: () => void) => Promise<void>,
  options: ClientOptions = {},
): Promise<void> {
  const service = await HoldingService.start();
  const client = new Client(service.url, options);
  try {
    const first: Promise<Verdict>[] = [];
    const held: Held[] = [];
    for (let number = 0; number < commitBounds.inFlightMax; number++) {
      first.push(client.commit(prepared(client)));
      held.push(await service.request(number));
    }
    assert.deepEqual(held.map(({ batch }) => batch), held.map(() => false), "an idle client sends a commit at once, by itself");
    await use(client, service, () => {
      for (const { ids, answer } of held.splice(0)) answer(200, JSON.stringify(committed(ids[0] ?? "")));
    });
    await Promise.all(first);
  } finally {
    service.stop();
  }
}

test("queued commits are sent as one batch, and each gets its own verdict", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const waiting = Array.from({ length: 6 }, () => prepared(client));
    const ends = waiting.map((one) => end(client.commit(one)));
    release();
    const { batch, ids, answer } = await service.request(commitBounds.inFlightMax);
    assert.ok(batch);
    assert.deepEqual(ids, waiting.map(({ txnId }) => txnId), "in order");
    const [a, b, c, d, e, f] = ids as [string, string, string, string, string, string];
    const repeated = { ...committed(f), replayed: true };
    // The service loses the reply to the third, which is resolved by its id.
    const mistakes = [refused(c, 504, "outcome_unknown"), refused(d, 404, "unknown_store"), refused(e, 429, "quota")];
    answer(200, lines([committed(a), aborted(b), ...mistakes, repeated]));
    const expected = ["committed", "aborted", "committed again", "ClientMistake unknown_store", "Unavailable quota", "committed again"];
    assert.deepEqual(await Promise.all(ends), expected);
  });
});

test("a batch never contains the same id twice", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const twice = prepared(client);
    const other = prepared(client);
    const ends = [twice, twice, other].map((one) => end(client.commit(one)));
    release();
    // Both requests are in flight at the same time, and may arrive in any order.
    let first = await service.request(commitBounds.inFlightMax);
    let second = await service.request(commitBounds.inFlightMax + 1);
    if (second.batch) [first, second] = [second, first];
    assert.deepEqual(first.ids, [twice.txnId, other.txnId]);
    first.answer(200, lines(first.ids.map(committed)));
    assert.deepEqual([second.batch, second.ids], [false, [twice.txnId]]);
    second.answer(200, JSON.stringify(committed(twice.txnId)));
    assert.deepEqual(await Promise.all(ends), ["committed", "committed", "committed"]);
  });
});

test("a batch has at most 512 commits and 4 MiB", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const mib = "x".repeat(1 << 20);
    const large = Array.from({ length: 5 }, () => prepared(client, { value: mib }));
    const small = Array.from({ length: 600 }, () => prepared(client));
    const ends = [...large, ...small].map((one) => end(client.commit(one)));
    release();
    const sizes: number[] = [];
    for (let left = ends.length, at = commitBounds.inFlightMax; left > 0; at++) {
      const { ids, answer } = await service.request(at);
      sizes.push(ids.length);
      left -= ids.length;
      answer(200, lines(ids.map(committed)));
    }
    assert.deepEqual([Math.max(...sizes), Math.min(...sizes)], [512, 3], String(sizes));
    assert.deepEqual(new Set(await Promise.all(ends)), new Set(["committed"]));
  });
});

test("commits with a trace context or ack applied are sent at once by themselves", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const ends = [prepared(client, { traceparent: "00-mine" }), prepared(client, { ack: "applied" })].map((one) => end(client.commit(one)));
    for (const at of [0, 1]) {
      const { batch, ids, answer } = await service.request(commitBounds.inFlightMax + at);
      assert.equal(batch, false);
      answer(200, JSON.stringify(committed(ids[0] ?? "")));
    }
    assert.deepEqual(await Promise.all(ends), ["committed", "committed"]);
    assert.deepEqual(service.held.slice(-2).map(({ traceparent }) => traceparent).sort(), ["00-mine", undefined]);
    release();
  });
});

test("a rejected batch fails each commit, and a rejected format sends each commit by itself", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const waiting = [prepared(client), prepared(client)];
    const busy = waiting.map((one) => end(client.commit(one)));
    release();
    const first = await service.request(commitBounds.inFlightMax);
    first.answer(503, JSON.stringify(refused("", 503, "overloaded").problem));
    assert.deepEqual(await Promise.all(busy), ["Unavailable overloaded", "Unavailable overloaded"]);
  });
  await withAllFlightsTaken(async (client, service, release) => {
    const ends = [prepared(client), prepared(client)].map((one) => end(client.commit(one)));
    release();
    const first = await service.request(commitBounds.inFlightMax);
    first.answer(413, JSON.stringify(refused("", 413, "too_large").problem));
    for (const at of [1, 2]) {
      const { batch, ids, answer } = await service.request(commitBounds.inFlightMax + at);
      assert.equal(batch, false);
      answer(200, JSON.stringify(committed(ids[0] ?? "")));
    }
    assert.deepEqual(await Promise.all(ends), ["committed", "committed"]);
  });
});

test("an unreadable reply to a batch is resolved for each commit", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const ends = [prepared(client), prepared(client)].map((one) => end(client.commit(one)));
    release();
    const { ids, answer } = await service.request(commitBounds.inFlightMax);
    answer(200, lines([committed(ids[0] ?? "")]));
    assert.deepEqual(await Promise.all(ends), ["committed again", "committed again"]);
  });
});

test("without `coalesce` every commit is a request of its own", async () => {
  await withAllFlightsTaken(
    async (client, service, release) => {
      const ends = [prepared(client), prepared(client), prepared(client)].map((one) => end(client.commit(one)));
      for (const at of [0, 1, 2]) {
        const { batch, ids, answer } = await service.request(commitBounds.inFlightMax + at);
        assert.equal(batch, false);
        answer(200, JSON.stringify(committed(ids[0] ?? "")));
      }
      assert.deepEqual(await Promise.all(ends), ["committed", "committed", "committed"]);
      release();
    },
    { coalesce: false },
  );
});

test("commits that write nothing share no batch with those that write", async () => {
  await withAllFlightsTaken(async (client, service, release) => {
    const reads = Array.from({ length: 3 }, () => {
      const txn = client.beginLocal();
      txn.observe("kv", "a", undefined);
      return txn.prepare();
    });
    const writes = [prepared(client), prepared(client)];
    const ids = (commits: readonly PreparedCommit[]): string[] => commits.map(({ txnId }) => txnId);
    const answered = async (at: number, commits: readonly PreparedCommit[]): Promise<void> => {
      const { ids: sent, answer } = await service.request(commitBounds.inFlightMax + at);
      assert.deepEqual(sent, ids(commits));
      answer(200, lines(sent.map(committed)));
    };
    // No request of their own kind is in flight, so the first is sent at once.
    const reading = reads.map((one) => end(client.commit(one)));
    const writing = writes.map((one) => end(client.commit(one)));
    await answered(0, reads.slice(0, 1));
    await answered(1, reads.slice(1));
    assert.deepEqual(await Promise.all(reading), ["committed", "committed", "committed"], "while commits that write wait for theirs");
    release();
    await answered(2, writes);
    assert.deepEqual(await Promise.all(writing), ["committed", "committed"]);
  });
});

test("64 sessions on disjoint rows get their verdicts in order", async () => {
  await sessions(connected(), 10);
});

test("each commit of a batch whose reply is lost is resolved", async () => {
  const proxy = await Proxy.start(url);
  try {
    proxy.lose("reply", "/batch-commit");
    const { replayed } = await sessions(new Client(proxy.url), 3);
    assert.equal(proxy.lost, 1);
    assert.ok(replayed > 1, String(replayed));
  } finally {
    await proxy.stop();
  }
});
