/**
 * One call on the endpoints of a service: where to send it next, for how long, and when to give up.
 *
 * With one endpoint, a request is sent once. With several, it moves to the next one after a failure, in rounds. Every
 * request of this client may be repeated, except for changes of a consumer: it changes nothing, or has no further effect;
 * a commit is decided once, by its id. A copy of a change of a consumer that is taken late would undo a later one. A
 * reader whose records were truncated at one endpoint is sent to the others, too, because each node truncates its own
 * log.
 */

import type { Endpoints } from "./endpoints.js";
import type { Problem } from "./errors.js";
import type { Reply, Wrong } from "./exchange.js";
import { sleep, waitMs, type RetryPolicy } from "./retry.js";

/** How often each of several endpoints is tried for one call. */
const roundsMax = 2;

/** Codes of what an endpoint no longer has, but another one may have. */
const truncated = ["log_truncated", "state_gone"];

/** Refusals because of a request's size, which every endpoint would repeat. */
const aboutTheRequest = [413, 414, 431];

/** When a request may be sent to another endpoint after a failure: always, or only if it was certainly not taken. */
export type Repeat = "always" | "ifNotTaken";

/** Why an endpoint has not answered a request. */
export interface Failure {
  readonly text: string;
  /** The request may have taken effect. */
  readonly maybeTaken: boolean;
  /** What is wrong with the configuration of the client. */
  readonly wrong: Wrong | undefined;
  readonly problem: Problem | undefined;
  readonly cause: unknown;
}

/**
 * Returns why a reply does not count as one: the connection failed, the endpoint is unavailable, or something else is
 * in its place. `overloaded` is an answer: the same load would follow to the next endpoint.
 */
export function failureOf(reply: Reply<unknown>): Failure | undefined {
  if (reply.kind === "none") {
    const { text, neverSent, wrong, problem, cause } = reply;
    return { text, maybeTaken: !neverSent, wrong, problem, cause };
  }
  if (reply.kind === "ok") return undefined;
  const { status, problem } = reply;
  // Without a problem document, a 503 comes from an intermediary, which may have forwarded the request.
  const refuses = status === 503 && problem !== undefined;
  const maybeTaken = status >= 500 && !refuses;
  if (problem === undefined) {
    if (aboutTheRequest.includes(status)) return undefined;
    return { text: `status ${status} without a problem document`, maybeTaken, wrong: undefined, problem, cause: undefined };
  }
  if (![502, 503, 504].includes(status) || !problem.retryable || problem.code === "overloaded") return undefined;
  return { text: `${status} ${problem.code}: ${problem.detail}`, maybeTaken, wrong: undefined, problem, cause: undefined };
}

/**
 * Returns the reply to a commit whose copy another endpoint may have accepted: a refusal of this copy does not reveal
 * the fate of the other.
 */
export function inDoubt<T>(reply: Reply<T>, maybeTaken: boolean): Reply<T> {
  if (!maybeTaken || reply.kind === "ok") return reply;
  const text = reply.kind === "none" ? reply.text : `${reply.status} ${reply.problem?.code ?? ""}`.trim();
  return { kind: "none", text, neverSent: false, wrong: undefined, problem: undefined, cause: undefined };
}

/** The attempts of one call. */
export class Failover {
  readonly #endpoints: Endpoints;
  readonly #retry: RetryPolicy;
  readonly #waitMs: number;
  readonly #deadline: number;
  readonly #repeat: Repeat;
  readonly #tried: number[];
  /** The latest failure of each endpoint. */
  readonly #failures: (Failure | undefined)[];
  #at = 0;
  #maybeTaken = false;
  /** The first refusal of an endpoint that no longer has the records. */
  #truncated: Extract<Reply<never>, { readonly kind: "problem" }> | undefined;

  /** Begins a call that may take `timeoutMs`, in addition to the time that the request itself may wait. */
  constructor(endpoints: Endpoints, retry: RetryPolicy, ownWaitMs: number, timeoutMs: number, repeat: Repeat = "always") {
    this.#endpoints = endpoints;
    this.#retry = retry;
    this.#waitMs = ownWaitMs;
    this.#repeat = repeat;
    this.#deadline = performance.now() + ownWaitMs + timeoutMs;
    this.#tried = endpoints.urls.map(() => 0);
    this.#failures = endpoints.urls.map(() => undefined);
  }

  /** Whether there is only one endpoint. */
  get isSingle(): boolean {
    return this.#tried.length === 1;
  }

  /** The endpoint of the latest attempt. */
  get endpoint(): number {
    return this.#at;
  }

  /** Whether some attempt may have taken effect. */
  get maybeTaken(): boolean {
    return this.#maybeTaken;
  }

