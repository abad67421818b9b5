/**
 * Client of Tribunal, concurrency control as a service: a transaction collects its reads and writes, then requests a
 * verdict. See README.md.
 */

export type { Attempt } from "./attempts.js";
export * from "./client.js";
export * from "./errors.js";
export type { JsonValue } from "./json.js";
export type { Key } from "./keys.js";
export { LogReader, type LogOptions, type LogRecord, type LogWrite } from "./log.js";
export type { BeginOptions, ClientOptions } from "./options.js";
export type { Consistency, KeyRange, RangeReads, RangeRows, RangesToRead, ReadOptions, Row, RowPage, RowRead, RowReads, RowsToRead, RowState } from "./reads.js";
export type { RetryOptions, RetryPolicy } from "./retry.js";
export { StateImage, type StateKind, type StateOptions } from "./state.js";
export { Transaction, type Ack, type CommitOptions, type CommitRequest, type IsolationLevel, type PreparedCommit, type SignalOptions } from "./transaction.js";
export { uuidv7 } from "./uuid.js";
export type { Aborted, Committed, Conflict, TxnOutcome, Verdict } from "./verdict.js";
export type { WriteOp } from "./writes.js";
/** The wire types, generated from the API's description. */
export type { components, operations, paths } from "./wire/schema.js";
