/**
 * The channel to the service: sends a request to one endpoint after another, and tracks what closing the client must
 * end.
 */

import createClient, { type Client as WireClient } from "openapi-fetch";

import { duration, headerText } from "./arguments.js";
import { caFetch } from "./ca_fetch.js";
import { Endpoints } from "./endpoints.js";
import { Misuse, ServerMisbehaved } from "./errors.js";
import { exchange, settled, type Exchanged, type Reply } from "./exchange.js";
import { Failover, failureOf, type Repeat } from "./failover.js";
import { named, percentEncoded } from "./keys.js";
import { Limit } from "./limit.js";
import { heartbeatMs, LineStream, silenceMsMax } from "./line_stream.js";
import type { ClientOptions } from "./options.js";
import { retryPolicy, type RetryPolicy } from "./retry.js";
import type { paths } from "./wire/schema.js";

/** Sends a request to one endpoint. */
export type Ask<T> = (signal: AbortSignal, wire: WireClient<paths>) => Promise<Exchanged<T>>;

/** A resource that closing the client closes. */
interface Closable {
  close(reason: Misuse): void;
}

/** The endpoints of a client and its requests in flight. */
export class Channel {
  readonly retry: RetryPolicy;
  readonly timeoutMs: number;
  /** State images, and log readers that have a stream or wait for a record. */
  readonly readers = new Set<Closable>();
  /** Requests in flight. */
  readonly #limits = new Set<Limit>();
  /** The error that rejects calls once the client is closed. */
  #closed: Misuse | undefined;
  readonly #endpoints: Endpoints;
  /** Endpoints that have answered: their addresses are right. */
  readonly #answered = new Set<number>();
  /** One for each endpoint. */
  readonly #wires: readonly WireClient<paths>[];

  constructor(url: string | readonly string[], options: ClientOptions) {
    const endpointTimeoutMs = duration("endpointTimeoutMs", options.endpointTimeoutMs ?? 2_000);
    this.#endpoints = new Endpoints(url, endpointTimeoutMs, duration("endpointCoolDownMs", options.endpointCoolDownMs ?? 10_000));
    if (options.apiKey !== undefined && headerText("API key", options.apiKey).trim() === "") {
      throw new Misuse("the API key is empty: pass `undefined` if the service requires none");
    }
    if (options.fetch !== undefined && typeof options.fetch !== "function") throw new Misuse("`fetch` must be a function");
    this.retry = retryPolicy(options.retry);
    this.timeoutMs = duration("timeoutMs", options.timeoutMs ?? 30_000);
    const fetch = options.fetch ?? (options.caFile === undefined ? undefined : caFetch(options.caFile));
    const wireOf = (baseUrl: string): WireClient<paths> => createClient<paths>({
      baseUrl,
      headers: options.apiKey === undefined ? {} : { authorization: `Bearer ${options.apiKey}` },
      ...(fetch === undefined ? {} : { fetch }),
      // Keys may be any bytes, so parameters are percent-encoded before they arrive here.
      pathSerializer: (path, parameters) => path.replace(/\{(\w+)\}/g, (_, name: string) => String(parameters[name])),
      querySerializer: (query: Record<string, unknown>) =>
        Object.entries(query)
          .filter(([, value]) => value !== undefined)
          .map(([name, value]) => `${name}=${String(value)}`)
          .join("&"),
    });
    this.#wires = this.#endpoints.urls.map(wireOf);
  }

