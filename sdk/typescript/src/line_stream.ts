/**
 * The NDJSON stream of a store's log or state. Reads from the connection only when a line is requested, so a slow
 * reader slows down the stream, and memory stays bounded.
 */

import { ServerMisbehaved, Unavailable } from "./errors.js";

/** Heartbeat interval requested from the service, which may choose a shorter one, in milliseconds. */
export const heartbeatMs = 5_000;
/** How long a stream may be silent: 2.5 heartbeat intervals. */
export const silenceMsMax = 2.5 * heartbeatMs;
/** Maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame. */
const lineBytesMax = 32 * 1024 * 1024;
const newline = 10;
/** Shortest wait, in milliseconds. A piece that is already in the socket is found within it. */
const pollMs = 5;

/** A read of the next piece, which outlives a call that stopped waiting for it. */
interface Reading {
  /** When the read began, in milliseconds of `performance.now`. */
  readonly begun: number;
  /** How it ended: with a piece, without one at the end of the response, or with a failure. */
  ended?: { readonly piece: Uint8Array | undefined } | { readonly failure: unknown };
  /** Wakes the call that waits for it. */
  wake: () => void;
}

/** Waits until a read has ended or the time has elapsed. */
async function woken(reading: Reading, waitMs: number): Promise<void> {
  await new Promise<void>((resolve) => {
    const timer = setTimeout(resolve, waitMs);
    reading.wake = () => {
      clearTimeout(timer);
      resolve();
    };
  });
}

/** A stream of lines. */
export class LineStream {
  readonly #name: string;
  /** The endpoint that sends it. */
  readonly endpoint: number;
  /** How long the service waits for a record before it ends the stream, in milliseconds. */
  readonly waitMs: number;
  readonly #pieces: ReadableStreamDefaultReader<Uint8Array>;
  readonly #stop: AbortController;
  readonly #silenceMs: number;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  #reading: Reading | undefined;
  /** Pieces of an incomplete line. */
  #begun: Uint8Array[] = [];
  #bytes = 0;
  /** Bytes after the last line. */
  #rest = new Uint8Array();

  constructor(
    name: string,
    endpoint: number,
    body: ReadableStream<Uint8Array>,
    stop: AbortController,
    { silenceMs, waitMs }: { readonly silenceMs: number; readonly waitMs: number },
  ) {
    this.#name = name;
    this.endpoint = endpoint;
    this.#pieces = body.getReader();
    this.#stop = stop;
    this.#silenceMs = silenceMs;
    this.waitMs = waitMs;
  }

  /**
   * Returns the next line; `undefined` if it does not arrive within `waitMs`, after which reading can continue. Nothing
   * can be read after an error.
   */
  async line(waitMs = Infinity): Promise<string | undefined> {
    const deadline = performance.now() + waitMs;
    for (;;) {
      const end = this.#rest.indexOf(newline);
      if (end >= 0) {
        const line = this.#decoded([...this.#begun, this.#rest.subarray(0, end)]);
        this.#rest = this.#rest.subarray(end + 1);
        this.#begun = [];
        this.#bytes = 0;
        return line;
      }
      if (this.#rest.length > 0) this.#begun.push(this.#rest);
      this.#bytes += this.#rest.length;
      this.#rest = new Uint8Array();
      if (this.#bytes > lineBytesMax) throw new ServerMisbehaved(`a line of the ${this.#name} has more than ${lineBytesMax} bytes`);
      const piece = await this.#piece(deadline);
      if (piece === undefined) return undefined;
      this.#rest = piece;
    }
  }

  /** Ends the stream. */
  close(): void {
    this.#stop.abort();
    this.#pieces.cancel().catch(() => undefined);
  }

  /** Returns the next piece; `undefined` if it does not arrive before the deadline. */
  async #piece(deadline: number): Promise<Uint8Array<ArrayBuffer> | undefined> {
    const reading = (this.#reading ??= this.#read());
    const silent = reading.begun + this.#silenceMs;
    if (reading.ended === undefined) await woken(reading, Math.max(pollMs, Math.min(silent, deadline) - performance.now()));
    // Timers run before sockets: if the program has blocked its event loop, a piece may have arrived.
    if (reading.ended === undefined && deadline >= silent) await woken(reading, pollMs);
    const { ended } = reading;
    if (ended === undefined) {
      if (deadline < silent) return undefined;
      this.#stop.abort();
      throw new Unavailable(`the ${this.#name} was interrupted: nothing has arrived for ${this.#silenceMs} ms`);
    }
    this.#reading = undefined;
    if ("failure" in ended) {
      throw new Unavailable(`the ${this.#name} was interrupted: ${String(ended.failure)}`, undefined, ended.failure);
    }
    if (ended.piece === undefined) throw new Unavailable(`the ${this.#name} was interrupted`);
    return ended.piece as Uint8Array<ArrayBuffer>;
  }

  #read(): Reading {
    const reading: Reading = { begun: performance.now(), wake: () => undefined };
    this.#pieces.read().then(
      ({ value }) => {
        reading.ended = { piece: value };
        reading.wake();
      },
      (failure: unknown) => {
        reading.ended = { failure };
        reading.wake();
      },
    );
    return reading;
  }

  #decoded(pieces: readonly Uint8Array[]): string {
    const line = new Uint8Array(pieces.reduce((sum, piece) => sum + piece.length, 0));
    let at = 0;
    for (const piece of pieces) {
      line.set(piece, at);
      at += piece.length;
    }
    try {
      return this.#decoder.decode(line);
    } catch (cause) {
      throw new ServerMisbehaved(`a line of the ${this.#name} is not UTF-8: ${String(cause)}`);
    }
  }
}
