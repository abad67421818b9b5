"""What a scan leaves in the commit, and that it excludes what the level excludes, within an epoch as well."""

from __future__ import annotations

from typing import Literal

import pytest

from tribunal_client import Client, Committed, Transaction

Level = Literal["read-committed", "repeatable-read", "snapshot", "serializable"]


def put(client: Client, key: str, value: int) -> None:
    txn = client.begin_local()
    txn.put("kv", key, value)
    assert isinstance(txn.commit(), Committed)


def scanned(client: Client, level: Level, prefix: str) -> Transaction:
    """Begin a transaction that has scanned two rows."""
    txn = client.begin(["kv"], isolation=level)
    assert len(txn.scan("kv", prefix, prefix + "~")) == 2
    return txn


@pytest.mark.parametrize(
    ("level", "reads", "end"),
    [
        ("read-committed", 2, "committed"),
        ("repeatable-read", 2, "read_conflict"),
        ("snapshot", 2, "range_conflict"),
        ("serializable", 0, "range_conflict"),
    ],
)
def test_a_scanned_row_is_sent_only_if_its_range_does_not_cover_it(
    client: Client, prefix: str, level: Level, reads: int, end: str
) -> None:
    put(client, prefix + "a", 1)
    put(client, prefix + "b", 1)
    txn = scanned(client, level, prefix)
    request = txn.prepare().request.to_dict()
    assert (len(request["reads"]), len(request["ranges"])) == (reads, 1)
    # Nothing else is forgotten: what it saw answers later reads, and a changed row is a conflict.
    put(client, prefix + "a", 2)
    row = txn.get("kv", prefix + "a")
    assert row is not None
    assert row.value == 1
    txn.put("kv", prefix + "elsewhere", 1)
    verdict = txn.commit()
    assert ("committed" if isinstance(verdict, Committed) else verdict.reason) == end


# Snapshot allows write skew.
@pytest.mark.parametrize(
    ("level", "skew"),
    [
        ("repeatable-read", False),
        ("repeatable-read", True),
        ("snapshot", False),
        ("serializable", False),
        ("serializable", True),
    ],
)
def test_transactions_that_scanned_the_same_rows_conflict_within_an_epoch(
    client: Client, prefix: str, level: Level, skew: bool
) -> None:
    put(client, prefix + "a", 1)
    put(client, prefix + "b", 1)
    one, two = scanned(client, level, prefix), scanned(client, level, prefix)
    if skew:
        one.put("kv", prefix + "a", 0)
        two.put("kv", prefix + "b", 0)
    else:
        one.add("kv", prefix + "a", -1)
        two.add("kv", prefix + "a", -1)
    results = client.batch([one.prepare(), two.prepare()])
    assert [isinstance(result, Committed) for result in results].count(True) == 1


def test_a_row_that_was_also_read_by_itself_is_sent(client: Client, prefix: str) -> None:
    put(client, prefix + "a", 1)
    put(client, prefix + "b", 1)
    txn = client.begin(["kv"])
    txn.get("kv", prefix + "a")
    txn.scan("kv", prefix)
    assert len(txn.prepare().request.to_dict()["reads"]) == 1
