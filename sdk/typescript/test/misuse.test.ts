/** Mistakes of a caller that are found before a request is sent. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect, createServer, type AddressInfo } from "node:net";
import { test } from "node:test";

import { Client, Misuse, OutcomeUnknown, Unavailable, type ClientOptions, type Key, type KeyRange, type PreparedCommit, type RowRead, type Work } from "../src/index.js";
import { begun, certificate, committed, start } from "./scripted.js";

const nowhere = "http://127.0.0.1:1";

/** A value that a caller without types may pass. */
const wrong = <T>(value: unknown): T => value as T;

/** Returns whether an error is a misuse whose message contains this. */
const misuse = (text: string) => (error: unknown): boolean => error instanceof Misuse && error.message.includes(text);

test("an API key that no header can have is a misuse", () => {
  for (const apiKey of ["a\nb", "a\u20acb", "a\0"]) assert.throws(() => new Client(nowhere, { apiKey }), Misuse);
  // As if read from a file.
  new Client(nowhere, { apiKey: "trb_0\n" });
});

test("one store is no list of stores", async () => {
  await assert.rejects(new Client(nowhere).begin({ stores: "kv" as unknown as string[] }), Misuse);
});

test("a request that is too large is not sent", async () => {
  const client = new Client(nowhere);
  const txn = client.beginLocal();
  txn.put("kv", "a", "x".repeat(11 << 20));
  const isTooLarge = (error: unknown): boolean => error instanceof Misuse && error.message.includes("limit");
  await assert.rejects(txn.commit(), isTooLarge);
  await assert.rejects(client.batch([txn.prepare()]), isTooLarge);
});

test("a key is text or bytes, and a number in a value is finite", () => {
  const txn = new Client(nowhere).beginLocal();
  const keys: [unknown, string][] = [
    [5, "5"], [null, "null"], [undefined, "undefined"], [{}, "an object"], [["a"], "a list"],
    [new Uint16Array([1]), "[object Uint16Array]"], [new DataView(new ArrayBuffer(1)), "[object DataView]"],
  ];
  for (const [key, text] of keys) {
    assert.throws(() => { txn.put("kv", key as Key, 1); }, misuse(`not ${text}`));
  }
  for (const value of [NaN, Infinity, { a: [1, -Infinity] }]) {
    assert.throws(() => {
      txn.put("kv", "a", value);
    }, Misuse);
  }
  assert.ok(txn.readOnly);
});

test("what JSON would turn into something else is a misuse", () => {
  const txn = new Client(nowhere).beginLocal();
  const values: unknown[] = [new Uint8Array([1]), Buffer.from("a"), new ArrayBuffer(1), new Map([["a", 1]]), [new Set([1])], { a: Buffer.from("a") }];
  values.push(Promise.resolve(1), [/a/], { error: new Error("a") });
  for (const value of values) {
    assert.throws(() => {
      txn.put("kv", "a", value);
    }, Misuse);
  }
  txn.put("kv", "a", { at: new Date(0), optional: undefined, ofBytes: { $b64: "AQ==" } });
});

test("an endpoint is an address to which paths can be appended", () => {
  const urls: unknown[] = [undefined, null, 5, new URL(nowhere), [undefined], "", "ftp://a"];
  for (const url of urls) assert.throws(() => new Client(wrong(url)), misuse("of the form http://host:port"));
  for (const url of [`${nowhere}/?a=b`, `${nowhere}/#a`]) assert.throws(() => new Client(url), misuse("query or fragment"));
  for (const url of ["http://user:word@a:1", "http://user@a:1"]) {
    assert.throws(() => new Client(url), (error) => misuse("apiKey")(error) && !String(error).includes("word@"));
  }
  assert.equal(new Client("http://a:1/prefix/").endpoint, "http://a:1/prefix");
});

