/** Values of rows. */

import { Misuse } from "./errors.js";

/** Any JSON. */
export type JsonValue = null | boolean | number | string | JsonValue[] | { [name: string]: JsonValue };

/** Copies a value as JSON has it, so that later changes to the original do not matter. */
export function copied(value: unknown): JsonValue {
  // The compiler believes that it is always a string.
  let text: unknown;
  try {
    text = JSON.stringify(value);
  } catch (cause) {
    throw new Misuse(`the value is no JSON: ${String(cause)}`, { cause });
  }
  if (typeof text !== "string") throw new Misuse("the value is no JSON: undefined, a function or a symbol");
  return JSON.parse(text) as JsonValue;
}

/** Adds two integers exactly. */
export function sum(left: JsonValue | undefined, right: JsonValue | undefined): number {
  const result = Number(left) + Number(right);
  if (![left, right, result].every(Number.isSafeInteger)) {
    throw new Misuse("add needs integers whose sum is a safe one (up to 2^53 - 1), too");
  }
  return result;
}
