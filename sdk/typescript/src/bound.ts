/** Bounds a read or a Begin as a whole: the time in a queue and all of its attempts included. */

import { Unavailable } from "./errors.js";
import { Limit, unlessAborted } from "./limit.js";

/** The time of one read or Begin, and its caller's signal. */
export class Bound {
  /** No attempt begins later. */
  readonly until: number;
  readonly signal: AbortSignal | undefined;

  constructor(timeoutMs: number, signal: AbortSignal | undefined) {
    this.until = performance.now() + timeoutMs;
    this.signal = signal;
  }

  /** Waits for one attempt, no longer than is left, in addition to the time that the service may wait. */
  async attempt<T>(waitMs: number, call: () => Promise<T>): Promise<T> {
    this.signal?.throwIfAborted();
    const limit = new Limit(Math.ceil(leftMs([this]) + waitMs) + lateMs, this.signal);
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

/** How much later than its request a call ends that shares it or waits for another one, in milliseconds. */
const lateMs = 200;

/** Returns how long the request of several reads may take, in milliseconds. */
export function leftMs(bounds: readonly Bound[]): number {
  return Math.max(0, Math.max(...bounds.map(({ until }) => until)) - performance.now());
}
