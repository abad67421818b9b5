/**
 * Limits how many requests are in flight; items that exceed the limit are queued and sent as one batch. Does not
 * interpret items, and never retries one.
 *
 * There is no timer: below the limit an item is sent at once, by itself. Callers await their own replies, so the requests
 * of one session stay in order.
 */

/** Limits on requests in flight. */
export interface Bounds {
  /** Requests in flight at the same time. */
  readonly inFlightMax: number;
  /** Items in one request. */
  readonly itemsMax: number;
  /** Bytes in one request. */
  readonly bytesMax: number;
}

/** Sends a batch. Returns one reply per item, in order. */
export type Send<Item, Reply> = (items: readonly Item[]) => Promise<readonly Reply[]>;

interface Entry<Item, Reply> {
  readonly id: string;
  readonly item: Item;
  readonly bytes: number;
  readonly settle: (reply: Reply) => void;
  readonly fail: (error: unknown) => void;
}

/** Queues items while the limit of requests in flight is reached. */
export class Coalescer<Item, Reply> {
  readonly #bounds: Bounds;
  readonly #send: Send<Item, Reply>;
  #queue: Entry<Item, Reply>[] = [];
  #inFlight = 0;

  constructor(bounds: Bounds, send: Send<Item, Reply>) {
    this.#bounds = bounds;
    this.#send = send;
  }

  /** Sends an item, by itself or in a batch, and returns its reply. A batch never has two items with the same id. */
  async submit(id: string, item: Item, bytes: number): Promise<Reply> {
    return new Promise((settle, fail) => {
      this.#queue.push({ id, item, bytes, settle, fail });
      if (this.#inFlight < this.#bounds.inFlightMax) void this.#drain();
    });
  }

  /** Sends batches until the queue is empty. */
  async #drain(): Promise<void> {
    this.#inFlight++;
    for (let batch = this.#nextBatch(); batch.length > 0; batch = this.#nextBatch()) {
      try {
        const replies = await this.#send(batch.map(({ item }) => item));
        batch.forEach(({ settle, fail }, at) => {
          const reply = replies[at];
          if (reply === undefined) fail(new Error("a reply is missing"));
          else settle(reply);
        });
      } catch (error) {
        for (const { fail } of batch) fail(error);
      }
    }
    this.#inFlight--;
  }

  /** Takes the next batch off the queue: the oldest items, within the bounds, each id once. */
  #nextBatch(): Entry<Item, Reply>[] {
    const ids = new Set<string>();
    const batch: Entry<Item, Reply>[] = [];
    const rest: Entry<Item, Reply>[] = [];
    let bytes = 0;
    for (const [at, one] of this.#queue.entries()) {
      const full = batch.length === this.#bounds.itemsMax || (batch.length > 0 && bytes + one.bytes > this.#bounds.bytesMax);
      if (full) {
        rest.push(...this.#queue.slice(at));
        break;
      }
      if (ids.has(one.id)) {
        rest.push(one);
        continue;
      }
      ids.add(one.id);
      batch.push(one);
      bytes += one.bytes;
    }
    this.#queue = rest;
    return batch;
  }
}
