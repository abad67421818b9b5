/** A service that holds commit requests back until the test answers them, and records them. */

import { once } from "node:events";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

import type { TxnOutcome } from "../src/index.js";

/** A commit request as it arrived. */
export interface Held {
  /** Whether it used the batch route. */
  readonly batch: boolean;
  readonly traceparent: string | undefined;
  readonly ids: readonly string[];
  /** Answers with a status and a body. */
  readonly answer: (status: number, body: string) => void;
}

export class HoldingService {
  /** The commit requests, in order of arrival. */
  readonly held: Held[] = [];
  readonly #server = createServer((request, response) => {
    void this.#arrived(request, response);
  });

  static async start(): Promise<HoldingService> {
    const service = new HoldingService();
    service.#server.listen(0, "127.0.0.1");
    await once(service.#server, "listening");
    return service;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  /** Waits for the request with this number, from 0. */
  async request(number: number): Promise<Held> {
    for (;;) {
      const held = this.held[number];
      if (held !== undefined) return held;
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  stop(): void {
    this.#server.closeAllConnections();
    this.#server.close();
  }

  async #arrived(request: IncomingMessage, response: ServerResponse): Promise<void> {
    let text = "";
    for await (const chunk of request) text += String(chunk);
    const { url = "" } = request;
    const answer = (status: number, body: string): void => {
      response.writeHead(status, { "content-type": status === 200 && batch ? "application/x-ndjson" : "application/json" });
      response.end(body);
    };
    const batch = url.endsWith("/batch-commit");
    if (request.method === "GET") {
      answer(200, JSON.stringify(committed(url.slice("/v1/txns/".length).split("?")[0] ?? "")));
      return;
    }
    const lines = text.split("\n").filter((line) => line !== "");
    const ids = batch ? lines.map((line) => (JSON.parse(line) as { txn_id: string }).txn_id) : [url.split("/")[3] ?? ""];
    const traceparent = request.headers["traceparent"];
    this.held.push({ batch, traceparent: typeof traceparent === "string" ? traceparent : undefined, ids, answer });
  }
}

export function committed(id: string): TxnOutcome {
  return { status: "committed", txn_id: id, epoch: "9", version: "1", lsn: { kv: "3" }, session: "s" };
}

export function aborted(id: string): TxnOutcome {
  return { status: "aborted", txn_id: id, epoch: "9", reason: "read_conflict", retryable: true, conflicts: [] };
}

export function refused(id: string, status: number, code: string): TxnOutcome {
  const retryable = status === 429 || status === 503;
  return { status: "problem", txn_id: id, problem: { type: "about:blank", title: "x", detail: "x", status, code, retryable } };
}

/** The body of a response to a batch. */
export function lines(outcomes: readonly TxnOutcome[]): string {
  return outcomes.map((outcome) => `${JSON.stringify(outcome)}\n`).join("");
}
