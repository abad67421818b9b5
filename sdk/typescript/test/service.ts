/** The live server under test, and keys for a test's own rows. */

import { Client, uuidv7, type ClientOptions } from "../src/index.js";

/** The server that tests/clients.sh started. */
export const url = new URL(process.env["TRIBUNAL_URL"] ?? "http://127.0.0.1:7420");

export function connected(options: ClientOptions = {}): Client {
  return new Client(url.href, options);
}

/** A prefix of keys that no other test uses. */
export function freshPrefix(): string {
  return `ts/${uuidv7()}/`;
}