test("options of a wrong type or size are a misuse", () => {
  for (const ms of [NaN, -1, Infinity, 2 ** 31, "5000"]) {
    for (const name of ["timeoutMs", "resolveTimeoutMs", "endpointTimeoutMs", "endpointCoolDownMs"]) {
      assert.throws(() => new Client(nowhere, wrong({ [name]: ms })), misuse(name));
    }
    assert.throws(() => new Client(nowhere, { retry: wrong({ waitMaxMs: ms }) }), misuse("retry.waitMaxMs"));
  }
  for (const attemptsMax of [NaN, 0, "5"]) assert.throws(() => new Client(nowhere, { retry: wrong({ attemptsMax }) }), misuse("retry.attemptsMax"));
  const options: unknown[] = [{ apiKey: 5 }, { apiKey: null }, { clientName: "a\nb" }, { clientName: "\u20ac" }, { fetch: 5 }];
  for (const one of options) assert.throws(() => new Client(nowhere, one as ClientOptions), Misuse);
  // An absent option has its default.
  const { retry } = new Client(nowhere, { retry: wrong({ attemptsMax: undefined, waitMinMs: 5 }) }).channel;
  assert.deepEqual(retry, { attemptsMax: 50, waitMinMs: 5, waitMaxMs: 200 });
  assert.equal(new Client(nowhere, { retry: { attemptsMax: Infinity } }).channel.retry.attemptsMax, Infinity);
});

test("what cannot be sent is neither unavailable nor an abort", async () => {
  const client = new Client(nowhere, { retry: { attemptsMax: 1 }, resolveTimeoutMs: 100 });
  const txn = client.beginLocal();
  txn.put("kv", "a", 1);
  for (const traceparent of ["a\nb", "\u20ac"]) {
    txn.traceparent = traceparent;
    await assert.rejects(txn.commit(), misuse("traceparent"));
  }
  for (const name of [undefined, 5, null]) {
    await assert.rejects(client.status(wrong(name)), misuse("must be a string"));
    await assert.rejects(client.row(wrong(name), "a"), misuse("must be a string"));
    await assert.rejects(client.store(wrong(name)), misuse("must be a string"));
    await assert.rejects(client.setOffset(wrong(name), "kv", { lsn: "1" }), misuse("must be a string"));
  }
  for (const waitMs of [NaN, -1, 3e9]) {
    await assert.rejects(client.begin({ waitMs }), misuse("waitMs"));
    await assert.rejects(client.readRows("kv", [{ key: "a" }], { waitMs }), misuse("waitMs"));
    await assert.rejects(client.status(txn.id, { waitMs }), misuse("waitMs"));
  }
});

test("a store whose name has a lone surrogate is a misuse that tells so", async () => {
  const [client, store] = [new Client(nowhere), "\ud800"];
  const txn = client.beginLocal();
  const each: (() => unknown)[] = [
    () => client.begin({ stores: [store] }),
    () => client.begin({ read: { [store]: ["a"] } }),
    () => client.begin({ ranges: { [store]: [{}] } }),
    () => client.row(store, "a"),
    () => client.rows(store),
    () => client.store(store),
    () => client.log(store).next(),
    () => client.setOffset("consumer", store, { lsn: "1" }),
    () => txn.get(store, "a"),
    () => txn.scan(store),
    () => { txn.put(store, "a", 1); },
    () => { txn.observe(store, "a"); },
    () => { txn.observeRange(store, {}); },
  ];
  for (const use of each) await assert.rejects(async () => { await use(); }, misuse("name of a store"));
  for (const name of [undefined, 5]) {
    assert.throws(() => { txn.put(wrong(name), "a", 1); }, misuse("must be a string"));
    await assert.rejects(client.begin({ stores: wrong([name]) }), misuse("must be a string"));
  }
});

test("a port that fetch blocks is a misuse", async () => {
  await assert.rejects(new Client(nowhere).beginLocal().commit(), misuse("port"));
});

test("one thing where a list was expected is a misuse, as is a prefix in place of a range", async () => {
  const client = new Client(nowhere);
  const txn = client.beginLocal();
  await assert.rejects(client.begin({ read: wrong({ kv: "acct/1" }) }), misuse("a list"));
  await assert.rejects(client.begin({ read: wrong(["acct/1"]) }), misuse("by store"));
  await assert.rejects(client.begin({ ranges: wrong({ kv: { start: "a" } }) }), misuse("a list"));
  await assert.rejects(txn.getMany("kv", wrong("ab")), misuse("a list"));
  await assert.rejects(client.readRows("kv", wrong<RowRead[]>({ key: "a" })), misuse("a list"));
  await assert.rejects(client.readRanges("kv", wrong<KeyRange[]>({ start: "a" })), misuse("a list"));
  for (const range of ["acct/", null]) {
    await assert.rejects(txn.scan("kv", wrong(range)), misuse("a range"));
    await assert.rejects(client.rows("kv", wrong(range)), misuse("a range"));
    await assert.rejects(client.readRanges("kv", [wrong<KeyRange>(range)]), misuse("a range"));
  }
});

