/** Commits that leave together: their form in a batch, and its reply as one reply per commit. */

import { Misuse } from "./errors.js";
import type { Reply } from "./exchange.js";
import type { PreparedCommit } from "./transaction.js";
import type { TxnOutcome } from "./verdict.js";
import type { Bounds } from "./coalescer.js";

/**
 * Bounds of gathered commits. A second flight commits as many per second as one (measured: 1 and 2 alike, 4 a third less),
 * fills the way to a distant service, and a request that hangs does not hold up the others.
 */
export const commitBounds: Bounds = { flightsMax: 2, itemsMax: 512, bytesMax: 4 * 1024 * 1024 };

/** A commit, and the body of its request. */
export interface Gathered {
  readonly prepared: PreparedCommit;
  readonly body: Uint8Array<ArrayBuffer>;
}

const encoder = new TextEncoder();

/** Writes the body of a commit's request. */
export function gather(prepared: PreparedCommit): Gathered {
  try {
    return { prepared, body: encoder.encode(JSON.stringify(prepared.request)) };
  } catch (cause) {
    throw new Misuse(`the commit cannot be represented in JSON: ${String(cause)}`, { cause });
  }
}

/** Returns the length of a commit's line, or a little more. */
export function lengthOf({ prepared, body }: Gathered): number {
  return body.length + 3 * prepared.txnId.length + 16;
}

/** Tells whether a commit may leave with others. A batch has one trace context, and its reply waits for the slowest. */
export function isFree(item: Gathered): boolean {
  const { traceparent, request } = item.prepared;
  return traceparent === undefined && request.ack !== "applied" && lengthOf(item) <= commitBounds.bytesMax;
}

/** Joins commits to the body of a batch: lines with the id before the other members. */
export function linesOf(items: readonly Gathered[]): Uint8Array<ArrayBuffer> {
  const parts = items.flatMap(({ prepared, body }) => {
    // The body is an object; `{}` has no other members.
    const comma = body.length > 2 ? "," : "";
    return [encoder.encode(`{"txn_id":${JSON.stringify(prepared.txnId)}${comma}`), body.subarray(1), newline];
  });
  const lines = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    lines.set(part, at);
    at += part.length;
  }
  return lines;
}

const newline = encoder.encode("\n");

/** Tells whether the service refused the form of a batch, so that each commit has to be sent on its own. */
export function isRefusedAsBatch(reply: Reply<unknown>): boolean {
  return reply.kind === "problem" && [400, 413].includes(reply.status);
}

/** Turns the reply to a batch into one reply per commit, as if each had been sent on its own. */
export function apart(reply: Reply<string>, count: number): Reply<TxnOutcome>[] {
  if (reply.kind !== "ok") return Array.from({ length: count }, () => reply);
  let outcomes: TxnOutcome[];
  try {
    outcomes = reply.data.split("\n").filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as TxnOutcome);
  } catch (cause) {
    return unreadable(`a line of a batch is no JSON: ${String(cause)}`, count);
  }
  if (outcomes.length !== count) return unreadable(`${outcomes.length} results for ${count} commits`, count);
  return outcomes.map((outcome) => singleOf(outcome, reply.headers));
}

/** Turns the result of one commit of a batch into the reply that it would have been on its own. */
export function singleOf(outcome: TxnOutcome, headers: Headers): Reply<TxnOutcome> {
  const { problem } = outcome;
  return problem === undefined ? { kind: "ok", data: outcome, headers } : { kind: "problem", status: problem.status, problem };
}

/** The commits may have arrived: each is to be resolved by its id. */
function unreadable(text: string, count: number): Reply<TxnOutcome>[] {
  return Array.from({ length: count }, () => ({ kind: "none", text, neverSent: false, untrusted: false, cause: undefined }));
}
