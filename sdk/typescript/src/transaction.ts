/**
 * An open transaction: it collects reads and writes in memory until the commit. To give up, drop it: it exists nowhere
 * else.
 */

import { list, optionsOf, rangeLimitMax, rowLimit, signalOf, type OptionNames } from "./arguments.js";
import type { Client } from "./client.js";
import type { components } from "./wire/schema.js";
import { ClientMistake, Misuse, Unavailable } from "./errors.js";
import { copied, fresh, sum, type JsonValue } from "./json.js";
import { identity, isBefore, keyFields, named, normal, order, successor, type Key } from "./keys.js";
import { bound, checkedRange, rangeIdentity, rangeLimit, type KeyRange, type RangeRows, type Row, type RowState } from "./reads.js";
import type { TxnOutcome, Verdict } from "./verdict.js";
import { addedTo, merge, type Known, type PendingWrite, type WriteOp } from "./writes.js";

/** The isolation levels, weakest first; `serializable` is the default and strict. */
export type IsolationLevel = components["schemas"]["IsolationLevel"];
/** When a commit returns: once it is durable, or once every store has applied it. */
export type Ack = components["schemas"]["Ack"];
/** The body of a commit. */
export type CommitRequest = components["schemas"]["CommitRequest"];
/** The response to a Begin. */
export type BeginResponse = components["schemas"]["BeginResponse"];

/** A commit that can be repeated, or sent in a batch: the same id and body get the same verdict. */
export interface PreparedCommit {
  /** The transaction, and the idempotency key. */
  readonly txnId: string;
  /** The request's body. */
  readonly request: CommitRequest;
  /** W3C trace context of the caller. */
  readonly traceparent?: string | undefined;
}

/** Options of a commit. */
export interface CommitOptions {
  /**
   * Ends the wait for the verdict. If the commit has not been sent, it never is, and the promise is rejected with the
   * signal's reason; otherwise with an `OutcomeUnknown` that has it as its cause.
   */
  readonly signal?: AbortSignal | undefined;
}

/** @internal The options of a commit. */
export const commitNames: OptionNames<CommitOptions> = { signal: true };

/** Options of a read of a transaction. */
export interface SignalOptions {
  /** Ends the read, if it needs a request: the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

const signalNames: OptionNames<SignalOptions> = { signal: true };

interface Seen {
  readonly key: Key;
  readonly version: string | undefined;
  /** Known only for rows that were read through this transaction. */
  readonly value: JsonValue | undefined;
  /** Whether a scan read the row: it has observed its range as well. */
  readonly inRange?: boolean;
}

interface Written {
  readonly key: Key;
  readonly write: PendingWrite;
}

/** An open transaction. Created by `Client.begin`, `Client.beginLocal` and `Client.run`. */
export class Transaction {
  /** The transaction's id, by which its status can be requested. */
  readonly id: string;
  readonly isolation: IsolationLevel;
  /** Snapshot of each store named at Begin. */
  readonly snapshots: Readonly<Record<string, string>>;
  /**
   * For each store named at Begin, a position of its log: every commit up to its snapshot is there or before. An engine
   * that keeps the rows itself applies the log up to here before it reads them. Empty if the service is of an earlier
   * release.
   */
  readonly lsns: Readonly<Record<string, string>>;
  /**
   * The log that these positions belong to; `undefined` if it is not known. If a copy has its rows from another log, the
   * service's log was salvaged, restored or replaced: start the copy again from the store's state.
   */
  readonly logId: string | undefined;
  /** Weight for conflict rules that use it, 0 to 255. */
  priority: number | undefined;
  /** When the commit returns. */
  ack: Ack | undefined;
  /** W3C trace context of the caller: sent with the commit, and kept in the log. */
  traceparent: string | undefined;
  /** When this work was first attempted, Unix milliseconds, for conflict rules that let the oldest work win. */
  firstAttemptMs: number | undefined;

