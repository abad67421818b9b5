/** Batches of Begins and of reads, against a service that holds requests back until the test answers them. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, ClientMistake, ServerMisbehaved, Unavailable, type BeginOptions, type ClientOptions, type Transaction } from "../src/index.js";
import { readBounds } from "../src/read_batch.js";
import { committed, refused } from "./holding.js";

const someId = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a";

interface Asked {
  readonly key: string;
  readonly version?: string;
}

/** A request that waits for its answer. */
class Held {
  readonly path: string;
  readonly body: { read?: Asked[]; ranges?: unknown[]; stores?: string[]; session?: string };
  readonly answer: (status: number, body: unknown) => void;
  /** Closes the connection without an answer. */
  readonly lose: () => void;

  constructor(path: string, text: string, answer: (status: number, body: unknown) => void, lose: () => void) {
    this.path = path;
    this.body = JSON.parse(text) as Held["body"];
    this.answer = answer;
    this.lose = lose;
  }

  get keys(): string[] {
    return (this.body.read ?? []).map(({ key }) => key);
  }

  /** Answers with all rows: `x/7` has the value 7, `none` is absent, and one whose version 5 is known is unchanged. */
  read(): void {
    const rows = (this.body.read ?? []).map(({ key, version }) => {
      if (key === "none") return { store: "kv", key };
      if (version === "5") return { store: "kv", key, version, unchanged: true };
      return { store: "kv", key, version: "5", value: Number(key.split("/")[1]) };
    });
    const begun = { txn_id: someId, snapshots: { kv: "9" }, epoch: "10", expires_at: "", session: "s", rows, ranges: [] };
    if (this.path === "/v1/txns") this.answer(201, begun);
    else this.answer(200, { applied: "9", rows });
  }

  refuse(status: number, code: string): void {
    this.answer(status, refused("", status, code).problem);
  }
}

interface Crowd {
  readonly client: Client;
  /** Returns the next request to arrive. */
  readonly request: () => Promise<Held>;
  /** Answers the first requests. */
  readonly release: () => void;
}

