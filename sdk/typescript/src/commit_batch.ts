/** Batches of commits: encodes commits as lines of a batch, and splits its response into one reply per commit. */

import { Misuse } from "./errors.js";
import type { Reply } from "./exchange.js";
import type { PreparedCommit } from "./transaction.js";
import type { TxnOutcome } from "./verdict.js";
import { headStartMs, type Bounds } from "./coalescer.js";

/**
 * Bounds of coalesced commits. A second request in flight hides the latency of a distant service, and keeps one slow
 * response from stalling every session.
 */
export const commitBounds: Bounds = { inFlightMax: 2, headStartMs, itemsMax: 512, bytesMax: 4 * 1024 * 1024 };

/** A commit and the body of its request. */
export interface CommitItem {
  readonly prepared: PreparedCommit;
  readonly body: Uint8Array<ArrayBuffer>;
}

/**
 * Kinds of commits, which determine the batch that they share. One that writes nothing is decided without a log sync,
 * and would wait for one in a batch with writes.
 */
export type CommitKind = "readOnly" | "writes";

/** Returns the kind of a commit. */
export function kindOf({ prepared }: CommitItem): CommitKind {
  return prepared.request.writes?.length ? "writes" : "readOnly";
}

const encoder = new TextEncoder();
/** Largest body of a request, bytes. */
const requestBytesMax = 10 * 1024 * 1024;

/** Encodes the body of a commit's request. */
export function commitItem(prepared: PreparedCommit): CommitItem {
  checkCommit(prepared);
  return { prepared, body: bodyOf(prepared.request) };
}

/** Checks that a commit is a prepared one. Passing a transaction is a likely mistake. */
export function checkCommit(prepared: PreparedCommit): void {
  const given = prepared as Partial<PreparedCommit> | undefined;
  if (typeof given?.txnId === "string" && typeof given.request === "object") return;
  throw new Misuse("a commit was expected as `Transaction.prepare` returns it, with `txnId` and `request`");
}

/** Returns how long the service may wait for the stores of commits before it answers. */
export function applyWaitMs(commits: readonly PreparedCommit[]): number {
  return commits.some(({ request }) => request.ack === "applied") ? 30_000 : 0;
}

/**
 * Encodes the body of a request. A body that is too large is not sent: the service closes the connection when it
 * refuses a body in transit, which may lose the refusal and leave the outcome unknown.
 */
export function bodyOf(request: object): Uint8Array<ArrayBuffer> {
  let body: Uint8Array<ArrayBuffer>;
  try {
    body = encoder.encode(JSON.stringify(request));
  } catch (cause) {
    throw new Misuse(`the commit cannot be represented in JSON: ${String(cause)}`, { cause });
  }
  if (body.length <= requestBytesMax) return body;
  throw new Misuse(`a request of ${body.length} bytes is too large, ${requestBytesMax} is the limit: split it`);
}

/** Returns an upper bound of the length of a commit's line, unless JSON escapes characters of its id. */
export function lengthOf({ prepared, body }: CommitItem): number {
  return body.length + 3 * prepared.txnId.length + 16;
}

/**
 * Returns whether a commit may be sent in a batch. A batch has one trace context, and is answered only when the slowest
 * of its commits is.
 */
export function isBatchable(item: CommitItem): boolean {
  const { traceparent, request } = item.prepared;
  return traceparent === undefined && request.ack !== "applied" && lengthOf(item) <= commitBounds.bytesMax;
}

/** Encodes the body of a batch: one line per commit, its body with the id as the first member. */
export function linesOf(items: readonly CommitItem[]): Uint8Array<ArrayBuffer> {
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

/**
 * Returns whether the service rejected the batch as such, so that each commit has to be sent as a request of its own.
 */
export function isRefusedAsBatch(reply: Reply<unknown>): boolean {
  return reply.kind === "problem" && [400, 413].includes(reply.status);
}

/** Splits the reply to a batch into one reply per commit, as if each had been a request of its own. */
export function splitReply(reply: Reply<string>, count: number): Reply<TxnOutcome>[] {
  if (reply.kind !== "ok") return Array.from({ length: count }, () => reply);
  let outcomes: TxnOutcome[];
  try {
    outcomes = reply.data.split("\n").filter((line) => line.trim() !== "").map((line) => JSON.parse(line) as TxnOutcome);
  } catch (cause) {
    return unreadable(`a line of the batch's response is not JSON: ${String(cause)}`, count);
  }
  if (outcomes.length !== count) return unreadable(`${outcomes.length} results for ${count} commits`, count);
  return outcomes.map((outcome) => singleOf(outcome, reply.headers));
}

/** Turns the result of one commit of a batch into the reply that a request of its own would have received. */
export function singleOf(outcome: TxnOutcome, headers: Headers): Reply<TxnOutcome> {
  const { problem } = outcome;
  return problem === undefined ? { kind: "ok", data: outcome, headers } : { kind: "problem", status: problem.status, problem };
}

/** Makes replies to commits that may have taken effect: each must be resolved by its id. */
function unreadable(text: string, count: number): Reply<TxnOutcome>[] {
  return Array.from({ length: count }, () => ({ kind: "none", text, neverSent: false, wrong: undefined, problem: undefined, cause: undefined }));
}