  readonly #client: Client;
  /** The stores that Begin named; absent for all stores of the namespace. */
  readonly #stores: readonly string[] | undefined;
  readonly #epoch: string | undefined;
  /** Token of the commits that the snapshots include. */
  readonly #session: string | undefined;
  /** First reads; later reads of a row return the same. By store, then by the key's identity. */
  readonly #reads = new Map<string, Map<string, Seen>>();
  /** Prefetched rows, which do not count as read until `get` returns them. */
  readonly #fetched = new Map<string, Map<string, Seen>>();
  /** Prefetched ranges, which do not count as read until `scan` returns them. */
  readonly #fetchedRanges = new Map<string, RangeRows>();
  readonly #writes = new Map<string, Map<string, Written>>();
  readonly #ranges = new Map<string, components["schemas"]["Range"]>();
  /** Reads whose response has not arrived. */
  #reading = 0;
  /** Calls of `commit` that have not ended. */
  #committing = 0;
  /** Why further reads and writes are refused: no verdict would cover them. */
  #closed: string | undefined;
  /**
   * Whether a commit of the transaction may have been accepted. The transaction then stays closed, whatever the result
   * of a repeated commit.
   */
  #inDoubt = false;

  /** @internal */
  constructor(client: Client, id: string, isolation: IsolationLevel, begun?: BeginResponse, traceparent?: string, stores?: readonly string[]) {
    this.#client = client;
    this.id = id;
    this.isolation = isolation;
    // A copy: the transactions whose Begins shared a request have the same response.
    this.snapshots = { ...begun?.snapshots };
    this.lsns = { ...begun?.lsn };
    this.logId = begun?.log;
    this.#stores = stores;
    this.#epoch = begun?.epoch;
    this.#session = begun?.session;
    this.traceparent = traceparent;
  }

