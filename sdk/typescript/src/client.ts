/** The client: one method per question, and `run` for work that may be repeated. */

import createClient, { type Client as WireClient } from "openapi-fetch";

import { ClientMistake, errorOf, Misuse, OutcomeUnknown, ServerMisbehaved, TransactionAborted, Unavailable } from "./errors.js";
import type { Problem } from "./errors.js";
import type { components, paths } from "./wire/schema.js";
import type { JsonValue } from "./json.js";
import { keyOf, normal, percentEncoded, successor, type Key } from "./keys.js";
import { LogReader, valueOf, type LogOptions } from "./log.js";
import { defaultRetry, sleep, waitMs, type RetryPolicy } from "./retry.js";
import { Transaction, type IsolationLevel, type PreparedCommit } from "./transaction.js";
import { uuidv7 } from "./uuid.js";
import { verdictOf, type Committed, type TxnOutcome, type Verdict } from "./verdict.js";

export type StoreInfo = components["schemas"]["StoreInfo"];
export type StoreDeclaration = components["schemas"]["StoreDeclaration"];
type LogPage = components["schemas"]["LogPage"];

/** How a client behaves. */
export interface ClientOptions {
  /** API key or token, if the server asks for one. */
  readonly apiKey?: string | undefined;
  /** Name of this client, for rules that are fair between clients. */
  readonly clientName?: string;
  /** Bound for one answer, beyond what a request itself asks to wait, milliseconds; 30 s by default. */
  readonly timeoutMs?: number;
  /** How long a lost reply is asked for before it becomes `OutcomeUnknown`, milliseconds; 30 s by default. */
  readonly resolveTimeoutMs?: number;
  /** Bounds of `run` and of log readers. */
  readonly retry?: Partial<RetryPolicy>;
  /** What to use instead of the global `fetch`. */
  readonly fetch?: (request: Request) => Promise<Response>;
}

/** How a transaction begins. */
export interface BeginOptions {
  /** Stores that it will use; all of the namespace if absent. */
  readonly stores?: readonly string[];
  /** Isolation level; `serializable` by default. */
  readonly isolation?: IsolationLevel;
  /** Token of an earlier commit whose writes must be visible. */
  readonly session?: string | undefined;
  /** How long to wait for that, milliseconds. */
  readonly waitMs?: number;
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
  /** Snapshot that they reflect. */
  readonly applied: string;
  readonly rows: readonly Row[];
  /** There are further rows in the range. */
  readonly more: boolean;
}

/** What became of a transaction: a verdict, or why there is none (yet). */
export type TxnStatus = Verdict | { readonly status: "in_flight" | "unknown" | "unknown_expired"; readonly txnId: string };

/** The work of `run`. May run several times, and must have no other effect than on its transaction. */
export type Work<T> = (txn: Transaction) => Promise<T> | T;

/** What a call of the wire client ends with. */
interface Exchanged<T> {
  data?: T | undefined;
  error?: unknown;
  response: Response;
}

/** An answer, whatever its status; or none. */
type Answer<T> =
  | { readonly kind: "ok"; readonly data: T; readonly headers: Headers }
  | { readonly kind: "problem"; readonly status: number; readonly problem: Problem | undefined }
  | { readonly kind: "none"; readonly text: string; readonly neverSent: boolean; readonly cause: unknown };

/** A client of one service. Safe to share. */
export class Client {
  /** @internal */
  readonly retry: RetryPolicy;
  readonly #wire: WireClient<paths>;
  readonly #timeoutMs: number;
  readonly #resolveTimeoutMs: number;
  readonly #header: { "tribunal-client"?: string };

