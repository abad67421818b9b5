/**
 * The endpoints of a service: which one is in use, and which ones failed recently. Sends nothing.
 *
 * One endpoint is in use until it fails. The next one in the list then replaces it; an endpoint that failed is skipped
 * until its cool-down has passed, unless all of them have failed.
 */

import { Misuse } from "./errors.js";

/** The endpoints of one service, all equal. */
export class Endpoints {
  /** Not empty, each without a `/` at its end. */
  readonly urls: readonly string[];
  /** How long one may take to answer while another one has not been tried. */
  readonly timeoutMs: number;
  readonly #coolDownMs: number;
  /** When each failed last, on the clock of `performance.now`. */
  readonly #failedAt: number[];
  #inUse = 0;

  /** Splits URLs at commas. A URL that occurs twice counts once. */
  constructor(urls: string | readonly string[], timeoutMs: number, coolDownMs: number) {
    const named: readonly unknown[] = [urls].flat();
    const each = named.flatMap((one) => {
      if (typeof one !== "string") throw new Misuse(`an endpoint must be a string of the form http://host:port, not ${typeof one}`);
      const parts = one.split(",");
      if (parts.length > 1 && parts.some((part) => part.trim() === "")) throw new Misuse(`\`${one}\` has a comma without an endpoint beside it`);
      return parts;
    });
    this.urls = [...new Set(each.map((url) => url.trim().replace(/\/+$/, "")))];
    for (const url of this.urls) {
      if (!URL.canParse(url) || !/^https?:/.test(url)) throw new Misuse(`\`${url}\` is not of the form http://host:port or https://host:port`);
      checkParts(new URL(url));
    }
    if (this.urls.length === 0) throw new Misuse("a client needs the URL of at least one endpoint");
    this.timeoutMs = timeoutMs;
    this.#coolDownMs = coolDownMs;
    this.#failedAt = this.urls.map(() => -Infinity);
  }

  /** The endpoint in use. */
  get inUse(): number {
    return this.#inUse;
  }

  /**
   * Returns the endpoint to try now among the allowed ones: the one in use or the first one after it, preferably one
   * that has not failed recently.
   */
  choose(isAllowed: (at: number) => boolean): number | undefined {
    const count = this.urls.length;
    const inTurn = this.urls.map((_, n) => (this.#inUse + n) % count).filter(isAllowed);
    return inTurn.find((at) => !this.#cools(at)) ?? inTurn[0];
  }

  /** Returns whether an allowed endpoint has not failed recently. */
  hasRested(isAllowed: (at: number) => boolean): boolean {
    return this.urls.some((_, at) => isAllowed(at) && !this.#cools(at));
  }

  /** Records that an endpoint failed: another one, if there is any, is in use from now on. */
  failed(at: number): void {
    this.#failedAt[at] = performance.now();
    if (this.#inUse === at) this.#inUse = this.choose((other) => other !== at) ?? at;
  }

  /** Records that an endpoint has answered. It is in use from now on if the one in use has failed. */
  works(at: number): void {
    this.#failedAt[at] = -Infinity;
    if (this.#cools(this.#inUse)) this.#inUse = at;
  }

  #cools(at: number): boolean {
    return performance.now() - (this.#failedAt[at] ?? -Infinity) < this.#coolDownMs;
  }
}

/** Refuses parts with which no request can be sent. The message names no password. */
function checkParts({ host, search, hash, username, password }: URL): void {
  if (username !== "" || password !== "") throw new Misuse(`the endpoint ${host} has a user or password, which \`fetch\` refuses: pass an \`apiKey\``);
  if (search !== "" || hash !== "") throw new Misuse(`the endpoint ${host} has a query or fragment where http://host:port was expected`);
}
