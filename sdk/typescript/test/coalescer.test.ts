/** The queue of items, without a service. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { Coalescer, type Bounds } from "../src/coalescer.js";

/**
 * Submits items in every turn of the event loop until the first request after a batch is sent. Returns the sizes of the
 * requests.
 */
async function sizesWhileItemsArrive(bounds: Bounds): Promise<number[]> {
  const sizes: number[] = [];
  const coalescer = new Coalescer<number, number>(bounds, async (items) => {
    sizes.push(items.length);
    await turn();
    return items;
  });
  const ends: Promise<number>[] = [];
  const begun = performance.now();
  while (sizes.length < 4 && performance.now() - begun < 5_000) {
    await turn();
    ends.push(coalescer.submit({ bytes: 1 }, ends.length), coalescer.submit({ bytes: 1 }, ends.length + 1));
  }
  const sent = [...sizes];
  await Promise.all(ends);
  return sent;
}

test("items that keep arriving do not hold a batch back", async () => {
  const bounds = { inFlightMax: 1, headStartMs: 5, itemsMax: 1_000_000, bytesMax: 1_000_000 };
  assert.equal((await sizesWhileItemsArrive(bounds)).length, 4);
});

test("a full batch waits for no further items", async (t) => {
  const now = performance.now();
  let calls = 0;
  // Time passes too slowly to end the wait before the batch is full, but ends the test.
  t.mock.method(performance, "now", () => now + ++calls / 100);
  const sizes = await sizesWhileItemsArrive({ inFlightMax: 1, headStartMs: 5, itemsMax: 8, bytesMax: 1_000_000 });
  assert.deepEqual([sizes.length, sizes[3]], [4, 8], String(sizes));
  assert.ok(calls < 300, `the time was asked ${String(calls)} times`);
});
