/** Ends of waits that the service does not decide: time limits, the caller's signal, and the end of the client. */

/** How late a timer must be for the program, and not the service, to have caused it, in milliseconds. */
const lateMs = 20;
/** How long a response that may have arrived while the program did not look is waited for, in milliseconds. */
const graceMs = 100;

/** What to call when a signal fires. */
interface Waiting {
  readonly calls: Set<() => void>;
  readonly fire: () => void;
}

/**
 * By signal, while something waits for it: many calls may have the same one, and Node.js warns of more than ten
 * listeners.
 */
const waitingFor = new WeakMap<AbortSignal, Waiting>();

/** Calls back when a signal fires that has not fired yet. Returns what ends that. */
export function onAbort(signal: AbortSignal | undefined, call: () => void): () => void {
  if (signal === undefined) return () => undefined;
  const waiting = waitingFor.get(signal) ?? listen(signal);
  // Several calls may be the same function.
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

/** Adds the only listener that this package has at a signal. */
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
  /** Of the request. Stays in use after `end`, if the response is a stream. */
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
      // Timers come before sockets: if the program has blocked its event loop, the response may be there already.
      if (performance.now() - due < lateMs) expire();
      else this.#timer = setTimeout(expire, graceMs);
    }, timeoutMs);
    if (signal?.aborted === true) this.stop();
    this.#unlisten = onAbort(signal, () => {
      this.stop();
    });
  }

  /** Whether the signal has fired or `stop` was called: that the request failed is then no fault of its endpoint. */
  get isStopped(): boolean {
    return this.#isStopped;
  }

  /** Ends the limit, and not the request. */
  end(): void {
    clearTimeout(this.#timer);
    this.#unlisten();
  }

  /** Ends the request. */
  stop(): void {
    this.#isStopped = true;
    // No error of this package as the reason, which would be taken for a mistake that was found before the request.
    this.controller.abort(new Error("the request was aborted by its caller"));
  }
}

/** Waits for a call; rejects as soon as the signal fires, and leaves the call to itself then. */
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