test("a limit that no range can have is a misuse", async () => {
  const client = new Client(nowhere);
  for (const limit of [0, -1, 1.5, NaN, 10_001, "3"]) {
    await assert.rejects(client.rows("kv", { limit: wrong(limit) }), misuse("`limit` must be a whole number from 1 to 10000"));
    await assert.rejects(client.beginLocal().scan("kv", { limit: wrong(limit) }), misuse("`limit`"));
    await assert.rejects(client.begin({ ranges: { kv: [{ limit: wrong(limit) }] } }), misuse("`limit`"));
  }
});

test("what is no prepared commit, or no work, is a misuse", async () => {
  const client = new Client(nowhere);
  const commits: unknown[] = [undefined, client.beginLocal(), { request: {} }];
  for (const commit of commits) {
    await assert.rejects(client.commit(commit as PreparedCommit), misuse("prepare"));
    await assert.rejects(client.validate(commit as PreparedCommit), misuse("prepare"));
    await assert.rejects(client.batch([commit as PreparedCommit]), misuse("prepare"));
  }
  await assert.rejects(client.run(wrong<Work<void>>({ stores: ["kv"] })), misuse("function"));
});

test("http to a port with TLS is a misuse, with one endpoint and with several", async () => {
  // A TLS server's answer to anything else: an alert that it cannot decode the message.
  const server = createServer((socket) => socket.once("data", () => socket.end(Buffer.from("15030300020232", "hex"))));
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const isRight = misuse("Then use https://");
  try {
    for (const urls of [[`http://127.0.0.1:${port}`], [`http://127.0.0.1:${port}`, `http://localhost:${port}`]]) {
      const client = new Client(urls);
      await assert.rejects(client.begin(), isRight);
      await assert.rejects(client.row("kv", "a"), isRight);
      await assert.rejects(client.run(() => undefined), isRight);
      await assert.rejects(client.log("kv").next(), isRight);
      const txn = client.beginLocal();
      txn.put("kv", "a", 1);
      await assert.rejects(txn.commit(), isRight);
    }
  } finally {
    server.close();
  }
});

test("an empty API key and a comma without an endpoint are named", () => {
  for (const apiKey of ["", " \n"]) assert.throws(() => new Client(nowhere, { apiKey }), misuse("the API key is empty"));
  for (const url of [`${nowhere},`, `,${nowhere}`, `${nowhere}, ,${nowhere}`]) assert.throws(() => new Client(url), misuse("comma without an endpoint"));
});

test("a store that Begin did not name is refused at once", async () => {
  const service = await start((kind) => (kind === "begin" ? begun(0) : committed()));
  try {
    const txn = await new Client(service.url).begin({ stores: ["kv"] });
    const isRight = misuse("did not name the store `orders`");
    for (const read of [() => txn.get("orders", "a"), () => txn.getMany("orders", ["a"]), () => txn.scan("orders")]) await assert.rejects(read, isRight);
    const uses = [() => { txn.put("orders", "a", 1); }, () => { txn.observe("orders", "a"); }, () => { txn.observeRange("orders", {}); }];
    for (const use of uses) assert.throws(use, isRight);
    assert.equal(service.arrived.length, 1);
    const all = await new Client(service.url).begin();
    all.put("orders", "a", 1);
  } finally {
    service.stop();
  }
});

test("https to a port without TLS is a misuse, but for a commit, which may have been sent", { timeout: 20_000 }, async () => {
  const service = await start(() => committed());
  const url = service.url.replace("http:", "https:");
  const isRight = misuse("does not speak TLS");
  try {
    for (const urls of [[url], [url, url.replace("127.0.0.1", "localhost")]]) {
      for (const caFile of [undefined, process.env["SSL_CERT_FILE"] ?? "/etc/ssl/certs/ca-certificates.crt"]) {
        const client = new Client(urls, { caFile });
        await assert.rejects(client.begin(), isRight);
        await assert.rejects(client.row("kv", "a"), isRight);
        await assert.rejects(client.run(() => undefined), isRight);
        await assert.rejects(client.log("kv").next(), isRight);
        await assert.rejects(client.state("kv"), isRight);
        const txn = client.beginLocal();
        txn.put("kv", "a", 1);
        const commit = txn.prepare();
        await assert.rejects(client.commit(commit), OutcomeUnknown);
        assert.ok((await client.batch([commit])).every((result) => result instanceof OutcomeUnknown));
      }
    }
  } finally {
    service.stop();
  }
});

