/**
 * Limits how many requests are in flight; items that exceed the limit are queued and sent as one batch. Does not
 * interpret items, and never retries one.
 *
 * While nothing is in flight, an item is sent at once, by itself. A second request follows only if the first takes
 * longer than the head start: one batch of all queued items costs less than two, and its commits conflict less, because
 * their callers know the outcomes of the preceding batch. Callers await their own replies, so the requests of one
 * session stay in order.
 */

/**
 * How long a request is in flight before another may follow: the longest time that an item waits because of a slow
 * response.
 */
export const headStartMs = 5;

/**
 * Longest time that just-answered callers get to queue their next items. They need microseconds, unless others that
 * never stop keep the queue growing.
 */
const queueingMaxMs = 5;

/** Calls back once all settled promises, and those that they settle in turn, have been handled. */
const afterCallers: (then: () => void) => void =
  (globalThis as { setImmediate?: typeof setImmediate }).setImmediate ?? ((then) => setTimeout(then, 0));

/** Limits on the requests of one group in flight. */
export interface Bounds {
  /** Requests in flight at the same time. */
  readonly inFlightMax: number;
  /** How long a request is in flight before another may follow. */
  readonly headStartMs: number;
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
  /** An item whose signal fires while it is queued is not sent. */
  readonly signal?: AbortSignal | undefined;
  /** Called when the item is about to be sent. */
  readonly sent?: () => void;
}

interface Entry<Item, Reply> extends Terms {
  readonly item: Item;
  readonly settle: (reply: Reply) => void;
  readonly fail: (error: unknown) => void;
}

interface Group<Item, Reply> {
  readonly key: string;
  inFlight: number;
  /** Completed requests whose callers may be about to queue their next items. Nothing is sent while there are any. */
  gathering: number;
  /** When the last request was sent. */
  sentAt: number;
  /** Fires when another request may follow. */
  timer: ReturnType<typeof setTimeout> | undefined;
  queue: Entry<Item, Reply>[];
}

/** Queues items while requests are in flight. */
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
      const group = this.#groups.get(key) ?? { key, inFlight: 0, gathering: 0, sentAt: 0, timer: undefined, queue: [] };
      this.#groups.set(key, group);
      group.queue.push({ ...terms, item, settle, fail });
      this.#dispatch(group);
    });
  }

  /** Sends the queued items as soon as a request may follow those in flight. */
  #dispatch(group: Group<Item, Reply>): void {
    while (group.gathering === 0 && group.queue.length > 0 && group.inFlight < this.#bounds.inFlightMax) {
      const waitMs = group.sentAt + this.#bounds.headStartMs - performance.now();
      if (group.inFlight > 0 && waitMs > 0) {
        this.#dispatchAfter(waitMs, group);
        return;
      }
      this.#drop(group);
      if (group.queue.length === 0) return;
      group.inFlight++;
      group.sentAt = performance.now();
      void this.#sendBatch(group, this.#nextBatch(group));
    }
  }

  /** Removes queued items whose callers no longer wait. */
  #drop(group: Group<Item, Reply>): void {
    for (const { signal, fail } of group.queue) if (signal?.aborted === true) fail(signal.reason);
    group.queue = group.queue.filter(({ signal }) => signal?.aborted !== true);
  }

  #dispatchAfter(waitMs: number, group: Group<Item, Reply>): void {
    group.timer ??= setTimeout(() => {
      group.timer = undefined;
      this.#dispatch(group);
    }, Math.ceil(waitMs));
  }

  /** Sends a batch and gives each caller its reply. */
  async #sendBatch(group: Group<Item, Reply>, batch: readonly Entry<Item, Reply>[]): Promise<void> {
    try {
      for (const { sent } of batch) sent?.();
      const replies = await this.#send(batch.map(({ item }) => item));
      batch.forEach(({ settle, fail }, at) => {
        const reply = replies[at];
        if (reply === undefined) fail(new Error("a reply is missing"));
        else settle(reply);
      });
    } catch (error) {
      for (const { fail } of batch) fail(error);
    }
    if (batch.length > 1) await this.#letCallersQueue(group);
    group.inFlight--;
    this.#dispatch(group);
    if (group.inFlight > 0) return;
    this.#groups.delete(group.key);
    clearTimeout(group.timer);
  }

  /** Lets just-answered callers queue their next items, until the queue no longer grows, or a batch is full. */
  async #letCallersQueue(group: Group<Item, Reply>): Promise<void> {
    group.gathering++;
    const until = performance.now() + queueingMaxMs;
    for (let queued = 0, unchanged = 0; unchanged < 2 && queued < this.#bounds.itemsMax && performance.now() < until; ) {
      await new Promise<void>(afterCallers);
      unchanged = group.queue.length > queued ? 0 : unchanged + 1;
      queued = group.queue.length;
    }
    group.gathering--;
  }

  /** Takes the next batch off the queue: the oldest items, within the bounds, each id once. */
  #nextBatch(group: Group<Item, Reply>): Entry<Item, Reply>[] {
    const ids = new Set<string>();
    const batch: Entry<Item, Reply>[] = [];
    let rest: Entry<Item, Reply>[] = [];
    let bytes = 0;
    for (const [at, one] of group.queue.entries()) {
      const full = batch.length === this.#bounds.itemsMax || (batch.length > 0 && bytes + one.bytes > this.#bounds.bytesMax);
      if (full) {
        rest = rest.concat(group.queue.slice(at));
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
