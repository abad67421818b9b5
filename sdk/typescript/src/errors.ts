/** What can go wrong, by who can do something about it. A verdict is none of it, except at the end of `run`. */

import type { Aborted } from "./verdict.js";
import type { components } from "./wire/schema.js";

/** Why there is no decision, as the service says it (RFC 9457). */
export type Problem = components["schemas"]["Problem"];
/** One fault of a request: a JSON pointer, a code, a sentence. */
export type ProblemError = components["schemas"]["ProblemError"];

/** Any error of this package. */
export class TribunalError extends Error {
  override readonly name: string = "TribunalError";
}

/** The request is wrong and will be wrong again: `errors` says where. */
export class ClientMistake extends TribunalError {
  override readonly name = "ClientMistake";
  readonly retryable = false;
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(`${problem.code}: ${problem.detail}${pointers(problem)}`);
    this.problem = problem;
  }

  /** What happened, for programs: `unknown_store`, `log_truncated`, `txn_id_reused` and so on. */
  get code(): string {
    return this.problem.code;
  }

  /** Every fault that was found in the request. */
  get errors(): readonly ProblemError[] {
    return this.problem.errors ?? [];
  }
}

/** Nothing was decided; the same request may work later. */
export class Unavailable extends TribunalError {
  override readonly name = "Unavailable";
  readonly retryable = true;
  /** What the service said; absent if it could not be reached. */
  readonly problem: Problem | undefined;

  constructor(message: string, problem?: Problem, cause?: unknown) {
    super(message, { cause });
    this.problem = problem;
  }

  /** What happened, for programs; `unreachable` if the service could not be asked. */
  get code(): string {
    return this.problem?.code ?? "unreachable";
  }

  /** When to try again, milliseconds. */
  get retryAfterMs(): number {
    return this.problem?.retry_after_ms ?? 0;
  }
}

/** The transaction may or may not have committed, and nobody could be asked. Ask for its status by its id. */
export class OutcomeUnknown extends TribunalError {
  override readonly name = "OutcomeUnknown";
  readonly txnId: string;

  constructor(txnId: string, message: string) {
    super(`the outcome of transaction ${txnId} is unknown: ${message}`);
    this.txnId = txnId;
  }
}

/** The end of `run`: the transaction aborted, for good or once too often. */
export class TransactionAborted extends TribunalError {
  override readonly name = "TransactionAborted";
  readonly aborted: Aborted;

  constructor(aborted: Aborted) {
    const first = aborted.conflicts[0];
    const at = first === undefined ? "" : ` at ${first.store}/${String(first.key)}`;
    super(`transaction ${aborted.txnId} aborted: ${aborted.reason}${at}`);
    this.aborted = aborted;
  }
}

/** The server's answer makes no sense to this client. */
export class ServerMisbehaved extends TribunalError {
  override readonly name = "ServerMisbehaved";
}

/** The client was used in a way that cannot work. */
export class Misuse extends TribunalError {
  override readonly name = "Misuse";
}

/** Makes the error that a problem document stands for. */
export function errorOf(problem: Problem): ClientMistake | Unavailable {
  return problem.retryable || problem.status >= 500
    ? new Unavailable(`${problem.code}: ${problem.detail}`, problem)
    : new ClientMistake(problem);
}

function pointers(problem: Problem): string {
  const faults = (problem.errors ?? []).map((fault) => `${fault.pointer}: ${fault.detail}`);
  return faults.length === 0 ? "" : ` (${faults.join("; ")})`;
}
