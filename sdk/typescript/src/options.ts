/** Options of a client and of a transaction. */

import type { Attempt } from "./attempts.js";
import type { Consistency, RangesToRead, RowsToRead } from "./reads.js";
import type { RetryOptions } from "./retry.js";
import type { IsolationLevel } from "./transaction.js";

/** Options of a client. */
export interface ClientOptions {
  /** API key or token, sent as a bearer token. */
  readonly apiKey?: string | undefined;
  /** PEM file with the certificate authorities to trust over https instead of the default ones; Node.js only. */
  readonly caFile?: string | undefined;
  /** Name of this client, for rules that are fair between clients. */
  readonly clientName?: string | undefined;
  /**
   * Timeout of one request, in addition to the time that the request itself may wait, in milliseconds; 30 s by default.
   * Several endpoints share it. It bounds a whole read, including its retries.
   */
  readonly timeoutMs?: number | undefined;
  /**
   * How long to query the outcome of a lost commit before failing with `OutcomeUnknown`, in milliseconds; 30 s by
   * default.
   */
  readonly resolveTimeoutMs?: number | undefined;
  /**
   * How long an endpoint may take to answer a request, beyond the request's own wait, before the client tries an
   * endpoint that it has not tried yet. The last one gets all the remaining time. In milliseconds; 2 s by default.
   */
  readonly endpointTimeoutMs?: number | undefined;
  /** How long an endpoint that failed is skipped, if there are others, in milliseconds; 10 s by default. */
  readonly endpointCoolDownMs?: number | undefined;
  /** Bounds of the retries of `run`, of reads and of log readers. */
  readonly retry?: RetryOptions | undefined;
  /** Whether a transaction sees what this client has committed to the stores that it names; true by default. */
  readonly readOwnWrites?: boolean | undefined;
  /**
   * Whether concurrent commits, Begins and reads of rows are sent as batches (see `Client.commit`); true by default.
   */
  readonly coalesce?: boolean | undefined;
  /** Called at the end of each attempt of `run`. Must not throw. */
  readonly onAttempt?: ((attempt: Attempt) => void) | undefined;
  /** Replaces the global `fetch`, and `caFile` with it. */
  readonly fetch?: ((request: Request) => Promise<Response>) | undefined;
}

/** Options of a transaction. */
export interface BeginOptions {
  /** Stores that the transaction will use; if absent, all stores of the namespace. */
  readonly stores?: readonly string[] | undefined;
  /** Isolation level; `serializable` by default. */
  readonly isolation?: IsolationLevel | undefined;
  /** Token of a commit that the snapshots must include, instead of this client's own latest one. */
  readonly session?: string | undefined;
  /**
   * What the snapshots include: `session` (by default) what this client has committed; `fresh` everything that any
   * node of the cluster acknowledged to any client before the call.
   */
  readonly consistency?: Consistency | undefined;
  /** How long to wait until the snapshots include that, in milliseconds; 5 s by default. */
  readonly waitMs?: number | undefined;
  /** W3C trace context of the caller: sent with the commit, and kept in the log. */
  readonly traceparent?: string | undefined;
  /**
   * Keys of rows of embedded stores, by store, to read in the same request: `Transaction.get` returns them without
   * another request. Rows that are never fetched with `get` do not count as read.
   */
  readonly read?: RowsToRead | undefined;
  /**
   * Ranges of embedded stores, by store, to read in the same request: `Transaction.scan` with the same bounds and limit
   * returns the rows without another request. Ranges that are never scanned do not count as read.
   */
  readonly ranges?: RangesToRead | undefined;
  /**
   * Ends the call: the promise is rejected with the signal's reason. `run` makes no further attempt, and does not wait
   * for the work; if a commit has been sent, its promise is rejected with an `OutcomeUnknown` that has the reason as
   * its cause. The reads of a transaction take a signal of their own.
   */
  readonly signal?: AbortSignal | undefined;
}
