/** Reads several rows or ranges of an embedded store in one request, all at the same epoch. */

import { described, duration, list, onlyKnown, rowLimit, signalOf, type OptionNames } from "./arguments.js";
import { Misuse, ServerMisbehaved } from "./errors.js";
import type { JsonValue } from "./json.js";
import { isBytes, keyFields, keyOf, named, normal, type Key } from "./keys.js";
import { valueOf } from "./log.js";
import type { components } from "./wire/schema.js";

type WireRead = components["schemas"]["RowRead"];
type WireRow = components["schemas"]["ReadRow"];
type WireRange = components["schemas"]["RangeRead"];

/** A row as it was read. */
export interface Row<T = JsonValue> {
  readonly key: Key;
  readonly value: T;
  /** Absent for a row that the transaction itself wrote and had not read. */
  readonly version: string | undefined;
}

/** Rows in key order. */
export interface RowPage<T = JsonValue> {
  /** Snapshot that the rows reflect. */
  readonly applied: string;
  readonly rows: readonly Row<T>[];
  /** Whether the range has more rows. There can be fewer than `limit` nevertheless, if their values are large. */
  readonly more: boolean;
}

/** A row to read. */
export interface RowRead {
  readonly key: Key;
  /** Version that the caller has cached. If it is still current, the value is not sent again. */
  readonly version?: string | undefined;
}

/**
 * What the snapshots of a Begin, or the rows of a read, include: `session`, the commits that the session covers and
 * those that the node has acknowledged; `fresh`, everything that any node of the cluster acknowledged to any client
 * before the call.
 */
export type Consistency = components["schemas"]["Consistency"];