test("what answers without TLS on the connection of a service that has answered is no misuse", { timeout: 20_000 }, async () => {
  const tls = certificate();
  const service = await start((kind) => (kind === "begin" ? begun(0) : kind === "status" ? [200, { status: "in_flight" }] : committed()), tls);
  let isPlain = false;
  const way = createServer((client) => {
    const server = connect(Number(new URL(service.url).port), "127.0.0.1");
    for (const socket of [client, server]) socket.on("error", () => undefined).on("close", () => { client.destroy(); server.destroy(); });
    server.pipe(client);
    client.on("data", (data) => {
      server.write(data);
      if (isPlain) client.write("HTTP/1.1 400 Bad Request\r\n\r\n");
    });
  });
  way.listen(0, "127.0.0.1");
  await once(way, "listening");
  const { port } = way.address() as AddressInfo;
  try {
    const client = new Client(`https://localhost:${port}`, { caFile: tls.file, resolveTimeoutMs: 1000, timeoutMs: 1000 });
    const txn = await client.begin({ stores: ["kv"] });
    txn.put("kv", "a", 1);
    isPlain = true;
    await assert.rejects(txn.commit(), OutcomeUnknown);
    await assert.rejects(client.begin(), (error) => error instanceof Unavailable && error.message.includes("does not speak TLS"));
    assert.ok(service.arrived.some(({ kind }) => kind === "commit"));
  } finally {
    way.close();
    service.stop();
    tls.remove();
  }
});

test("a commit while a read is on its way is a misuse", async () => {
  const service = await start((kind, before) => (kind === "begin" ? begun(before) : kind === "rows" ? [200, { applied: "9", rows: [{ store: "kv", key: "a", value: 1, version: "5" }] }] : committed()));
  try {
    const client = new Client(service.url);
    let read: Promise<unknown> | undefined;
    await assert.rejects(client.run((txn) => {
      read = txn.get("kv", "a");
      txn.put("kv", "b", 1);
    }), misuse("await"));
    await read;
    assert.equal(service.arrived.some(({ kind }) => kind === "commit"), false);
    const { committed: verdict } = await client.run(async (txn) => {
      txn.put("kv", "b", await txn.get("kv", "a"));
    });
    assert.equal(verdict.status, "committed");
  } finally {
    service.stop();
  }
});

test("an add to a missing row, and a delete of an inserted one, tell what to do", async () => {
  const service = await start(() => [200, { applied: "9", rows: [{ store: "kv", key: "a" }] }]);
  try {
    const txn = new Client(service.url).beginLocal();
    txn.add("kv", "a", 1);
    await assert.rejects(txn.get("kv", "a"), misuse("pass `or`"));
    txn.delete("kv", "c");
    assert.throws(() => { txn.add("kv", "c", 1); }, misuse("deleted before: pass `or`"));
    txn.observe("kv", "b", "5");
    txn.insert("kv", "b", 1);
    assert.throws(() => {
      txn.delete("kv", "b");
    }, misuse("which exists"));
  } finally {
    service.stop();
  }
});

test("an add of something else than an integer names it", () => {
  const txn = new Client(nowhere).beginLocal();
  for (const [delta, text] of [["1", '"1"'], [1.5, "1.5"], [1n, "1n"], [NaN, "NaN"], [undefined, "undefined"]] as const) {
    assert.throws(() => { txn.add("kv", "a", wrong(delta)); }, misuse(`not ${text}: \`put\` other values`));
  }
  txn.put("kv", "b", { balance: 1 });
  txn.put("kv", "c", null);
  assert.throws(() => { txn.add("kv", "b", 1); }, misuse("not an object"));
  assert.throws(() => { txn.add("kv", "c", 1); }, misuse("not null"));
  assert.throws(() => { txn.add("kv", "a", 2 ** 53); }, misuse("a safe integer"));
  for (const or of [0, null]) assert.throws(() => { txn.add("kv", "a", 1, wrong(or)); }, misuse("options such as { or: 0 }"));
});

