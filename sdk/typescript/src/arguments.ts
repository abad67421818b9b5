/** Checks a caller's arguments before anything is sent: a mistake is a `Misuse` that names what to pass instead. */

import { Misuse } from "./errors.js";
import { nearest } from "./nearest.js";

/**
 * The longest time that a caller may set, milliseconds. A sum of several still fits a timer, which counts to 2^31 - 1.
 */
const durationMsMax = 1_000_000_000;

/** Returns a time in milliseconds. A timer would treat `NaN`, text, or a number that is too large as 0. */
export function duration(name: string, ms: unknown): number {
  if (typeof ms === "number" && ms >= 0 && ms <= durationMsMax) return ms;
  throw new Misuse(`\`${name}\` must be a number of milliseconds from 0 to ${durationMsMax}, not ${described(ms)}`);
}

/** Returns a count of at least 1; `Infinity` is one. */
export function count(name: string, value: unknown): number {
  if (typeof value === "number" && value >= 1) return value;
  throw new Misuse(`\`${name}\` must be a number, at least 1, not ${described(value)}`);
}

/** The most rows that one request reads. */
export const rangeLimitMax = 10_000;

/** Returns how many rows a range may return. */
export function rowLimit(limit: unknown): number {
  if (typeof limit === "number" && Number.isInteger(limit) && limit >= 1 && limit <= rangeLimitMax) return limit;
  throw new Misuse(`\`limit\` must be a whole number from 1 to ${rangeLimitMax}, not ${described(limit)}`);
}

/** The names of all options of a type; the compiler requires each one. */
export type OptionNames<T> = Readonly<Record<keyof T, true>>;

/**
 * Returns the options of a call. Something else in their place, such as a list of stores or a signal, would be taken
 * for options without any content; `such` is an example of them.
 */
export function optionsOf<T extends object>(options: T, such: string, names: OptionNames<T>): T {
  const given: unknown = options;
  if (typeof given === "object" && given !== null && !Array.isArray(given) && !isSignal(given)) return onlyKnown("option", options, names);
  throw new Misuse(`options such as ${such} were expected, not ${described(given)}`);
}

/** Returns an object all of whose members are known. A misspelled one would have no effect. */
export function onlyKnown<T extends object>(what: string, given: T, names: OptionNames<T>): T {
  const known = Object.keys(names);
  for (const [name, value] of Object.entries(given)) {
    if (value === undefined || known.includes(name)) continue;
    const meant = nearest(name, known);
    const hint = meant === undefined ? `there are ${known.map((one) => `\`${one}\``).join(", ")}` : `did you mean \`${meant}\`?`;
    throw new Misuse(`there is no ${what} \`${name}\`; ${hint}`);
  }
  return given;
}

/** Returns the signal in the options of a call. */
export function signalOf<T extends { readonly signal?: AbortSignal | null | undefined }>(options: T, such: string, names: OptionNames<T>): AbortSignal | undefined {
  optionsOf(options, such, names);
  const signal: unknown = options.signal ?? undefined;
  if (signal === undefined || isSignal(signal)) return signal;
  const hint = signal instanceof AbortController ? ": pass its `signal`" : "";
  throw new Misuse(`\`signal\` must be an AbortSignal, not ${described(signal)}${hint}`);
}

/** Checks the members that are used: a signal of another realm is no instance of this realm's class. */
function isSignal(value: unknown): value is AbortSignal {
  if (typeof value !== "object" || value === null) return false;
  const { aborted, addEventListener, removeEventListener, throwIfAborted } = value as Partial<AbortSignal>;
  return typeof aborted === "boolean" && [addEventListener, removeEventListener, throwIfAborted].every((method) => typeof method === "function");
}

/** Returns a list. Text also has a length, and would be split into its characters. */
export function list<T>(values: readonly T[], what: string): readonly T[] {
  const given: unknown = values;
  if (Array.isArray(given)) return values;
  throw new Misuse(`${what} was expected, not ${described(given)}`);
}

/** Returns the text of a header. `fetch` refuses other text, which would look like a failure of the connection. */
export function headerText(what: string, text: unknown): string {
  if (typeof text !== "string") throw new Misuse(`the ${what} must be a string, not ${described(text)}`);
  // `fetch` trims white space, such as the line break at the end of a key file.
  if (!/^[\t\x20-\x7e\xa0-\xff]*$/.test(text.trim())) throw new Misuse(`the ${what} has characters that no header can have`);
  return text;
}

/** Describes a wrong argument: one of a simple type by its value, another by its class. */
export function described(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value === "bigint") return `${value}n`;
  if (typeof value === "object" && value !== null) {
    const kind = Object.prototype.toString.call(value);
    return Array.isArray(value) ? "a list" : kind === "[object Object]" ? "an object" : kind;
  }
  return typeof value === "function" ? "a function" : String(value);
}
