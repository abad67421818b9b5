/** The client: one method per request, and `run` for work that may be repeated. */

import { duration, headerText, list, optionsOf, signalOf } from "./arguments.js";
import { Attempts, type Attempt } from "./attempts.js";
import { mapped } from "./beside.js";
import { beginItem, groupOf, mayShare, responses, type BeginItem } from "./begin.js";
import { Bound, leftMs } from "./bound.js";
import { Channel } from "./channel.js";
import { Coalescer } from "./coalescer.js";
import { ClientMistake, Misuse, OutcomeUnknown, ServerMisbehaved, sessionUnknown, Unavailable } from "./errors.js";
import { contentless, lostBy, settled, type Reply } from "./exchange.js";
import { failureOf, inDoubt, type Failure } from "./failover.js";
import { applyWaitMs, bodyOf, checkCommit, commitBounds, commitItem, isBatchable, isRefusedAsBatch, kindOf, lengthOf, linesOf, singleOf, splitReply, type CommitItem } from "./commit_batch.js";
import { bytesOf, parts, readBounds, submitted, Union, type Shared } from "./read_batch.js";
import type { JsonValue } from "./json.js";
import { named, segment, type Key } from "./keys.js";
import { LogReader, type LogOptions } from "./log.js";
import { beginNames, clientNames, declarationNames, statusNames } from "./option_names.js";
import type { BeginOptions, ClientOptions } from "./options.js";
import { unlessAborted } from "./limit.js";
import { rangeRows, readOptions, states, waitMsOf, type KeyRange, type RangeReads, type ReadOptions, type Row, type RowPage, type RowRead, type RowReads } from "./reads.js";
import { sleep, waitMs } from "./retry.js";
import { Session } from "./session.js";
import { stateOf, type StateImage, type StateOptions } from "./state.js";
import { StoreReads } from "./store_reads.js";
import { commitNames, Transaction, type CommitOptions, type IsolationLevel, type PreparedCommit } from "./transaction.js";
import { timeOf, uuidv7 } from "./uuid.js";
import { decided, unexpected, verdict, verdictOf, type Committed, type TxnOutcome, type Verdict } from "./verdict.js";
import type { components } from "./wire/schema.js";

export type StoreInfo = components["schemas"]["StoreInfo"];
export type StoreDeclaration = components["schemas"]["StoreDeclaration"];
export type ConsumerInfo = components["schemas"]["ConsumerInfo"];
type BeginResponse = components["schemas"]["BeginResponse"];

/** A consumer's position in a store's log. */
export interface Offset {
  /** Position of the last record that the consumer has processed: `after` of `LogOptions`. */
  readonly lsn: string;
  /** The log that the position belongs to: `log` of `LogOptions`. */
  readonly log: string;
}

/** State of a transaction: its verdict, or why there is none. */
export type TxnStatus = Verdict | { readonly status: "in_flight" | "unknown" | "unknown_expired"; readonly txnId: string };

/** The result of one commit of `batch`: its verdict, or its error. */
export type BatchResult = Verdict | ClientMistake | Unavailable | OutcomeUnknown | ServerMisbehaved;

/** The work of `run`. It may run several times, so it must have no effects except on its transaction. */
export type Work<T> = (txn: Transaction) => Promise<T> | T;

/** A Begin and its bound. */
type BoundBegin = BeginItem & { readonly bound: Bound };

declare global {
  /** As in `lib.esnext.disposable`, which the caller's program may lack. */
  interface SymbolConstructor {
    readonly dispose: unique symbol;
    readonly asyncDispose: unique symbol;
  }
}

/** A client of one service. Safe to share. */
export class Client {
  /** @internal */
  readonly channel: Channel;
  /** @internal */
  readonly reads: StoreReads;
  readonly #resolveTimeoutMs: number;
  readonly #clientName: string | undefined;
  readonly #session: Session | undefined;
  readonly #coalesces: boolean;
  readonly #commits: Coalescer<CommitItem, Reply<TxnOutcome>>;
  readonly #begins: Coalescer<BoundBegin, Shared<BeginResponse>>;
  readonly #onAttempt: (attempt: Attempt) => void;