test("what is no options, declaration or row, and what is no wait of a log, is a misuse that shows one", async () => {
  const client = new Client(nowhere, { retry: { attemptsMax: 1 } });
  for (const value of ["key", 5, null, true, ["kv"]]) {
    assert.throws(() => new Client(nowhere, wrong(value)), misuse("options such as { apiKey }"));
    await assert.rejects(client.status("txn", wrong(value)), misuse("options such as { fence: true }"));
    await assert.rejects(client.readRows("kv", [], wrong(value)), misuse('options such as { consistency: "fresh" }'));
    await assert.rejects(client.readRanges("kv", [], wrong(value)), misuse('options such as { consistency: "fresh" }'));
    await assert.rejects(client.declareStore("kv", wrong(value)), misuse('such as { adaptor: "kv" }'));
    assert.throws(() => new Client(nowhere, { retry: wrong(value) }), misuse("options such as { attemptsMax: 3 }"));
  }
  assert.throws(() => new Client(nowhere, { onAttempt: wrong(5) }), misuse("`onAttempt` must be a function"));
  for (const row of ["a", new Uint8Array(1), 5, null]) await assert.rejects(client.readRows("kv", [wrong(row)]), misuse('a row such as { key: "a" }'));
  await assert.rejects(client.row("kv", wrong(["a"])), misuse("not a list"));
  for (const wait of ["5", NaN, { waitMs: 5 }]) {
    await assert.rejects(client.log("kv").next(wrong(wait)), misuse("must be a number of milliseconds"));
    await assert.rejects(client.log("kv", { waitMs: wrong(wait) }).next(), misuse("must be a number of milliseconds"));
  }
});

test("what is no signal, or a signal in place of options, is a misuse that tells what is expected", async () => {
  const client = new Client(nowhere, { retry: { attemptsMax: 1 } });
  const txn = client.beginLocal();
  txn.put("kv", "a", 1);
  const prepared = txn.prepare();
  const taking: Record<string, (options: never) => unknown> = {
    begin: (options) => client.begin(options),
    run: (options) => client.run(() => 1, options),
    commit: (options) => client.commit(prepared, options),
    "Transaction.commit": (options) => txn.commit(options),
    log: (options) => client.log("kv", options).next(),
  };
  const stop = new AbortController();
  for (const [name, use] of Object.entries(taking)) {
    const call = async (options: unknown): Promise<void> => { await use(options as never); };
    for (const signal of [{}, "stop", 5, true, [], () => undefined]) {
      await assert.rejects(call({ signal }), misuse("`signal` must be an AbortSignal, not"), name);
    }
    await assert.rejects(call({ signal: stop }), misuse("pass its `signal`"), name);
    for (const options of [stop.signal, ["kv"], "kv", null]) await assert.rejects(call(options), misuse("options such as {"), name);
  }
  // The transaction is unchanged.
  txn.put("kv", "b", 1);
});

