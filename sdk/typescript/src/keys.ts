/** Keys: UTF-8 text or any bytes, which have a wire field each. */

import { described } from "./arguments.js";
import { Misuse, ServerMisbehaved } from "./errors.js";

/** A row's key. Bytes that are UTF-8 name the same row as the text. */
export type Key = string | Uint8Array;

const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const encoder = new TextEncoder();
const loneSurrogate = /\p{Surrogate}/u;

/** Normalizes a key: text if it is UTF-8, else bytes. */
export function normal(key: Key): Key {
  if (typeof key === "string") {
    if (loneSurrogate.test(key)) throw new Misuse("a key has a lone surrogate and cannot be written as UTF-8");
    return key;
  }
  if (!isBytes(key)) throw new Misuse(`a key must be a string or a Uint8Array, not ${described(key)}`);
  try {
    return decoder.decode(key);
  } catch {
    // A copy, which `slice` of a `Buffer` is not: the caller may reuse its buffer for the next key.
    return new Uint8Array(key);
  }
}

/** Returns a string that identifies a normal key. */
export function identity(key: Key): string {
  return typeof key === "string" ? `t${key}` : `b${base64(key)}`;
}

/** Returns whether `left` sorts before `right`, as the service sorts: by bytes. */
export function isBefore(left: Key, right: Key): boolean {
  return order(left, right) < 0;
}

/** Compares two keys by their bytes. */
export function order(left: Key, right: Key): number {
  const [a, b] = [bytes(left), bytes(right)];
  const shared = Math.min(a.length, b.length);
  for (let at = 0; at < shared; at++) {
    const difference = (a[at] ?? 0) - (b[at] ?? 0);
    if (difference !== 0) return difference;
  }
  return a.length - b.length;
}

/** Returns the first key after this one. */
export function successor(key: Key): Key {
  const last = bytes(key);
  const next = new Uint8Array(last.length + 1);
  next.set(last);
  return normal(next);
}

/** Returns the name of a store or consumer, or an id. */
export function named(name: unknown): string {
  if (typeof name !== "string") throw new Misuse(`the name of a store or consumer, or an id, must be a string, not ${String(name)}`);
  if (loneSurrogate.test(name)) throw new Misuse("the name of a store or consumer, or an id, has a lone surrogate and cannot be written as UTF-8");
  return name;
}

/**
 * Percent-encodes the name of a store or consumer, or an id, for a path segment. Empty text, or dots, would name
 * another resource.
 */
export function segment(name: string): string {
  if (["", ".", ".."].includes(named(name))) throw new Misuse(`"${name}" cannot be the name of a store or consumer, or an id`);
  return percentEncoded(name);
}

/** Percent-encodes a key or a name for a path segment or a query value. */
export function percentEncoded(key: Key): string {
  if (typeof key === "string" || !isBytes(key)) named(key);
  let text = "";
  for (const byte of bytes(key)) {
    const char = String.fromCharCode(byte);
    text += /[A-Za-z0-9\-._~]/.test(char) ? char : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`;
  }
  return text;
}

/** Splits a normal key into its wire fields. */
export function keyFields(key: Key): { key: string } | { key_b64: string } {
  return typeof key === "string" ? { key } : { key_b64: base64(key) };
}

/** Joins the two wire fields of a key; `undefined` if both are absent. */
export function keyOf(text: string | undefined, inBase64: string | undefined): Key | undefined {
  if (text !== undefined) return text;
  return inBase64 === undefined ? undefined : fromBase64(inBase64);
}

/**
 * Returns whether a value is a `Uint8Array`, of another realm as well. Other views have elements or methods that
 * differ.
 */
export function isBytes(value: unknown): boolean {
  return Object.prototype.toString.call(value) === "[object Uint8Array]";
}

function bytes(key: Key): Uint8Array {
  return typeof key === "string" ? encoder.encode(key) : key;
}

function base64(data: Uint8Array): string {
  let binary = "";
  for (const byte of data) binary += String.fromCharCode(byte);
  return btoa(binary);
}

function fromBase64(text: string): Uint8Array {
  try {
    return Uint8Array.from(atob(text), (char) => char.charCodeAt(0));
  } catch {
    throw new ServerMisbehaved(`\`${text}\` where base64 was expected`);
  }
}
