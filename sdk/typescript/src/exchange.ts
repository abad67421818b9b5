/** One request and its response: what counts as a reply, what as lost, and what as final. Never repeats a request. */

import { errorOf, Misuse, ServerMisbehaved, Unavailable } from "./errors.js";
import type { Problem } from "./errors.js";

/** The result of a call of the wire client. */
export interface Exchanged<T> {
  data?: T | undefined;
  error?: unknown;
  response: Response;
}

/**
 * What is wrong with the client's configuration, so that a retry cannot help: TLS refuses the certificate, or the
 * address is `http` where it should be `https`, or the other way round.
 */
export type Wrong = "certificate" | "scheme";

/** A response of any status, or none. A refusal without a problem came from something in place of the service. */
export type Reply<T> =
  | { readonly kind: "ok"; readonly data: T; readonly headers: Headers }
  | { readonly kind: "problem"; readonly status: number; readonly problem: Problem | undefined; readonly endpoint?: string }
  | { readonly kind: "none"; readonly text: string; readonly neverSent: boolean; readonly wrong: Wrong | undefined; readonly problem: Problem | undefined; readonly cause: unknown };

/** Makes one call. */
export async function exchange<T>(call: () => Promise<Exchanged<T>>): Promise<Reply<T>> {
  let exchanged: Exchanged<T>;
  try {
    exchanged = await call();
  } catch (cause) {
    if (cause instanceof Misuse) throw cause;
    if (cause instanceof Error && cause.cause instanceof Error && cause.cause.message === "bad port") {
      throw new Misuse("`fetch` connects to no port that browsers block, such as 6000 or 10080: choose another, or pass a `fetch`", { cause });
    }
    const isRefused = isUntrusted(cause) || isAlert(cause);
    const wrong = isUntrusted(cause) ? "certificate" : isAlert(cause) || isPlain(cause) ? "scheme" : undefined;
    return { kind: "none", text: described(cause), neverSent: isRefused || neverSent(cause), wrong, problem: undefined, cause };
  }
  const { data, error, response } = exchanged;
  const foreign = foreignType(response) ?? emptyStatus(exchanged);
  if (foreign !== undefined) return { kind: "none", text: foreign, neverSent: false, wrong: undefined, problem: undefined, cause: undefined };
  if (response.ok) return { kind: "ok", data: data as T, headers: response.headers };
  const endpoint = response.url === "" ? {} : { endpoint: new URL(response.url).origin };
  return { kind: "problem", status: response.status, problem: isProblem(error) ? error : undefined, ...endpoint };
}

/**
 * Returns what is wrong with the content type of a success that did not come from the service, such as the login page
 * of a proxy.
 */
function foreignType({ ok, status, headers }: Response): string | undefined {
  const given = headers.get("content-type");
  // Text may still be JSON; parsing decides.
  if (!ok || given === null || /^(application\/|text\/plain)/i.test(given)) return undefined;
  return `status ${status} with content type \`${given}\`, which no answer of Tribunal has`;
}

/** Returns what is wrong with a success without content, such as that of a proxy that lost the content. */
function emptyStatus({ data, response: { ok, status } }: Exchanged<unknown>): string | undefined {
  return ok && data === undefined ? `status ${status} without content` : undefined;
}

/** Returns the result of a call whose success has no content. */
export function contentless(exchanged: Exchanged<unknown>): Exchanged<null> {
  return exchanged.response.ok ? { ...exchanged, data: null } : { ...exchanged, data: undefined };
}

/** Returns why the outcome of a commit is not known; `undefined` if the reply contains it, or nothing was sent. */
export function lostBy(reply: Reply<unknown>): string | undefined {
  switch (reply.kind) {
    case "ok":
      return undefined;
    case "none":
      return reply.neverSent ? undefined : reply.text;
    case "problem":
      // 409: the same id is waiting for its verdict. The others do not reveal whether the commit was accepted. Nor does
      // an error of a server other than Tribunal, such as the 503 of a proxy whose connection broke.
      return [409, 500, 502, 504].includes(reply.status) || (reply.status >= 500 && reply.problem === undefined) ? refusalText(reply) : undefined;
  }
}

