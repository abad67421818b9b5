/** Reads of embedded stores: batches them, and repeats them until they include the required commits. */

import { list } from "./arguments.js";
import { Bound, leftMs } from "./bound.js";
import type { Channel } from "./channel.js";
import { Coalescer } from "./coalescer.js";
import { ClientMistake, sessionUnknown, Unavailable } from "./errors.js";
import { settled, type Reply } from "./exchange.js";
import type { JsonValue } from "./json.js";
import { normal, segment } from "./keys.js";
import { bytesAlone, bytesOf, parts, readBounds, submitted, Union, type Shared } from "./read_batch.js";
import {
  asked,
  nothingRead,
  rangeAsked,
  rangeRows,
  readOptions,
  readTerms,
  states,
  waitMsOf,
  type KeyRange,
  type RangeReads,
  type ReadOptions,
  type ReadTerms,
  type RowPage,
  type RowRead,
  type RowReads,
} from "./reads.js";
import type { Session } from "./session.js";
import type { components } from "./wire/schema.js";

type ReadRequest = components["schemas"]["ReadRequest"];
type ReadResponse = components["schemas"]["ReadResponse"];

/** A read of one caller. */
interface ReadItem {
  /** Percent-encoded. */
  readonly store: string;
  readonly rows: readonly components["schemas"]["RowRead"][];
  readonly terms: ReadTerms;
  readonly bound: Bound;
}

/** The reads of one client. */
export class StoreReads {
  readonly #channel: Channel;
  readonly #session: Session | undefined;
  readonly #coalescer: Coalescer<ReadItem, Shared<ReadResponse>> | undefined;

  constructor(channel: Channel, session: Session | undefined, coalesces: boolean) {
    this.#channel = channel;
    this.#session = session;
    this.#coalescer = coalesces ? new Coalescer(readBounds, (items) => this.#send(items)) : undefined;
  }

  /** Reads rows, possibly in a request that other reads share. */
  async rows<T>(store: string, rows: readonly RowRead[], options: ReadOptions): Promise<RowReads<T>> {
    const own = { store: segment(store), rows: list(rows, "a list of rows").map((row) => asked(row)) };
    const checked = readOptions(options);
    if (rows.length === 0) return { ...nothingRead, rows: [] };
    const bytes = bytesOf(own.rows);
    const answer = await this.#current(store, checked, undefined, (terms, bound) => {
      const group = JSON.stringify([store, terms]);
      const coalescer = bytes > 0 && bytes <= bytesAlone ? this.#coalescer : undefined;
      return submitted(coalescer, { group, bytes, signal: bound.signal }, { ...own, terms, bound }, (items) => this.#send(items));
    });
    const keys = rows.map(({ key }) => normal(key));
    return { applied: answer.applied, session: answer.session, rows: states<T>(answer.rows ?? [], keys) };
  }

  /**
   * Reads rows of a range, as many as the service returns at once. A transaction names its session and its snapshot of
   * the store: the commit compares the range with later writes only, so rows older than the snapshot must not be
   * returned.
   */
  async page<T = JsonValue>(store: string, range: KeyRange, options: ReadOptions, snapshot?: string): Promise<RowPage<T>> {
    const { applied, ranges } = await this.ranges<T>(store, [range], options, snapshot);
    return { applied, rows: ranges[0]?.rows ?? [], more: ranges[0]?.more ?? false };
  }

  /** Reads ranges that must include an epoch of the store; this client's own commits if there is none. */
  async ranges<T = JsonValue>(store: string, ranges: readonly KeyRange[], options: ReadOptions, least?: string): Promise<RangeReads<T>> {
    const own = list(ranges, "a list of ranges").map(rangeAsked);
    const name = segment(store);
    if (ranges.length === 0) return { ...nothingRead, ranges: [] };
    const answer = await this.#current(store, options, least, async (terms, bound) => settled(await this.#read(name, { ranges: own, ...terms }, [bound])));
    return { applied: answer.applied, session: answer.session, ranges: rangeRows<T>(answer.ranges ?? [], ranges.length) };
  }

  /** Sends reads of one store, on the same terms, as one request. */
  async #send(items: readonly ReadItem[]): Promise<Shared<ReadResponse>[]> {
    const union = new Union(items.map(({ rows }) => rows));
    const reply = await this.#read(items[0]?.store ?? "", { read: union.rows, ...items[0]?.terms }, items.map(({ bound }) => bound));
    return parts(reply, items.length, ({ rows, ...rest }) => union.apart(rows ?? []).map((own) => ({ ...rest, rows: own })));
  }

  /** Makes one request. The signal of its only caller ends it; other callers still wait for a shared one. */
  async #read(store: string, body: ReadRequest, bounds: readonly Bound[]): Promise<Reply<ReadResponse>> {
    const stop = bounds.length === 1 ? bounds[0]?.signal : undefined;
    return this.#channel.ask((signal, wire) => wire.POST("/v1/stores/{store}/rows/read", { params: { path: { store } }, body, signal }), waitMsOf(body), leftMs(bounds), stop);
  }

  /**
   * Repeats a read while the service is unavailable, or has not applied the epoch that it must include: by default that
   * of this client's latest commit to the store. A lagging node gets the commit's token and waits for it, unless the
   * caller named one. The timeout bounds all attempts together.
   */
  async #current<T extends { applied: string }>(
    store: string,
    options: ReadOptions,
    least: string | undefined,
    read: (terms: ReadTerms, bound: Bound) => Promise<T>,
  ): Promise<T> {
    const terms = readTerms(options);
    const bound = new Bound(this.#channel.timeoutMs, options.signal);
    let own: string | undefined;
    for (let failed = 1; ; failed++) {
      try {
        const asked = own === undefined ? terms : { ...terms, session: own };
        const found = await bound.attempt(waitMsOf(asked), () => read(asked, bound));
        const wanted = least === undefined ? this.#ownEpoch(store) : BigInt(least);
        if (wanted === undefined || BigInt(found.applied) >= wanted) return found;
        if (terms.session === undefined) own = this.#session?.token([store]);
        throw new Unavailable(`${this.#channel.endpoint} has applied epoch ${found.applied} of store ${store}, not yet ${wanted}`);
      } catch (error) {
        if (own !== undefined && error instanceof ClientMistake && error.code === sessionUnknown) {
          // The log that contained this client's commits was replaced.
          this.#session?.forget(own);
          own = undefined;
          continue;
        }
        await bound.pause(this.#channel.retry, failed, error);
      }
    }
  }

  /**
   * Returns the epoch of this client's latest commit to a store, if reads have to be compared with it: with several
   * endpoints, the one that serves the read may not have applied it yet.
   */
  #ownEpoch(store: string): bigint | undefined {
    return this.#channel.isSingle ? undefined : this.#session?.epoch(store);
  }
}
