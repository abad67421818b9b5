/**
 * Limits how many requests are in flight; items that exceed the limit are queued and sent as one batch. Does not
 * interpret items, and never retries one.
 *
 * There is no timer: below the limit an item is sent at once, by itself. Callers await their own replies, so the requests
 * of one session stay in order.
 */

/** Limits on the requests of one group in flight. */
export interface Bounds {
  /** Requests in flight at the same time. */
  readonly inFlightMax: number;
  /** Items in one request. */
  readonly itemsMax: number;
  /** Bytes in one request. */
  readonly bytesMax: number;
}

/** Sends a batch. Returns one reply per item, in order; if it rejects, each caller gets the error. */
export type Send<Item, Reply> = (items: readonly Item[]) => Promise<readonly Reply[]>;

/** Conditions for putting an item into a batch. */
export interface Terms {
  /** Only items of the same group share a request. Each group has a queue and limits of its own. */
  readonly group?: string;
  /** Two items with the same id are never put into the same batch. */
  readonly id?: string;
  /** Bytes that the item takes up in a request. */
  readonly bytes: number;
}

interface Entry<Item, Reply> extends Terms {
  readonly item: Item;
  readonly settle: (reply: Reply) => void;
  readonly fail: (error: unknown) => void;
}

interface Group<Item, Reply> {
  inFlight: number;
  queue: Entry<Item, Reply>[];
}

/** Queues items while the limit of requests in flight is reached. */
export class Coalescer<Item, Reply> {
  readonly #bounds: Bounds;
  readonly #send: Send<Item, Reply>;
  /** Groups with a request in flight. */
  readonly #groups = new Map<string, Group<Item, Reply>>();

  constructor(bounds: Bounds, send: Send<Item, Reply>) {
    this.#bounds = bounds;
    this.#send = send;
  }

  /** Sends an item, by itself or in a batch, and returns its reply. */
  async submit(terms: Terms, item: Item): Promise<Reply> {
    return new Promise((settle, fail) => {
      const key = terms.group ?? "";
      const group = this.#groups.get(key) ?? { inFlight: 0, queue: [] };
      this.#groups.set(key, group);
      group.queue.push({ ...terms, item, settle, fail });
      if (group.inFlight < this.#bounds.inFlightMax) void this.#drain(key, group);
    });
  }

  /** Sends batches until the queue is empty. */
  async #drain(key: string, group: Group<Item, Reply>): Promise<void> {
    group.inFlight++;
    for (let batch = this.#nextBatch(group); batch.length > 0; batch = this.#nextBatch(group)) {
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
    group.inFlight--;
    if (group.inFlight === 0) this.#groups.delete(key);
  }

  /** Takes the next batch off the queue: the oldest items, within the bounds, each id once. */
  #nextBatch(group: Group<Item, Reply>): Entry<Item, Reply>[] {
    const ids = new Set<string>();
    const batch: Entry<Item, Reply>[] = [];
    const rest: Entry<Item, Reply>[] = [];
    let bytes = 0;
    for (const [at, one] of group.queue.entries()) {
      const full = batch.length === this.#bounds.itemsMax || (batch.length > 0 && bytes + one.bytes > this.#bounds.bytesMax);
      if (full) {
        rest.push(...group.queue.slice(at));
        break;
      }
      if (one.id !== undefined && ids.has(one.id)) {
        rest.push(one);
        continue;
      }
      if (one.id !== undefined) ids.add(one.id);
      batch.push(one);
      bytes += one.bytes;
    }
    group.queue = rest;
    return batch;
  }
}
