/** The attempts of one `run`: how many, how long to wait between them, and which abort is final. */

import { ClientMistake, TransactionAborted, Unavailable } from "./errors.js";
import { identity } from "./keys.js";
import { sleep, waitMs, type RetryPolicy } from "./retry.js";
import type { Transaction } from "./transaction.js";
import type { Aborted, Committed, Verdict } from "./verdict.js";

/** Code of a commit whose id is too old to be decided, and has no known verdict. */
const expired = "txn_id_expired";

/** The end of one attempt of `run`. */
export interface Attempt {
  /** 1 for the first. */
  readonly number: number;
  /** Absent if no transaction could begin. */
  readonly txnId: string | undefined;
  /** Absent if `error` is present. */
  readonly verdict: Verdict | undefined;
  /** Error of the work, or the reason why there is no verdict. */
  readonly error: unknown;
  /**
   * Wait before the next attempt, milliseconds; absent if this was the last. A signal that fires during the wait ends
   * the run.
   */
  readonly waitMs: number | undefined;
}

/** Counts attempts against a policy, and reports each one. */
export class Attempts {
  readonly #policy: RetryPolicy;
  readonly #signal: AbortSignal | undefined;
  readonly #report: (attempt: Attempt) => void;
  /** Rows that were refused as existing or missing: the epoch, and what the attempt had read. */
  readonly #refused = new Map<string, { readonly epoch: bigint; readonly read: string }>();
  #failed = 0;

  constructor(policy: RetryPolicy, report: (attempt: Attempt) => void, signal?: AbortSignal) {
    this.#policy = policy;
    this.#signal = signal;
    this.#report = report;
  }

  /** Repeats a request until the service is available. */
  async available<T>(ask: () => Promise<T>, txnId?: string): Promise<T> {
    for (;;) {
      try {
        return await ask();
      } catch (error) {
        await this.#unavailable({ txnId, error });
      }
    }
  }

  /**
   * Repeats a commit until the service is available. Returns `undefined`, after a wait, if the service was unavailable
   * for so long that it no longer decides the id: the work has to run again.
   */
  async decided(commit: () => Promise<Verdict>, txnId: string): Promise<Verdict | undefined> {
    for (let refused = 0; ; refused++) {
      try {
        return await commit();
      } catch (error) {
        // All earlier replies mean that nothing was decided: after any other error, the commit is not repeated. If there
        // are none, the work itself has taken too long, and would again.
        if (refused > 0 && error instanceof ClientMistake && error.code === expired) {
          await this.#pause({ txnId, error }, 0, error);
          return undefined;
        }
        await this.#unavailable({ txnId, error });
      }
    }
  }

  /** Runs the caller's work. */
  async work<T>(txn: Transaction, work: (txn: Transaction) => Promise<T> | T): Promise<T> {
    try {
      return await work(txn);
    } catch (error) {
      this.#end({ txnId: txn.id, error }, undefined);
      throw error;
    }
  }

  /** Reports the commit. */
  committed(verdict: Committed): void {
    this.#end({ txnId: verdict.txnId, verdict }, undefined);
  }

  /** Waits before the next attempt; throws if the abort is final or was the last. */
  async aborted(txn: Transaction, verdict: Aborted): Promise<void> {
    const error = new TransactionAborted(verdict, this.#failed + 1);
    if (!this.#mayPass(txn, verdict)) {
      this.#end({ txnId: txn.id, verdict }, undefined);
      throw error;
    }
    await this.#pause({ txnId: txn.id, verdict }, verdict.retryAfterMs, error);
  }

  /** Returns whether another attempt may pass. */
  #mayPass(txn: Transaction, verdict: Aborted): boolean {
    // The client itself fenced the transaction after losing the request: the work was not refused.
    if (verdict.reason === "fenced") return true;
    if (!verdict.retryable) return false;
    if (verdict.reason !== "row_exists" && verdict.reason !== "row_missing") return true;
    // Work that reads nothing would repeat the same writes. Other work gets a fresh read: an attempt whose snapshot
    // includes the epoch that refused the row. If it reads the same versions, the work does not depend on the change.
    // If it reads others, another commit may have intervened, as before the first refusal.
    if (txn.blind) return false;
    const [conflict] = verdict.conflicts;
    const store = conflict?.store ?? "";
    const row = `${store}/${conflict === undefined ? "" : identity(conflict.key)}`;
    const [refused, read] = [this.#refused.get(row), txn.versionsRead];
    if (refused?.read !== read) {
      this.#refused.set(row, { epoch: BigInt(verdict.epoch), read });
      return true;
    }
    const snapshot = txn.snapshots[store];
    return snapshot !== undefined && BigInt(snapshot) < refused.epoch;
  }

  /** Waits before a request is repeated; throws if the error is final or was the last. */
  async #unavailable({ txnId, error }: Partial<Attempt>): Promise<void> {
    if (!(error instanceof Unavailable)) {
      this.#end({ txnId, error }, undefined);
      throw error;
    }
    await this.#pause({ txnId, error }, error.retryAfterMs, error);
  }

  async #pause(ended: Partial<Attempt>, askedMs: number, error: Error): Promise<void> {
    if (this.#signal?.aborted === true) {
      this.#end(ended, undefined);
      throw this.#signal.reason;
    }
    const wait = waitMs(this.#policy, this.#failed + 1, askedMs);
    this.#end(ended, wait);
    if (wait === undefined) throw error;
    await sleep(wait, this.#signal);
  }

  #end({ txnId, verdict, error }: Partial<Attempt>, wait: number | undefined): void {
    this.#failed += 1;
    this.#report({ number: this.#failed, txnId, verdict, error, waitMs: wait });
  }
}
