/**
 * The NDJSON stream of a store's log. Reads from the connection only when a line is requested, so a slow reader slows down
 * the stream, and memory stays bounded.
 */

import { ServerMisbehaved, Unavailable } from "./errors.js";

/** Interval of heartbeats to request from the service, which may choose a shorter one, in milliseconds. */
export const heartbeatMs = 5_000;
/** Maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame. */
const lineBytesMax = 32 * 1024 * 1024;
const newline = 10;

/** A stream of a log. */
export class LogStream {
  readonly #pieces: ReadableStreamDefaultReader<Uint8Array>;
  readonly #stop: AbortController;
  readonly #silenceMs: number;
  readonly #decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
  /** Pieces of an incomplete line. */
  #begun: Uint8Array[] = [];
  #bytes = 0;
  /** What follows the last line. */
  #rest = new Uint8Array();

  constructor(body: ReadableStream<Uint8Array>, stop: AbortController, silenceMs: number) {
    this.#pieces = body.getReader();
    this.#stop = stop;
    this.#silenceMs = silenceMs;
  }

  /** Returns the next line. Nothing can be read after an error. */
  async line(): Promise<string> {
    for (;;) {
      const end = this.#rest.indexOf(newline);
      if (end >= 0) {
        const line = this.#decoded([...this.#begun, this.#rest.subarray(0, end)]);
        this.#rest = this.#rest.subarray(end + 1);
        this.#begun = [];
        this.#bytes = 0;
        return line;
      }
      this.#begun.push(this.#rest);
      this.#bytes += this.#rest.length;
      if (this.#bytes > lineBytesMax) throw new ServerMisbehaved(`a line of the log has more than ${lineBytesMax} bytes`);
      this.#rest = await this.#piece();
    }
  }

  /** Ends the stream. */
  close(): void {
    this.#stop.abort();
    this.#pieces.cancel().catch(() => undefined);
  }

  async #piece(): Promise<Uint8Array<ArrayBuffer>> {
    const silent = setTimeout(() => {
      this.#stop.abort(new Error(`nothing has arrived for ${this.#silenceMs} ms`));
    }, this.#silenceMs);
    try {
      const { value } = await this.#pieces.read();
      if (value !== undefined) return value as Uint8Array<ArrayBuffer>;
    } catch (cause) {
      throw new Unavailable(`the log stream was interrupted: ${String(cause)}`, undefined, cause);
    } finally {
      clearTimeout(silent);
    }
    throw new Unavailable("the log stream was interrupted");
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
      throw new ServerMisbehaved(`a line of the log is not UTF-8: ${String(cause)}`);
    }
  }
}
