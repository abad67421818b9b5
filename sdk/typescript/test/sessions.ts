/** Sessions of one client that commit at the same time. */

import assert from "node:assert/strict";

import type { Client } from "../src/index.js";
import { freshPrefix } from "./service.js";

/** Commits from 64 sessions to disjoint rows; each checks every verdict. */
export async function sessions(client: Client, rounds: number): Promise<{ replayed: number }> {
  const prefix = freshPrefix();
  let replayed = 0;
  await Promise.all(
    Array.from({ length: 64 }, async (_, session) => {
      let version: string | undefined;
      for (let round = 0; round < rounds; round++) {
        const txn = client.beginLocal();
        txn.observe("kv", `${prefix}${session}`, version);
        txn.put("kv", `${prefix}${session}`, round);
        // The other commit read a version that never existed.
        const bad = client.beginLocal();
        bad.observe("kv", `${prefix}${session}`, "1");
        bad.put("kv", `${prefix}${session}`, -1);
        const verdict = await txn.commit();
        assert.ok(verdict.status === "committed" && verdict.txnId === txn.id, JSON.stringify(verdict));
        if (verdict.replayed) replayed++;
        version = verdict.version;
        const loser = await bad.commit();
        assert.ok(loser.status === "aborted" && loser.txnId === bad.id && loser.reason === "read_conflict", JSON.stringify(loser));
      }
    }),
  );
  const rows = await client.run((txn) => txn.scan<number>("kv", { start: prefix, end: `${prefix}~` }), { stores: ["kv"] });
  assert.deepEqual(new Set(rows.value.map(({ value }) => value)), new Set([rounds - 1]));
  assert.equal(rows.value.length, 64);
  return { replayed };
}
