"""Parts that need no server: merged writes, waits, keys, ids."""

from __future__ import annotations

import time
import uuid
from itertools import product
from typing import get_args

import pytest

from tribunal_client import Misuse, RetryPolicy, WriteOp, uuid7
from tribunal_client.keys import key_fields, key_of, normal, percent_encoded, readable
from tribunal_client.writes import NOTHING, Known, PendingWrite, merge


def apply(row: int | None, write: PendingWrite) -> int | None:
    """Apply an operation to a row like a storage; raise if it must not be applied."""
    if row is None and write.or_ is not None:
        row = write.or_
    if (row is None) == (write.op in ("update", "delete", "add")) and write.op != "put":
        raise LookupError("aborts")
    if write.op == "delete":
        return None
    assert isinstance(write.value, int)
    return write.value + (row or 0) if write.op == "add" else write.value


OPERATIONS: list[tuple[WriteOp, int | None]] = [*((op, None) for op in get_args(WriteOp)), ("add", 5)]


@pytest.mark.parametrize(("first", "second", "row"), list(product(OPERATIONS, OPERATIONS, (None, 10))))
def test_a_merged_operation_has_the_effect_of_both(
    first: tuple[WriteOp, int | None], second: tuple[WriteOp, int | None], row: int | None
) -> None:
    one = PendingWrite(first[0], NOTHING if first[0] == "delete" else 3, first[1])
    two = PendingWrite(second[0], NOTHING if second[0] == "delete" else 4, second[1])
    try:
        whole, aborts = apply(apply(row, one), two), False
    except LookupError:
        whole, aborts = None, True
    try:
        both = merge(one, two, "absent" if row is None else "present")
    except Misuse:
        assert aborts
        return
    if both is None:
        assert not aborts
        assert whole == row
    elif not aborts:
        # A merged operation may check existence later, but a commit has the same effect.
        assert apply(row, both) == whole


PUT, ADD, DELETE = PendingWrite("put", {"a": 1}), PendingWrite("add", 1), PendingWrite("delete")


@pytest.mark.parametrize(
    ("first", "second", "row", "text"),
    [
        (PUT, ADD, "unread", "`add` needs an integer, .* not dict"),
        (PendingWrite("put", None), ADD, "unread", "not null"),
        (PendingWrite("put", 2**63 - 1), ADD, "unread", "9223372036854775808 does not fit into 64 bits"),
        (DELETE, ADD, "present", "deleted before: pass `or_` to create it again"),
        (PUT, DELETE, "unread", "puts and deletes a row that it has not read: read the row before writing it"),
        (PendingWrite("add", 1, 0), DELETE, "unread", "adds to and deletes .* read the row before writing it"),
        (PendingWrite("insert", 1), DELETE, "unread", "inserts and deletes .* read the row before writing it"),
        (PendingWrite("insert", 1), DELETE, "present", "has read, which exists"),
    ],
)
def test_writes_that_cannot_be_merged_tell_why(
    first: PendingWrite, second: PendingWrite, row: Known, text: str
) -> None:
    with pytest.raises(Misuse, match=text):
        merge(first, second, row)


def test_an_add_to_a_row_that_is_missing_tells_what_creates_it() -> None:
    with pytest.raises(Misuse, match="pass `or_`"):
        ADD.added_to(NOTHING)


def test_waits_are_random_up_to_a_bound_that_doubles_and_are_limited_in_number() -> None:
    policy = RetryPolicy(attempts_max=20, wait_min_s=0.002, wait_max_s=0.1)
    for failed in range(1, 20):
        waits = [policy.wait_s(failed, 7) or 0 for _ in range(200)]
        bound = min(0.001 * 2**failed, 0.1)
        assert all(7 <= wait <= 7 + bound for wait in waits)
        assert max(waits) - min(waits) > bound / 2, "full jitter"
    assert policy.wait_s(20, 0) is None


def test_keys_of_any_bytes_survive_a_round_trip() -> None:
    for key in ("", "acct/1", 'gr\u00fcn "%"', "\U0001f600", b"\xff\x00\x80"):
        assert key_of(*key_fields(normal(key))) == normal(key)
        assert readable(normal(key)) == key
    assert normal("a") == normal(b"a")
    assert percent_encoded(b"a/ \xff~") == "a%2F%20%FF~"


def test_new_ids_are_uuid7_of_the_current_time() -> None:
    before = time.time_ns() // 1_000_000
    minted = uuid.UUID(uuid7())
    assert (minted.version, minted.variant) == (7, uuid.RFC_4122)
    assert before <= minted.int >> 80 <= time.time_ns() // 1_000_000
    assert uuid7() != uuid7()