  /** Ends log streams and the requests in flight. */
  close(): void {
    const reason = (this.#closed ??= new Misuse("the client is closed"));
    for (const limit of [...this.#limits]) limit.stop();
    for (const reader of [...this.readers]) reader.close(reason);
  }

  /** Throws the error that rejects calls once the client is closed. */
  throwIfClosed(): void {
    if (this.#closed !== undefined) throw this.#closed;
  }

  /** The URL of the endpoint in use. */
  get endpoint(): string {
    return this.#endpoints.urls[this.#endpoints.inUse] ?? "";
  }

  /** Whether there is only one endpoint. */
  get isSingle(): boolean {
    return this.#wires.length === 1;
  }

  /** The number of endpoints. */
  get endpoints(): number {
    return this.#wires.length;
  }

  /** Records that an endpoint failed while it was answering. */
  endpointFailed(endpoint: number): void {
    this.#endpoints.failed(endpoint);
  }

  /** Sends a request, within the timeout. */
  async ask<T>(call: Ask<T>, waitMs = 0, timeoutMs = this.timeoutMs, signal?: AbortSignal): Promise<Reply<T>> {
    return this.askOn(this.failover(waitMs, timeoutMs), call, signal);
  }

  /** Sends a request to one endpoint after another, until one answers or no attempt is left. */
  async askOn<T>(call: Failover, ask: Ask<T>, signal?: AbortSignal): Promise<Reply<T>> {
    for (let timeoutMs = await call.next(signal); timeoutMs !== undefined; timeoutMs = await call.next(signal)) {
      const limit = this.#limit(timeoutMs, signal);
      const reply = await this.#exchange(call.endpoint, ask, limit).finally(() => {
        this.#end(limit);
      });
      if (limit.isStopped && reply.kind === "none") return this.#closed === undefined ? reply : { ...reply, text: "the client was closed", cause: this.#closed };
      if (call.isOver(failureOf(reply))) return reply;
    }
    return call.exhausted();
  }

  /** Begins a call that may take `timeoutMs`, in addition to the time that the request itself may wait. */
  failover(waitMs = 0, timeoutMs = this.timeoutMs, repeat: Repeat = "always"): Failover {
    this.throwIfClosed();
    return new Failover(this.#endpoints, this.retry, waitMs, timeoutMs, repeat);
  }

  /** Opens a stream of a log. `stop` ends the call, but not the stream. */
  async openLog(query: { store: string; after: string; log?: string; limit?: number; wait_ms: number }, timeoutMs: number, stop: AbortSignal): Promise<LineStream> {
    const encoded = { ...query, store: percentEncoded(named(query.store)), after: percentEncoded(query.after) };
    const silenceMs = Math.min(silenceMsMax, this.timeoutMs / this.#wires.length + heartbeatMs);
    return this.#open("log stream", { silenceMs, waitMs: query.wait_ms }, timeoutMs, stop, (signal, wire) =>
      wire.GET("/v1/log", {
        params: { query: { ...encoded, heartbeat_ms: heartbeatMs } },
        headers: { accept: "application/x-ndjson" },
        parseAs: "stream",
        signal,
      }),
    );
  }

  /** Opens the state image of a store, whose name is percent-encoded. `stop` ends the call, but not the stream. */
  async openState(store: string, timeoutMs: number, stop: AbortSignal | undefined): Promise<LineStream> {
    const headers = { accept: "application/x-ndjson" };
    return this.#open("state image", { silenceMs: this.timeoutMs, waitMs: 0 }, timeoutMs, stop, (signal, wire) =>
      wire.GET("/v1/stores/{store}/state", { params: { path: { store } }, headers, parseAs: "stream", signal }),
    );
  }

  async #open(
    name: string,
    waits: { readonly silenceMs: number; readonly waitMs: number },
    timeoutMs: number,
    stop: AbortSignal | undefined,
    ask: Ask<ReadableStream<Uint8Array> | null>,
  ): Promise<LineStream> {
    const call = this.failover(0, timeoutMs);
    for (let leftMs = await call.next(stop); leftMs !== undefined; leftMs = await call.next(stop)) {
      const limit = this.#limit(leftMs, stop);
      try {
        const reply = await this.#exchange(call.endpoint, ask, limit);
        if (limit.isStopped && this.#closed !== undefined) throw this.#closed;
        if (!limit.isStopped && (call.isTruncated(reply) || !call.isOver(failureOf(reply)))) continue;
        const body = settled(reply);
        if (body === null) throw new ServerMisbehaved("a stream without a body");
        return new LineStream(name, call.endpoint, body, limit.controller, waits);
      } finally {
        this.#end(limit);
      }
    }
    return settled(call.nowhere());
  }

  /** Sends a request to one endpoint. */
  async #exchange<T>(endpoint: number, ask: Ask<T>, limit: Limit): Promise<Reply<T>> {
    const wire = this.#wires[endpoint] as WireClient<paths>;
    const reply = await exchange(() => ask(limit.controller.signal, wire));
    if (reply.kind !== "none") this.#answered.add(endpoint);
    // If the endpoint has answered before, a foreign answer in its place may be temporary.
    else if (!reply.neverSent && this.#answered.has(endpoint)) return { ...reply, wrong: undefined };
    return reply;
  }

  /** Limits a request; closing the client ends it, too. */
  #limit(timeoutMs: number, signal?: AbortSignal): Limit {
    const limit = new Limit(timeoutMs, signal);
    if (this.#closed === undefined) this.#limits.add(limit);
    else limit.stop();
    return limit;
  }

  #end(limit: Limit): void {
    limit.end();
    this.#limits.delete(limit);
  }
}