  /** Builds a client for `http://host:port`. Connects when it is used. */
  constructor(url: string, options: ClientOptions = {}) {
    if (!URL.canParse(url) || !/^https?:/.test(url)) throw new Misuse(`\`${url}\` is not of the form http://host:port`);
    this.retry = { ...defaultRetry, ...options.retry };
    this.#timeoutMs = options.timeoutMs ?? 30_000;
    this.#resolveTimeoutMs = options.resolveTimeoutMs ?? 30_000;
    this.#header = options.clientName === undefined ? {} : { "tribunal-client": options.clientName };
    this.#wire = createClient<paths>({
      baseUrl: url,
      headers: options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` },
      ...(options.fetch === undefined ? {} : { fetch: options.fetch }),
      // Keys are any bytes: parameters arrive here percent-encoded.
      pathSerializer: (path, parameters) => path.replace(/\{(\w+)\}/g, (_, name: string) => String(parameters[name])),
      querySerializer: (query: Record<string, unknown>) =>
        Object.entries(query)
          .filter(([, value]) => value !== undefined)
          .map(([name, value]) => `${name}=${String(value)}`)
          .join("&"),
    });
  }

  /** Begins a transaction at the service, which gives the snapshots. */
  async begin(options: BeginOptions = {}): Promise<Transaction> {
    const isolation = options.isolation ?? "serializable";
    const body: components["schemas"]["BeginRequest"] = { isolation };
    if (options.stores !== undefined) body.stores = [...options.stores];
    if (options.session !== undefined) body.session = options.session;
    if (options.waitMs !== undefined) body.wait_ms = options.waitMs;
    const begun = settled(
      await this.#ask((signal) => this.#wire.POST("/v1/txns", { body, signal }), options.waitMs),
    );
    return new Transaction(this, begun.txn_id, isolation, begun);
  }

  /**
   * Begins a transaction without asking: under an id of its own and without snapshots. Such a transaction may use
   * `tracked` stores only, no ranges, and read nothing at level `snapshot`.
   */
  beginLocal(isolation: IsolationLevel = "serializable"): Transaction {
    return new Transaction(this, uuidv7(), isolation);
  }

  /**
   * Runs `work` in a transaction and commits it; on a retryable abort again, on fresh reads, with growing waits.
   * Throws what `work` throws, and `TransactionAborted` for a final abort or the last attempt's. An existing or missing
   * row is final for work that read nothing: it would write the same again.
   */
  async run<T>(work: Work<T>, options: BeginOptions = {}): Promise<{ value: T; committed: Committed }> {
    let failed = 0;
    const pause = async (askedMs: number, error: Error): Promise<void> => {
      const wait = waitMs(this.retry, ++failed, askedMs);
      if (wait === undefined) throw error;
      await sleep(wait);
    };
    const patiently = async <R>(ask: () => Promise<R>): Promise<R> => {
      for (;;) {
        try {
          return await ask();
        } catch (error) {
          if (!(error instanceof Unavailable)) throw error;
          await pause(error.retryAfterMs, error);
        }
      }
    };
    for (;;) {
      const txn = await patiently(() => this.begin(options));
      const value = await work(txn);
      const prepared = txn.prepare();
      // Nothing was decided while it is unavailable, so the same may be sent again: the id makes that safe.
      const verdict = await patiently(() => this.commit(prepared));
      if (verdict.status === "committed") return { value, committed: verdict };
      // A fence of ours means that the request was lost on its way: the work itself was not refused.
      const again = verdict.retryable ? !(txn.blind && existence.includes(verdict.reason)) : verdict.reason === "fenced";
      if (!again) throw new TransactionAborted(verdict);
      await pause(verdict.retryAfterMs, new TransactionAborted(verdict));
    }
  }

  /** Asks for the verdict of a prepared commit. May be repeated: the same id gets the same answer. */
  async commit(prepared: PreparedCommit): Promise<Verdict> {
    const answer = await this.#ask((signal) =>
      this.#wire.POST("/v1/txns/{txn_id}/commit", {
        params: { path: { txn_id: percentEncoded(prepared.txnId) }, header: this.#header },
        body: prepared.request,
        signal,
      }),
    );
    const lost = lostBy(answer);
    return lost === undefined ? verdict(answer) : this.#resolve(prepared.txnId, lost);
  }

  /** Asks for many verdicts in one request; answers in the same order, a problem of one commit in its place. */
  async batch(commits: readonly PreparedCommit[]): Promise<(Verdict | ClientMistake | Unavailable | OutcomeUnknown)[]> {
    const txns = commits.map(({ txnId, request }) => ({ txn_id: txnId, ...request }));
    const answer = await this.#ask((signal) => this.#wire.POST("/v1/txns/batch-commit", { body: { txns }, signal }));
    const lost = lostBy(answer);
    if (lost !== undefined) {
      return Promise.all(commits.map(({ txnId }) => inPlace(() => this.#resolve(txnId, lost))));
    }
    // The other form of the answer, NDJSON, comes only to those who post NDJSON.
    const { results } = settled(answer) as components["schemas"]["BatchCommitResponse"];
    if (results.length !== commits.length) {
      throw new ServerMisbehaved(`${results.length} results for ${commits.length} commits`);
    }
    return Promise.all(results.map((result) => inPlace(() => verdictOf(result, false))));
  }

  /**
   * Asks what became of a transaction, waiting at most `waitMs` for a verdict. With `fence`, one that never arrived
   * never will.
   */
  async status(txnId: string, options: { fence?: boolean; waitMs?: number } = {}): Promise<TxnStatus> {
    const { fence = false, waitMs = 0 } = options;
    const outcome = settled(
      await this.#ask(
        (signal) =>
          this.#wire.GET("/v1/txns/{txn_id}", {
            params: { path: { txn_id: percentEncoded(txnId) }, query: { wait_ms: waitMs, fence } },
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
        return verdictOf(outcome, true);
    }
  }

  /** Records that a transaction will never commit, and returns what stands. */
  async abort(txnId: string): Promise<Verdict> {
    const path = { txn_id: percentEncoded(txnId) };
    return verdict(await this.#ask((signal) => this.#wire.POST("/v1/txns/{txn_id}/abort", { params: { path }, signal })));
  }

  /** Asks whether a commit would pass now, alone: `would_commit` or `would_abort`. Changes nothing. */
  async validate(prepared: PreparedCommit): Promise<TxnOutcome> {
    const path = { txn_id: percentEncoded(prepared.txnId) };
    const body = prepared.request;
    return settled(
      await this.#ask((signal) => this.#wire.POST("/v1/txns/{txn_id}/validate", { params: { path }, body, signal })),
    );
  }

  /** Reads a row of an embedded store, outside any transaction. */
  async row<T = JsonValue>(store: string, key: Key): Promise<Row<T> | undefined> {
    const name = normal(key);
    if (name === "" || name === "." || name === "..") {
      // No path has such a last segment: dots are resolved before it is sent.
      return (await this.rows(store, { start: name, end: successor(name), limit: 1 })).rows[0] as Row<T> | undefined;
    }
    const path = { store: percentEncoded(store), key: percentEncoded(name) };
    const answer = await this.#ask((signal) =>
      this.#wire.GET("/v1/stores/{store}/rows/{key}", { params: { path }, signal }),
    );
    // Absence of the row is an answer; absence of the store is a mistake, and comes with a code of its own.
    if (answer.kind === "problem" && answer.problem?.code === "row_missing") return undefined;
    const row = settled(answer);
    return row.version === undefined ? undefined : (rowOf(row) as Row<T>);
  }

  /** Reads at most `limit` rows of `start..end` of an embedded store, outside any transaction. */
  async rows(
    store: string,
    range: { start?: Key; end?: Key | undefined; limit?: number } = {},
  ): Promise<RowPage> {
    const query: { start?: string; end?: string; limit?: number } = {};
    if (range.start !== undefined) query.start = percentEncoded(normal(range.start));
    if (range.end !== undefined) query.end = percentEncoded(normal(range.end));
    if (range.limit !== undefined) query.limit = range.limit;
    const path = { store: percentEncoded(store) };
    const page = settled(
      await this.#ask((signal) => this.#wire.GET("/v1/stores/{store}/rows", { params: { path, query }, signal })),
    );
    return { applied: page.applied, rows: page.rows.map(rowOf), more: page.more };
  }

  /** Returns a reader of a store's log. */
  log(store: string, options: LogOptions = {}): LogReader {
    return new LogReader(this, store, options);
  }

  /** @internal */
  async logPage(store: string, after: string, limit: number, waitMs: number, stop?: AbortSignal): Promise<LogPage> {
    const query = { store: percentEncoded(store), after: percentEncoded(after), limit, wait_ms: waitMs };
    const answer = await this.#ask(
      (signal) =>
        this.#wire.GET("/v1/log", {
          params: { query },
          signal: stop === undefined ? signal : AbortSignal.any([signal, stop]),
        }),
      waitMs,
    );
    stop?.throwIfAborted();
    // The other forms of the answer, streams, come only to those who accept them.
    return settled(answer) as LogPage;
  }

  /** Declares a store, or changes one. */
  async declareStore(store: string, declaration: StoreDeclaration): Promise<StoreInfo> {
    const path = { store: percentEncoded(store) };
    return settled(
      await this.#ask((signal) =>
        this.#wire.PUT("/v1/stores/{store}", { params: { path }, body: declaration, signal }),
      ),
    );
  }

  /** Returns where a store stands. */
  async store(store: string): Promise<StoreInfo> {
    const path = { store: percentEncoded(store) };
    return settled(await this.#ask((signal) => this.#wire.GET("/v1/stores/{store}", { params: { path }, signal })));
  }

  /** Returns all stores of the namespace. */
  async stores(): Promise<StoreInfo[]> {
    return settled(await this.#ask((signal) => this.#wire.GET("/v1/stores", { signal }))).stores;
  }

  /** Settles a transaction whose reply was lost: it committed, or a fence makes sure that it never does. */
  async #resolve(txnId: string, lost: string): Promise<Verdict> {
    const deadline = performance.now() + this.#resolveTimeoutMs;
    let last = lost;
    for (let failed = 1; performance.now() < deadline; failed++) {
      try {
        const found = await this.status(txnId, { fence: true, waitMs: 1000 });
        if (found.status === "committed" || found.status === "aborted") return found;
        last = `its status is ${found.status}`;
        if (found.status === "unknown_expired") break;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        last = error.message;
      }
      await sleep(waitMs({ ...this.retry, attemptsMax: Infinity }, failed, 0) ?? 0);
    }
    throw new OutcomeUnknown(txnId, last);
  }

  /** Asks, within the time-out. Never repeats. */
  async #ask<T>(call: (signal: AbortSignal) => Promise<Exchanged<T>>, waitMs = 0): Promise<Answer<T>> {
    let exchanged: Exchanged<T>;
    try {
      exchanged = await call(AbortSignal.timeout(this.#timeoutMs + waitMs));
    } catch (cause) {
      return { kind: "none", text: described(cause), neverSent: neverSent(cause), cause };
    }
    const { data, error, response } = exchanged;
    if (response.ok && data !== undefined) return { kind: "ok", data, headers: response.headers };
    return { kind: "problem", status: response.status, problem: isProblem(error) ? error : undefined };
  }
}

/** Reasons that work which reads nothing would meet again. */
const existence = ["row_exists", "row_missing"];

/** Tells why nobody knows what became of a commit; `undefined` if the answer says it. */
function lostBy(answer: Answer<unknown>): string | undefined {
  switch (answer.kind) {
    case "ok":
      return undefined;
    case "none":
      return answer.neverSent ? undefined : answer.text;
    case "problem":
      // 409: the same id waits for its verdict. The others: taken in or not, nobody can tell.
      return [409, 500, 502, 504].includes(answer.status) ? `status ${answer.status}` : undefined;
  }
}

function settled<T>(answer: Answer<T>): T {
  switch (answer.kind) {
    case "ok":
      return answer.data;
    case "none":
      throw new Unavailable(`tribunal cannot be reached: ${answer.text}`, undefined, answer.cause);
    case "problem":
      if (answer.problem !== undefined) throw errorOf(answer.problem);
      if (answer.status >= 500) throw new Unavailable(`status ${answer.status}`);
      throw new ServerMisbehaved(`status ${answer.status} without a problem`);
  }
}

function verdict(answer: Answer<TxnOutcome>): Verdict {
  const replayed = answer.kind === "ok" && answer.headers.get("idempotency-replayed") === "true";
  return verdictOf(settled(answer), replayed);
}

/** Puts the failure of one commit in its place. */
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

function rowOf(row: components["schemas"]["Row"]): Row {
  const key = keyOf(row.key, row.key_b64);
  if (key === undefined) throw new ServerMisbehaved("a row without a key");
  return { key, value: valueOf(row) ?? null, version: row.version };
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "code" in body && "retryable" in body && "status" in body;
}

/** Codes of failures before the first byte of a request is sent. */
const neverSentCodes = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH", "UND_ERR_CONNECT_TIMEOUT"];

function neverSent(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  const errors: unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
  return errors.every(
    (one) => one instanceof Error && "code" in one && typeof one.code === "string" && neverSentCodes.includes(one.code),
  );
}

function described(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  return error.cause instanceof Error && error.cause.message !== "" ? `${error.message}: ${error.cause.message}` : error.message;
}
