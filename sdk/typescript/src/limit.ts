/** Ends waits for reasons other than a reply: time limits, the caller's signal, and the end of the client. */

/** How late a timer must be for the delay to be the program's fault, not the service's, in milliseconds. */
const lateMs = 20;
/** How long to wait for a response that may have arrived while the event loop was blocked, in milliseconds. */
const graceMs = 100;

/** The callbacks of a signal. */
interface Waiting {
  readonly calls: Set<() => void>;
  readonly fire: () => void;
}

/** Waiters by signal: many calls may share one, and Node.js warns about more than ten listeners. */
const waitingFor = new WeakMap<AbortSignal, Waiting>();

/** Calls back when a signal that has not fired yet fires. Returns a function that cancels this. */
export function onAbort(signal: AbortSignal | undefined, call: () => void): () => void {
  if (signal === undefined) return () => undefined;
  const waiting = waitingFor.get(signal) ?? listen(signal);
  // Several calls may pass the same function.
  const own = (): void => {
    call();
  };
  waiting.calls.add(own);
  return () => {
    if (!waiting.calls.delete(own) || waiting.calls.size > 0) return;
    signal.removeEventListener("abort", waiting.fire);
    waitingFor.delete(signal);
  };
}

/** Adds this package's only listener to a signal. */
function listen(signal: AbortSignal): Waiting {
  const calls = new Set<() => void>();
  const fire = (): void => {
    for (const call of [...calls]) call();
  };
  const waiting = { calls, fire };
  signal.addEventListener("abort", fire, { once: true });
  waitingFor.set(signal, waiting);
  return waiting;
}

/** Limits a request: it ends after a time, when a signal fires, or when it is stopped. */
export class Limit {
  /** Aborts the request. Stays in use after `end` if the response is a stream. */
  readonly controller = new AbortController();
  readonly #unlisten: () => void;
  #isStopped = false;
  #timer: ReturnType<typeof setTimeout>;

  constructor(timeoutMs: number, signal?: AbortSignal) {
    const due = performance.now() + timeoutMs;
    const expire = (): void => {
      this.controller.abort(new Error(`no response within ${timeoutMs} ms`));
    };
    this.#timer = setTimeout(() => {
      // Timers run before sockets: if the program has blocked its event loop, the response may have arrived.
      if (performance.now() - due < lateMs) expire();
      else this.#timer = setTimeout(expire, graceMs);
    }, timeoutMs);
    if (signal?.aborted === true) this.stop();
    this.#unlisten = onAbort(signal, () => {
      this.stop();
    });
  }

  /** Whether the signal has fired or `stop` was called: a failure of the request is then not its endpoint's. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Ends the limit, but not the request. */
  end(): void {
    clearTimeout(this.#timer);
    this.#unlisten();
  }

  /** Ends the request. */
  stop(): void {
    this.#isStopped = true;
    // The reason is no error of this package: that would look like a mistake found before the request.
    this.controller.abort(new Error("the request was aborted by its caller"));
  }
}

/** Waits for a call; rejects as soon as the signal fires, and then abandons the call. */
export async function unlessAborted<T>(signal: AbortSignal | undefined, call: Promise<T>, error = (reason: unknown): Error => reason as Error): Promise<T> {
  if (signal === undefined) return call;
  return new Promise<T>((resolve, reject) => {
    const stop = (): void => {
      reject(error(signal.reason));
    };
    if (signal.aborted) stop();
    const unlisten = onAbort(signal, stop);
    call.finally(unlisten).then(resolve, reject);
  });
}
