/**
 * A service that replies by a script, for behavior that a live server does not show on demand: overload, aborts, a
 * certificate.
 */

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { createServer, type IncomingMessage, type RequestListener } from "node:http";
import { createServer as createHttpsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

/** A request as it arrived. */
export interface Arrived {
  readonly kind: string;
  readonly traceparent: string | undefined;
  readonly body: Record<string, unknown>;
}

/** Status and body of a response. */
export type Scripted = readonly [status: number, body: unknown];

export interface Service {
  readonly url: string;
  readonly arrived: Arrived[];
  stop(): void;
}

/** A self-signed certificate for `localhost`. */
export interface Certificate {
  readonly cert: Buffer;
  readonly key: Buffer;
  readonly file: string;
}

/** Starts a service. The script gets the kind of a request and how many of the kind came before. */
export async function start(script: (kind: string, before: number) => Scripted, tls?: Certificate): Promise<Service> {
  const arrived: Arrived[] = [];
  const listener: RequestListener = (request, response) => {
    void bodyOf(request).then((body) => {
      const kind = kindOf(request);
      const before = arrived.filter((one) => one.kind === kind).length;
      const traceparent = request.headers["traceparent"];
      arrived.push({ kind, traceparent: typeof traceparent === "string" ? traceparent : undefined, body });
      const [status, reply] = script(kind, before);
      response.writeHead(status, { "content-type": "application/json", traceparent: "00-server" });
      response.end(JSON.stringify(reply));
    });
  };
  const server = tls === undefined ? createServer(listener) : createHttpsServer({ cert: tls.cert, key: tls.key }, listener);
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: tls === undefined ? `http://127.0.0.1:${port}` : `https://localhost:${port}`,
    arrived,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
}

/** Creates a certificate; `remove` deletes its files. */
export function certificate(): Certificate & { remove: () => void } {
  const folder = mkdtempSync(join(tmpdir(), "tribunal-certificate-"));
  const [file, key] = [join(folder, "cert.pem"), join(folder, "key.pem")];
  const subject = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost"];
  execFileSync(
    "openssl",
    ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", ...subject, "-keyout", key, "-out", file],
    { stdio: "ignore" },
  );
  return {
    cert: readFileSync(file),
    key: readFileSync(key),
    file,
    remove: () => {
      rmSync(folder, { recursive: true });
    },
  };
}

export function begun(number: number, snapshot = 7): Scripted {
  return [201, { txn_id: `019${number}163d-8694-7000-8000-000000000000`, snapshots: { kv: String(snapshot) }, epoch: "8", expires_at: "2026-01-01T00:00:00Z", session: "s" }];
}

export function committed(epoch = 9): Scripted {
  return [200, { status: "committed", txn_id: "txn", epoch: String(epoch), version: "1", lsn: { kv: "3" }, session: `token-${epoch}` }];
}

export function aborted(reason: string, epoch = 9): Scripted {
  const conflicts = [{ store: "kv", key: "a", op: "write", stage: "join" }];
  return [200, { status: "aborted", txn_id: "txn", epoch: String(epoch), reason, retryable: true, conflicts }];
}

export const overloaded: Scripted = [
  503,
  { type: "about:blank", title: "x", status: 503, detail: "too busy", code: "overloaded", retryable: true, errors: [] },
];

async function bodyOf(request: IncomingMessage): Promise<Record<string, unknown>> {
  let text = "";
  for await (const chunk of request) text += String(chunk);
  return text === "" ? {} : (JSON.parse(text) as Record<string, unknown>);
}

function kindOf({ method, url = "" }: IncomingMessage): string {
  if (url.startsWith("/v1/txns/") && method === "GET") return "status";
  if (url.endsWith("/rows/read")) return "rows";
  if (method !== "POST") return "other";
  return url === "/v1/txns" ? "begin" : url.endsWith("/batch-commit") ? "batch" : url.endsWith("/commit") ? "commit" : "other";
}