/** Returns the data of a reply, or throws the corresponding error. */
export function settled<T>(reply: Reply<T>): T {
  switch (reply.kind) {
    case "ok":
      return reply.data;
    case "none":
      // The client was closed.
      if (reply.cause instanceof Misuse) throw reply.cause;
      if (reply.wrong === "scheme") throw new Misuse(`tribunal cannot be reached: ${reply.text}`, { cause: reply.cause });
      if (reply.wrong === "certificate") {
        throw new Misuse(`the server's certificate is not trusted: ${reply.text}; name its authority in \`caFile\``, {
          cause: reply.cause,
        });
      }
      throw new Unavailable(`tribunal cannot be reached: ${reply.text}`, reply.problem, reply.cause);
    case "problem":
      if (reply.problem !== undefined) throw errorOf(reply.problem);
      if (reply.status >= 500) throw new Unavailable(refusalText(reply));
      throw new ServerMisbehaved(`${refusalText(reply)} without a problem document: is this the address of Tribunal?`);
  }
}

/** Returns the status of a refusal and its origin. */
function refusalText({ status, endpoint }: { readonly status: number; readonly endpoint?: string }): string {
  return endpoint === undefined ? `status ${status}` : `${endpoint}: status ${status}`;
}

function isProblem(body: unknown): body is Problem {
  return typeof body === "object" && body !== null && "code" in body && "retryable" in body && "status" in body;
}

/** Codes of failures before the first byte of a request is sent. */
const neverSentCodes = ["ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"];

/** Codes of the same if connecting failed. An established connection may end with them, too, after a request was sent. */
const unconnectedCodes = ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"];

/**
 * OpenSSL's errors for a response without TLS. The request may have been sent nevertheless: an intermediary may answer
 * after it.
 */
const plainResponse = /wrong version number|packet length too long/;

/** Codes with which Node.js refuses a certificate. */
const untrustedCodes =
  /^(CERT_|ERR_TLS_CERT_|SELF_SIGNED_CERT|DEPTH_ZERO_SELF_SIGNED|UNABLE_TO_(GET_ISSUER|VERIFY_LEAF)|HOSTNAME_MISMATCH|INVALID_CA|INVALID_PURPOSE)/;

function neverSent(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  const errors: unknown[] = cause instanceof AggregateError ? cause.errors : [cause];
  return errors.every((one) => neverSentCodes.includes(codeOf(one)) || (unconnectedCodes.includes(codeOf(one)) && isOfConnect(one)));
}

/** Returns whether TLS refused the server's certificate: a retry cannot help. */
function isUntrusted(error: unknown): boolean {
  return untrustedCodes.test(codeOf(error instanceof Error ? error.cause : undefined));
}

/** Returns whether the response to a request without TLS was an alert of TLS, whose server accepted nothing. */
function isAlert(error: unknown): boolean {
  const cause: unknown = error instanceof Error ? error.cause : undefined;
  return cause instanceof Error && "data" in cause && typeof cause.data === "string" && cause.data.startsWith("\x15\x03");
}

/** Returns whether the response to a request with TLS was one without. The request may have been sent nevertheless. */
function isPlain(error: unknown): boolean {
  return error instanceof Error && error.cause instanceof Error && plainResponse.test(error.cause.message);
}

function isOfConnect(error: unknown): boolean {
  return error instanceof Error && "syscall" in error && error.syscall === "connect";
}

function codeOf(error: unknown): string {
  return error instanceof Error && "code" in error && typeof error.code === "string" ? error.code : "";
}

function described(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  const cause = error.cause instanceof Error ? error.cause.message : "";
  if (isAlert(error)) return `${error.message}: does the service speak TLS there? Then use https://`;
  if (isPlain(error)) return `${error.message}: the server does not speak TLS: is its address http://?`;
  return cause === "" ? error.message : `${error.message}: ${cause}`;
}