/** Uses a client; `occupy` sends a request that stays in flight. */
async function crowd(options: ClientOptions, occupy: ((client: Client) => Promise<unknown>) | undefined, use: (crowd: Crowd) => Promise<void>): Promise<void> {
  const arrived: Held[] = [];
  const server = createServer((request, response) => {
    void (async () => {
      let text = "";
      for await (const chunk of request) text += String(chunk);
      const answer = (status: number, body: unknown): void => {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(JSON.stringify(body));
      };
      const { url = "" } = request;
      if (url.endsWith("/commit")) answer(200, { ...committed("txn"), session: "mine" });
      else arrived.push(new Held(url, text, answer, () => response.destroy()));
    })();
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const client = new Client(`http://127.0.0.1:${(server.address() as AddressInfo).port}`, options);
  const request = async (): Promise<Held> => {
    for (;;) {
      const held = arrived.shift();
      if (held !== undefined) return held;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  };
  try {
    const sent: Promise<unknown>[] = [];
    const first: Held[] = [];
    for (let flight = 0; occupy !== undefined && flight < readBounds.inFlightMax; flight++) {
      sent.push(occupy(client));
      first.push(await request());
    }
    const release = (): void => {
      for (const held of first.splice(0)) held.read();
    };
    await use({ client, request, release });
    release();
    await Promise.all(sent);
  } finally {
    server.closeAllConnections();
    server.close();
  }
}

const noRetries: ClientOptions = { retry: { attemptsMax: 1 } };

/** Uses a client with the maximum number of reads of the store `kv` in flight. */
async function reading(use: (crowd: Crowd) => Promise<void>): Promise<void> {
  await crowd(noRetries, (client) => client.readRows("kv", [{ key: "first/1" }]), use);
}

/** Uses a client with the maximum number of Begins in flight. */
async function beginning(use: (crowd: Crowd) => Promise<void>): Promise<void> {
  await crowd(noRetries, (client) => client.begin({ stores: ["kv"] }), use);
}

/** Returns the rows read, or the error. */
async function read(client: Client, ...rows: (string | { key: string; version: string })[]): Promise<string> {
  try {
    const found = await client.readRows("kv", rows.map((row) => (typeof row === "string" ? { key: row } : row)));
    return found.rows.map((state) => (state.status === "found" ? JSON.stringify(state.row.value) : state.status)).join(" ");
  } catch (error) {
    return told(error);
  }
}

function told(error: unknown): string {
  if (error instanceof ClientMistake || error instanceof Unavailable) return `${error.name} ${error.code}`;
  if (error instanceof ServerMisbehaved) return error.message;
  throw error;
}

async function begun(client: Client, options: BeginOptions): Promise<Transaction | string> {
  return client.begin(options).catch(told);
}

function begins(end: Transaction | string | undefined): Transaction {
  assert.ok(end !== undefined && typeof end !== "string", typeof end === "string" ? end : "no end");
  return end;
}

test("reads that wait leave together, and each gets its rows", async () => {
  await reading(async ({ client, request, release }) => {
    const row = client.row("kv", "a/1").then((found) => JSON.stringify(found?.value));
    const reads = [read(client, "a/1", "b/2"), read(client, "none"), read(client, "b/2", "c/3", "a/1"), row];
    release();
    const held = await request();
    assert.deepEqual([held.path, held.keys], ["/v1/stores/kv/rows/read", ["a/1", "b/2", "none", "c/3"]]);
    held.read();
    assert.deepEqual(await Promise.all(reads), ["1 2", "absent", "2 3 1", "1"]);
  });
});

test("a row is asked for once for each version that callers have", async () => {
  await reading(async ({ client, request, release }) => {
    const key = "a/1";
    const reads = [read(client, key), read(client, { key, version: "5" }), read(client, { key, version: "4" }), read(client, key)];
    release();
    const held = await request();
    assert.equal(held.keys.length, 3);
    held.read();
    assert.deepEqual(await Promise.all(reads), ["1", "unchanged", "1", "1"]);
  });
});

test("reads of other stores and large ones wait for nobody", async () => {
  await reading(async ({ client, request }) => {
    const other = client.row("other", "a/1");
    const held = await request();
    assert.equal(held.path, "/v1/stores/other/rows/read");
    held.read();
    assert.equal((await other)?.value, 1);
    const keys = Array.from({ length: 1001 }, (_, n) => `x/${n}`);
    const many = read(client, ...keys);
    const large = await request();
    assert.equal(large.keys.length, 1001);
    large.read();
    assert.ok((await many).endsWith(" 1000"));
  });
});

test("a refusal of what is read sends each alone", async () => {
  for (const [status, code] of [[422, "read_too_large"], [400, "bad_request"]] as const) {
    await reading(async ({ client, request, release }) => {
      const reads = [read(client, "a/1"), read(client, "b/2")];
      release();
      (await request()).refuse(status, code);
      for (let n = 0; n < 2; n++) {
        const held = await request();
        if (held.keys[0] === "a/1") held.read();
        else held.refuse(status, code);
      }
      assert.deepEqual(await Promise.all(reads), ["1", `ClientMistake ${code}`]);
    });
  }
});

test("other failures of a read reach each", async () => {
  const failures: [(held: Held) => void, string][] = [
    [(held) => { held.refuse(503, "overloaded"); }, "Unavailable overloaded"],
    [(held) => { held.lose(); }, "Unavailable unreachable"],
    [(held) => { held.answer(200, { applied: "9", rows: [] }); }, "0 rows returned where 2 were requested"],
  ];
  for (const [fail, expected] of failures) {
    await reading(async ({ client, request, release }) => {
      const reads = [read(client, "a/1"), read(client, "b/2")];
      release();
      fail(await request());
      for (const end of await Promise.all(reads)) assert.match(end, new RegExp(expected));
    });
  }
});

test("a request has at most 512 callers and 10,000 rows", async () => {
  for (const [callers, rows] of [[600, 1], [14, 900]] as const) {
    await reading(async ({ client, request, release }) => {
      const reads = Array.from({ length: callers }, (_, caller) =>
        read(client, ...Array.from({ length: rows }, (_row, row) => `x/${caller * rows + row}`)),
      );
      release();
      const held = [await request(), await request()];
      const sizes = held.map(({ keys }) => keys.length);
      assert.equal(sizes.reduce((a, b) => a + b), callers * rows);
      assert.ok(Math.max(...sizes) <= (rows === 1 ? 512 : 10_000), String(sizes));
      for (const one of held) one.read();
      (await Promise.all(reads)).forEach((end, caller) => {
        assert.equal(end.split(" ")[0], String(caller * rows));
      });
    });
  }
});

test("Begins that wait leave together with an id each", async () => {
  await beginning(async ({ client, request, release }) => {
    const ends = [
      begun(client, { stores: ["kv"], read: { kv: ["a/1", "b/2"] } }),
      begun(client, { stores: ["kv"] }),
      begun(client, { stores: ["kv"], read: { kv: ["b/2", "none"] }, isolation: "snapshot" }),
    ];
    release();
    const held = await request();
    assert.deepEqual([held.body.stores, held.keys], [["kv"], ["a/1", "b/2", "none"]]);
    held.read();
    const [first, second, third] = (await Promise.all(ends)).map(begins);
    assert.ok(first !== undefined && second !== undefined && third !== undefined);
    assert.equal(first.id, someId);
    assert.equal(new Set([first.id, second.id, third.id]).size, 3);
    for (const { id, snapshots } of [second, third]) {
      assert.equal(id.slice(0, 15), someId.slice(0, 15), "the same millisecond and version");
      assert.deepEqual(snapshots, { kv: "9" });
    }
    // Each transaction has its rows without another request.
    assert.equal((await first.get("kv", "a/1"))?.value, 1);
    assert.equal((await third.get("kv", "b/2"))?.value, 2);
    assert.equal(await third.get("kv", "none"), undefined);
    assert.equal(third.prepare().request.isolation, "snapshot");
    assert.ok(second.blind, "rows of others are no reads");
  });
});

test("Begins with other stores, sessions or waits leave apart", async () => {
  await beginning(async ({ client, request }) => {
    const others: BeginOptions[] = [
      {},
      { stores: ["other"] },
      { stores: ["kv"], read: { other: ["a/1"] } },
      { read: { kv: ["a/1"] } },
      { stores: ["kv"], session: "s" },
      { stores: ["kv"], waitMs: 7 },
    ];
    for (const options of others) {
      const end = begun(client, options);
      (await request()).read();
      begins(await end);
    }
    const ranges = begun(client, { stores: ["kv"], ranges: { kv: [{ start: "a", limit: 7 }] } });
    const held = await request();
    assert.deepEqual(held.body.ranges, [{ store: "kv", start: "a", limit: 7 }]);
    held.read();
    assert.equal(await ranges, "0 ranges returned where 1 were requested");
  });
});

test("Begins are sent with the session of the moment when they leave", async () => {
  await beginning(async ({ client, request, release }) => {
    const before = begun(client, { stores: ["kv"] });
    const txn = client.beginLocal();
    txn.put("kv", "a/1", 1);
    await txn.commit();
    const later = begun(client, { stores: ["kv"] });
    release();
    const held = await request();
    assert.equal(held.body.session, "mine");
    held.read();
    begins(await before);
    begins(await later);
  });
});

test("Begins that are refused together are sent alone, and other failures reach each", async () => {
  await beginning(async ({ client, request, release }) => {
    const ends = ["a/1", "b/2"].map((key) => begun(client, { stores: ["kv"], read: { kv: [key] } }));
    release();
    (await request()).refuse(422, "read_too_large");
    for (let n = 0; n < 2; n++) {
      const held = await request();
      if (held.keys[0] === "a/1") held.read();
      else held.refuse(422, "read_too_large");
    }
    assert.equal(begins(await ends[0]).id, someId);
    assert.equal(await ends[1], "ClientMistake read_too_large");
  });
  await beginning(async ({ client, request, release }) => {
    const ends = [begun(client, { stores: ["kv"] }), begun(client, { stores: ["kv"] })];
    release();
    (await request()).lose();
    for (const end of await Promise.all(ends)) assert.equal(end, "Unavailable unreachable");
  });
});

test("without `coalesce` every Begin and read is a request of its own", async () => {
  await crowd({ coalesce: false }, undefined, async ({ client, request }) => {
    const reads = Array.from({ length: 4 }, () => read(client, "a/1"));
    const ends = Array.from({ length: 4 }, () => begun(client, { stores: ["kv"] }));
    const held: Held[] = [];
    for (let n = 0; n < 8; n++) held.push(await request());
    for (const one of held) one.read();
    assert.deepEqual(await Promise.all(reads), ["1", "1", "1", "1"]);
    (await Promise.all(ends)).forEach(begins);
  });
});
