/** The client: one method per request, and `run` for work that may be repeated. */

import createClient, { type Client as WireClient } from "openapi-fetch";

import { duration, headerText, list, optionsOf, signalOf } from "./arguments.js";
import { Attempts, type Attempt } from "./attempts.js";
import { mapped } from "./beside.js";
import { beginItem, groupOf, mayShare, responses, type BeginItem } from "./begin.js";
import { caFetch } from "./ca_fetch.js";
import { Coalescer, type Terms } from "./coalescer.js";
import { Endpoints } from "./endpoints.js";
import { ClientMistake, Misuse, OutcomeUnknown, ServerMisbehaved, sessionUnknown, Unavailable } from "./errors.js";
import { exchange, lostBy, settled, type Exchanged, type Reply } from "./exchange.js";
import { Failover, failureOf, inDoubt, type Failure } from "./failover.js";
import { applyWaitMs, bodyOf, checkCommit, commitBounds, commitItem, isBatchable, isRefusedAsBatch, kindOf, lengthOf, linesOf, singleOf, splitReply, type CommitItem } from "./commit_batch.js";
import { bytesAlone, bytesOf, parts, readBounds, Union, type Shared } from "./read_batch.js";
import type { JsonValue } from "./json.js";
import { named, normal, percentEncoded, segment, type Key } from "./keys.js";
import { LogReader, type LogOptions } from "./log.js";
import { beginNames, clientNames, declarationNames, statusNames } from "./option_names.js";
import { Limit, unlessAborted } from "./limit.js";
import { heartbeatMs, LogStream } from "./log_stream.js";
import {
  asked,
  rangeAsked,
  rangeRows,
  readOptions,
  readTerms,
  states,
  waitMsOf,
  type Consistency,
  type KeyRange,
  type RangeReads,
  type RangesToRead,
  type ReadOptions,
  type ReadTerms,
  type RowRead,
  type RowReads,
  type RowsToRead,
} from "./reads.js";
import { retryPolicy, sleep, waitMs, type RetryPolicy } from "./retry.js";
import { Session } from "./session.js";
import { commitNames, Transaction, type CommitOptions, type IsolationLevel, type PreparedCommit } from "./transaction.js";
import { timeOf, uuidv7 } from "./uuid.js";
import { decided, unexpected, verdict, verdictOf, type Committed, type TxnOutcome, type Verdict } from "./verdict.js";
import type { components, paths } from "./wire/schema.js";

export type StoreInfo = components["schemas"]["StoreInfo"];
export type StoreDeclaration = components["schemas"]["StoreDeclaration"];
export type ConsumerInfo = components["schemas"]["ConsumerInfo"];
type BeginResponse = components["schemas"]["BeginResponse"];
type ReadResponse = components["schemas"]["ReadResponse"];

/** A read of one caller. */
interface ReadItem {
  /** Percent-encoded. */
  readonly store: string;
  readonly rows: readonly components["schemas"]["RowRead"][];
  readonly terms: ReadTerms;
}

/** A consumer's position in a store's log. */
export interface Offset {
  /** Position of the last record that the consumer has processed: `after` of `LogOptions`. */
  readonly lsn: string;
  /** The log that the position belongs to: `log` of `LogOptions`. */
  readonly log: string;
}

/** Options of a client. */
export interface ClientOptions {
  /** API key or token, sent as a bearer token. */
  readonly apiKey?: string | undefined;
  /** PEM file with the certificate authorities to trust over https instead of the default ones; Node.js only. */
  readonly caFile?: string | undefined;
  /** Name of this client, for rules that are fair between clients. */
  readonly clientName?: string;
  /**
   * Timeout of one request, in addition to the time that the request itself may wait, in milliseconds; 30 s by default.
   * Several endpoints share it.
   */
  readonly timeoutMs?: number;
  /** How long to request the outcome of a lost commit before `OutcomeUnknown`, in milliseconds; 30 s by default. */
  readonly resolveTimeoutMs?: number;
  /**
   * How long an endpoint may take to answer a request, beyond the time that the request may wait, while another one has not been
   * asked: then that one is. The last one has all the time that is left. In milliseconds; 2 s by default.
   */
  readonly endpointTimeoutMs?: number;
  /** How long an endpoint that failed is skipped, if there are others, in milliseconds; 10 s by default. */
  readonly endpointCoolDownMs?: number;
  /** Bounds of the retries of `run`, of reads and of log readers. */
  readonly retry?: Partial<RetryPolicy>;
  /** Whether a transaction sees what this client has committed to the stores that it names; true by default. */
  readonly readOwnWrites?: boolean;
  /** Whether concurrent commits, Begins and reads of rows are sent as batches (see `Client.commit`); true by default. */
  readonly coalesce?: boolean;
  /** Called at the end of each attempt of `run`. Must not throw. */
  readonly onAttempt?: (attempt: Attempt) => void;
  /** Replaces the global `fetch`, and with it `caFile`. */
  readonly fetch?: (request: Request) => Promise<Response>;
}

