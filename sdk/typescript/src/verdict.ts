/** Verdicts: what the service decided, finally. */

import { errorOf, ServerMisbehaved } from "./errors.js";
import { keyOf, type Key } from "./keys.js";
import type { components } from "./wire/schema.js";

/** What became of a transaction, as it is on the wire. */
export type TxnOutcome = components["schemas"]["TxnOutcome"];

/** Durable and final. */
export interface Committed {
  readonly status: "committed";
  readonly txnId: string;
  /** Epoch that decided it. */
  readonly epoch: string;
  /** Arrival stamp; read-only transactions have none. */
  readonly csn: string | undefined;
  /** Version of every row written; absent if nothing was. */
  readonly version: string | undefined;
  /** Position in the log of each store written. */
  readonly lsn: Readonly<Record<string, string>>;
  /** Pass it to a Begin that must see this commit. */
  readonly session: string | undefined;
  /** With `ack: "applied"`: whether every store had applied it in time. */
  readonly applied: boolean | undefined;
  /** The verdict had been given before: this was a repetition, or a lost reply was asked for. */
  readonly replayed: boolean;
}

/** Final; the transaction left no trace. */
export interface Aborted {
  readonly status: "aborted";
  readonly txnId: string;
  /** `read_conflict`, `write_conflict`, `range_conflict`, `row_exists`, `row_missing` and so on. */
  readonly reason: string;
  /** Whether the same work on fresh reads, under a new id, may commit. */
  readonly retryable: boolean;
  /** How long to wait before that, milliseconds. */
  readonly retryAfterMs: number;
  /** What defeated it. */
  readonly conflicts: readonly Conflict[];
  /** The verdict had been given before: this was a repetition, or a lost reply was asked for. */
  readonly replayed: boolean;
}

/** A verdict: look at `status`. */
export type Verdict = Committed | Aborted;

/** One thing that defeated a transaction. */
export interface Conflict {
  readonly store: string;
  /** The row's key, or the range's start. */
  readonly key: Key;
  /** The range's end. */
  readonly end: Key | undefined;
  /** Which operation lost: `read`, `range` or `write`. */
  readonly op: string;
  /** Station that found it. */
  readonly stage: string;
  /** Version that the transaction had read. */
  readonly readVersion: string | undefined;
  /** Version that is there now. */
  readonly currentVersion: string | undefined;
  /** The winner, if it is of the same epoch. */
  readonly byTxn: string | undefined;
}

/** Reads a verdict. */
export function verdictOf(outcome: TxnOutcome, replayed: boolean): Verdict {
  const txnId = outcome.txn_id ?? "";
  switch (outcome.status) {
    case "committed":
      return {
        status: "committed",
        txnId,
        epoch: outcome.epoch ?? "0",
        csn: outcome.csn,
        version: outcome.version,
        lsn: outcome.lsn ?? {},
        session: outcome.session,
        applied: outcome.applied,
        replayed,
      };
    case "aborted":
      return {
        status: "aborted",
        txnId,
        reason: outcome.reason ?? "",
        retryable: outcome.retryable ?? false,
        retryAfterMs: outcome.retry_after_ms ?? 0,
        conflicts: (outcome.conflicts ?? []).map((conflict) => ({
          store: conflict.store,
          key: keyOf(conflict.key, conflict.key_b64) ?? "",
          end: keyOf(conflict.end, conflict.end_b64),
          op: conflict.op,
          stage: conflict.stage,
          readVersion: conflict.read_version,
          currentVersion: conflict.current_version,
          byTxn: conflict.by_txn,
        })),
        replayed,
      };
    default:
      if (outcome.problem !== undefined) throw errorOf(outcome.problem);
      throw new ServerMisbehaved(`status ${outcome.status} where a verdict was due`);
  }
}
