/** What counts as a reply, and what as a request that was never sent, without a service. */

import assert from "node:assert/strict";
import { test } from "node:test";

import { exchange, lostBy, type Exchanged } from "../src/exchange.js";

/** An error of the network as `fetch` reports it. */
function failed(code: string, syscall: string): Error {
  return new TypeError("fetch failed", { cause: Object.assign(new Error(`${syscall} ${code}`), { code, syscall }) });
}

async function fails(error: Error): Promise<Exchanged<unknown>> {
  return Promise.reject(error);
}

test("a request was never sent only if connecting failed", async () => {
  for (const code of ["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH"]) {
    for (const [syscall, isLost] of [["connect", false], ["read", true], ["write", true]] as const) {
      const reply = await exchange(async () => fails(failed(code, syscall)));
      assert.equal(lostBy(reply) !== undefined, isLost, `${syscall} ${code}`);
    }
  }
  assert.equal(lostBy(await exchange(async () => fails(failed("ENOTFOUND", "getaddrinfo")))), undefined);
  const both = new AggregateError(["ECONNREFUSED", "ENETUNREACH"].map((code) => failed(code, "connect").cause));
  assert.equal(lostBy(await exchange(async () => fails(new TypeError("fetch failed", { cause: both })))), undefined);
});