/** Options of a transaction. */
export interface BeginOptions {
  /** Stores that the transaction will use; if absent, all stores of the namespace. */
  readonly stores?: readonly string[];
  /** Isolation level; `serializable` by default. */
  readonly isolation?: IsolationLevel;
  /** Token of a commit that the snapshots must include, instead of this client's own latest one. */
  readonly session?: string | undefined;
  /**
   * What the snapshots include: `session` (by default) what this client has committed; `fresh` everything that any
   * node of the cluster acknowledged to any client before the call.
   */
  readonly consistency?: Consistency;
  /** How long to wait until the snapshots include that, in milliseconds; 5 s by default. */
  readonly waitMs?: number;
  /** W3C trace context of the caller: sent with the commit, and kept in the log. */
  readonly traceparent?: string | undefined;
  /**
   * Keys of rows of embedded stores, by store, to read in the same request: `Transaction.get` returns them without another
   * request. Rows that are never fetched with `get` do not count as read.
   */
  readonly read?: RowsToRead;
  /**
   * Ranges of embedded stores, by store, to read in the same request: `Transaction.scan` with the same bounds and limit
   * returns the rows without another request. Ranges that are never scanned do not count as read.
   */
  readonly ranges?: RangesToRead;
  /**
   * Ends the call: the promise is rejected with the signal's reason. `run` makes no further attempt, and does not wait for the
   * work; if a commit has been sent, its promise is rejected with an `OutcomeUnknown` that has the reason as its cause. The reads
   * of a transaction take no signal.
   */
  readonly signal?: AbortSignal | undefined;
}

/** A row as it was read. */
export interface Row<T = JsonValue> {
  readonly key: Key;
  readonly value: T;
  /** Absent for a row that the transaction itself wrote and had not read. */
  readonly version: string | undefined;
}

/** Rows in key order. */
export interface RowPage {
  /** Snapshot that the rows reflect. */
  readonly applied: string;
  readonly rows: readonly Row[];
  /** Whether the range has more rows. There can be fewer than `limit` nevertheless, if their values are large. */
  readonly more: boolean;
}

/** State of a transaction: its verdict, or why there is none. */
export type TxnStatus = Verdict | { readonly status: "in_flight" | "unknown" | "unknown_expired"; readonly txnId: string };

/** The work of `run`. It may run several times, so its only effects must be on its transaction. */
export type Work<T> = (txn: Transaction) => Promise<T> | T;

/** Makes one request of one endpoint. */
type Ask<T> = (signal: AbortSignal, wire: WireClient<paths>) => Promise<Exchanged<T>>;

/** A client of one service. Safe to share. */
export class Client {
  /** @internal */
  readonly retry: RetryPolicy;
  /** Log readers that have a stream, or wait for a record. @internal */
  readonly readers = new Set<LogReader>();
  /** Requests that are under way. */
  readonly #limits = new Set<Limit>();
  /** What calls are rejected with once the client is closed. */
  #closed: Misuse | undefined;
  readonly #endpoints: Endpoints;
  /** One for each endpoint. */
  readonly #wires: readonly WireClient<paths>[];
  readonly #timeoutMs: number;
  readonly #resolveTimeoutMs: number;
  readonly #clientName: string | undefined;
  readonly #session: Session | undefined;
  readonly #coalesces: boolean;
  readonly #commits: Coalescer<CommitItem, Reply<TxnOutcome>>;
  readonly #begins: Coalescer<BeginItem, Shared<BeginResponse>>;
  readonly #reads: Coalescer<ReadItem, Shared<ReadResponse>>;
  readonly #onAttempt: (attempt: Attempt) => void;