test("a misspelled option is a misuse that names the one that was meant", async () => {
  assert.throws(() => new Client(nowhere, wrong({ apikey: "k" })), misuse("there is no option `apikey`; did you mean `apiKey`?"));
  assert.throws(() => new Client(nowhere, { retry: wrong({ attemptMax: 3 }) }), misuse("did you mean `attemptsMax`?"));
  const client = new Client(nowhere, { retry: { attemptsMax: 1 } });
  const txn = client.beginLocal();
  txn.put("kv", "a", 1);
  const prepared = txn.prepare();
  const calls: [(options: never) => unknown, string, string][] = [
    [(options) => client.begin(options), "isolatoin", "did you mean `isolation`?"],
    [(options) => client.begin(options), "wait_ms", "did you mean `waitMs`?"],
    [(options) => client.run(() => 1, options), "store", "did you mean `stores`?"],
    [(options) => client.run(() => 1, options), "priority", "there are `stores`, `isolation`"],
    [(options) => client.commit(prepared, options), "signals", "did you mean `signal`?"],
    [(options) => txn.commit(options), "ack", "there are `signal`"],
    [(options) => client.log("kv", options).next(), "from", "there are `after`"],
    [(options) => client.readRows("kv", [{ key: "a" }], options), "consistancy", "did you mean `consistency`?"],
    [(options) => client.readRanges("kv", [{}], options), "sesion", "did you mean `session`?"],
    [(options) => client.status(txn.id, options), "fenced", "did you mean `fence`?"],
    [(options) => client.declareStore("kv", options), "adapter", "did you mean `adaptor`?"],
    [(range) => client.rows("kv", range), "lmit", "there is no bound of a range `lmit`; did you mean `limit`?"],
    [(row) => client.readRows("kv", [Object.assign({ key: "a" }, row)]), "known", "there is no member of a row to read `known`"],
  ];
  for (const [use, name, text] of calls) {
    const call = async (): Promise<void> => { await use({ [name]: 1 } as never); };
    await assert.rejects(call(), misuse(text), name);
    await assert.rejects(call(), misuse(`\`${name}\``), name);
  }
  assert.throws(() => { txn.add("kv", "a", 1, wrong({ initial: 0 })); }, misuse("there is no option `initial`"));
  // An unknown option without a value has no effect to lose.
  await assert.rejects(client.begin(wrong({ isolatoin: undefined })), (error) => !misuse("there is no option")(error));
});

/** All calls that name something in a path segment. */
const named: Record<string, (client: Client, name: string) => Promise<unknown>> = {
  store: (client, name) => client.store(name),
  declareStore: (client, name) => client.declareStore(name, { adaptor: "kv" }),
  row: (client, name) => client.row(name, "a"),
  rows: (client, name) => client.rows(name),
  readRanges: (client, name) => client.readRanges(name, [{}]),
  setOffset: (client, name) => client.setOffset(name, "kv", { lsn: "0" }),
  forgetConsumer: (client, name) => client.forgetConsumer(name),
  status: (client, name) => client.status(name),
  abort: (client, name) => client.abort(name),
  commit: (client, txnId) => client.commit({ txnId, request: {}, traceparent: "00" }),
  validate: (client, txnId) => client.validate({ txnId, request: {}, traceparent: undefined }),
};

// Dots would name another resource.
test("a name that is no segment of a path is a misuse", async () => {
  const client = new Client(nowhere, { retry: { attemptsMax: 1 }, resolveTimeoutMs: 0 });
  for (const [what, use] of Object.entries(named)) {
    for (const name of ["", ".", ".."]) {
      await assert.rejects(use(client, name), misuse(`"${name}" cannot be the name`), `${what} ${name}`);
    }
    if (what !== "commit" && what !== "validate") await assert.rejects(use(client, wrong(new Uint8Array([107, 118]))), misuse("must be a string"), what);
  }
  await assert.rejects(client.log(wrong(new Uint8Array([107]))).next(0), misuse("must be a string"));
  await assert.rejects(client.offset(wrong(5), "kv"), misuse("must be a string"));
  await assert.rejects(client.offset("consumer", wrong(5)), misuse("must be a string"));
  await assert.rejects(client.setOffset("consumer", "kv", wrong(undefined)), misuse("an offset such as"));
});

test("what is no list or object by store is not taken for none", async () => {
  const client = new Client(nowhere, { retry: { attemptsMax: 1 } });
  for (const value of [5, {}]) await assert.rejects(client.begin({ stores: wrong(value) }), misuse("a list of stores was expected"));
  for (const value of [5, [], "kv", ["kv"], new Uint8Array(1), new Map([["kv", ["a"]]]), new Set(["kv"])]) {
    await assert.rejects(client.begin({ read: wrong(value) }), misuse("`read` must be an object by store"));
    await assert.rejects(client.begin({ ranges: wrong(value) }), misuse("`ranges` must be an object by store"));
  }
  for (const value of [5, "a/", null, [], new Uint8Array(1)]) {
    const txn = client.beginLocal();
    assert.throws(() => { txn.observeRange("kv", wrong(value)); }, misuse("a range such as"));
    await assert.rejects(client.rows("kv", wrong(value)), misuse("a range such as"));
  }
  await assert.rejects(client.begin({ traceparent: wrong(5) }), misuse("the traceparent must be a string"));
});
