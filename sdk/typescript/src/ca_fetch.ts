/** A `fetch` for Node.js that trusts the certificate authorities of a PEM file and no others. */

import type { Agent, RequestOptions } from "node:https";
import type { IncomingMessage } from "node:http";

import { Misuse } from "./errors.js";

/** Statuses whose responses have no body. */
const bodiless = [204, 205, 304];

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
  const { request: open } = await import("node:https");
  const options: RequestOptions = {
    method: request.method,
    headers: { ...Object.fromEntries(request.headers), ...(body === undefined ? {} : { "content-length": body.length }) },
    agent,
    signal: request.signal,
  };
  return new Promise((resolve, reject) => {
    // As `fetch` does: the reason is the cause.
    const fail = (cause: Error): void => {
      reject(request.signal.aborted ? (request.signal.reason as Error) : new TypeError("fetch failed", { cause }));
    };
    const sent = open(request.url, options, (message) => {
      collected(message).then(resolve, fail);
    });
    sent.on("error", fail);
    sent.end(body);
  });
}

async function collected(message: IncomingMessage): Promise<Response> {
  const chunks: Buffer[] = [];
  for await (const chunk of message) chunks.push(chunk as Buffer);
  const status = message.statusCode ?? 500;
  const headers = new Headers();
  for (const [name, value] of Object.entries(message.headers)) {
    for (const one of [value ?? []].flat()) headers.append(name, one);
  }
  return new Response(bodiless.includes(status) ? null : Buffer.concat(chunks), { status, headers });
}
