/** The latest commits of a client, so that its later transactions see them. */

import type { Committed } from "./verdict.js";

interface Latest {
  readonly epoch: bigint;
  readonly token: string;
}

/** The latest commit of a client to each store. */
export class Session {
  readonly #latest = new Map<string, Latest>();

  /** Records a commit. Commits may be recorded in any order. */
  record(committed: Committed): void {
    if (committed.session === undefined) return;
    const latest = { epoch: BigInt(committed.epoch), token: committed.session };
    for (const store of Object.keys(committed.lsn)) {
      const known = this.#latest.get(store);
      if (known === undefined || known.epoch < latest.epoch) this.#latest.set(store, latest);
    }
  }

  /**
   * Forgets a token that the service does not know, and those of the epochs after it: its log was replaced by one that
   * does not reach them.
   */
  forget(token: string): void {
    const refused = [...this.#latest.values()].find((known) => known.token === token);
    if (refused === undefined) return;
    for (const [store, { epoch }] of this.#latest) if (epoch >= refused.epoch) this.#latest.delete(store);
  }

  /** Returns the epoch of the latest commit to a store; `undefined` if there is none. */
  epoch(store: string): bigint | undefined {
    return this.#latest.get(store)?.epoch;
  }

  /** Returns the token of the latest commit to these stores, or to any store; `undefined` if there is none. */
  token(stores?: readonly string[]): string | undefined {
    let latest: Latest | undefined;
    for (const [store, known] of this.#latest) {
      if (stores !== undefined && !stores.includes(store)) continue;
      if (latest === undefined || latest.epoch < known.epoch) latest = known;
    }
    return latest?.token;
  }
}
