/** When to retry, and how long to wait before: bounded, exponential, with full jitter. */

import { count, duration, optionsOf, type OptionNames } from "./arguments.js";
import { onAbort } from "./limit.js";

/** Bounds of retries. */
export interface RetryPolicy {
  /** Maximum number of attempts; 1 disables retries. */
  readonly attemptsMax: number;
  /** Bound of the first wait, milliseconds. It doubles with each further one. */
  readonly waitMinMs: number;
  /** Bound of the longest wait, milliseconds. */
  readonly waitMaxMs: number;
}

/** Bounds of retries, with the default where none is given. */
export type RetryOptions = { readonly [Name in keyof RetryPolicy]?: RetryPolicy[Name] | undefined };

/** The default policy. */
export const defaultRetry: RetryPolicy = { attemptsMax: 50, waitMinMs: 1, waitMaxMs: 200 };

const retryNames: OptionNames<RetryOptions> = { attemptsMax: true, waitMinMs: true, waitMaxMs: true };

/** Returns a policy with the default bounds where none are given. */
export function retryPolicy(given: RetryOptions | undefined): RetryPolicy {
  if (given !== undefined) optionsOf(given, "{ attemptsMax: 3 }", retryNames);
  return {
    attemptsMax: count("retry.attemptsMax", given?.attemptsMax ?? defaultRetry.attemptsMax),
    waitMinMs: duration("retry.waitMinMs", given?.waitMinMs ?? defaultRetry.waitMinMs),
    waitMaxMs: duration("retry.waitMaxMs", given?.waitMaxMs ?? defaultRetry.waitMaxMs),
  };
}

const askedMaxMs = 30_000;

/**
 * Returns the wait after the `failed`-th failed attempt, milliseconds, in addition to the wait that the service
 * requested; `undefined` if that attempt was the last.
 */
export function waitMs(policy: RetryPolicy, failed: number, askedMs: number): number | undefined {
  if (failed >= policy.attemptsMax) return undefined;
  const step = Math.min(policy.waitMinMs * 2 ** Math.min(failed - 1, 16), policy.waitMaxMs);
  // The whole step is random, so that the losers of one conflict do not collide again.
  return Math.min(askedMs, askedMaxMs) + Math.random() * step;
}

/** Waits; ends early, with the signal's reason, when `signal` fires. */
export async function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  signal?.throwIfAborted();
  await new Promise<void>((resolve, reject) => {
    const timer = setTimeout(() => {
      unlisten();
      resolve();
    }, ms);
    const unlisten = onAbort(signal, () => {
      clearTimeout(timer);
      unlisten();
      reject(signal?.reason as Error);
    });
  });
}