/** Options of a read outside of transactions. */
export interface ReadOptions {
  /** Token of a commit that the rows must include. */
  readonly session?: string | undefined;
  /** What the rows include; `session` by default. */
  readonly consistency?: Consistency | undefined;
  /** How long to wait until the rows include that, in milliseconds; 5 s by default. */
  readonly waitMs?: number | undefined;
  /** Ends the read: the promise is rejected with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of a read in their wire form. */
export type ReadTerms = Pick<components["schemas"]["ReadRequest"], "session" | "consistency" | "wait_ms">;

const readNames: OptionNames<ReadOptions> = { session: true, consistency: true, waitMs: true, signal: true };

/** Checks that there are no other options, and returns the options of a read. */
export function readOptions(options: ReadOptions): ReadOptions {
  return { ...options, signal: signalOf(options, '{ consistency: "fresh" }', readNames) };
}

/** Converts the options of a read, or of a Begin, which has others as well. */
export function readTerms({ session, consistency, waitMs }: ReadOptions): ReadTerms {
  return {
    ...(session === undefined ? {} : { session }),
    ...(consistency === undefined ? {} : { consistency }),
    ...(waitMs === undefined ? {} : { wait_ms: duration("waitMs", waitMs) }),
  };
}

/** Default time that the service waits for the commits that a request must include; milliseconds. */
const waitMsDefault = 5_000;

/** Returns how long the service may wait for the commits that a request must include, milliseconds. */
export function waitMsOf({ session, consistency, wait_ms }: ReadTerms): number {
  return wait_ms ?? (session !== undefined || consistency === "fresh" ? waitMsDefault : 0);
}

/** The result of reading a row, distinguished by `status`. */
export type RowState<T = JsonValue> =
  | { readonly status: "found"; readonly row: Row<T> & { readonly version: string } }
  | { readonly status: "unchanged"; readonly version: string }
  | { readonly status: "absent" };

/** The results of reading rows, all at the same epoch. */
export interface RowReads<T = JsonValue> {
  /** The epoch that the rows reflect: they include all of its commits, and none of later epochs. */
  readonly applied: string;
  /**
   * Token for a later read that must reflect this epoch or a later one, also on another node; `undefined` if the
   * service is too old to return one.
   */
  readonly session: string | undefined;
  /** One result per row, in the order of the request. */
  readonly rows: readonly RowState<T>[];
}

/** Keys of rows of embedded stores, by store. */
export type RowsToRead = Readonly<Record<string, readonly Key[]>>;

/** Keys from `start` on, before `end`; absent bounds are the store's. */
export interface KeyRange {
  readonly start?: Key | undefined;
  readonly end?: Key | undefined;
  /** Maximum number of rows, at most 10,000; 1000 by default. */
  readonly limit?: number | undefined;
}

/** Rows of a range, in key order. */
export interface RangeRows<T = JsonValue> {
  readonly rows: readonly Row<T>[];
  /** Whether the range has more rows. There can be fewer than `limit` nevertheless, if their values are large. */
  readonly more: boolean;
}

/** Ranges, all read at the same epoch. */
export interface RangeReads<T = JsonValue> {
  /** The epoch that they reflect: they include all of its commits, and none of later epochs. */
  readonly applied: string;
  /**
   * Token for a later read that must reflect this epoch or a later one, also on another node; `undefined` if the
   * service is too old to return one.
   */
  readonly session: string | undefined;
  /** One result per range, in the order of the request. */
  readonly ranges: readonly RangeRows<T>[];
}

/** The result of reading nothing, without a request: its epoch means nothing. */
export const nothingRead = { applied: "0", session: undefined } as const;

/** Ranges of embedded stores, by store. */
export type RangesToRead = Readonly<Record<string, readonly KeyRange[]>>;

/** A range that Begin reads. */
export interface NamedRange {
  readonly store: string;
  readonly range: KeyRange;
  readonly wire: WireRange;
}

/** Checks an object by store. Anything else would have no entries, or one per character. */
function byStore<T extends object>(name: string, given: T): T {
  const any: unknown = given;
  // The entries of a `Map` or a `Set` are not members, so it would name no store.
  const isObject = typeof any === "object" && any !== null && !isBytes(any) && !(any instanceof Map || any instanceof Set);
  if (isObject && !Array.isArray(any)) return given;
  throw new Misuse(`\`${name}\` must be an object by store, not ${described(any)}`);
}

/** Lists the ranges that Begin reads. */
export function rangesOf(ranges: RangesToRead): NamedRange[] {
  return Object.entries(byStore("ranges", ranges)).flatMap(([store, each]) =>
    list(each, '`ranges`: a list by store, such as { kv: [{ start: "a/", end: "a0" }] },').map((range) => ({ store, range, wire: { store: named(store), ...rangeAsked(range) } })),
  );
}

/** Converts a range to read to its wire form. */
export function rangeAsked(range: KeyRange): WireRange {
  const { start, end, limit = rangeLimit } = checkedRange(range);
  return { ...bound("start", start), ...bound("end", end), limit: rowLimit(limit) };
}

const rangeNames: OptionNames<KeyRange> = { start: true, end: true, limit: true };

/** Checks a range. A prefix in its place would be a range without bounds: the whole store. */
export function checkedRange(range: KeyRange): KeyRange {
  const given: unknown = range;
  if (typeof given === "object" && given !== null && !Array.isArray(given) && !isBytes(given)) return onlyKnown("bound of a range", range, rangeNames);
  throw new Misuse('a range such as { start: "a/", end: "a0" } was expected, not ' + JSON.stringify(given));
}

/** Limit of a range that names none. */
export const rangeLimit = 1000;

/** Returns a string that identifies a range. */
export function rangeIdentity(store: string, range: KeyRange): string {
  return JSON.stringify([store, rangeAsked(range)]);
}

/** Returns the wire form of a range's bound; an empty or absent one is the store's. */
export function bound(name: "start" | "end", key: Key | undefined): Record<string, string> {
  if (key === undefined || key.length === 0) return {};
  return Object.fromEntries(Object.entries(keyFields(normal(key))).map(([field, text]) => [field.replace("key", name), text]));
}

/** Reads a row of a range. */
export function rowOf<T = JsonValue>(row: components["schemas"]["Row"]): Row<T> {
  const key = keyOf(row.key, row.key_b64);
  if (key === undefined) throw new ServerMisbehaved("a row without a key");
  return { key, value: (valueOf(row) ?? null) as T, version: row.version };
}

/** Reads the ranges of a response, one per range that was requested. */
export function rangeRows<T = JsonValue>(found: readonly components["schemas"]["ReadRange"][], count: number): RangeRows<T>[] {
  if (found.length !== count) throw new ServerMisbehaved(`${found.length} ranges returned where ${count} were requested`);
  return found.map(({ rows, more }) => ({ rows: rows.map((row) => rowOf<T>(row)), more }));
}

/** A row that was read may be passed to read it again: its value is not sent. */
const rowNames: OptionNames<RowRead & { readonly value?: unknown }> = { key: true, version: true, value: true };

/** Converts a row to read to its wire form. */
export function asked(row: RowRead, store?: string): WireRead {
  const given: unknown = row;
  if (typeof given !== "object" || given === null || isBytes(given)) throw new Misuse(`a row such as { key: "a" } was expected, not ${described(given)}`);
  const { key, version } = onlyKnown("member of a row to read", row, rowNames);
  return { ...(store === undefined ? {} : { store }), ...keyFields(normal(key)), ...(version === undefined ? {} : { version }) };
}

/** Returns the rows that Begin reads. */
export function askedOf(rows: RowsToRead): { store: string; key: Key }[] {
  return Object.entries(byStore("read", rows)).flatMap(([store, keys]) =>
    list(keys, '`read`: a list of keys by store, such as { kv: ["a"] },').map((key) => ({ store: named(store), key: normal(key) })),
  );
}

/** Converts the rows of a response, of which there must be one per requested row. */
export function states<T = JsonValue>(found: readonly WireRow[], keys: readonly Key[]): RowState<T>[] {
  if (found.length !== keys.length) throw new ServerMisbehaved(`${found.length} rows returned where ${keys.length} were requested`);
  return keys.map((key, at) => {
    const { version, unchanged, ...value } = found[at] ?? { store: "" };
    if (version === undefined) return { status: "absent" };
    if (unchanged === true) return { status: "unchanged", version };
    return { status: "found", row: { key, value: (valueOf(value) ?? null) as T, version } };
  });
}
