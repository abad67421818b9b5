/**
 * Gathers requests that wait for a free flight, and sends them together. Knows nothing of what they ask for, and never
 * repeats one.
 *
 * A request that finds a free flight leaves at once and alone: there is no timer. Each caller awaits its own reply, so
 * the requests of one session keep their order.
 */

/** Bounds of what is in flight. */
export interface Bounds {
  /** Requests in flight at a time. */
  readonly flightsMax: number;
  /** Items of one request. */
  readonly itemsMax: number;
  /** Bytes of one request. */
  readonly bytesMax: number;
}

/** Sends what was gathered: one reply per item, in order. Must not reject. */
export type Send<Item, Reply> = (items: readonly Item[]) => Promise<readonly Reply[]>;

interface Waiting<Item, Reply> {
  readonly id: string;
  readonly item: Item;
  readonly bytes: number;
  readonly settle: (reply: Reply) => void;
  readonly fail: (error: unknown) => void;
}

/** Gathers items while all flights are taken. */
export class Coalescer<Item, Reply> {
  readonly #bounds: Bounds;
  readonly #send: Send<Item, Reply>;
  #queue: Waiting<Item, Reply>[] = [];
  #flights = 0;

  constructor(bounds: Bounds, send: Send<Item, Reply>) {
    this.#bounds = bounds;
    this.#send = send;
  }

  /** Sends an item, alone or with others, and returns its reply. Two items with one id never leave together. */
  async ask(id: string, item: Item, bytes: number): Promise<Reply> {
    return new Promise((settle, fail) => {
      this.#queue.push({ id, item, bytes, settle, fail });
      if (this.#flights < this.#bounds.flightsMax) void this.#fly();
    });
  }

  /** Sends what waits until nothing does. */
  async #fly(): Promise<void> {
    this.#flights++;
    for (let crew = this.#next(); crew.length > 0; crew = this.#next()) {
      try {
        const replies = await this.#send(crew.map(({ item }) => item));
        crew.forEach(({ settle, fail }, at) => {
          const reply = replies[at];
          if (reply === undefined) fail(new Error("a reply is missing"));
          else settle(reply);
        });
      } catch (error) {
        for (const { fail } of crew) fail(error);
      }
    }
    this.#flights--;
  }

  /** Takes what leaves next: the oldest, within the bounds, each id once. */
  #next(): Waiting<Item, Reply>[] {
    const ids = new Set<string>();
    const crew: Waiting<Item, Reply>[] = [];
    const rest: Waiting<Item, Reply>[] = [];
    let bytes = 0;
    for (const [at, one] of this.#queue.entries()) {
      const full = crew.length === this.#bounds.itemsMax || (crew.length > 0 && bytes + one.bytes > this.#bounds.bytesMax);
      if (full) {
        rest.push(...this.#queue.slice(at));
        break;
      }
      if (ids.has(one.id)) {
        rest.push(one);
        continue;
      }
      ids.add(one.id);
      crew.push(one);
      bytes += one.bytes;
    }
    this.#queue = rest;
    return crew;
  }
}
