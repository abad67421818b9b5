/** Values of rows. */

import { described } from "./arguments.js";
import { Misuse } from "./errors.js";

/** Any JSON. */
export type JsonValue = null | boolean | number | string | JsonValue[] | { [name: string]: JsonValue };

/** Copies a value by way of JSON, so that later changes to the original have no effect. */
export function copied(value: unknown): JsonValue {
  // `stringify` returns `undefined` for some values, although its type does not include it.
  let text: unknown;
  try {
    text = JSON.stringify(value, exact);
  } catch (cause) {
    throw new Misuse(`the value cannot be represented in JSON: ${String(cause)}`, { cause });
  }
  if (typeof text !== "string") throw new Misuse("the value cannot be represented in JSON: undefined, a function or a symbol");
  return JSON.parse(text) as JsonValue;
}

/** Copies a value that came from JSON, so that a caller that changes its copy changes nothing else. */
export function fresh(value: JsonValue): JsonValue {
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(fresh);
  // Not by assignment, which would make a member named `__proto__` the prototype.
  return Object.fromEntries(Object.entries(value).map(([name, member]) => [name, fresh(member)]));
}

/** Refuses values that JSON would alter. `this` is the object that contains the value as it was before its `toJSON`. */
function exact(this: Readonly<Record<string, unknown>>, name: string, value: unknown): unknown {
  const original = this[name];
  if (typeof value === "number" && !Number.isFinite(value)) throw new TypeError(`${value} is no number in JSON`);
  if (ArrayBuffer.isView(original) || original instanceof ArrayBuffer) {
    throw new TypeError('bytes are not JSON: write {"$b64": TEXT} with their base64');
  }
  if (typeof value !== "object") return value;
  if (value instanceof Map || value instanceof Set) throw new TypeError("a Map or Set is not JSON: write an object or an array");
  if (value instanceof Promise) throw new TypeError("a Promise is not JSON: await it");
  if (value instanceof Error || value instanceof RegExp) throw new TypeError("an Error or RegExp is not JSON: write its text");
  return value;
}

/** Adds two integers exactly. */
export function sum(left: JsonValue | undefined, right: JsonValue | undefined): number {
  const other = [left, right].find((term) => !Number.isInteger(term));
  if (other !== undefined || left === undefined || right === undefined) {
    throw new Misuse(`\`add\` needs an integer, as its argument and in the row, not ${described(other)}: \`put\` other values`);
  }
  const result = Number(left) + Number(right);
  if (![left, right, result].every(Number.isSafeInteger)) {
    throw new Misuse(`\`add\` needs integers whose sum is a safe integer (up to 2^53 - 1), too, not ${described(left)} and ${described(right)}`);
  }
  return result;
}
