/** Ends of waits that the service does not decide: time limits, the caller's signal, and the end of the client. */

/** How late a timer must be for the program, and not the service, to have caused it, in milliseconds. */
const lateMs = 20;
/** How long a response that may have arrived while the program did not look is waited for, in milliseconds. */
const graceMs = 100;

/** Limits a request: it ends after a time, or when one of several signals fires. */
export class Limit {
  /** Of the request. Stays in use after `end`, if the response is a stream. */
  readonly controller = new AbortController();
  readonly #stops: readonly AbortSignal[];
  #timer: ReturnType<typeof setTimeout>;

  constructor(timeoutMs: number, ...stops: readonly AbortSignal[]) {
    this.#stops = stops;
    const due = performance.now() + timeoutMs;
    const expire = (): void => {
      this.controller.abort(new Error(`no response within ${timeoutMs} ms`));
    };
    this.#timer = setTimeout(() => {
      // Timers come before sockets: if the program has blocked its event loop, the response may be there already.
      if (performance.now() - due < lateMs) expire();
      else this.#timer = setTimeout(expire, graceMs);
    }, timeoutMs);
    for (const stop of stops) {
      if (stop.aborted) this.#stop();
      stop.addEventListener("abort", this.#stop, { once: true });
    }
  }

  /** Whether one of the signals has fired: that the request failed is then no fault of its endpoint. */
  get isStopped(): boolean {
    return this.#stops.some(({ aborted }) => aborted);
  }

  /** Ends the limit, and not the request. */
  end(): void {
    clearTimeout(this.#timer);
    for (const stop of this.#stops) stop.removeEventListener("abort", this.#stop);
  }

  // No error of this package as the reason, which would be taken for a mistake that was found before the request.
  readonly #stop = (): void => {
    this.controller.abort(new Error("the request was aborted by its caller"));
  };
}

/** Waits for a call; rejects as soon as the signal fires, and leaves the call to itself then. */
export async function unlessAborted<T>(signal: AbortSignal | undefined, call: Promise<T>, error = (reason: unknown): Error => reason as Error): Promise<T> {
  if (signal === undefined) return call;
  return new Promise<T>((resolve, reject) => {
    const stop = (): void => {
      reject(error(signal.reason));
    };
    if (signal.aborted) stop();
    signal.addEventListener("abort", stop, { once: true });
    call.finally(() => {
      signal.removeEventListener("abort", stop);
    }).then(resolve, reject);
  });
}