  /**
   * Creates a client for `http://host:port` or `https://host:port`. Connects on first use.
   *
   * Pass several endpoints of one service, such as the nodes of a cluster, as a list or separated by commas. One is in
   * use at a time, initially the first. After a failure the client switches to the next one and stays there; it resends
   * unanswered requests, commits with the same ids.
   */
  constructor(url: string | readonly string[], options: ClientOptions = {}) {
    optionsOf(options, "{ apiKey }", clientNames);
    this.channel = new Channel(url, options);
    if (options.clientName !== undefined) headerText("client name", options.clientName);
    if (options.onAttempt !== undefined && typeof options.onAttempt !== "function") throw new Misuse("`onAttempt` must be a function");
    this.#resolveTimeoutMs = duration("resolveTimeoutMs", options.resolveTimeoutMs ?? 30_000);
    this.#clientName = options.clientName;
    this.#session = options.readOwnWrites === false ? undefined : new Session();
    this.#coalesces = options.coalesce ?? true;
    this.#commits = new Coalescer(commitBounds, (items) => this.#sendBatch(items));
    this.#begins = new Coalescer(readBounds, (items) => this.#sendBegins(items));
    this.reads = new StoreReads(this.channel, this.#session, this.#coalesces);
    this.#onAttempt = options.onAttempt ?? (() => undefined);
  }

  /**
   * Ends log streams and the requests in flight: a commit that has been sent and waits for its verdict is rejected with
   * `OutcomeUnknown`. Other calls are rejected with a `Misuse`, as later ones are, and so is a commit that is still
   * queued, which is not sent. A call of `next` of a log reader returns `undefined`, and an iteration over a log ends;
   * one over a state image is rejected, so that it does not look complete. Await calls that must finish before closing.
   */
  close(): void {
    this.channel.close();
  }

  /** Closes the client at the end of a block that declares it with `using`. */
  [Symbol.dispose](): void {
    this.close();
  }

  /** Closes the client at the end of a block that declares it with `await using`. */
  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
    return Promise.resolve();
  }

  /** The URL of the endpoint in use. */
  get endpoint(): string {
    return this.channel.endpoint;
  }

  /**
   * Begins a transaction at the service, which chooses the snapshots. They include what this client has committed to
   * these stores. While other Begin requests are in flight, the Begin may be queued and share a request; see
   * `coalesce`.
   */
  async begin(options: BeginOptions = {}): Promise<Transaction> {
    const signal = signalOf(options, beginSuch, beginNames);
    signal?.throwIfAborted();
    const item = beginItem(options);
    const bound = new Bound(this.channel.timeoutMs, signal);
    const terms = { group: groupOf(item), bytes: bytesOf(item.body.read ?? []), signal };
    const coalescer = this.#coalesces && mayShare(item) ? this.#begins : undefined;
    const begun = await bound.attempt(waitMsOf(this.#withOwn(item)), () => submitted(coalescer, terms, { ...item, bound }, (items) => this.#sendBegins(items)));
    const txn = new Transaction(this, begun.txn_id, options.isolation ?? "serializable", begun, options.traceparent, item.stores);
    states(begun.rows ?? [], item.rows.map(({ key }) => key)).forEach((state, at) => {
      txn.fetched(item.rows[at]?.store ?? "", item.rows[at]?.key ?? "", state);
    });
    rangeRows(begun.ranges ?? [], item.ranges.length).forEach((found, at) => {
      txn.fetchedRange(item.ranges[at]?.store ?? "", item.ranges[at]?.range ?? {}, found);
    });
    return txn;
  }

  /** Returns the request of a Begin; with this client's own session unless the caller named one. */
  #withOwn({ body, stores }: BeginItem): BeginItem["body"] {
    const own = body.session ?? this.#session?.token(stores);
    return own === undefined ? { ...body } : { ...body, session: own };
  }

  /**
   * Sends Begins of one group as one request. The session is taken now: it covers every commit that a caller made
   * before its call.
   */
  async #sendBegins(items: readonly BoundBegin[]): Promise<Shared<BeginResponse>[]> {
    const union = new Union(items.map(({ body }) => body.read ?? []));
    const [first] = items;
    const bounds = items.map(({ bound }) => bound);
    for (;;) {
      const body = first === undefined ? {} : this.#withOwn(first);
      const own = first?.body.session === undefined ? body.session : undefined;
      if (union.rows.length > 0) body.read = union.rows;
      const reply = await this.channel.ask((signal, wire) => wire.POST("/v1/txns", { body, signal }), waitMsOf(body), leftMs(bounds));
      const isRefused = own !== undefined && reply.kind === "problem" && reply.problem?.code === sessionUnknown;
      if (!isRefused) return parts(reply, items.length, (begun) => responses(begun, union));
      // The log that contained this client's commits was replaced.
      this.#session?.forget(own);
    }
  }

