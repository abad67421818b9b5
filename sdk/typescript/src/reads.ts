/** Reads several rows of an embedded store in one request, all at the same epoch. */

import type { Row } from "./client.js";
import { ServerMisbehaved } from "./errors.js";
import type { JsonValue } from "./json.js";
import { keyFields, normal, type Key } from "./keys.js";
import { valueOf } from "./log.js";
import type { components } from "./wire/schema.js";

type WireRead = components["schemas"]["RowRead"];
type WireRow = components["schemas"]["ReadRow"];

/** A row to read. */
export interface RowRead {
  readonly key: Key;
  /** Version that the caller has cached. If it is still current, the value is not sent again. */
  readonly version?: string | undefined;
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
  /** One result per row, in the order of the request. */
  readonly rows: readonly RowState<T>[];
}

/** Keys of rows of embedded stores, by store. */
export type RowsToRead = Readonly<Record<string, readonly Key[]>>;

/** Converts a row to read to its wire form. */
export function asked({ key, version }: RowRead, store?: string): WireRead {
  return { ...(store === undefined ? {} : { store }), ...keyFields(normal(key)), ...(version === undefined ? {} : { version }) };
}

/** Returns the rows that Begin reads. */
export function askedOf(rows: RowsToRead): { store: string; key: Key }[] {
  return Object.entries(rows).flatMap(([store, keys]) => keys.map((key) => ({ store, key: normal(key) })));
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
