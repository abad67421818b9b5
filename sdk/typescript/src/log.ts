/** Reads a store's committed log, record by record, from an offset that the caller keeps. */

import type { Client } from "./client.js";
import { ServerMisbehaved, Unavailable } from "./errors.js";
import type { components } from "./wire/schema.js";
import type { JsonValue } from "./json.js";
import { keyOf, type Key } from "./keys.js";
import { sleep, waitMs } from "./retry.js";
import type { WriteOp } from "./writes.js";

/** The writes of one committed transaction in one store. */
export interface LogRecord {
  /** Position in the log; positions have no gaps. */
  readonly lsn: string;
  /** Epoch that committed the transaction. */
  readonly epoch: string;
  /** Arrival stamp. */
  readonly csn: string;
  /** Version of every row that the transaction wrote. */
  readonly version: string;
  readonly txnId: string;
  readonly store: string;
  /** W3C trace context of the commit request. */
  readonly traceparent: string | undefined;
  readonly writes: readonly LogWrite[];
}

/** The write of one row. */
export interface LogWrite {
  readonly op: WriteOp;
  readonly key: Key;
  /** New value of the row; the delta of an `add`; `undefined` for a `delete`. */
  readonly value: JsonValue | undefined;
}

/** Options of a log reader. */
export interface LogOptions {
  /** Offset: the position of the last record that was processed. "0" reads from the beginning. */
  readonly after?: string;
  /**
   * The log that `after` belongs to: the `logId` of the reader that returned it. If the service's log has been salvaged or
   * replaced since, reads fail with the code `log_replaced`.
   */
  readonly log?: string;
  /** Whether an iteration waits for further records (default) or stops at the end of the log. */
  readonly follow?: boolean;
  /** How long one request waits for a record, in milliseconds. */
  readonly waitMs?: number;
  /** Maximum number of records in one response. */
  readonly pageMax?: number;
  /** Stops the iteration by throwing the signal's reason. */
  readonly signal?: AbortSignal;
}

/**
 * Reads a store's log in order, with `for await` or `next`. Store `offset` and `logId` together with the results of your
 * processing. To resume, pass them as `after` and `log`.
 */
export class LogReader implements AsyncIterable<LogRecord> {
  readonly #client: Client;
  readonly #store: string;
  readonly #options: LogOptions;
  #offset: string;
  #log: string | undefined;
  #head = "0";
  #page: LogRecord[] = [];

  /** @internal */
  constructor(client: Client, store: string, options: LogOptions) {
    this.#client = client;
    this.#store = store;
    this.#options = options;
    this.#offset = options.after ?? "0";
    this.#log = options.log;
  }

  /** Position of the last record returned. */
  get offset(): string {
    return this.#offset;
  }

  /** The log that `offset` belongs to; `undefined` until the first response, unless it was set. */
  get logId(): string | undefined {
    return this.#log;
  }

  /** Last position of the log, as of the last request. */
  get head(): string {
    return this.#head;
  }

  /** Returns the next record; `undefined` if none arrives in time. Retries while the service is unavailable. */
  async next(waitMs = this.#options.waitMs ?? 10_000): Promise<LogRecord | undefined> {
    if (this.#page.length === 0) await this.#fetch(waitMs);
    const record = this.#page.shift();
    if (record !== undefined) this.#offset = record.lsn;
    return record;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<LogRecord, void, undefined> {
    for (;;) {
      const record = await this.next(this.#options.follow === false ? 0 : undefined);
      if (record !== undefined) yield record;
      else if (this.#options.follow === false) return;
    }
  }

  async #fetch(wait: number): Promise<void> {
    const { pageMax = 1000, signal } = this.#options;
    for (let failed = 1; ; failed++) {
      signal?.throwIfAborted();
      try {
        const page = await this.#client.logPage(
          this.#store,
          { after: this.#offset, log: this.#log },
          pageMax,
          wait,
          signal,
        );
        this.#log = page.log;
        this.#head = page.head_lsn;
        this.#page = dense(page.records, BigInt(this.#offset));
        return;
      } catch (error) {
        if (!(error instanceof Unavailable)) throw error;
        const pause = waitMs(this.#client.retry, failed, error.retryAfterMs);
        if (pause === undefined) throw error;
        await sleep(pause, signal);
      }
    }
  }
}

/** Converts the records of a page and checks that they follow each other without a gap. */
function dense(records: readonly components["schemas"]["LogRecord"][], after: bigint): LogRecord[] {
  let due = after;
  return records.map((record) => {
    due += 1n;
    if (record.lsn !== due.toString() || record.prev_lsn !== (due - 1n).toString()) {
      throw new ServerMisbehaved(`log record ${record.lsn} (after ${record.prev_lsn}) where ${due} was expected`);
    }
    return {
      lsn: record.lsn,
      epoch: record.epoch,
      csn: record.csn,
      version: record.version,
      txnId: record.txn_id,
      store: record.store,
      traceparent: record.traceparent,
      writes: record.writes.map((write) => {
        const key = keyOf(write.key, write.key_b64);
        if (key === undefined) throw new ServerMisbehaved(`log record ${record.lsn} has a row without a key`);
        return { op: write.op, key, value: valueOf(write) };
      }),
    };
  });
}

/** Merges the two wire fields of a value. A binary value keeps the form in which it is stored. */
export function valueOf(wire: { value?: unknown; value_b64?: string }): JsonValue | undefined {
  return wire.value_b64 === undefined ? (wire.value as JsonValue | undefined) : { $b64: wire.value_b64 };
}
