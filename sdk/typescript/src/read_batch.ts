/**
 * Batches of reads: joins the rows of several callers into one request, and splits the response into one part per
 * caller.
 */

import { headStartMs, type Bounds, type Coalescer, type Terms } from "./coalescer.js";
import { ServerMisbehaved } from "./errors.js";
import { settled, type Reply } from "./exchange.js";
import { fresh, type JsonValue } from "./json.js";
import type { components } from "./wire/schema.js";

type WireRead = components["schemas"]["RowRead"];
type WireRow = components["schemas"]["ReadRow"];

/** Bytes that a row counts for in addition to its key, so that the byte limit also bounds the number of rows. */
const rowBytes = 128;

/** Bounds of batched reads: 512 callers and 10,000 rows. */
export const readBounds: Bounds = { inFlightMax: 2, headStartMs, itemsMax: 512, bytesMax: 10_000 * rowBytes };

/** Larger reads are sent alone: other reads would wait for the response, or be refused with it. */
export const bytesAlone = 1_000 * rowBytes;

export function bytesOf(rows: readonly WireRead[]): number {
  return rows.reduce((sum, { key = "", key_b64 = "" }) => sum + rowBytes + key.length + key_b64.length, 0);
}

/** The result of one caller of a shared request: its part, or that it has to send its own request. */
export type Shared<T> = { readonly part: T } | "refused";

/**
 * Splits the reply to a request of several callers. If the service refused it because of its content, such as rows with
 * more than 8 MiB or one invalid key, each caller has to send its own. Throws the error that all callers get.
 */
export function parts<Answer, Part>(reply: Reply<Answer>, count: number, apart: (answer: Answer) => Part[]): Shared<Part>[] {
  if (count > 1 && reply.kind === "problem" && [400, 413, 422].includes(reply.status)) return Array.from({ length: count }, () => "refused");
  return apart(settled(reply)).map((part) => ({ part }));
}

/** Sends an item in a batch of a coalescer, or as a request of its own if there is none or the batch is refused. */
export async function submitted<Item, Part>(
  coalescer: Coalescer<Item, Shared<Part>> | undefined,
  terms: Terms,
  item: Item,
  send: (items: readonly Item[]) => Promise<Shared<Part>[]>,
): Promise<Part> {
  const shared = coalescer === undefined ? "refused" : await coalescer.submit(terms, item);
  const found = shared === "refused" ? (await send([item]))[0] : shared;
  if (found === undefined || found === "refused") throw new ServerMisbehaved("no response");
  return found.part;
}

/** The rows of several callers, each row once. */
export class Union {
  /** The rows to request. */
  readonly rows: WireRead[] = [];
  /** For each caller, the places of its rows in `rows`. */
  readonly #places: number[][];

  /** Joins the rows of callers. A row that two callers know in different versions is requested twice. */
  constructor(callers: readonly (readonly WireRead[])[]) {
    const known = new Map<string, number>();
    this.#places = callers.map((rows) =>
      rows.map((row) => {
        const name = JSON.stringify([row.store, row.key, row.key_b64, row.version]);
        const place = known.get(name) ?? this.rows.push(row) - 1;
        known.set(name, place);
        return place;
      }),
    );
  }

  /** Returns each caller's rows, with values of its own. */
  apart(found: readonly WireRow[]): WireRow[][] {
    const { length } = this.rows;
    if (found.length !== length) throw new ServerMisbehaved(`${found.length} rows returned where ${length} were requested`);
    const given = new Set<number>();
    return this.#places.map((places) =>
      places.map((place) => {
        const row = found[place] ?? { store: "" };
        // The first caller has the original.
        const isFirst = !given.has(place);
        given.add(place);
        return isFirst || row.value === undefined ? row : { ...row, value: fresh(row.value as JsonValue) };
      }),
    );
  }
}
