/** Values of rows. */

import { Misuse } from "./errors.js";

/** Any JSON. */
export type JsonValue = null | boolean | number | string | JsonValue[] | { [name: string]: JsonValue };

/** Copies a value by way of JSON, so that later changes to the original have no effect. */
export function copied(value: unknown): JsonValue {
  // `undefined` for some values, which the type of `stringify` does not tell.
  let text: unknown;
  try {
    text = JSON.stringify(value, finite);
  } catch (cause) {
    throw new Misuse(`the value cannot be represented in JSON: ${String(cause)}`, { cause });
  }
  if (typeof text !== "string") throw new Misuse("the value cannot be represented in JSON: undefined, a function or a symbol");
  return JSON.parse(text) as JsonValue;
}

/** Refuses what JSON would turn into `null`. */
function finite(_: string, value: unknown): unknown {
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} is no number in JSON`);
  return value;
}

/** Adds two integers exactly. */
export function sum(left: JsonValue | undefined, right: JsonValue | undefined): number {
  const result = Number(left) + Number(right);
  if (![left, right, result].every(Number.isSafeInteger)) {
    throw new Misuse("add needs integers whose sum is a safe integer (up to 2^53 - 1), too");
  }
  return result;
}