  /**
   * Begins a transaction without a request: with an id created here and without snapshots. Such a transaction is
   * limited to `tracked` stores, to reads of single rows, and to levels other than `snapshot` if it reads.
   */
  beginLocal(isolation: IsolationLevel = "serializable"): Transaction {
    return new Transaction(this, uuidv7(), isolation);
  }

  /**
   * Runs `work` in a transaction and commits it. After a retryable abort the work runs again, on fresh reads, with
   * growing waits. It also does if the service was unavailable for so long that it no longer decides the transaction.
   * Throws what `work` throws, and `TransactionAborted` after a final abort or the last attempt. `row_exists` and
   * `row_missing` are final if the work read nothing, or if a fresh read returned the same versions as before.
   */
  async run<T>(work: Work<T>, options: BeginOptions = {}): Promise<{ value: T; committed: Committed }> {
    const given: unknown = work;
    if (typeof given !== "function") throw new Misuse("`run` takes the work, a function of the transaction, then options");
    const signal = signalOf(options, beginSuch, beginNames);
    const attempts = new Attempts(this.channel.retry, this.#onAttempt, signal);
    let firstAttemptMs: number | undefined;
    for (;;) {
      const txn = await attempts.available(() => this.begin(options));
      // Conflict rules that let the oldest work win need the time of the first attempt.
      txn.firstAttemptMs = firstAttemptMs;
      firstAttemptMs ??= timeOf(txn.id);
      const [value, prepared] = await attempts.work(txn, () =>
        unlessAborted(signal, (async () => {
          // The signal may have fired since the Begin.
          signal?.throwIfAborted();
          return [await work(txn), txn.closed()] as const;
        })()),
      );
      // `Unavailable` means that nothing was decided. The id makes it safe to resend the same request.
      const decided = await attempts.decided(() => this.commit(prepared, { signal }), txn.id);
      if (decided === undefined) continue;
      const verdict = txn.decided(decided);
      if (verdict.status === "committed") {
        attempts.committed(verdict);
        return { value, committed: verdict };
      }
      await attempts.aborted(txn, verdict);
    }
  }

  /**
   * Requests the verdict of a prepared commit. May be repeated: the same id gets the same verdict. While other commit
   * requests are in flight, the commit may be queued and sent in a batch; see `coalesce`.
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

  /** Returns the verdict of a commit; if the reply does not contain it, it is queried by the id. */
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
    const call = this.channel.failover(applyWaitMs([prepared]), timeoutMs);
    const reply = await this.channel.askOn(call, (signal, wire) =>
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
   * Sends commits as one batch. Returns a reply to each, as if each had been a request of its own. Commits that an
   * endpoint could not decide move to the next one.
   */
  async #sendBatch(items: readonly CommitItem[]): Promise<readonly Reply<TxnOutcome>[]> {
    const each = async (): Promise<Reply<TxnOutcome>[]> => Promise.all(items.map((item) => this.#sendCommit(item)));
    if (items.length === 1) return each();
    const headers = { ...this.#headers(undefined), "content-type": "application/x-ndjson" };
    const call = this.channel.failover();
    const replies: Reply<TxnOutcome>[] = [];
    const maybeTaken = items.map(() => false);
    for (let open = [...items.entries()]; open.length > 0; ) {
      const body = linesOf(open.map(([, item]) => item));
      const bodySerializer = (): Uint8Array<ArrayBuffer> => body;
      const whole = await this.channel.askOn(call, (signal, wire) =>
        wire.POST("/v1/txns/batch-commit", { body: "", bodySerializer, headers, parseAs: "text", signal }),
      );
      const reply = inDoubt(whole, call.maybeTaken);
      // What an endpoint may have taken keeps that mark.
      if (isRefusedAsBatch(reply) && open.length === items.length && !maybeTaken.includes(true)) return each();
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
   * Submits many commits in one request. The results have the order of the commits; an error of one commit takes its
   * place. A `traceparent` is sent if all commits have the same one. Takes no signal. The outcomes of lost commits are
   * queried within one `resolveTimeoutMs` for all.
   */
  async batch(commits: readonly PreparedCommit[]): Promise<BatchResult[]> {
    list(commits, "a list of commits").forEach(checkCommit);
    const txns = commits.map(({ txnId, request }) => ({ txn_id: txnId, ...request }));
    const traceparents = new Set(commits.map(({ traceparent }) => traceparent));
    const headers = this.#headers(traceparents.size === 1 ? commits[0]?.traceparent : undefined);
    const body = bodyOf({ txns });
    const bodySerializer = (): Uint8Array<ArrayBuffer> => body;
    const call = this.channel.failover(applyWaitMs(commits));
    const whole = await this.channel.askOn(call, (signal, wire) =>
      wire.POST("/v1/txns/batch-commit", {
        body: { txns },
        bodySerializer,
        headers: { ...headers, "content-type": "application/json" },
        signal,
      }),
    );
    const reply = inDoubt(whole, call.maybeTaken);
    // The service answers in NDJSON only if the request is in NDJSON.
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
    const resendBy = performance.now() + this.channel.timeoutMs;
    const replies = await mapped(commits, async (commit, at) => {
      const own = singleOf(results?.[at] ?? { status: "unknown" }, replied);
      // A commit that the endpoint could not decide is sent to the others, if there are any, within one timeout for
      // all.
      const failure = this.channel.isSingle ? undefined : failureOf(own);
      if (failure === undefined) return inDoubt(own, call.maybeTaken);
      const leftMs = resendBy - performance.now();
      const again = leftMs > 0 ? await this.#resent(commit, leftMs, own) : own;
      return inDoubt(again, call.maybeTaken || failure.maybeTaken);
    });
    const deadline = this.#resolveDeadline();
    return mapped(replies, async (own, at) => inPlace(() => this.#decided(commits[at]?.txnId ?? "", own, deadline)));
  }

  /** Sends a commit of a batch again. Returns its earlier reply if it cannot be sent, such as after `close`. */
  async #resent(commit: PreparedCommit, timeoutMs: number, earlier: Reply<TxnOutcome>): Promise<Reply<TxnOutcome>> {
    try {
      const reply = await this.#sendCommit(commitItem(commit), timeoutMs);
      const isMisuse = reply.kind === "none" && reply.neverSent && (reply.wrong !== undefined || reply.cause instanceof Misuse);
      return isMisuse ? earlier : reply;
    } catch (error) {
      if (error instanceof Misuse) return earlier;
      throw error;
    }
  }

  /**
   * Returns the state of a transaction, after waiting at most `waitMs` for its verdict. With `fence`, a transaction
   * that has not arrived can no longer commit.
   */
  async status(txnId: string, options: { fence?: boolean | undefined; waitMs?: number | undefined } = {}): Promise<TxnStatus> {
    const { fence = false } = optionsOf(options, "{ fence: true }", statusNames);
    const waitMs = duration("waitMs", options.waitMs ?? 0);
    const outcome = settled(
      await this.channel.ask(
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

  /**
   * Aborts a transaction unless it has its verdict already, and returns the verdict. While a commit with this id is being
   * decided, it is rejected with an `Unavailable`: `status` with `fence` waits for the verdict.
   */
  async abort(txnId: string): Promise<Verdict> {
    const path = { txn_id: segment(txnId) };
    return this.#recorded(verdict(await this.channel.ask((signal, wire) => wire.POST("/v1/txns/{txn_id}/abort", { params: { path }, signal }))));
  }

  /**
   * Returns whether a commit would pass now if it were alone: `would_commit` or `would_abort`; the verdict itself if
   * the id has one. Changes nothing.
   */
  async validate(prepared: PreparedCommit): Promise<TxnOutcome> {
    checkCommit(prepared);
    const path = { txn_id: segment(prepared.txnId) };
    const body = prepared.request;
    const outcome = settled(
      await this.channel.ask((signal, wire) => wire.POST("/v1/txns/{txn_id}/validate", { params: { path }, body, signal })),
    );
    if (!["would_commit", "would_abort", "committed", "aborted"].includes(outcome.status)) throw unexpected(outcome.status);
    return outcome;
  }

  /** Reads a row of an embedded store as it is now, outside any transaction. */
  async row<T = JsonValue>(store: string, key: Key, options: ReadOptions = {}): Promise<Row<T> | undefined> {
    const [state] = (await this.readRows<T>(store, [{ key }], options)).rows;
    return state?.status === "found" ? state.row : undefined;
  }

  /** Reads at most `limit` rows of `start..end` of an embedded store as they are now, outside any transaction. */
  async rows<T = JsonValue>(store: string, range: KeyRange = {}, options: ReadOptions = {}): Promise<RowPage<T>> {
    return this.reads.page<T>(store, range, readOptions(options));
  }

  /**
   * Reads rows of an embedded store outside any transaction: at most 10,000 rows, with at most 8 MiB of values in
   * total. They include every commit that its node acknowledged before the call. While other read requests are in
   * flight, the read may be queued and share a request; see `coalesce`. Without rows it makes no request, and `applied`
   * is "0".
   */
  async readRows<T = JsonValue>(store: string, rows: readonly RowRead[], options: ReadOptions = {}): Promise<RowReads<T>> {
    return this.reads.rows<T>(store, rows, options);
  }

  /**
   * Reads ranges of an embedded store outside any transaction: at most 256, with at most 8 MiB of values in total. They
   * include every commit that its node acknowledged before the call. Without ranges it makes no request, and `applied`
   * is "0".
   */
  async readRanges<T = JsonValue>(store: string, ranges: readonly KeyRange[], options: ReadOptions = {}): Promise<RangeReads<T>> {
    return this.reads.ranges<T>(store, ranges, readOptions(options));
  }

  /** Returns a reader of a store's log. */
  log(store: string, options: LogOptions = {}): LogReader {
    return new LogReader(this.channel, store, options);
  }

  /**
   * Requests the state of a store at a position of its log, to start a copy: first the rows, then the log after `lsn`.
   * The rows are streamed while the image is iterated over; see `StateImage`.
   */
  async state<T = JsonValue>(store: string, options: StateOptions = {}): Promise<StateImage<T>> {
    return stateOf<T>(this.channel, store, options);
  }

  /** Declares a store, or changes one. */
  async declareStore(store: string, declaration: StoreDeclaration): Promise<StoreInfo> {
    const path = { store: segment(store) };
    optionsOf(declaration, '{ adaptor: "kv" }', declarationNames);
    return settled(
      await this.channel.ask((signal, wire) =>
        wire.PUT("/v1/stores/{store}", { params: { path }, body: declaration, signal }),
      ),
    );
  }

  /** Returns the state of a store. */
  async store(store: string): Promise<StoreInfo> {
    const path = { store: segment(store) };
    return settled(await this.channel.ask((signal, wire) => wire.GET("/v1/stores/{store}", { params: { path }, signal })));
  }

  /** Returns the state of all stores of the namespace. */
  async stores(): Promise<StoreInfo[]> {
    return settled(await this.channel.ask((signal, wire) => wire.GET("/v1/stores", { signal }))).stores;
  }

  /** Returns all consumers of the namespace's logs, with their offsets and lag. */
  async consumers(): Promise<ConsumerInfo[]> {
    return settled(await this.channel.ask((signal, wire) => wire.GET("/v1/consumers", { signal }))).consumers;
  }

  /** Returns a consumer's offset in a store's log; `undefined` if it has none there. */
  async offset(consumer: string, store: string): Promise<Offset | undefined> {
    const [sought, from] = [named(consumer), named(store)];
    const known = (await this.consumers()).find(({ name }) => name === sought);
    const at = known?.offsets.find((offset) => offset.store === from);
    return at === undefined ? undefined : { lsn: at.lsn, log: at.log };
  }

  /**
   * Sets a consumer's offset: it has processed every record up to and including `lsn`. `log` is the log that `lsn`
   * belongs to, if known: `logId` of the reader. Durable once the promise is fulfilled. Rejects with a `ClientMistake`
   * if `lsn` is past the end of the log, or `log` is not the service's log (`log_replaced`). After an `Unavailable` it
   * is unknown whether the offset was set, because no other endpoint gets what one may still take: set it again.
   */
  async setOffset(consumer: string, store: string, offset: { readonly lsn: string; readonly log?: string | undefined }): Promise<ConsumerInfo> {
    const given: unknown = offset;
    if (typeof given !== "object" || given === null) throw new Misuse("an offset such as { lsn: record.lsn } was expected, not " + String(given));
    const path = { name: segment(consumer) };
    const body = { store: named(store), lsn: offset.lsn, ...(offset.log === undefined ? {} : { log: offset.log }) };
    const call = this.channel.failover(0, this.channel.timeoutMs, "ifNotTaken");
    const reply = await this.channel.askOn(call, (signal, wire) => wire.PUT("/v1/consumers/{name}", { params: { path }, body, signal }));
    return settled(lostBy(reply) !== undefined && reply.kind === "none" ? { ...reply, text: `${reply.text}; the offset may have been set` } : reply);
  }

  /**
   * Removes a consumer, so that the log is no longer retained for it. Rejects with a `ClientMistake` with the code
   * `unknown_consumer` if there is none; with several endpoints also if a first reply was lost.
   */
  async forgetConsumer(consumer: string): Promise<void> {
    const path = { name: segment(consumer) };
    const call = this.channel.failover(0, this.channel.timeoutMs, "ifNotTaken");
    settled(await this.channel.askOn(call, async (signal, wire) => contentless(await wire.DELETE("/v1/consumers/{name}", { params: { path }, signal }))));
  }

  /** Returns the deadline for querying the outcome of a commit that was just lost. */
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
      await sleep(waitMs({ ...this.channel.retry, attemptsMax: Infinity }, failed, 0) ?? 0);
    }
    throw new OutcomeUnknown(txnId, last);
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

/** Example of the options of `begin` and `run`. */
const beginSuch = '{ stores: ["kv"] }';

/** Returns the result of one commit; its error becomes the result. */
async function inPlace(find: () => Verdict | Promise<Verdict>): Promise<BatchResult> {
  try {
    return await find();
  } catch (error) {
    if (error instanceof ClientMistake || error instanceof Unavailable || error instanceof OutcomeUnknown || error instanceof ServerMisbehaved) return error;
    throw error;
  }
}
