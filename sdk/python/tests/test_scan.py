"""The parts of a scan in a commit, and the anomalies that each level excludes, even within an epoch."""

from __future__ import annotations

from typing import Literal

import pytest

from tribunal_client import Aborted, Client, Committed, KeyRange, RowPage, Transaction
from tribunal_client.flow import Flow
from tribunal_client.keys import Key

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
    # Nothing else is forgotten: the rows that it read answer later reads, and a changed row is a conflict.
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


def keys(txn: Transaction, prefix: str, limit: int) -> list[object]:
    return [str(row.key).removeprefix(prefix) for row in txn.scan("kv", prefix, prefix + "~", limit=limit)]


def test_rows_that_the_transaction_has_deleted_do_not_count_towards_the_limit(client: Client, prefix: str) -> None:
    for name in "abcde":
        put(client, prefix + name, 1)
    txn = client.begin(["kv"])
    for due in "abc":
        # Like a queue: it takes the first row and removes it.
        assert keys(txn, prefix, 1) == [due]
        txn.delete("kv", prefix + due)
    txn.put("kv", prefix + "dd", 1)
    assert keys(txn, prefix, 2) == ["d", "dd"]
    # Rows read beyond the last row that was returned do not count as read.
    put(client, prefix + "e", 2)
    assert isinstance(txn.commit(), Committed)
    assert keys(client.begin(["kv"]), prefix, 1000) == ["d", "dd", "e"]


def test_further_pages_of_a_scan_are_as_large_as_what_is_missing(
    client: Client, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in "abcdefgh":
        put(client, prefix + name, 1)
    txn = client.begin(["kv"], ranges={"kv": [KeyRange(prefix, prefix + "~", limit=3)]})
    for due in "abf":
        txn.delete("kv", prefix + due)
    limits: list[int] = []
    rows = client._service.rows

    def counted(
        store: str, start: Key, end: Key, limit: int, *, session: str | None, snapshot: int | None
    ) -> Flow[RowPage]:
        limits.append(limit)
        return rows(store, start, end, limit, session=session, snapshot=snapshot)

    monkeypatch.setattr(client._service, "rows", counted)
    assert keys(txn, prefix, 3) == ["c", "d", "e"]
    assert limits == [3], "two rows, and one that was deleted"


def test_a_scan_of_large_values_returns_all_rows(client: Client, prefix: str) -> None:
    names = list("abcdefghijkl")
    for name in names:
        txn = client.begin_local()
        txn.put("kv", prefix + name, "x" * 1_000_000)
        assert isinstance(txn.commit(), Committed)
    assert client.rows("kv", prefix, prefix + "~").more
    assert keys(client.begin(["kv"]), prefix, 1000) == names
    assert keys(client.begin(["kv"], ranges={"kv": [KeyRange(prefix, prefix + "~")]}), prefix, 1000) == names
    scanned = client.begin(["kv"])
    assert keys(scanned, prefix, 1000) == names
    put(client, prefix + "m", 1)
    scanned.put("kv", prefix, 1)
    verdict = scanned.commit()
    assert isinstance(verdict, Aborted)
    assert verdict.reason == "range_conflict"
