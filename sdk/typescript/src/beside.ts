/** Several requests beside each other, of which a bounded number is under way. */

/** How many requests a batch makes for its single commits at a time. */
const besideMax = 64;

/**
 * Calls a function for each of many items, of which a bounded number is under way. The results have the order of the
 * items.
 */
export async function mapped<T, R>(items: readonly T[], call: (item: T, at: number) => Promise<R>): Promise<R[]> {
  const results: R[] = [];
  // Shared: each loop takes the next item that no other one has taken.
  const left = items.entries();
  const loop = async (): Promise<void> => {
    for (const [at, item] of left) results[at] = await call(item, at);
  };
  await Promise.all(Array.from({ length: Math.min(besideMax, items.length) }, loop));
  return results;
}
