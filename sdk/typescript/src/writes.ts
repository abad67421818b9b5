/** The write set of one transaction: several operations on one row become one, as the API requires. */

import { Misuse } from "./errors.js";
import { sum, type JsonValue } from "./json.js";
import type { components } from "./wire/schema.js";

/** The operation of a write on its row. */
export type WriteOp = components["schemas"]["WriteOp"];

/** The merged operation on a row. */
export interface PendingWrite {
  readonly op: WriteOp;
  /** Absent for a delete. */
  readonly value: JsonValue | undefined;
  /** Value that an add starts from if the row is missing. */
  readonly or?: number | undefined;
}

/** Returns the value that an add leaves in a row, given the row's value. */
export function addedTo(row: JsonValue | undefined, add: PendingWrite): number {
  if (row === undefined && add.or === undefined) throw new Misuse("the transaction adds to a row that is missing: pass `or` to create it");
  return sum(row === undefined ? add.or : row, add.value);
}

/** Known state of the row before the transaction. */
export type Known = "present" | "absent" | "unread";

/** Merges another operation into the preceding one; `undefined` if nothing is left to do. */
export function merge(before: PendingWrite | undefined, next: PendingWrite, row: Known): PendingWrite | undefined {
  if (before === undefined) return next;
  const written = before.op !== "delete";
  switch (next.op) {
    case "add":
      if (!written) {
        if (next.or === undefined) throw new Misuse("the transaction adds to a row that it deleted before: pass `or` to create it again");
        return { op: "update", value: addedTo(undefined, next) };
      }
      return { op: before.op, value: sum(before.value, next.value), or: before.or };
    case "insert":
      if (written) throw new Misuse("the transaction inserts a row that it wrote before");
      return { op: "update", value: next.value };
    case "put":
      if (!written || before.op === "update") return { op: "update", value: next.value };
      return { op: replaced(before), value: next.value };
    case "update":
      if (!written) throw changesDeleted();
      return { op: replaced(before), value: next.value };
    case "delete":
      if (!written) throw changesDeleted();
      if (before.op === "insert" || before.op === "put" || before.or !== undefined) {
        if (row === "absent") return undefined;
        if (before.op === "add" && row === "unread") {
          throw new Misuse("the transaction adds to and deletes a row that it has not read: read the row before writing it");
        }
        if (row === "unread") throw new Misuse(`the transaction ${before.op}s and deletes a row that it has not read: read the row before writing it`);
        if (before.op === "insert") throw new Misuse("the transaction inserts and deletes a row that it has read, which exists");
      }
      return { op: "delete", value: undefined };
  }
}

/** Returns the operation that replaces a row after a preceding write. */
function replaced(before: PendingWrite): WriteOp {
  if (before.op !== "add") return before.op;
  return before.or === undefined ? "update" : "put";
}

function changesDeleted(): Misuse {
  return new Misuse("the transaction changes a row that it deleted before");
}