  /**
   * Chooses the endpoint of the next attempt, after a wait if all have had their turn. Returns the timeout of the
   * attempt in milliseconds; `undefined` if none is left. The signal ends the wait.
   */
  async next(signal?: AbortSignal): Promise<number | undefined> {
    const round = Math.min(...this.#tried);
    if (round >= (this.isSingle ? 1 : roundsMax)) return undefined;
    if (round > 0 && this.#tried.every((tried) => tried === round || tried === roundsMax)) {
      const pause = waitMs(this.#retry, round, this.#retryAfterMs());
      if (pause === undefined || performance.now() + pause >= this.#deadline) return undefined;
      await sleep(pause, signal);
    }
    const left = Math.max(0, this.#deadline - performance.now());
    if (left === 0 && this.#tried.some((tried) => tried > 0)) return undefined;
    const at = this.#endpoints.choose((one) => this.#tried[one] === round);
    if (at === undefined) return undefined;
    // Each endpoint left to try in this round gets an equal share of the time.
    const others = this.#tried.filter((tried) => tried === round).length;
    this.#at = at;
    this.#tried[at] = round + 1;
    // No other endpoint gets what this one may take.
    if (this.#repeat === "ifNotTaken") return Math.ceil(left);
    const share = Math.max(0, left - this.#waitMs) / others;
    const isCut = this.#endpoints.hasRested((one) => this.#tried[one] === 0);
    return Math.ceil(Math.min(left, this.#waitMs + (isCut ? Math.min(share, this.#endpoints.timeoutMs) : share)));
  }

  /**
   * Records how the latest attempt ended. Returns whether its reply is the call's reply, so that no other attempt
   * follows.
   */
  isOver(failure: Failure | undefined): boolean {
    if (failure === undefined) {
      this.#endpoints.works(this.#at);
      return true;
    }
    // An endpoint that lags works: it waited for the commits that the request must see.
    if (failure.problem?.code === "store_lagging") this.#tried[this.#at] = roundsMax;
    else this.#endpoints.failed(this.#at);
    this.#failures[this.#at] = failure;
    if (!this.isSingle && failure.maybeTaken) this.#maybeTaken = true;
    // The service decides no transaction while it stops, but may still make another change.
    const isInDoubt = failure.maybeTaken || failure.problem?.code === "stopping";
    return this.isSingle || (this.#repeat === "ifNotTaken" && isInDoubt);
  }

  /** Records whether the endpoint of the latest attempt no longer has the records. Another one may have them. */
  isTruncated(reply: Reply<unknown>): boolean {
    if (this.isSingle || reply.kind !== "problem" || reply.status !== 410 || reply.problem === undefined) return false;
    if (!truncated.includes(reply.problem.code)) return false;
    this.#endpoints.works(this.#at);
    this.#tried[this.#at] = roundsMax;
    this.#failures[this.#at] = undefined;
    this.#truncated ??= reply;
    return true;
  }

  /**
   * Returns the result of a stream that no endpoint has sent. If one of them no longer has the records, it is that
   * refusal, with the others that were not reached.
   */
  nowhere(): Reply<never> {
    const refusal = this.#truncated;
    if (refusal?.problem === undefined) return this.exhausted();
    const reasons = this.#reasons();
    const text =
      reasons === ""
        ? "none of this client's endpoints has enough of the log"
        : `none of this client's endpoints that answered has enough of the log, and these did not: ${reasons}`;
    return { ...refusal, problem: { ...refusal.problem, detail: `${refusal.problem.detail}; ${text}` } };
  }

  /** Lists each endpoint that failed, and why. */
  #reasons(): string {
    const each = this.#endpoints.urls.flatMap((url, at) => {
      const text = this.#failures[at]?.text;
      return text === undefined ? [] : [`${url}: ${text}`];
    });
    return each.join("; ");
  }

  /** Returns the result of a call that has no attempt left. */
  exhausted(): Reply<never> {
    const failures = this.#failures.filter((failure) => failure !== undefined);
    return {
      kind: "none",
      text: `no endpoint has answered: ${this.#reasons()}`,
      neverSent: !this.#maybeTaken,
      wrong: failures.every(({ wrong }) => wrong !== undefined) ? failures[0]?.wrong : undefined,
      problem: failures.find(({ problem }) => problem !== undefined)?.problem,
      cause: failures[0]?.cause,
    };
  }

  /** The shortest wait that an endpoint asked for, milliseconds. */
  #retryAfterMs(): number {
    const asked = this.#failures.flatMap((failure) => failure?.problem?.retry_after_ms ?? []);
    return asked.length === 0 ? 0 : Math.min(...asked);
  }
}
