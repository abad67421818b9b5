/** The names of the client's options: others are misspelled, and would have no effect. */

import type { OptionNames } from "./arguments.js";
import type { BeginOptions, ClientOptions } from "./options.js";
import type { components } from "./wire/schema.js";

/** Of a client. */
export const clientNames: OptionNames<ClientOptions> = {
  apiKey: true,
  caFile: true,
  clientName: true,
  timeoutMs: true,
  resolveTimeoutMs: true,
  endpointTimeoutMs: true,
  endpointCoolDownMs: true,
  retry: true,
  readOwnWrites: true,
  coalesce: true,
  onAttempt: true,
  fetch: true,
};

/** Of a transaction. */
export const beginNames: OptionNames<BeginOptions> = {
  stores: true,
  isolation: true,
  session: true,
  consistency: true,
  waitMs: true,
  traceparent: true,
  read: true,
  ranges: true,
  signal: true,
};

/** Of a request for a status. */
export const statusNames: OptionNames<{ fence?: boolean | undefined; waitMs?: number | undefined }> = { fence: true, waitMs: true };

/** Of the declaration of a store. */
export const declarationNames: OptionNames<components["schemas"]["StoreDeclaration"]> = {
  adaptor: true,
  adaptor_config: true,
  existence: true,
  log_only: true,
  multi_version: true,
  transactional: true,
};
