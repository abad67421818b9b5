/** A `fetch` for Node.js that trusts the certificate authorities of a PEM file and no others. */

import type { Agent, RequestOptions } from "node:https";
import type { IncomingMessage } from "node:http";

import { Misuse } from "./errors.js";

/** Statuses whose responses have no body. */
const bodiless = [204, 205, 304];
/** Bytes of a response that are buffered ahead of its reader. */
const bufferBytes = 64 * 1024;
/** Sockets with a listener for errors after the end of their request. */
const guarded = new WeakSet();

/** Returns a `fetch` over connections that are kept alive. The file is read on the first request. */
export function caFetch(caFile: string): (request: Request) => Promise<Response> {
  let agent: Promise<Agent> | undefined;
  return async (request) => {
    agent ??= agentFor(caFile);
    const body = request.body === null ? undefined : Buffer.from(await request.arrayBuffer());
    return send(request, body, await agent);
  };
}

async function agentFor(caFile: string): Promise<Agent> {
  // Imported here, so that runtimes without these modules can load the package.
  const [{ readFile }, { Agent: HttpsAgent }] = await Promise.all([import("node:fs/promises"), import("node:https")]);
  let ca: string;
  try {
    ca = await readFile(caFile, "utf8");
  } catch (cause) {
    throw new Misuse(`the CA file \`${caFile}\` cannot be read: ${String(cause)}`, { cause });
  }
  if (!ca.includes("-----BEGIN CERTIFICATE-----")) throw new Misuse(`the CA file \`${caFile}\` has no PEM certificate`);
  return new HttpsAgent({ ca, keepAlive: true });
}

async function send(request: Request, body: Buffer | undefined, agent: Agent): Promise<Response> {
  const [{ request: open }, { Readable }] = await Promise.all([import("node:https"), import("node:stream")]);
  const options: RequestOptions = {
    method: request.method,
    headers: { ...Object.fromEntries(request.headers), ...(body === undefined ? {} : { "content-length": body.length }) },
    agent,
    signal: request.signal,
  };
  // In bytes: by default it counts chunks, 16,384 of them, which would load a whole log into memory.
  const strategy = new ByteLengthQueuingStrategy({ highWaterMark: bufferBytes });
  return new Promise((resolve, reject) => {
    const sent = open(request.url, options, (message) => {
      resolve(responseOf(message, () => Readable.toWeb(message, { strategy }) as ReadableStream<Uint8Array>));
    });
    // If the service answers and closes before it has read the request, a late write failure has no listener.
    sent.on("socket", (socket) => {
      if (!guarded.has(socket)) socket.on("error", () => undefined);
      guarded.add(socket);
    });
    sent.on("error", (cause) => {
      // Like `fetch`: the reason is the `cause`.
      reject(request.signal.aborted ? (request.signal.reason as Error) : new TypeError("fetch failed", { cause }));
    });
    sent.end(body);
  });
}

/** Converts the head of a response. Its body is read as it arrives: a stream of the log has no end. */
function responseOf(message: IncomingMessage, body: () => ReadableStream<Uint8Array>): Response {
  const status = message.statusCode ?? 500;
  const headers = new Headers();
  for (const [name, value] of Object.entries(message.headers)) {
    for (const one of [value ?? []].flat()) headers.append(name, one);
  }
  if (!bodiless.includes(status)) return new Response(body(), { status, headers });
  message.resume();
  return new Response(null, { status, headers });
}
