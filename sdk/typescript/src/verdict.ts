/** Verdicts: the final decisions of the service. */

import { ClientMistake, errorOf, OutcomeUnknown, ServerMisbehaved } from "./errors.js";
import { settled, type Reply } from "./exchange.js";
import { keyOf, type Key } from "./keys.js";
import type { components } from "./wire/schema.js";

/** The state of a transaction, in its wire form. */
export type TxnOutcome = components["schemas"]["TxnOutcome"];

/** The transaction is durable. */
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
  /** Token for a Begin elsewhere that must see this commit; this client's own transactions do by default. */
  readonly session: string | undefined;
  /** With `ack: "applied"`: whether every store had applied it in time. */
  readonly applied: boolean | undefined;
  /** Whether the verdict is an earlier one: the request was a repetition, or its first reply was lost. */
  readonly replayed: boolean;
  /** W3C trace context of the server's span, if the request was traced. */
  readonly traceparent: string | undefined;
}

/** The transaction had no effect. */
export interface Aborted {
  readonly status: "aborted";
  readonly txnId: string;
  /** Epoch that decided it. */
  readonly epoch: string;
  /**
   * `read_conflict`, `write_conflict`, `range_conflict`, `row_exists`, `row_missing` and so on. A newer service may
   * have reasons that this client does not know.
   */
  readonly reason: string;
  /** With reason `plugin`: the code that the isolation validator returned. */
  readonly pluginCode: number | undefined;
  /** Whether the same work on fresh reads, under a new id, may commit. */
  readonly retryable: boolean;
  /** Wait before that attempt, milliseconds. */
  readonly retryAfterMs: number;
  /** The rows and ranges that defeated it. */
  readonly conflicts: readonly Conflict[];
  /** Whether the verdict is an earlier one: the request was a repetition, or its first reply was lost. */
  readonly replayed: boolean;
  /** W3C trace context of the server's span, if the request was traced. */
  readonly traceparent: string | undefined;
}

/** A verdict, distinguished by its `status`. */
export type Verdict = Committed | Aborted;

/** A row or range that defeated a transaction. */
export interface Conflict {
  readonly store: string;
  /** The row's key, or the range's start. */
  readonly key: Key;
  /** The range's end; `undefined` if it extends to the end of the store, and for a row. */
  readonly end: Key | undefined;
  /** For a range: the first row in it that the winner wrote, if the server still remembers. */
  readonly row: Key | undefined;
  /** Which operation lost: `read`, `range` or `write`. */
  readonly op: string;
  /** Stage of the pipeline that found it. */
  readonly stage: string;
  /** Version that the transaction had read. */
  readonly readVersion: string | undefined;
  /** Version that the row has now. */
  readonly currentVersion: string | undefined;
  /** The transaction that won, if the server still remembers. */
  readonly byTxn: string | undefined;
}

/** Reads a verdict. */
export function verdictOf(outcome: TxnOutcome, replayed: boolean, traceparent?: string): Verdict {
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
        traceparent,
      };
    case "aborted":
      return {
        status: "aborted",
        txnId,
        epoch: outcome.epoch ?? "0",
        reason: outcome.reason ?? "",
        pluginCode: outcome.plugin_code,
        retryable: outcome.retryable ?? false,
        retryAfterMs: outcome.retry_after_ms ?? 0,
        conflicts: (outcome.conflicts ?? []).map((conflict) => ({
          store: conflict.store,
          key: keyOf(conflict.key, conflict.key_b64) ?? "",
          end: keyOf(conflict.end, conflict.end_b64),
          row: keyOf(conflict.row, conflict.row_b64),
          op: conflict.op,
          stage: conflict.stage,
          readVersion: conflict.read_version,
          currentVersion: conflict.current_version,
          byTxn: conflict.by_txn,
        })),
        replayed,
        traceparent,
      };
    default:
      if (outcome.problem !== undefined) throw errorOf(outcome.problem);
      throw unexpected(outcome.status);
  }
}

/** Statuses that are not verdicts. A newer service may have further ones. */
const noVerdicts: readonly (string | undefined)[] = ["in_flight", "unknown", "unknown_expired", "would_commit", "would_abort", "problem", undefined];

/** Returns the error of a status that is not a verdict. */
export function unexpected(status: string | undefined): ServerMisbehaved {
  if (noVerdicts.includes(status)) return new ServerMisbehaved(`status ${status ?? "absent"} where a verdict was expected`);
  return new ServerMisbehaved(`status \`${status ?? ""}\`, which this client does not know: the client is older than the server`);
}

/** Returns the verdict of a reply. */
export function verdict(reply: Reply<TxnOutcome>): Verdict {
  // An item of a batch has no header of its own.
  const replayed = reply.kind === "ok" && (reply.headers.get("idempotency-replayed") === "true" || reply.data.replayed === true);
  return verdictOf(settled(reply), replayed, traceparentOf(reply));
}

/** The codes of a commit whose id an earlier request may have used: the service no longer has its verdict. */
const forgotten: readonly string[] = ["txn_id_forgotten", "verdict_truncated"];

/**
 * Returns the verdict of a commit. The commit was accepted if the service answered without an error: if the answer
 * cannot be understood, a status request would get the same answer.
 */
export function decided(txnId: string, reply: Reply<TxnOutcome>): Verdict {
  try {
    return verdict(reply);
  } catch (error) {
    const isForgotten = error instanceof ClientMistake && forgotten.includes(error.code);
    if (isForgotten || (reply.kind === "ok" && error instanceof ServerMisbehaved)) throw new OutcomeUnknown(txnId, error.message, error);
    throw error;
  }
}

function traceparentOf(reply: Reply<unknown>): string | undefined {
  return reply.kind === "ok" ? (reply.headers.get("traceparent") ?? undefined) : undefined;
}
