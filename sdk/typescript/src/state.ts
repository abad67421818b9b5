/** State images: the rows of a store at a position of its log, from which a new copy starts. */

import { signalOf, type OptionNames } from "./arguments.js";
import { Bound, leftMs } from "./bound.js";
import type { Channel } from "./channel.js";
import { errorOf, Misuse, ServerMisbehaved, Unavailable, type Problem } from "./errors.js";
import type { JsonValue } from "./json.js";
import { segment } from "./keys.js";
import { onAbort } from "./limit.js";
import type { LineStream } from "./line_stream.js";
import { rowOf, type Row } from "./reads.js";
import type { components } from "./wire/schema.js";

/** Where a store's state is: in the rows of the image, in the store's own storage, or only in its log. */
export type StateKind = "rows" | "storage" | "log";

/** A line of an image that is not a row: the first one, `state`, or the last one, `end` or `failed`. */
interface StateEvent {
  readonly event?: string;
  readonly kind?: StateKind;
  readonly lsn?: string;
  readonly log?: string;
  readonly rows?: string;
  readonly problem?: Problem;
}

type WireRow = components["schemas"]["Row"];

/** Options of a state image. */
export interface StateOptions {
  /** Ends the call and the image: the promise, and the iteration, are rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const stateNames: OptionNames<StateOptions> = { signal: true };

/** @internal Requests an image, until the service is available or the timeout has elapsed. */
export async function stateOf<T>(channel: Channel, store: string, options: StateOptions): Promise<StateImage<T>> {
  const signal = signalOf(options, "{ signal }", stateNames);
  const path = segment(store);
  const bound = new Bound(channel.timeoutMs, signal);
  for (let failed = 1; ; failed++) {
    signal?.throwIfAborted();
    let stream: LineStream | undefined;
    try {
      stream = await channel.openState(path, leftMs([bound]), signal);
      const line = await firstLine(channel, stream, bound);
      // The image itself listens to the signal once it is created.
      signal?.throwIfAborted();
      channel.throwIfClosed();
      if (line === undefined) throw new Unavailable("the state image has no first line");
      return new StateImage<T>(channel, stream, parsed(line), signal);
    } catch (error) {
      stream?.close();
      signal?.throwIfAborted();
      channel.throwIfClosed();
      await bound.pause(channel.retry, failed, error);
    }
  }
}

/**
 * Waits for the first line of an image. The signal and the end of the client end the stream; the caller distinguishes
 * them.
 */
async function firstLine(channel: Channel, stream: LineStream, bound: Bound): Promise<string | undefined> {
  const closable = { close: (): void => { stream.close(); } };
  const unlisten = onAbort(bound.signal, closable.close);
  channel.readers.add(closable);
  try {
    bound.signal?.throwIfAborted();
    channel.throwIfClosed();
    return await stream.line(leftMs([bound]));
  } finally {
    unlisten();
    channel.readers.delete(closable);
  }
}

/**
 * The rows of a store as they were at `lsn`, read from a stream with `for await`, once. Continue with the log:
 * `client.log(store, { after: image.lsn, log: image.log })`. An image that is cut short makes the iteration throw.
 */
export class StateImage<T = JsonValue> implements AsyncIterable<Row<T>> {
  /** Only `rows` has rows here. A store with a storage of its own has them there, at `lsn` or later. */
  readonly kind: StateKind;
  /** Position in the log that the rows reflect: `after` of `LogOptions`. */
  readonly lsn: string;
  /** The log that `lsn` belongs to: `log` of `LogOptions`. */
  readonly log: string;
  readonly #channel: Channel;
  readonly #stream: LineStream;
  /** Called when the client is closed. */
  readonly #closable = { close: (reason: Misuse): void => { this.#end(reason); } };
  readonly #unlisten: () => void;
  /** Why no more rows can be read. */
  #ended: unknown;
  #isRead = false;

  /** @internal */
  constructor(channel: Channel, stream: LineStream, { event, kind, lsn, log }: StateEvent, signal: AbortSignal | undefined) {
    if (event !== "state" || kind === undefined || lsn === undefined || log === undefined) {
      throw new ServerMisbehaved("the first line of a state image names no position of a log");
    }
    [this.kind, this.lsn, this.log] = [kind, lsn, log];
    this.#channel = channel;
    this.#stream = stream;
    this.#unlisten = onAbort(signal, () => {
      this.#end(signal?.reason);
    });
    channel.readers.add(this.#closable);
  }

  /** Ends the stream. Rows that have not been read are a `Misuse` from now on. Not needed after an iteration. */
  close(): void {
    this.#end(new Misuse("the state image is closed"));
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Row<T>, void, undefined> {
    if (this.#isRead) throw new Misuse("a state image can be read once: request another one");
    this.#isRead = true;
    try {
      for (let count = 0; ; ) {
        const line = parsed(await this.#line());
        if (line.event === undefined) {
          count++;
          yield rowOf<T>(line as WireRow);
        } else if (line.event === "end") {
          if (line.rows !== String(count)) throw new ServerMisbehaved(`the state image has ${count} rows, not ${line.rows ?? "as many as it should"}`);
          return;
        } else if (line.event === "failed") {
          throw line.problem === undefined ? new Unavailable("the state image is incomplete") : errorOf(line.problem);
        }
      }
    } finally {
      this.close();
    }
  }

  async #line(): Promise<string> {
    let line: string | undefined;
    try {
      if (this.#ended === undefined) line = await this.#stream.line();
    } catch (error) {
      if (this.#ended === undefined && error instanceof Unavailable) this.#channel.endpointFailed(this.#stream.endpoint);
      throw this.#ended ?? error;
    }
    if (this.#ended !== undefined) throw this.#ended as Error;
    return line ?? "";
  }

  #end(reason: unknown): void {
    this.#ended ??= reason;
    this.#unlisten();
    this.#channel.readers.delete(this.#closable);
    this.#stream.close();
  }
}

function parsed(line: string): StateEvent {
  try {
    const found: unknown = JSON.parse(line);
    if (typeof found === "object" && found !== null) return found;
  } catch {
    // Falls through: both cases have the same error.
  }
  throw new ServerMisbehaved("a line of the state image cannot be parsed");
}
