/** Reads of several rows of an embedded store in one request, as of one epoch. */

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
  /** Version that the caller has cached: if it is still the row's, the value is not sent again. */
  readonly version?: string | undefined;
}

/** A row as a read found it; `status` tells which. */
export type RowState<T = JsonValue> =
  | { readonly status: "found"; readonly row: Row<T> & { readonly version: string } }
  | { readonly status: "unchanged"; readonly version: string }
  | { readonly status: "absent" };

/** Rows as of one epoch. */
export interface RowReads<T = JsonValue> {
  /** The epoch that they reflect: all of it, and nothing of later ones. */
  readonly applied: string;
  /** One for each row, in the order of the request. */
  readonly rows: readonly RowState<T>[];
}

/** Rows of embedded stores, by store. */
export type RowsToRead = Readonly<Record<string, readonly Key[]>>;

/** Names a row in a request. */
export function asked({ key, version }: RowRead, store?: string): WireRead {
  return { ...(store === undefined ? {} : { store }), ...keyFields(normal(key)), ...(version === undefined ? {} : { version }) };
}

/** Names the rows that Begin reads. */
export function askedOf(rows: RowsToRead): { store: string; key: Key }[] {
  return Object.entries(rows).flatMap(([store, keys]) => keys.map((key) => ({ store, key: normal(key) })));
}

/** Reads the rows of a response, one for each that was asked for. */
export function states<T = JsonValue>(found: readonly WireRow[], keys: readonly Key[]): RowState<T>[] {
  if (found.length !== keys.length) throw new ServerMisbehaved(`${found.length} rows for ${keys.length} that were asked for`);
  return keys.map((key, at) => {
    const { version, unchanged, ...value } = found[at] ?? { store: "" };
    if (version === undefined) return { status: "absent" };
    if (unchanged === true) return { status: "unchanged", version };
    return { status: "found", row: { key, value: (valueOf(value) ?? null) as T, version } };
  });
}
