/** Log readers against a service that streams by a script: pieces of lines, heartbeats, ends, broken connections. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { test } from "node:test";

import { valueTexts } from "../src/checksum.js";
import { Client, ClientMistake, Misuse, ServerMisbehaved, Unavailable, type LogOptions, type LogReader } from "../src/index.js";
import { refused } from "./holding.js";
import { certificate, type Certificate } from "./scripted.js";

const log = "8f14e45fceea167a5a36dedd4bea2543";

/** The service's reaction to one request. */
interface Script {
  /** Refuses. */
  readonly refuse?: readonly [status: number, code: string];
  /** Streams these pieces, each a packet of its own if possible. */
  readonly pieces?: readonly string[];
  /** Further pieces, once they are available. */
  readonly later?: Promise<readonly string[]>;
  /** What it does afterwards; by default it ends the stream. */
  readonly then?: "break" | "stay";
}

interface Service {
  readonly asked: string[];
  /** Bytes written to connections. */
  written: number;
  readonly reader: (options?: LogOptions) => LogReader;
}

async function withService(scripts: readonly Script[], use: (service: Service) => Promise<void>, tls?: Certificate, timeoutMs = 30_000): Promise<void> {
  const asked: string[] = [];
  const listener: RequestListener = (request, response) => {
    const { refuse, pieces = [], later, then } = scripts[asked.length] ?? { refuse: [404, "no_script"] as const };
    asked.push(`${request.url ?? ""} ${request.headers.accept ?? ""}`);
    if (refuse !== undefined) {
      response.writeHead(refuse[0], { "content-type": "application/problem+json" });
      response.end(JSON.stringify(refused("", ...refuse).problem));
      return;
    }
    void (async () => {
      response.writeHead(200, { "content-type": "application/x-ndjson" });
      response.setMaxListeners(0);
      const write = async (piece: string): Promise<void> => {
        if (response.destroyed) return;
        if (!response.write(piece)) await Promise.race([once(response, "drain"), once(response, "close")]);
        service.written += piece.length;
      };
      for (const piece of pieces) await write(piece);
      for (const piece of (await later) ?? []) await write(piece);
      if (then === "break") setTimeout(() => response.destroy(), 20);
      else if (then === undefined) response.end();
    })();
  };
  const server = tls === undefined ? createServer(listener) : createHttpsServer({ cert: tls.cert, key: tls.key }, listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const url = tls === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`;
  const client = new Client(url, { caFile: tls?.file, timeoutMs, retry: { attemptsMax: 3 } });
  const readers: LogReader[] = [];
  const service: Service = {
    asked,
    written: 0,
    reader: (options) => {
      const reader = client.log("kv", options);
      readers.push(reader);
      return reader;
    },
  };
  try {
    await use(service);
  } finally {
    for (const reader of readers) reader.close();
    server.closeAllConnections();
    server.close();
  }
}

function record(lsn: number, value = "v\u00e4lue", checksum = ""): string {
  const head = `{"lsn":"${lsn}","prev_lsn":"${lsn - 1}","epoch":"9","csn":"7","version":"8","txn_id":"t","store":"kv",`;
  return `${head}${checksum}"writes":[{"op":"put","key":"a","value":"${value}"}]}\n`;
}

function beat(head: number): string {
  return `${JSON.stringify({ event: "heartbeat", log, next: "0", head_lsn: String(head) })}\n`;
}

function end(reason: string): string {
  return `${JSON.stringify({ event: "end", log, next: "0", reason })}\n`;
}

async function next(reader: LogReader): Promise<string | undefined> {
  return (await reader.next())?.lsn;
}

test("one stream has all records, however it is cut into pieces", async () => {
  const text = beat(3) + record(1) + record(2) + beat(3) + record(3) + end("idle");
  const pieces = text.match(/[^]{1,7}/g) ?? [];
  await withService([{ pieces }], async ({ asked, reader }) => {
    const found = reader({ waitMs: 40 });
    for (const lsn of ["1", "2", "3"]) {
      const record = await found.next();
      assert.deepEqual([record?.lsn, record?.writes[0]?.value], [lsn, "v\u00e4lue"]);
      assert.deepEqual([found.offset, found.head, found.logId], [lsn, "3", log]);
    }
    assert.equal(asked.length, 1);
    assert.match(asked[0] ?? "", /store=kv&after=0&wait_ms=\d+&heartbeat_ms=\d+ application\/x-ndjson/);
  });
});

test("a stream that breaks off is resumed from the offset", async () => {
  const scripts: Script[] = [
    { pieces: [beat(9), record(1), record(2).slice(0, 40)], then: "break" },
    { refuse: [503, "overloaded"] },
    { pieces: [beat(9), record(2), end("stopping")] },
    { pieces: [beat(9), record(3), end("limit")] },
    { pieces: [beat(9), record(4)], then: "stay" },
  ];
  await withService(scripts, async ({ asked, reader }) => {
    const found = reader({ pageMax: 7 });
    for (const lsn of ["1", "2", "3", "4"]) assert.equal(await next(found), lsn);
    assert.ok(!asked[0]?.includes("log=") && asked[0]?.includes("limit=7"));
    ["1", "1", "2", "3"].forEach((after, at) => {
      assert.ok(asked[at + 1]?.includes(`after=${after}&log=${log}&`), asked[at + 1]);
    });
  });
});

test("a reader gives up once its retries are used up", async () => {
  await withService(Array.from({ length: 9 }, () => ({ pieces: [beat(9)], then: "break" as const })), async ({ asked, reader }) => {
    await assert.rejects(reader().next(), Unavailable);
    assert.equal(asked.length, 3);
  });
});

test("only a stream that was idle during the call ends the wait", async () => {
  const scripts = [[beat(1), record(1), end("idle")], [beat(2), record(2), end("idle")], [beat(2), end("idle")], [beat(2), end("idle")]];
  await withService(scripts.map((pieces) => ({ pieces })), async ({ asked, reader }) => {
    const found = reader({ waitMs: 0 });
    assert.equal(await next(found), "1");
    // The first stream has ended, but before this call.
    assert.equal(await next(found), "2");
    assert.equal(await next(found), undefined);
    assert.equal(asked.length, 3);
    assert.equal(await next(found), undefined);
    assert.equal(found.offset, "2");
  });
});

test("problems before and within a stream reach the reader", async () => {
  const problem = refused("", 410, "log_truncated").problem;
  const failed = `${JSON.stringify({ event: "end", next: "1", reason: "log_truncated", problem })}\n`;
  const scripts: Script[] = [
    { pieces: [beat(9), record(1), failed] },
    { refuse: [410, "log_replaced"] },
    { refuse: [401, "unauthorized"] },
    { pieces: [beat(9), record(3)] },
    ...['{"lsn":\n', "5\n", "null\n", '{"lsn":"2","prev_lsn":"1"}\n'].map((line) => ({ pieces: [beat(9), line] })),
    { pieces: [beat(9), record(2, "x", '"checksum":"00000000",')] },
  ];
  await withService(scripts, async ({ reader }) => {
    const found = reader();
    assert.equal(await next(found), "1");
    for (const code of ["log_truncated", "log_replaced", "unauthorized"]) {
      await assert.rejects(found.next(), (error) => error instanceof ClientMistake && error.code === code);
    }
    for (const text of [/record 3 \(after 2\) where 2/, ...Array.from({ length: 4 }, () => /cannot be parsed/), /checksum/]) {
      await assert.rejects(found.next(), (error) => error instanceof ServerMisbehaved && text.test(error.message));
      assert.equal(found.offset, "1");
    }
  });
});

test("operations of a newer service are passed on, and its events passed over", async () => {
  const event = `${JSON.stringify({ event: "moved", log, to: { node: 2 } })}\n`;
  const later = record(1).replace('"op":"put"', '"op":"merge"');
  await withService([{ pieces: [event, beat(9), later, event, record(2)], then: "stay" }], async ({ reader }) => {
    const found = reader();
    assert.deepEqual((await found.next())?.writes, [{ op: "merge", key: "a", value: "v\u00e4lue" }]);
    assert.equal(await next(found), "2");
  });
});

test("a line without an end is refused", async () => {
  const pieces = Array.from({ length: 40 }, () => "x".repeat(1 << 20));
  await withService([{ pieces, then: "stay" }], async ({ reader }) => {
    await assert.rejects(reader().next(), (error) => error instanceof ServerMisbehaved && /bytes/.test(error.message));
  });
});

test("a reader that does not read holds up the stream", async () => {
  const value = "x".repeat(64 << 10);
  const pieces = [beat(9), ...Array.from({ length: 1000 }, (_, n) => record(n + 1, value))];
  await withService([{ pieces, then: "stay" }], async (service) => {
    const found = service.reader();
    assert.equal(await next(found), "1");
    await new Promise((resolve) => setTimeout(resolve, 500));
    assert.ok(service.written < 500 * value.length, `${service.written} bytes were taken`);
    for (let lsn = 2; lsn <= 1000; lsn++) assert.equal(await next(found), String(lsn));
  });
});

test("a wait shorter than that of the stream ends in time, and the stream goes on", { timeout: 60_000 }, async () => {
  let release: (pieces: readonly string[]) => void = () => undefined;
  const later = new Promise<readonly string[]>((resolve) => (release = resolve));
  const line = record(2);
  const pieces = [beat(9), record(1), line.slice(0, 40)];
  await withService([{ pieces, later, then: "stay" }], async ({ asked, reader }) => {
    const found = reader({ waitMs: 60_000 });
    assert.equal(await next(found), "1");
    for (const wait of [20, 0, 0, 20]) assert.equal(await found.next(wait), undefined);
    const waits = found.next();
    release([line.slice(40), record(3) + record(4)]);
    assert.equal((await waits)?.lsn, "2");
    assert.equal(await next(found), "3");
    assert.equal((await found.next(0))?.lsn, "4");
    assert.equal(await found.next(0), undefined);
    assert.deepEqual([found.offset, asked.length], ["4", 1]);
  });
});

test("a wait longer than the service waits is continued on another stream", { timeout: 60_000 }, async () => {
  const scripts: Script[] = [{ pieces: [beat(1), end("idle")] }, { pieces: [beat(1), end("idle")] }, { pieces: [beat(1), record(6)], then: "stay" }];
  await withService(scripts, async ({ asked, reader }) => {
    // Offsets may be numbers where no types prevent it.
    const found = reader({ waitMs: Infinity, after: 5 as unknown as string });
    assert.equal(await next(found), "6");
    assert.equal(asked.filter((request) => request.includes("after=5&") && request.includes("wait_ms=60000&")).length, 3);
  });
});

test("short waits do not hide that a stream is silent", { timeout: 60_000 }, async () => {
  const scripts: Script[] = [{ pieces: [beat(9), record(1)], then: "stay" }, { pieces: [beat(9), record(2)], then: "stay" }];
  await withService(scripts, async ({ asked, reader }) => {
    const found = reader({ waitMs: 60_000 });
    assert.equal(await next(found), "1");
    let second: string | undefined;
    while (second === undefined) second = (await found.next(50))?.lsn;
    assert.deepEqual([second, asked.length], ["2", 2]);
  }, undefined, 3000);
});

test("an iteration up to the end of the log does not rely on a stream that waits", { timeout: 60_000 }, async () => {
  const scripts: Script[] = [{ pieces: [beat(2), record(1)], then: "stay" }, { pieces: [beat(2), record(2), end("idle")] }, { pieces: [beat(2), end("idle")] }];
  await withService(scripts, async ({ asked, reader }) => {
    const found = reader({ waitMs: 60_000, follow: false });
    assert.equal(await next(found), "1");
    const rest = [];
    for await (const { lsn } of found) rest.push(lsn);
    assert.deepEqual(rest, ["2"]);
    assert.ok(asked[1]?.includes("after=1&") && asked[1].includes("wait_ms=0&"), asked[1]);
  });
});

test("a follower waits for records at the service, also with `waitMs: 0`", async () => {
  const scripts: Script[] = [{ pieces: [beat(1), end("idle")] }, { pieces: [beat(1), record(1)], then: "stay" }];
  await withService(scripts, async ({ asked, reader }) => {
    for await (const { lsn } of reader({ waitMs: 0 })) {
      assert.equal(lsn, "1");
      break;
    }
    assert.ok(asked.length === 2 && asked.every((request) => /wait_ms=(10000|9\d\d\d)&/.test(request)), asked.join());
  });
});

test("with a caFile, a stream is read as it arrives as well", { timeout: 60_000 }, async () => {
  const tls = certificate();
  const value = "x".repeat(64 << 10);
  const pieces = [beat(9), ...Array.from({ length: 1000 }, (_, n) => record(n + 1, value))];
  const scripts: Script[] = [{ pieces, then: "stay" }, { pieces: [beat(9), record(1001)], then: "break" }, { refuse: [410, "log_truncated"] }];
  try {
    await withService(scripts, async (service) => {
      const found = service.reader();
      assert.equal(await next(found), "1");
      await new Promise((resolve) => setTimeout(resolve, 500));
      assert.ok(service.written < 500 * value.length, `${service.written} bytes were taken`);
      for (let lsn = 2; lsn <= 1000; lsn++) assert.equal(await next(found), String(lsn));
      assert.equal(await found.next(0), undefined);
      found.close();
      assert.equal(await next(found), "1001");
      await assert.rejects(found.next(), (error) => error instanceof ClientMistake && error.code === "log_truncated");
    }, tls);
  } finally {
    tls.remove();
  }
});

test("a signal ends a wait with its reason, and a closed reader resumes", async () => {
  const stop = new AbortController();
  const scripts: Script[] = [
    { pieces: [beat(9), record(1)], then: "stay" },
    { pieces: [beat(9), record(2)], then: "stay" },
  ];
  await withService(scripts, async ({ asked, reader }) => {
    const found = reader({ signal: stop.signal });
    assert.equal(await next(found), "1");
    found.close();
    assert.equal(await next(found), "2");
    const reason = new Error("enough");
    setTimeout(() => {
      stop.abort(reason);
    }, 20);
    await assert.rejects(found.next(), (error) => error === reason);
    assert.equal(asked.length, 2);
  });
});

test("closing a reader ends a wait and an iteration", { timeout: 60_000 }, async () => {
  const scripts: Script[] = [
    { pieces: [beat(9)], then: "stay" },
    { pieces: [beat(9), record(1)], then: "stay" },
    { pieces: [beat(9), record(2), record(3)], then: "stay" },
    { pieces: [beat(9), record(3)], then: "stay" },
  ];
  await withService(scripts, async ({ asked, reader }) => {
    const found = reader();
    const closeSoon = (): unknown => setTimeout(() => {
      found.close();
    }, 50);
    closeSoon();
    assert.equal(await found.next(30_000), undefined);
    const seen: string[] = [];
    for await (const { lsn } of found) {
      seen.push(lsn);
      closeSoon();
    }
    assert.equal(asked.length, 2);
    for await (const { lsn } of found) {
      seen.push(lsn);
      found.close();
    }
    assert.deepEqual(seen, ["1", "2"]);
    assert.equal(await next(found), "3");
  });
});

test("two calls of one reader at a time are a misuse", async () => {
  await withService([{ pieces: [beat(9), record(1), record(2)], then: "stay" }], async ({ reader }) => {
    const found = reader();
    const first = next(found);
    await assert.rejects(found.next(), (error) => error instanceof Misuse && error.message.includes("await"));
    assert.equal(await first, "1");
    assert.equal(await next(found), "2");
  });
});

test("an iteration beside a call is a misuse, and neither keeps it from its end nor ends its stream", async () => {
  let release: (pieces: readonly string[]) => void = () => undefined;
  const later = new Promise<readonly string[]>((resolve) => (release = resolve));
  await withService([{ pieces: [beat(9), record(1)], later, then: "stay" }], async ({ asked, reader }) => {
    for (const follow of [true, false]) {
      const found = reader({ waitMs: 60_000, follow });
      const iterate = async (): Promise<void> => {
        for await (const { lsn } of found) assert.fail(lsn);
      };
      if (follow) {
        assert.equal(await next(found), "1");
        const second = next(found);
        await assert.rejects(iterate(), Misuse);
        release([record(2)]);
        assert.equal(await second, "2");
        assert.equal(asked.length, 1);
      }
      const last = next(found);
      found.close();
      await assert.rejects(iterate(), Misuse);
      assert.equal(await last, undefined);
    }
  });
});

test("the texts of values are found as they were posted", () => {
  const line = '{ "lsn" : "1", "s": {"writes": [{"value": 9}]}, "writes": [ {"op":"put","value": {"a": [1.50, "]}\\"\\\\"]} }, {"op":"delete","key":"\\"value\\":"},{"value":1e3},{"value":"x"} ,{"value":null}], "z":[]}';
  JSON.parse(line);
  assert.deepEqual(valueTexts(line), ['{"a": [1.50, "]}\\"\\\\"]}', undefined, "1e3", '"x"', "null"]);
});
