/** Bounds a whole read or Begin, including its time in a queue and all of its attempts. */

import { Unavailable } from "./errors.js";
import { Limit, unlessAborted } from "./limit.js";
import { sleep, waitMs, type RetryPolicy } from "./retry.js";

/** The time of one read or Begin, and its caller's signal. */
export class Bound {
  /** No attempt begins later. */
  readonly until: number;
  readonly signal: AbortSignal | undefined;

  constructor(timeoutMs: number, signal: AbortSignal | undefined) {
    this.until = performance.now() + timeoutMs;
    this.signal = signal;
  }

  /** Waits before another attempt; throws the latest error if no attempt is left, or if a retry cannot help. */
  async pause(policy: RetryPolicy, failed: number, error: unknown): Promise<void> {
    const pause = error instanceof Unavailable ? waitMs(policy, failed, error.retryAfterMs) : undefined;
    if (pause === undefined || performance.now() + pause >= this.until) throw error;
    await sleep(pause, this.signal);
  }

  /** Waits for one attempt, at most for the time left plus the time that the service may wait. */
  async attempt<T>(ownWaitMs: number, call: () => Promise<T>): Promise<T> {
    this.signal?.throwIfAborted();
    const limit = new Limit(Math.ceil(leftMs([this]) + ownWaitMs) + lateMs, this.signal);
    const { signal } = limit.controller;
    try {
      return await unlessAborted(signal, call(), (reason) => {
        if (this.signal?.aborted === true) return this.signal.reason as Error;
        return new Unavailable(`tribunal cannot be reached: ${(reason as Error).message}`);
      });
    } finally {
      limit.end();
    }
  }
}

/** How long a call may outlast the time limit of the request that it shares or waits for, in milliseconds. */
const lateMs = 200;

/** Returns how long the request of several reads may take, in milliseconds. */
export function leftMs(bounds: readonly Bound[]): number {
  return Math.max(0, Math.max(...bounds.map(({ until }) => until)) - performance.now());
}
