"""The write set of one transaction: several operations on one row become one, as the API requires."""

from __future__ import annotations

import json
from dataclasses import dataclass
from operator import index
from typing import Any, Literal, SupportsIndex

from .errors import Misuse
from .wire.models.write_op import WriteOp

JsonValue = None | bool | int | float | str | list[Any] | dict[str, Any]
"""Any JSON."""

Known = Literal["present", "absent", "unread"]
"""Known state of a row before the transaction."""


class Nothing:
    """Marks the absence of a value, which is not JSON's `null`."""

    def __repr__(self) -> str:
        return "NOTHING"


NOTHING = Nothing()


@dataclass(frozen=True, slots=True)
class PendingWrite:
    """The merged operation on a row."""

    op: WriteOp
    value: JsonValue | Nothing = NOTHING
    or_: int | None = None
    """Value that an add starts from if the row is missing."""

    def added_to(self, row: object) -> int:
        """Return the value that an add leaves in a row, given the row's value; `NOTHING` if it is missing."""
        if not isinstance(row, Nothing):
            return total(row, self.value)
        if self.or_ is None:
            raise Misuse("the transaction adds to a row that is missing: pass `or_` to create it")
        return total(self.or_, self.value)


def copied(value: Any) -> JsonValue:  # noqa: ANN401
    """Copy a value by way of JSON, so that later changes to the original have no effect."""
    try:
        text = json.dumps(value, allow_nan=False, ensure_ascii=False, default=_refused)
        text.encode()
        copy: JsonValue = json.loads(text)
    except (TypeError, ValueError, RecursionError) as error:
        raise Misuse(f"the value cannot be represented in JSON: {error}") from error
    _check_names(value)
    return copy


def _refused(value: object) -> None:
    kind = type(value).__name__
    if isinstance(value, bytes | bytearray | memoryview):
        raise TypeError(f'it contains {kind}; a binary value is {{"$b64": TEXT}}, where TEXT is its base64')
    raise TypeError(f"it contains {kind}; convert it to text or a number first")


def _check_names(value: object) -> None:
    """Refuse a name that is not text: `json` converts it, so 1 and "1" would become the same member."""
    pending = [value]
    while pending:
        match pending.pop():
            case dict() as members:
                for name in members:
                    if not isinstance(name, str):
                        raise Misuse(f"a name in an object of a value must be str, not {type(name).__name__}: {name!r}")
                pending += members.values()
            case list() | tuple() as elements:
                pending += elements


def fresh(value: JsonValue) -> JsonValue:
    """Copy a value that came from JSON, so that a caller that changes its copy changes nothing else."""
    match value:
        case dict():
            return {name: fresh(member) for name, member in value.items()}
        case list():
            return [fresh(element) for element in value]
        case _:
            return value


def total(left: object, right: object) -> int:
    """Add two 64-bit integers, as the service does."""
    terms = [_integer(left), _integer(right)]
    for number in (*terms, sum(terms)):
        if not -(2**63) <= number < 2**63:
            raise Misuse(f"`add` is limited to signed 64-bit integers, and {number} does not fit into 64 bits")
    return sum(terms)


def _integer(value: object) -> int:
    if not isinstance(value, int | SupportsIndex) or isinstance(value, bool):
        kind = "null" if value is None else type(value).__name__
        raise Misuse(f"`add` needs an integer, as its argument and in the row, not {kind}: `put` other values")
    return index(value)


def merge(before: PendingWrite | None, then: PendingWrite, row: Known) -> PendingWrite | None:
    """Merge another operation into the preceding one; `None` if nothing is left to do."""
    if before is None:
        return then
    if before.op == "delete":
        if then.op in ("insert", "put"):
            return PendingWrite("update", then.value)
        if then.op == "add" and then.or_ is not None:
            return PendingWrite("update", then.added_to(NOTHING))
        if then.op == "add":
            raise Misuse("the transaction adds to a row that it deleted before: pass `or_` to create it again")
        raise Misuse("the transaction changes a row that it deleted before")
    match then.op:
        case "insert":
            raise Misuse("the transaction inserts a row that it wrote before")
        case "add":
            return PendingWrite(before.op, total(before.value, then.value), before.or_)
        case "put" | "update":
            if before.op == "add":
                return PendingWrite("update" if before.or_ is None else "put", then.value)
            return PendingWrite(before.op, then.value)
        case "delete":
            if before.op in ("insert", "put") or before.or_ is not None:
                if row == "absent":
                    return None
                if row == "unread":
                    did = "adds to" if before.op == "add" else f"{before.op}s"
                    what = f"the transaction {did} and deletes a row that it has not read"
                    raise Misuse(f"{what}: read the row before writing it")
                if before.op == "insert":
                    raise Misuse("the transaction inserts and deletes a row that it has read, which exists")
            return PendingWrite("delete")
