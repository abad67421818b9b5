/** Concurrent requests, a bounded number of them in flight. */

/** Maximum number of concurrent requests that a batch makes for its single commits. */
const besideMax = 64;

/** Calls a function for each of many items, with bounded concurrency. The results have the order of the items. */
export async function mapped<T, R>(items: readonly T[], call: (item: T, at: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  // Shared: each loop takes the next item that no other loop has taken.
  const left = items.entries();
  const loop = async (): Promise<void> => {
    for (const [at, item] of left) results[at] = await call(item, at);
  };
  await Promise.all(Array.from({ length: Math.min(besideMax, items.length) }, loop));
  return results;
}