  /**
   * Creates a client for `http://host:port` or `https://host:port`. Connects on first use.
   *
   * Several endpoints of one service, such as the nodes of a cluster, are a list, or separated by commas. One of them is in use
   * at a time, the first one at the start. After a failure the next one is, and remains so; what has no reply is sent again
   * there, commits with the same ids.
   */
  constructor(url: string | readonly string[], options: ClientOptions = {}) {
    optionsOf(options, "{ apiKey }", clientNames);
    const endpointTimeoutMs = duration("endpointTimeoutMs", options.endpointTimeoutMs ?? 2_000);
    this.#endpoints = new Endpoints(url, endpointTimeoutMs, duration("endpointCoolDownMs", options.endpointCoolDownMs ?? 10_000));
    if (options.apiKey !== undefined) headerText("API key", options.apiKey);
    if (options.clientName !== undefined) headerText("client name", options.clientName);
    for (const name of ["fetch", "onAttempt"] as const) {
      if (options[name] !== undefined && typeof options[name] !== "function") throw new Misuse(`\`${name}\` must be a function`);
    }
    this.retry = retryPolicy(options.retry);
    this.#timeoutMs = duration("timeoutMs", options.timeoutMs ?? 30_000);
    this.#resolveTimeoutMs = duration("resolveTimeoutMs", options.resolveTimeoutMs ?? 30_000);
    this.#clientName = options.clientName;
    this.#session = options.readOwnWrites === false ? undefined : new Session();
    this.#coalesces = options.coalesce ?? true;
    this.#commits = new Coalescer(commitBounds, (items) => this.#sendBatch(items));
    this.#begins = new Coalescer(readBounds, (items) => this.#sendBegins(items));
    this.#reads = new Coalescer(readBounds, (items) => this.#sendReads(items));
    this.#onAttempt = options.onAttempt ?? (() => undefined);
    const fetch = options.fetch ?? (options.caFile === undefined ? undefined : caFetch(options.caFile));
    const wireOf = (baseUrl: string): WireClient<paths> => createClient<paths>({
      baseUrl,
      headers: options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` },
      ...(fetch === undefined ? {} : { fetch }),
      // Keys may be any bytes, so parameters are percent-encoded before they arrive here.
      pathSerializer: (path, parameters) => path.replace(/\{(\w+)\}/g, (_, name: string) => String(parameters[name])),
      querySerializer: (query: Record<string, unknown>) =>
        Object.entries(query)
          .filter(([, value]) => value !== undefined)
          .map(([name, value]) => `${name}=${String(value)}`)
          .join("&"),
    });
    this.#wires = this.#endpoints.urls.map(wireOf);
  }

  /**
   * Ends log streams and the requests that are under way: a commit that has been sent and waits for its verdict is rejected with
   * `OutcomeUnknown`. Other calls are rejected with a `Misuse`, as later ones are, and so is a commit that is still queued, which
   * is not sent. A call of `next` of a log reader returns `undefined`. Await what is to be finished before.
   */
  close(): void {
    this.#closed ??= new Misuse("the client is closed");
    for (const limit of [...this.#limits]) limit.stop();
    for (const reader of this.readers) reader.close();
  }

  /** The URL of the endpoint in use. */
  get endpoint(): string {
    return this.#endpoints.urls[this.#endpoints.inUse] ?? "";
  }

  /**
   * Begins a transaction at the service, which chooses the snapshots. They include what this client has committed to
   * these stores. While requests of other Begins are in flight, the Begin may be queued and share a request; see `coalesce`.
   */
  async begin(options: BeginOptions = {}): Promise<Transaction> {
    const signal = signalOf(options, beginSuch, beginNames);
    signal?.throwIfAborted();
    const item = beginItem(options);
    const terms = { group: groupOf(item), bytes: bytesOf(item.body.read ?? []), signal };
    const begun = await unlessAborted(signal, this.#shared(this.#begins, mayShare(item), terms, item, (items) => this.#sendBegins(items)));
    const txn = new Transaction(this, begun.txn_id, options.isolation ?? "serializable", begun, options.traceparent);
    states(begun.rows ?? [], item.rows.map(({ key }) => key)).forEach((state, at) => {
      txn.fetched(item.rows[at]?.store ?? "", item.rows[at]?.key ?? "", state);
    });
    rangeRows(begun.ranges ?? [], item.ranges.length).forEach((found, at) => {
      txn.fetchedRange(item.ranges[at]?.store ?? "", item.ranges[at]?.range ?? {}, found);
    });
    return txn;
  }

  /** Sends Begins of one group as one request. The session is taken now: it covers what each had committed before its call. */
  async #sendBegins(items: readonly BeginItem[]): Promise<Shared<BeginResponse>[]> {
    const union = new Union(items.map(({ body }) => body.read ?? []));
    const [first] = items;
    for (;;) {
      const own = first?.body.session === undefined ? this.#session?.token(first?.stores) : undefined;
      const body = { ...first?.body, ...(own === undefined ? {} : { session: own }) };
      if (union.rows.length > 0) body.read = union.rows;
      const reply = await this.#ask((signal, wire) => wire.POST("/v1/txns", { body, signal }), waitMsOf(body));
      const isRefused = own !== undefined && reply.kind === "problem" && reply.problem?.code === sessionUnknown;
      if (!isRefused) return parts(reply, items.length, (begun) => responses(begun, union));
      // The log that had this client's commits has been replaced.
      this.#session?.forget(own);
    }
  }

  /** Sends an item in a batch, or as a request of its own if necessary. */
  async #shared<Item, Part>(
    coalescer: Coalescer<Item, Shared<Part>>,
    mayShare: boolean,
    terms: Terms,
    item: Item,
    send: (items: readonly Item[]) => Promise<Shared<Part>[]>,
  ): Promise<Part> {
    const shared = this.#coalesces && mayShare ? await coalescer.submit(terms, item) : "refused";
    const found = shared === "refused" ? (await send([item]))[0] : shared;
    if (found === undefined || found === "refused") throw new ServerMisbehaved("no response");
    return found.part;
  }

  /**
   * Begins a transaction without a request: with an id created here and without snapshots. Such a transaction is limited
   * to `tracked` stores, to reads of single rows, and to levels other than `snapshot` if it reads.
   */
  beginLocal(isolation: IsolationLevel = "serializable"): Transaction {
    return new Transaction(this, uuidv7(), isolation);
  }

  /**
   * Runs `work` in a transaction and commits it. After a retryable abort the work runs again, on fresh reads, with growing
   * waits. Throws what `work` throws, and `TransactionAborted` after a final abort or the last attempt. `row_exists` and
   * `row_missing` are final if the work read nothing, or if a fresh read returned the same versions as before.
   */
  async run<T>(work: Work<T>, options: BeginOptions = {}): Promise<{ value: T; committed: Committed }> {
    const given: unknown = work;
    if (typeof given !== "function") throw new Misuse("`run` takes the work, a function of the transaction, then options");
    const signal = signalOf(options, beginSuch, beginNames);
    const attempts = new Attempts(this.retry, this.#onAttempt, signal);
    let firstAttemptMs: number | undefined;
    for (;;) {
      const txn = await attempts.available(() => this.begin(options));
      // Rules that let the oldest work win see since when this one is retried.
      txn.firstAttemptMs = firstAttemptMs;
      firstAttemptMs ??= timeOf(txn.id);
      const [value, prepared] = await attempts.work(txn, () =>
        unlessAborted(signal, (async () => {
          // It may have fired since the Begin.
          signal?.throwIfAborted();
          return [await work(txn), txn.closed()] as const;
        })()),
      );
      // `Unavailable` means that nothing was decided. The id makes it safe to send the same request again.
      const verdict = txn.decided(await attempts.available(() => this.commit(prepared, { signal }), txn.id));
      if (verdict.status === "committed") {
        attempts.committed(verdict);
        return { value, committed: verdict };
      }
      await attempts.aborted(txn, verdict);
    }
  }

  /**
   * Requests the verdict of a prepared commit. May be repeated: the same id gets the same verdict. While requests of other
   * commits are in flight, the commit may be queued and sent in a batch; see `coalesce`.
   */
  async commit(prepared: PreparedCommit, options: CommitOptions = {}): Promise<Verdict> {
    const signal = signalOf(options, "{ signal }", commitNames);
    signal?.throwIfAborted();
    const item = commitItem(prepared);
    const { txnId } = prepared;
    let isSent = !this.#coalesces || !isBatchable(item);
    const sent = (): void => {
      isSent = true;
    };
    const reply = isSent
      ? this.#sendCommit(item)
      : this.#commits.submit({ group: kindOf(item), id: txnId, bytes: lengthOf(item), signal, sent }, item);
    return unlessAborted(signal, this.#decided(txnId, reply, undefined, signal), (reason) =>
      isSent ? new OutcomeUnknown(txnId, "the call was aborted after the commit had been sent", reason) : (reason as Error),
    );
  }

  /** Returns the verdict of a commit; if its reply does not tell, it is requested by the id. */
  async #decided(
    txnId: string,
    replied: Reply<TxnOutcome> | Promise<Reply<TxnOutcome>>,
    deadline?: number,
    signal?: AbortSignal,
  ): Promise<Verdict> {
    const reply = await replied;
    const lost = lostBy(reply);
    if (lost === undefined) return this.#recorded(decided(txnId, reply));
    return this.#recorded(await this.#resolve(txnId, lost, deadline ?? this.#resolveDeadline(), signal));
  }

  async #sendCommit({ prepared, body }: CommitItem, timeoutMs?: number): Promise<Reply<TxnOutcome>> {
    const header = this.#headers(prepared.traceparent);
    const bodySerializer = (): Uint8Array<ArrayBuffer> => body;
    const call = this.#failover(applyWaitMs([prepared]), timeoutMs);
    const reply = await this.#askOn(call, (signal, wire) =>
      wire.POST("/v1/txns/{txn_id}/commit", {
        params: { path: { txn_id: segment(prepared.txnId) }, header },
        headers: { "content-type": "application/json" },
        body: prepared.request,
        bodySerializer,
        signal,
      }),
    );
    return inDoubt(reply, call.maybeTaken);
  }

  /**
   * Sends commits as one batch. Returns a reply to each, as if each had been a request of its own. Those that an endpoint could
   * not decide go to the next one.
   */
  async #sendBatch(items: readonly CommitItem[]): Promise<readonly Reply<TxnOutcome>[]> {
    const each = async (): Promise<Reply<TxnOutcome>[]> => Promise.all(items.map((item) => this.#sendCommit(item)));
    if (items.length === 1) return each();
    const headers = { ...this.#headers(undefined), "content-type": "application/x-ndjson" };
    const call = this.#failover();
    const replies: Reply<TxnOutcome>[] = [];
    const maybeTaken = items.map(() => false);
    for (let open = [...items.entries()]; open.length > 0; ) {
      const body = linesOf(open.map(([, item]) => item));
      const bodySerializer = (): Uint8Array<ArrayBuffer> => body;
      const whole = await this.#askOn(call, (signal, wire) =>
        wire.POST("/v1/txns/batch-commit", { body: "", bodySerializer, headers, parseAs: "text", signal }),
      );
      const reply = inDoubt(whole, call.maybeTaken);
      if (isRefusedAsBatch(reply) && open.length === items.length) return each();
      const again: typeof open = [];
      let failed: Failure | undefined;
      splitReply(reply, open.length).forEach((line, n) => {
        const [at, item] = open[n] as [number, CommitItem];
        const failure = reply.kind === "ok" && !call.isSingle ? failureOf(line) : undefined;
        const doubt = (maybeTaken[at] ||= call.maybeTaken);
        replies[at] = inDoubt(line, doubt);
        if (failure === undefined) return;
        maybeTaken[at] ||= failure.maybeTaken;
        again.push([at, item]);
        failed = failure;
      });
      if (failed !== undefined) call.isOver(failed);
      open = again;
    }
    return replies;
  }

  /**
   * Asks for many verdicts in one request. The results have the order of the commits; an error of one commit takes its
   * place. A `traceparent` is sent if all commits have the same one. Takes no signal. The outcomes of lost commits are requested
   * within one `resolveTimeoutMs` for all.
   */
  async batch(commits: readonly PreparedCommit[]): Promise<(Verdict | ClientMistake | Unavailable | OutcomeUnknown)[]> {
    list(commits, "a list of commits").forEach(checkCommit);
    const txns = commits.map(({ txnId, request }) => ({ txn_id: txnId, ...request }));
    const traceparents = new Set(commits.map(({ traceparent }) => traceparent));
    const headers = this.#headers(traceparents.size === 1 ? commits[0]?.traceparent : undefined);
    const body = bodyOf({ txns });
    const bodySerializer = (): Uint8Array<ArrayBuffer> => body;
    const call = this.#failover(applyWaitMs(commits));
    const whole = await this.#askOn(call, (signal, wire) =>
      wire.POST("/v1/txns/batch-commit", {
        body: { txns },
        bodySerializer,
        headers: { ...headers, "content-type": "application/json" },
        signal,
      }),
    );
    const reply = inDoubt(whole, call.maybeTaken);
    // The other form of the response, NDJSON, is for requests in NDJSON.
    const results = reply.kind === "ok" ? (reply.data as Partial<components["schemas"]["BatchCommitResponse"]> | null)?.results : undefined;
    const isUnclear = reply.kind === "ok" && results?.length !== commits.length;
    const lost = isUnclear ? `${results?.length ?? "no"} results for ${commits.length} commits` : lostBy(reply);
    // The commits may have taken effect: each is resolved by its id.
    if (lost !== undefined) {
      const deadline = this.#resolveDeadline();
      return mapped(commits, async ({ txnId }) => inPlace(async () => this.#recorded(await this.#resolve(txnId, lost, deadline))));
    }
    settled(reply);
    const replied = reply.kind === "ok" ? reply.headers : new Headers();
    const resendBy = performance.now() + this.#timeoutMs;
    const replies = await mapped(commits, async (commit, at) => {
      const own = singleOf(results?.[at] ?? { status: "unknown" }, replied);
      // One that the endpoint could not decide is sent again, if there are others, within one timeout for all.
      const failure = this.#endpoints.urls.length > 1 ? failureOf(own) : undefined;
      if (failure === undefined) return inDoubt(own, call.maybeTaken);
      const leftMs = resendBy - performance.now();
      const again = leftMs > 0 ? await this.#sendCommit(commitItem(commit), leftMs) : own;
      return inDoubt(again, call.maybeTaken || failure.maybeTaken);
    });
    const deadline = this.#resolveDeadline();
    return mapped(replies, async (own, at) => inPlace(() => this.#decided(commits[at]?.txnId ?? "", own, deadline)));
  }

  /**
   * Returns the state of a transaction, after waiting at most `waitMs` for its verdict. With `fence`, a transaction that
   * has not arrived can no longer commit.
   */
  async status(txnId: string, options: { fence?: boolean; waitMs?: number } = {}): Promise<TxnStatus> {
    const { fence = false } = optionsOf(options, "{ fence: true }", statusNames);
    const waitMs = duration("waitMs", options.waitMs ?? 0);
    const outcome = settled(
      await this.#ask(
        (signal, wire) =>
          wire.GET("/v1/txns/{txn_id}", {
            params: { path: { txn_id: segment(txnId) }, query: { wait_ms: waitMs, fence } },
            signal,
          }),
        waitMs,
      ),
    );
    switch (outcome.status) {
      case "in_flight":
      case "unknown":
      case "unknown_expired":
        return { status: outcome.status, txnId };
      default:
        return this.#recorded(verdictOf(outcome, true));
    }
  }

  /** Aborts a transaction unless it has its verdict already, and returns the verdict. */
  async abort(txnId: string): Promise<Verdict> {
    const path = { txn_id: segment(txnId) };
    return this.#recorded(verdict(await this.#ask((signal, wire) => wire.POST("/v1/txns/{txn_id}/abort", { params: { path }, signal }))));
  }

  /**
   * Tells whether a commit would pass now if it were alone: `would_commit` or `would_abort`; the verdict itself if the id
   * has one. Changes nothing.
   */
  async validate(prepared: PreparedCommit): Promise<TxnOutcome> {
    checkCommit(prepared);
    const path = { txn_id: segment(prepared.txnId) };
    const body = prepared.request;
    const outcome = settled(
      await this.#ask((signal, wire) => wire.POST("/v1/txns/{txn_id}/validate", { params: { path }, body, signal })),
    );
    if (!["would_commit", "would_abort", "committed", "aborted"].includes(outcome.status)) throw unexpected(outcome.status);
    return outcome;
  }

  /** Reads a row of an embedded store as it is now, outside any transaction. */
  async row<T = JsonValue>(store: string, key: Key): Promise<Row<T> | undefined> {
    const [state] = (await this.readRows<T>(store, [{ key }])).rows;
    return state?.status === "found" ? state.row : undefined;
  }

  /** Reads at most `limit` rows of `start..end` of an embedded store as they are now, outside any transaction. */
  async rows(store: string, range: KeyRange = {}): Promise<RowPage> {
    return this.page(store, range);
  }

  /**
   * @internal Reads rows of a range, as many as the service returns at once. A transaction names its session and its snapshot of
   * the store: the range is compared with what was written after that, so older rows must not be returned.
   */
  async page(store: string, range: KeyRange, session?: string, snapshot?: string): Promise<RowPage> {
    const { applied, ranges } = await this.#ranges(store, [range], { session }, snapshot);
    return { applied, rows: ranges[0]?.rows ?? [], more: ranges[0]?.more ?? false };
  }

  /**
   * Reads rows of an embedded store outside any transaction: at most 10,000 rows, with at most 8 MiB of values in total.
   * They include every commit that its node acknowledged before the call. While requests of other reads are in flight,
   * the read may be queued and share a request; see `coalesce`.
   */
  async readRows<T = JsonValue>(store: string, rows: readonly RowRead[], options: ReadOptions = {}): Promise<RowReads<T>> {
    const own = { store: segment(store), rows: list(rows, "a list of rows").map((row) => asked(row)) };
    const bytes = bytesOf(own.rows);
    const answer = await this.#current(store, readTerms(readOptions(options)), undefined, (terms) => {
      const group = JSON.stringify([store, terms]);
      return this.#shared(this.#reads, bytes > 0 && bytes <= bytesAlone, { group, bytes }, { ...own, terms }, (items) => this.#sendReads(items));
    });
    const keys = rows.map(({ key }) => normal(key));
    return { applied: answer.applied, session: answer.session, rows: states<T>(answer.rows ?? [], keys) };
  }

  /** Sends reads of one store, on the same terms, as one request. */
  async #sendReads(items: readonly ReadItem[]): Promise<Shared<ReadResponse>[]> {
    const union = new Union(items.map(({ rows }) => rows));
    const reply = await this.#read(items[0]?.store ?? "", { read: union.rows, ...items[0]?.terms });
    return parts(reply, items.length, ({ rows, ...rest }) => union.apart(rows ?? []).map((own) => ({ ...rest, rows: own })));
  }

  async #read(store: string, body: components["schemas"]["ReadRequest"]): Promise<Reply<ReadResponse>> {
    return this.#ask((signal, wire) => wire.POST("/v1/stores/{store}/rows/read", { params: { path: { store } }, body, signal }), waitMsOf(body));
  }

  /**
   * Reads ranges of an embedded store outside any transaction: at most 256, with at most 8 MiB of values in total. They
   * include every commit that its node acknowledged before the call.
   */
  async readRanges(store: string, ranges: readonly KeyRange[], options: ReadOptions = {}): Promise<RangeReads> {
    return this.#ranges(store, ranges, readOptions(options));
  }

  /** Reads ranges that must include an epoch of the store; this client's own commits if there is none. */
  async #ranges(store: string, ranges: readonly KeyRange[], options: ReadOptions, least?: string): Promise<RangeReads> {
    const own = list(ranges, "a list of ranges").map(rangeAsked);
    const name = segment(store);
    const answer = await this.#current(store, readTerms(options), least, async (terms) => settled(await this.#read(name, { ranges: own, ...terms })));
    return { applied: answer.applied, session: answer.session, ranges: rangeRows(answer.ranges ?? [], ranges.length) };
  }

  /** Returns a reader of a store's log. */
  log(store: string, options: LogOptions = {}): LogReader {
    return new LogReader(this, store, options);
  }

  /** @internal Opens a stream of a log. `stop` ends the call, and not the stream. */
  async openLog(query: { store: string; after: string; log?: string; limit?: number; wait_ms: number }, stop?: AbortSignal): Promise<LogStream> {
    const encoded = { ...query, store: percentEncoded(named(query.store)), after: percentEncoded(query.after) };
    const call = this.#failover();
    for (let timeoutMs = await call.next(); timeoutMs !== undefined; timeoutMs = await call.next()) {
      const limit = this.#limit(timeoutMs, stop);
      try {
        const wire = this.#wires[call.endpoint] as WireClient<paths>;
        const reply = await exchange(() =>
          wire.GET("/v1/log", {
            params: { query: { ...encoded, heartbeat_ms: heartbeatMs } },
            headers: { accept: "application/x-ndjson" },
            parseAs: "stream",
            signal: limit.controller.signal,
          }),
        );
        if (!limit.isStopped && !call.isOver(failureOf(reply))) continue;
        const body = settled(reply);
        if (body === null) throw new ServerMisbehaved("a stream without a body");
        return new LogStream(call.endpoint, body, limit.controller, this.#timeoutMs / this.#wires.length + heartbeatMs, query.wait_ms);
      } finally {
        this.#end(limit);
      }
    }
    return settled(call.exhausted());
  }

  /** @internal Records that an endpoint failed while it was answering. */
  endpointFailed(endpoint: number): void {
    this.#endpoints.failed(endpoint);
  }

  /** Declares a store, or changes one. */
  async declareStore(store: string, declaration: StoreDeclaration): Promise<StoreInfo> {
    const path = { store: segment(store) };
    optionsOf(declaration, '{ adaptor: "kv" }', declarationNames);
    return settled(
      await this.#ask((signal, wire) =>
        wire.PUT("/v1/stores/{store}", { params: { path }, body: declaration, signal }),
      ),
    );
  }

  /** Returns the state of a store. */
  async store(store: string): Promise<StoreInfo> {
    const path = { store: segment(store) };
    return settled(await this.#ask((signal, wire) => wire.GET("/v1/stores/{store}", { params: { path }, signal })));
  }

  /** Returns the state of all stores of the namespace. */
  async stores(): Promise<StoreInfo[]> {
    return settled(await this.#ask((signal, wire) => wire.GET("/v1/stores", { signal }))).stores;
  }

  /** Returns all consumers of the namespace's logs, with their offsets and lag. */
  async consumers(): Promise<ConsumerInfo[]> {
    return settled(await this.#ask((signal, wire) => wire.GET("/v1/consumers", { signal }))).consumers;
  }

  /** Returns a consumer's offset in a store's log; `undefined` if it has none there. */
  async offset(consumer: string, store: string): Promise<Offset | undefined> {
    const [sought, from] = [named(consumer), named(store)];
    const known = (await this.consumers()).find(({ name }) => name === sought);
    const at = known?.offsets.find((offset) => offset.store === from);
    return at === undefined ? undefined : { lsn: at.lsn, log: at.log };
  }

  /**
   * Sets a consumer's offset: it has processed every record up to and including `lsn`. `log` is the log that `lsn` belongs to, if
   * known: `logId` of the reader. Durable once the promise is fulfilled. Rejects with a `ClientMistake` if `lsn` is past the end
   * of the log, or `log` is not the service's log (`log_replaced`).
   */
  async setOffset(consumer: string, store: string, offset: { readonly lsn: string; readonly log?: string | undefined }): Promise<ConsumerInfo> {
    const given: unknown = offset;
    if (typeof given !== "object" || given === null) throw new Misuse("an offset such as { lsn: record.lsn } was expected, not " + String(given));
    const path = { name: segment(consumer) };
    const body = { store: named(store), lsn: offset.lsn, ...(offset.log === undefined ? {} : { log: offset.log }) };
    return settled(await this.#ask((signal, wire) => wire.PUT("/v1/consumers/{name}", { params: { path }, body, signal })));
  }

  /**
   * Removes a consumer, so that the log is no longer retained for it. Rejects with a `ClientMistake` with the code
   * `unknown_consumer` if there is none; with several endpoints also if a first reply was lost.
   */
  async forgetConsumer(consumer: string): Promise<void> {
    const path = { name: segment(consumer) };
    settled(await this.#ask<unknown>((signal, wire) => wire.DELETE("/v1/consumers/{name}", { params: { path }, signal })));
  }

  /** Returns until when to request the outcome of a commit that was just lost. */
  #resolveDeadline(): number {
    return performance.now() + this.#resolveTimeoutMs;
  }

  /** Settles a transaction whose reply was lost: it has committed, or the fence makes sure that it never does. */
  async #resolve(txnId: string, lost: string, deadline: number, signal?: AbortSignal): Promise<Verdict> {
    let last = lost;
    for (let failed = 1; performance.now() < deadline && signal?.aborted !== true; failed++) {
      try {
        const found = await this.status(txnId, { fence: true, waitMs: 1000 });
        if (found.status === "committed" || found.status === "aborted") return found;
        last = `its status is ${found.status}`;
        if (found.status === "unknown_expired") break;
      } catch (error) {
        last = String(error);
        // Another request would fail the same way, and the commit may have arrived.
        if (!(error instanceof Unavailable)) break;
      }
      await sleep(waitMs({ ...this.retry, attemptsMax: Infinity }, failed, 0) ?? 0);
    }
    throw new OutcomeUnknown(txnId, last);
  }

  /**
   * Repeats a read while the service is unavailable, or has not applied the epoch that it must include: by default that of this
   * client's latest commit to the store. A node that lags gets its token and waits for it, unless the caller named one.
   */
  async #current<T extends { applied: string }>(store: string, terms: ReadTerms, least: string | undefined, read: (terms: ReadTerms) => Promise<T>): Promise<T> {
    let own: string | undefined;
    for (let failed = 1; ; failed++) {
      try {
        const found = await read(own === undefined ? terms : { ...terms, session: own });
        const wanted = least === undefined ? this.#ownEpoch(store) : BigInt(least);
        if (wanted === undefined || BigInt(found.applied) >= wanted) return found;
        if (terms.session === undefined) own = this.#session?.token([store]);
        throw new Unavailable(`${this.endpoint} has applied epoch ${found.applied} of store ${store}, not yet ${wanted}`);
      } catch (error) {
        if (own !== undefined && error instanceof ClientMistake && error.code === sessionUnknown) {
          // The log that had this client's commits has been replaced.
          this.#session?.forget(own);
          own = undefined;
          continue;
        }
        const pause = error instanceof Unavailable ? waitMs(this.retry, failed, error.retryAfterMs) : undefined;
        if (pause === undefined) throw error;
        await sleep(pause);
      }
    }
  }

  /**
   * Returns the epoch of this client's latest commit to a store, if reads have to be compared with it: with several endpoints, one
   * that is asked after another may not have applied it yet.
   */
  #ownEpoch(store: string): bigint | undefined {
    return this.#endpoints.urls.length > 1 ? this.#session?.epoch(store) : undefined;
  }

  /** Makes one request, within the timeout. */
  async #ask<T>(call: Ask<T>, waitMs = 0): Promise<Reply<T>> {
    return this.#askOn(this.#failover(waitMs), call);
  }

  /** Makes one request, of one endpoint after another, until one answers or no attempt is left. */
  async #askOn<T>(call: Failover, ask: Ask<T>): Promise<Reply<T>> {
    for (let timeoutMs = await call.next(); timeoutMs !== undefined; timeoutMs = await call.next()) {
      const limit = this.#limit(timeoutMs);
      const wire = this.#wires[call.endpoint] as WireClient<paths>;
      const reply = await exchange(() => ask(limit.controller.signal, wire)).finally(() => {
        this.#end(limit);
      });
      if (limit.isStopped && reply.kind === "none") return { ...reply, text: "the client was closed", cause: this.#closed };
      if (call.isOver(failureOf(reply))) return reply;
    }
    return call.exhausted();
  }

  #failover(waitMs = 0, timeoutMs = this.#timeoutMs): Failover {
    if (this.#closed !== undefined) throw this.#closed;
    return new Failover(this.#endpoints, this.retry, waitMs, timeoutMs);
  }

  /** Limits a request; the end of the client ends it as well. */
  #limit(timeoutMs: number, signal?: AbortSignal): Limit {
    const limit = new Limit(timeoutMs, signal);
    if (this.#closed === undefined) this.#limits.add(limit);
    else limit.stop();
    return limit;
  }

  #end(limit: Limit): void {
    limit.end();
    this.#limits.delete(limit);
  }

  #headers(traceparent: string | undefined): { "tribunal-client"?: string; traceparent?: string } {
    return {
      ...(this.#clientName === undefined ? {} : { "tribunal-client": this.#clientName }),
      ...(traceparent === undefined ? {} : { traceparent: headerText("traceparent", traceparent) }),
    };
  }

  /** Records a commit in the session. */
  #recorded(verdict: Verdict): Verdict {
    if (verdict.status === "committed") this.#session?.record(verdict);
    return verdict;
  }
}

/** What the options of `begin` and `run` look like. */
const beginSuch = '{ stores: ["kv"] }';

/** Returns the error of one commit as its result. */
async function inPlace(
  find: () => Verdict | Promise<Verdict>,
): Promise<Verdict | ClientMistake | Unavailable | OutcomeUnknown> {
  try {
    return await find();
  } catch (error) {
    if (error instanceof ClientMistake || error instanceof Unavailable || error instanceof OutcomeUnknown) return error;
    throw error;
  }
}
