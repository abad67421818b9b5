/** Endpoints that reply by a script, and clients of several of them. */

import assert from "node:assert/strict";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { after } from "node:test";
import { setTimeout as sleep } from "node:timers/promises";

import { Client, type ClientOptions, type PreparedCommit } from "../src/index.js";

/** A response: its status and body, its lines, or a foreign page; no content with a length of 0; or none: the connection breaks, or stays silent. */
export type Reply = readonly [number, unknown] | { readonly lines: readonly unknown[] } | { readonly page: string; readonly type: string; readonly status?: number } | { readonly empty: number } | { readonly afterMs: number; readonly reply: Reply } | "lost" | "silent";

/** Gets the kind of a request, the ids in it, and how many requests came before. */
export type Script = (kind: string, ids: readonly string[], before: number) => Reply;

export interface Endpoint {
  readonly url: string;
  /** Path and body of each request. */
  readonly asked: (readonly [string, string])[];
}

const stops: (() => void)[] = [];
after(() => {
  for (const stop of stops) stop();
});

export async function endpoint(script: Script): Promise<Endpoint> {
  const asked: [string, string][] = [];
  const server = createServer((request, response) => {
    void respond(script, asked, request, response);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  stops.push(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, asked };
}

async function respond(script: Script, asked: [string, string][], request: IncomingMessage, response: ServerResponse): Promise<void> {
  let text = "";
  for await (const chunk of request) text += String(chunk);
  const path = request.url ?? "";
  asked.push([path, text]);
  let reply = script(kindOf(path), idsOf(path, text), asked.length - 1);
  if (typeof reply === "object" && "afterMs" in reply) {
    await sleep(reply.afterMs);
    reply = reply.reply;
  }
  if (reply === "lost") request.socket.destroy();
  else if (reply === "silent" || "afterMs" in reply) return;
  else if ("empty" in reply) response.writeHead(reply.empty, { "content-type": "application/json", ...(reply.empty === 204 ? {} : { "content-length": 0 }) }).end();
  else if ("page" in reply) response.writeHead(reply.status ?? 200, { "content-type": reply.type }).end(reply.page);
  else if ("lines" in reply) response.writeHead(200).end(reply.lines.map((line) => `${JSON.stringify(line)}\n`).join(""));
  else response.writeHead(reply[0], { "content-type": "application/json" }).end(JSON.stringify(reply[1]));
}

export function kindOf(path: string): string {
  if (path === "/v1/txns") return "begin";
  if (path.endsWith("/batch-commit")) return "batch";
  if (path.endsWith("/commit")) return "commit";
  return path.startsWith("/v1/txns/") ? "status" : "other";
}

function idsOf(path: string, body: string): string[] {
  const lines = body.split("\n").filter((line) => line !== "");
  if (kindOf(path) !== "batch") return [path.split(/[/?]/)[3] ?? ""];
  return lines.map((line) => (JSON.parse(line) as { txn_id: string }).txn_id);
}

export function committed(id: string | undefined): object {
  return { status: "committed", txn_id: id, epoch: "9", csn: "7", version: "5", lsn: { kv: "3" }, session: "s" };
}

export function problem(status: number, code: string): object {
  return { type: "about:blank", title: "x", status, detail: "says so", code, retryable: status >= 500, errors: [] };
}

export const refused = (status: number, code: string): Reply => [status, problem(status, code)];

export function works(kind: string, ids: readonly string[]): Reply {
  switch (kind) {
    case "begin":
      return [201, { txn_id: "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", snapshots: { kv: "7" }, epoch: "8", expires_at: "2026-01-01T00:00:00Z", session: "s" }];
    case "commit":
    case "status":
      return [200, committed(ids[0])];
    case "batch":
      return { lines: ids.map(committed) };
    default:
      return [200, { stores: [] }];
  }
}

/** The times suit a busy machine: the expected events do not wait for them to elapse. */
export function clientOf(urls: readonly string[], options: ClientOptions = {}): Client {
  const times = { timeoutMs: 60_000, resolveTimeoutMs: 60_000, endpointTimeoutMs: 30_000 };
  return new Client(urls, { ...times, retry: { attemptsMax: 4 }, ...options });
}

export function prepared(client: Client): PreparedCommit {
  const txn = client.beginLocal();
  txn.add("kv", "n", 1);
  return txn.prepare();
}

export async function commits(client: Client, commit = prepared(client)): Promise<void> {
  const verdict = await client.commit(commit);
  assert.deepEqual([verdict.status, verdict.txnId], ["committed", commit.txnId]);
}
