/** Begin: its request, and which Begins may share one. */

import { headerText, list } from "./arguments.js";
import type { BeginOptions } from "./options.js";
import { Misuse, ServerMisbehaved } from "./errors.js";
import { bytesAlone, bytesOf, type Union } from "./read_batch.js";
import { named, type Key } from "./keys.js";
import { asked, askedOf, rangesOf, readTerms, type NamedRange } from "./reads.js";
import { timeOf, uuidv7 } from "./uuid.js";
import type { components } from "./wire/schema.js";

type BeginRequest = components["schemas"]["BeginRequest"];
type BeginResponse = components["schemas"]["BeginResponse"];

/** A Begin of one caller. */
export interface BeginItem {
  /** The request, without the client's own session. */
  readonly body: BeginRequest;
  /** The stores that the Begin names or reads; absent for all stores of the namespace. */
  readonly stores: string[] | undefined;
  readonly rows: readonly { store: string; key: Key }[];
  readonly ranges: readonly NamedRange[];
}

/** Converts options to a request. */
export function beginItem(options: BeginOptions): BeginItem {
  const given: unknown = options.stores;
  if (typeof given === "string") throw new Misuse(`\`${given}\` is one store where a list of stores was expected`);
  if (options.stores !== undefined) list(options.stores, "a list of stores");
  if (options.traceparent !== undefined) headerText("traceparent", options.traceparent);
  const body: BeginRequest = { isolation: options.isolation ?? "serializable" };
  const rows = askedOf(options.read ?? {});
  const ranges = rangesOf(options.ranges ?? {});
  const read = [...rows, ...ranges].map(({ store }) => store);
  const stores = options.stores?.length ? [...new Set([...options.stores.map(named), ...read])].sort() : undefined;
  if (stores !== undefined) body.stores = stores;
  Object.assign(body, readTerms(options));
  if (rows.length > 0) body.read = rows.map(({ store, key }) => asked({ key }, store));
  if (ranges.length > 0) body.ranges = ranges.map(({ wire }) => wire);
  return { body, stores, rows, ranges };
}

/**
 * Returns the key of the Begins that can share snapshots: same stores, same freshness requirement, same wait. Without a
 * list of stores, the stores that are read count, so that a missing one fails no other Begin.
 */
export function groupOf({ body, stores, rows }: BeginItem): string {
  const read = stores === undefined ? [...new Set(rows.map(({ store }) => store))].sort() : [];
  return JSON.stringify([stores, read, body.session, body.consistency, body.wait_ms]);
}

/** Returns whether a Begin may share a request. Ranges and many rows can fill a response by themselves. */
export function mayShare({ body }: BeginItem): boolean {
  return body.ranges === undefined && bytesOf(body.read ?? []) <= bytesAlone;
}

/** Splits the response to several Begins: each one gets its own id and rows. */
export function responses(begun: BeginResponse, union: Union): BeginResponse[] {
  return union.apart(begun.rows ?? []).map((rows, at) => ({ ...begun, rows, txn_id: at === 0 ? begun.txn_id : idBeside(begun.txn_id) }));
}

/** Creates an id with the time of an id from the service, whose clock may differ from the local one. */
function idBeside(id: string): string {
  const time = timeOf(id);
  if (time === undefined) throw new ServerMisbehaved(`\`${id}\` is not a UUIDv7`);
  return uuidv7(time);
}
