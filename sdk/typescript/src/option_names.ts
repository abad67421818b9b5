/** The names of the client's options: any other name is misspelled, and would have no effect. */

import type { OptionNames } from "./arguments.js";
import type { BeginOptions, ClientOptions } from "./options.js";
import type { components } from "./wire/schema.js";

/** Options of a client. */
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

/** Options of a transaction. */
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

/** Options of a status request. */
export const statusNames: OptionNames<{ fence?: boolean | undefined; waitMs?: number | undefined }> = { fence: true, waitMs: true };

/** Members of the declaration of a store. */
export const declarationNames: OptionNames<components["schemas"]["StoreDeclaration"]> = {
  adaptor: true,
  adaptor_config: true,
  existence: true,
  log_only: true,
  multi_version: true,
  transactional: true,
};