  /**
   * Reads a row of an embedded store, own writes included. Later reads of the row return the same, after the verdict as
   * well; a row that was not read before it is a `Misuse` then.
   */
  async get<T = JsonValue>(store: string, key: Key, options: SignalOptions = {}): Promise<Row<T> | undefined> {
    const signal = signalOf(options, "{ signal }", signalNames);
    this.#mustBeNamed(store);
    const name = normal(key);
    const own = this.#writes.get(store)?.get(identity(name))?.write;
    let seen = this.#reads.get(store)?.get(identity(name));
    if (own !== undefined && own.op !== "add") return row(name, seen?.version, own.value);
    if (seen === undefined || (seen.value === undefined && seen.version !== undefined)) {
      this.#mustBeOpen();
      const found = this.#taken(store, identity(name)) ?? (await this.#awaited(this.#client.row(store, name, { signal })));
      this.#mustBeOpen();
      // A concurrent read of the row may have finished first, and an observed version is kept: if the row has changed
      // since, the commit must detect it.
      const known = this.#reads.get(store)?.get(identity(name));
      if (known === undefined || known.value === undefined) {
        const version = known === undefined ? found?.version : known.version;
        seen = { key: name, version, value: found?.value };
        bucket(this.#reads, store).set(identity(name), seen);
      } else {
        seen = known;
      }
    }
    const value = own === undefined ? seen.value : addedTo(seen.value, own);
    return row(name, seen.version, value);
  }

  /**
   * Reads rows of an embedded store as `get` does, with one request for all rows that are not known yet; at most 10,000
   * with values of at most 8 MiB. The results have the order of the keys.
   */
  async getMany<T = JsonValue>(store: string, keys: readonly Key[], options: SignalOptions = {}): Promise<(Row<T> | undefined)[]> {
    const signal = signalOf(options, "{ signal }", signalNames);
    this.#mustBeNamed(store);
    const missing = new Map<string, Key>();
    for (const key of list(keys, "a list of keys").map(normal)) {
      if (!this.#knows(store, identity(key))) missing.set(identity(key), key);
    }
    if (missing.size > 0) {
      this.#mustBeOpen();
      const asked = [...missing.values()];
      const found = await this.#awaited(this.#client.readRows(store, asked.map((key) => ({ key })), { signal }));
      asked.forEach((key, at) => {
        this.fetched(store, key, found.rows[at]);
      });
    }
    const rows: (Row<T> | undefined)[] = [];
    for (const key of keys) rows.push(await this.get<T>(store, key, { signal }));
    return rows;
  }

  /** @internal Keeps a row that was read ahead. */
  fetched(store: string, key: Key, found: RowState | undefined): void {
    const row = found?.status === "found" ? found.row : undefined;
    bucket(this.#fetched, store).set(identity(key), { key, version: row?.version, value: row?.value });
  }

  /** @internal Keeps a range that was read ahead. */
  fetchedRange(store: string, range: KeyRange, found: RangeRows): void {
    this.#fetchedRanges.set(rangeIdentity(store, range), found);
  }

  /** Takes a row that was read ahead. */
  #taken(store: string, id: string): Seen | undefined {
    const found = this.#fetched.get(store)?.get(id);
    this.#fetched.get(store)?.delete(id);
    return found;
  }

  /** Returns whether `get` needs no request. */
  #knows(store: string, id: string): boolean {
    const own = this.#writes.get(store)?.get(id)?.write;
    const seen = this.#reads.get(store)?.get(id);
    const read = seen !== undefined && (seen.value !== undefined || seen.version === undefined);
    return read || (own !== undefined && own.op !== "add") || this.#fetched.get(store)?.has(id) === true;
  }

  /**
   * Reads at most `limit` rows of `start..end` of an embedded store, own writes included; fewer rows mean that the
   * range has no more. Observes the part of the range that was read. Without `end` the range extends to the end of the
   * store.
   */
  async scan<T = JsonValue>(store: string, range: KeyRange = {}, options: SignalOptions = {}): Promise<Row<T>[]> {
    const signal = signalOf(options, "{ signal }", signalNames);
    this.#mustBeOpen();
    this.#mustBeNamed(store);
    const ahead = rangeIdentity(store, range);
    const start = normal(range.start ?? "");
    const limit = rowLimit(range.limit ?? rangeLimit);
    const end = range.end === undefined || range.end.length === 0 ? undefined : normal(range.end);
    const found = new Map<string, Row>();
    let page: RangeRows | undefined = this.#fetchedRanges.get(ahead);
    this.#fetchedRanges.delete(ahead);
    // A page ends before its limit if its values are large.
    let [upTo, isAll] = [start as Key | undefined, false];
    for (;;) {
      const missing = limit - this.#count(store, found, start, upTo);
      if (isAll || missing <= 0) break;
      const from = upTo ?? start;
      if (page === undefined) {
        // Rows that this transaction has deleted do not count, so as many more are read.
        const deleted = this.#writtenIn(store, from, end).filter(([, { write }]) => write.op === "delete").length;
        const rest = { start: from, end, limit: Math.min(missing + deleted, rangeLimitMax) };
        const snapshot = this.snapshots[store];
        page = await this.#awaited(this.#client.reads.page(store, rest, { session: snapshot === undefined ? undefined : this.#session, signal }, snapshot));
        this.#mustBeOpen();
      }
      for (const one of page.rows) found.set(identity(one.key), one);
      const last = page.rows.at(-1);
      isAll = !page.more || last === undefined;
      upTo = isAll || last === undefined ? end : successor(last.key);
      page = undefined;
    }
    const keys = this.#keysIn(store, found, start, upTo);
    if (keys.length > limit) upTo = successor(keys[limit - 1] ?? start);
    this.observeRange(store, { start, end: upTo });
    const reads = bucket(this.#reads, store);
    for (const [id, { key, version, value }] of found) {
      if (upTo !== undefined && !isBefore(key, upTo)) continue;
      if (!reads.has(id)) reads.set(id, { key, version, value, inRange: true });
    }
    return keys.slice(0, limit).flatMap((key) => {
      const before = found.get(identity(key));
      const own = this.#writes.get(store)?.get(identity(key))?.write;
      const value = own === undefined ? before?.value : own.op === "add" ? addedTo(before?.value, own) : own.value;
      return row<T>(key, before?.version, value) ?? [];
    });
  }

  /** Lists the transaction's own writes in a range. */
  #writtenIn(store: string, start: Key, end: Key | undefined): [id: string, written: Written][] {
    const written = [...(this.#writes.get(store) ?? [])];
    return written.filter(([, { key }]) => !isBefore(key, start) && (end === undefined || isBefore(key, end)));
  }

  /** Counts the rows of a range: the rows found, and own writes. */
  #count(store: string, found: ReadonlyMap<string, Row>, start: Key, end: Key | undefined): number {
    let count = found.size;
    for (const [id, { write }] of this.#writtenIn(store, start, end)) {
      if (write.op === "delete") count -= found.has(id) ? 1 : 0;
      else count += found.has(id) ? 0 : 1;
    }
    return count;
  }

  /** Lists the keys of a range in order: the rows found, and own writes. */
  #keysIn(store: string, found: ReadonlyMap<string, Row>, start: Key, end: Key | undefined): Key[] {
    const keys = new Map([...found].map(([id, { key }]) => [id, key]));
    const written = this.#writtenIn(store, start, end);
    for (const [id, { key, write }] of written) {
      if (write.op === "delete") keys.delete(id);
      else keys.set(id, key);
    }
    return keys.size === found.size && written.every(([id]) => found.has(id)) ? [...keys.values()] : [...keys.values()].sort(order);
  }

  /**
   * Records that the engine has read a row in its own storage: its version, or that it is absent (no version). The
   * first observation of a row counts.
   */
  observe(store: string, key: Key, version?: string): void {
    this.#mustBeOpen();
    this.#mustBeNamed(store);
    const name = normal(key);
    const reads = bucket(this.#reads, store);
    if (!reads.has(identity(name))) reads.set(identity(name), { key: name, version, value: undefined });
  }

  /** Records that the engine has read the keys `start..end` in its own storage; absent bounds are the store's. */
  observeRange(store: string, range: { start?: Key | undefined; end?: Key | undefined }): void {
    this.#mustBeOpen();
    this.#mustBeNamed(store);
    const { start, end } = checkedRange(range);
    const seen: components["schemas"]["Range"] = { store: named(store), ...bound("start", start), ...bound("end", end) };
    this.#ranges.set(JSON.stringify(seen), seen);
  }

  /** Creates a row; the transaction aborts if it exists. */
  insert(store: string, key: Key, value: unknown): void {
    this.#write(store, key, "insert", copied(value));
  }

  /** Replaces a row's value; the transaction aborts if it is missing. */
  update(store: string, key: Key, value: unknown): void {
    this.#write(store, key, "update", copied(value));
  }

  /** Creates or replaces a row. */
  put(store: string, key: Key, value: unknown): void {
    this.#write(store, key, "put", copied(value));
  }

  /** Removes a row; the transaction aborts if it is missing. */
  delete(store: string, key: Key): void {
    this.#write(store, key, "delete", undefined);
  }

  /**
   * Adds to an integer row; adds do not conflict with each other. If the row is missing, it is created with the sum of
   * `or` and `delta`; without `or` the transaction aborts.
   */
  add(store: string, key: Key, delta: number, options: { or?: number | undefined } = {}): void {
    const given = optionsOf(options, "{ or: 0 }", { or: true }).or;
    const or = given === undefined ? undefined : sum(0, given);
    this.#write(store, key, "add", sum(0, delta), or);
  }

  /** Whether the transaction writes nothing. */
  get readOnly(): boolean {
    return [...this.#writes.values()].every((rows) => rows.size === 0);
  }

  /** Whether the transaction has read nothing. */
  get blind(): boolean {
    return this.#reads.size === 0 && this.#ranges.size === 0;
  }

  /** The transaction's read set: equal for two transactions that read the same versions of the same rows. @internal */
  get versionsRead(): string {
    const read = [...this.#reads].flatMap(([store, rows]) => [...rows].map(([id, { version }]) => JSON.stringify([store, id, version])));
    return read.sort().join();
  }

  /**
   * Requests the verdict. If the reply is lost, the verdict is queried by the transaction's id. From the call on,
   * further writes and reads of further rows are a `Misuse`, unless every commit ends with an error that means that
   * nothing was decided.
   */
  async commit(options: CommitOptions = {}): Promise<Verdict> {
    const signal = signalOf(options, "{ signal }", commitNames);
    const prepared = this.prepare();
    this.#closed ??= beingCommitted;
    this.#committing++;
    try {
      return this.decided(await this.#client.commit(prepared, { signal }));
    } catch (error) {
      if (!isUndecided(error, signal)) this.#inDoubt = true;
      if (!this.#inDoubt && this.#committing === 1 && this.#closed === beingCommitted) this.#closed = undefined;
      throw error;
    } finally {
      this.#committing--;
    }
  }

  /** @internal Creates the last commit request: further reads and writes are refused, whatever its result. */
  closed(): PreparedCommit {
    const prepared = this.prepare();
    this.#closed ??= beingCommitted;
    this.#inDoubt = true;
    return prepared;
  }

  /** @internal Records the verdict. */
  decided(verdict: Verdict): Verdict {
    this.#closed = `the transaction has ${verdict.status} already: begin another one for this read or write`;
    return verdict;
  }

  /** Refuses a store that the service would refuse only in the commit, after all of the work. */
  #mustBeNamed(store: string): void {
    if (this.#stores?.includes(named(store)) === false) {
      throw new Misuse(`Begin did not name the store \`${store}\`: add it to \`stores\` (${this.#stores.join(", ")})`);
    }
  }

  #mustBeOpen(): void {
    if (this.#closed !== undefined) throw new Misuse(this.#closed);
  }

  /** Returns whether the transaction would commit now if it were alone; its verdict if it has one. Changes nothing. */
  async validate(): Promise<TxnOutcome> {
    return this.#client.validate(this.prepare());
  }

  /** Aborts the transaction at the service, and returns its verdict. Not needed before dropping the transaction. */
  async abort(): Promise<Verdict> {
    return this.decided(await this.#client.abort(this.id));
  }

  /** Creates the commit request, for example for `Client.batch`. All reads must have finished. */
  prepare(): PreparedCommit {
    // The commit would not name the read, so its result would be unprotected.
    if (this.#reading > 0) throw new Misuse("a read of the transaction has not finished: await it before the commit");
    const request: CommitRequest = { isolation: this.isolation };
    if (Object.keys(this.snapshots).length > 0) request.snapshots = { ...this.snapshots };
    if (this.priority !== undefined) request.priority = this.priority;
    if (this.ack !== undefined) request.ack = this.ack;
    if (this.#epoch !== undefined) request.epoch = this.#epoch;
    if (this.firstAttemptMs !== undefined) request.first_attempt_ms = String(this.firstAttemptMs);
    request.reads = [...this.#reads].flatMap(([store, rows]) =>
      [...rows].filter(([id, seen]) => this.#mustBeSent(store, id, seen)).map(([, { key, version }]) => ({
        store,
        ...keyFields(key),
        ...(version === undefined ? {} : { version }),
      })),
    );
    request.ranges = [...this.#ranges.values()];
    request.writes = [...this.#writes].flatMap(([store, rows]) =>
      [...rows.values()].map(({ key, write }) => ({
        op: write.op,
        store,
        ...keyFields(key),
        ...(write.value === undefined ? {} : { value: write.value }),
        ...(write.or === undefined ? {} : { or: write.or }),
      })),
    );
    return { txnId: this.id, request, traceparent: this.traceparent };
  }

  /**
   * Returns whether the commit has to name a row that was read. At `serializable`, a range is compared with all writes
   * since the snapshot, those of the commit's own epoch included, so the rows of a scan would be checked twice. The
   * other levels need them: `repeatable-read` compares no ranges, and at `snapshot`, an `add` to a row that was read is
   * an update of it. A written row is always named: in a store of declared existence, the read is evidence that the row
   * exists.
   */
  #mustBeSent(store: string, id: string, { inRange }: Seen): boolean {
    return this.#writes.get(store)?.has(id) === true || inRange !== true || this.isolation !== "serializable";
  }

  /** Awaits a response, during which the transaction cannot be committed. */
  async #awaited<T>(response: Promise<T>): Promise<T> {
    this.#reading++;
    try {
      return await response;
    } finally {
      this.#reading--;
    }
  }

  #write(store: string, key: Key, op: WriteOp, value: JsonValue | undefined, or?: number): void {
    this.#mustBeOpen();
    this.#mustBeNamed(store);
    const name = normal(key);
    const id = identity(name);
    const seen = this.#reads.get(store)?.get(id);
    const known: Known = seen === undefined ? "unread" : seen.version === undefined ? "absent" : "present";
    const rows = bucket(this.#writes, store);
    const write = merge(rows.get(id)?.write, { op, value, or }, known);
    if (write === undefined) rows.delete(id);
    else rows.set(id, { key: name, write });
  }
}

const beingCommitted =
  "the commit of the transaction is under way, or its outcome is unknown: no verdict would cover this read or write, so await reads and writes before";

/** Returns whether a commit that ended with this error was not accepted. */
function isUndecided(error: unknown, signal: AbortSignal | undefined): boolean {
  // `body_mismatch`: an earlier commit with another body was accepted.
  if (error instanceof ClientMistake) return error.code !== "body_mismatch";
  return error instanceof Unavailable || error instanceof Misuse || (signal?.aborted === true && error === signal.reason);
}

function bucket<T>(rows: Map<string, Map<string, T>>, store: string): Map<string, T> {
  let found = rows.get(store);
  if (found === undefined) {
    named(store);
    found = new Map();
    rows.set(store, found);
  }
  return found;
}

/** Makes a row for the caller, which may change it: the transaction keeps its own for later reads and the commit. */
function row<T>(key: Key, version: string | undefined, value: JsonValue | undefined): Row<T> | undefined {
  if (value === undefined) return undefined;
  return { key: typeof key === "string" ? key : new Uint8Array(key), version, value: fresh(value) as T };
}
