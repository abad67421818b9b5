/** Errors, classified by who can act on them. A verdict is not an error, except at the end of `run`. */

import type { Aborted } from "./verdict.js";
import type { components } from "./wire/schema.js";

/** The service's description of an error (RFC 9457). */
export type Problem = components["schemas"]["Problem"];
/** One error of a request: a JSON pointer, a code, a sentence. */
export type ProblemError = components["schemas"]["ProblemError"];

/** Any error of this package. */
export class TribunalError extends Error {
  override readonly name: string = "TribunalError";
}

/** The request is wrong, and so would be a retry; `errors` has the details. */
export class ClientMistake extends TribunalError {
  override readonly name = "ClientMistake";
  readonly retryable = false;
  readonly problem: Problem;

  constructor(problem: Problem) {
    super(`${problem.code}: ${problem.detail}${pointers(problem)}`);
    this.problem = problem;
  }

  /** Code of the error, for programs: `unknown_store`, `log_truncated`, `body_mismatch` and so on. */
  get code(): string {
    return this.problem.code;
  }

  /** All faults found in the request. */
  get errors(): readonly ProblemError[] {
    return this.problem.errors ?? [];
  }
}

/** Nothing was decided, and the same request may succeed later. */
export class Unavailable extends TribunalError {
  override readonly name = "Unavailable";
  readonly retryable = true;
  /** The service's problem document; absent if the service could not be reached. */
  readonly problem: Problem | undefined;

  constructor(message: string, problem?: Problem, cause?: unknown) {
    super(message, { cause });
    this.problem = problem;
  }

  /** Code of the error, for programs; `unreachable` if the service could not be reached. */
  get code(): string {
    return this.problem?.code ?? "unreachable";
  }

  /** How long to wait before a retry, milliseconds. */
  get retryAfterMs(): number {
    return this.problem?.retry_after_ms ?? 0;
  }
}

/** It is not known whether the transaction committed. Its status can be requested by its id. */
export class OutcomeUnknown extends TribunalError {
  override readonly name = "OutcomeUnknown";
  readonly txnId: string;

  constructor(txnId: string, message: string, cause?: unknown) {
    super(`the outcome of transaction ${txnId} is unknown: ${message}`, { cause });
    this.txnId = txnId;
  }
}

/** `run` has ended without a commit: the last abort was final, or the retries are used up. */
export class TransactionAborted extends TribunalError {
  override readonly name = "TransactionAborted";
  readonly aborted: Aborted;
  /** How many attempts `run` made. */
  readonly attempts: number;

  constructor(aborted: Aborted, attempts: number) {
    const first = aborted.conflicts[0];
    const at = first === undefined ? "" : ` at ${first.store}/${String(first.key)}`;
    super(`transaction ${aborted.txnId} aborted: ${aborted.reason}${at}, after ${attempts} ${attempts === 1 ? "attempt" : "attempts"}`);
    this.aborted = aborted;
    this.attempts = attempts;
  }
}

/** The server's response violates the API, or comes from a newer server and is unknown to this client. */
export class ServerMisbehaved extends TribunalError {
  override readonly name = "ServerMisbehaved";
}

/** The client is used or configured in a way that cannot work. */
export class Misuse extends TribunalError {
  override readonly name = "Misuse";
}

/** Code of a refusal: no node of the service's log issued the session token. */
export const sessionUnknown = "session_unknown";

/** Creates the error for a problem document. */
export function errorOf(problem: Problem): ClientMistake | Unavailable {
  return problem.retryable || problem.status >= 500
    ? new Unavailable(`${problem.code}: ${problem.detail}`, problem)
    : new ClientMistake(problem);
}

/** Lists the errors that the detail of a problem does not already contain. */
function pointers(problem: Problem): string {
  const missing = (problem.errors ?? []).filter((fault) => !problem.detail.includes(fault.detail));
  const faults = missing.map((fault) => `${fault.pointer}: ${fault.detail}`);
  return faults.length === 0 ? "" : ` (${faults.join("; ")})`;
}
