"""Reads of several rows and results of batches, against a scripted service and a live server."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tribunal_client import (
    Aborted,
    AsyncClient,
    AsyncTransaction,
    Client,
    ClientMistake,
    Committed,
    Key,
    KeyRange,
    Misuse,
    PreparedCommit,
    Row,
    ServerMisbehaved,
    Transaction,
    Unavailable,
    Unchanged,
)

from .scripted import Script, Scripted, Service, begun, committed

Start = Callable[[Script], Service]


@pytest.fixture
def start() -> Iterator[Start]:
    services: list[Service] = []

    def started(script: Script) -> Service:
        services.append(Service(script))
        return services[-1]

    yield started
    for service in services:
        service.stop()


def row(key: str, value: object, version: int) -> dict[str, Any]:
    return {"store": "kv", "key": key, "value": value, "version": str(version)}


def begun_with(*rows: dict[str, Any]) -> Scripted:
    status, body = begun(0)
    return status, {**body, "rows": list(rows)}


def reads_of(prepared: PreparedCommit) -> dict[str, str | None]:
    reads = prepared.request.to_dict()["reads"]
    return {read["key"]: read.get("version") for read in reads}


AHEAD = (row("a", None, 5), {"store": "kv", "key": "b"}, row("c", 3, 6))


def test_rows_read_at_begin_need_no_further_request_and_count_as_read_once_get_returns_them(start: Start) -> None:
    service = start(lambda *_: begun_with(*AHEAD))
    with Client(service.url) as client:
        txn = client.begin(["kv"], read={"kv": ["a", "b", "c"]})
        assert txn.blind, "rows that get has not returned are no reads"
        for _ in range(2):
            assert txn.get("kv", "a") == Row("a", None, 5)
            assert txn.get("kv", "b") is None
        assert reads_of(txn.prepare()) == {"a": "5", "b": None}
    [request] = service.requests
    assert request.body["read"] == [{"store": "kv", "key": key} for key in "abc"]


def test_the_asyncio_client_needs_no_further_request_for_rows_read_at_begin_either(start: Start) -> None:
    service = start(lambda *_: begun_with(*AHEAD))

    async def main() -> None:
        async with AsyncClient(service.url) as client:
            txn = await client.begin(["kv"], read={"kv": ["a", "b", "c"]})
            assert await txn.get("kv", "a") == Row("a", None, 5)
            assert await txn.get_many("kv", ["b", "c"]) == [None, Row("c", 3, 6)]
            assert reads_of(txn.prepare()) == {"a": "5", "b": None, "c": "6"}

    asyncio.run(main())
    assert len(service.requests) == 1


def test_get_many_sends_one_request_for_the_rows_not_read_yet(start: Start) -> None:
    def script(kind: str, _: int) -> Scripted:
        if kind == "begin":
            return begun_with(row("ahead", 1, 5))
        return 200, {"applied": "9", "rows": [row("seen", 2, 6), {"store": "kv", "key": "new"}, row("sum", 40, 8)]}

    service = start(script)
    with Client(service.url) as client:
        txn = client.begin(read={"kv": ["ahead"]})
        txn.observe("kv", "seen", 4)
        txn.put("kv", "own", "mine")
        txn.add("kv", "sum", 2)
        for _ in range(2):
            rows = txn.get_many("kv", ["ahead", "seen", "own", "new", "sum", "new"])
            assert [None if row is None else row.value for row in rows] == [1, 2, "mine", None, 42, None]
        # The first observed version counts, so that the commit detects the change.
        assert reads_of(txn.prepare()) == {"ahead": "5", "seen": "4", "new": None, "sum": "8"}
    assert [request.kind for request in service.requests] == ["begin", "rows"]
    assert service.requests[1].body == {"read": [{"key": key} for key in ("seen", "new", "sum")]}


def test_what_a_begin_or_a_read_must_include_is_sent(start: Start) -> None:
    found = {"applied": "9", "rows": [row("a", 1, 5)], "ranges": [{"store": "kv", "rows": [], "more": False}]}
    service = start(lambda kind, _: begun(0) if kind == "begin" else (200, found))

    async def main() -> None:
        async with AsyncClient(service.url) as client:
            await client.begin(["kv"], consistency="fresh")
            await client.read_rows("kv", ["a"], consistency="fresh", session="v1-8")
            await client.read_ranges("kv", [KeyRange()], wait_s=0.5)

    with Client(service.url) as client:
        client.begin(["kv"], consistency="fresh", wait_s=0.07)
        client.read_rows("kv", ["a"], consistency="fresh", wait_s=0.08)
        client.read_ranges("kv", [KeyRange()], session="v1-7")
        client.read_rows("kv", ["a"])
    asyncio.run(main())
    asked = [
        tuple(request.body.get(name) for name in ("consistency", "wait_ms", "session")) for request in service.requests
    ]
    assert asked == [
        ("fresh", 70, None),
        ("fresh", 80, None),
        (None, None, "v1-7"),
        (None, None, None),
        ("fresh", None, None),
        ("fresh", None, "v1-8"),
        (None, 500, None),
    ]


def test_a_reply_with_the_wrong_number_of_rows_is_refused_and_one_key_is_no_list(start: Start) -> None:
    service = start(lambda kind, _: begun_with() if kind == "begin" else (200, {"applied": "9", "rows": []}))
    with Client(service.url) as client:
        with pytest.raises(ServerMisbehaved):
            client.begin(read={"kv": ["a"]})
        with pytest.raises(ServerMisbehaved):
            client.read_rows("kv", ["a"])
        with pytest.raises(Misuse, match="one key"):
            client.begin(read={"kv": "acct"})
        with pytest.raises(Misuse, match="one key"):
            client.begin_local().get_many("kv", "acct")


def test_a_commit_of_a_batch_with_an_unknown_outcome_is_resolved_by_its_id(start: Start) -> None:
    statuses = [504, 409, 500, 502, 503, 404]
    problem = {"type": "about:blank", "title": "x", "detail": "x", "errors": []}
    results = [
        {"status": "problem", "problem": {**problem, "status": at, "code": f"c{at}", "retryable": at != 404}}
        for at in statuses
    ]
    service = start(lambda kind, before: committed(9 + before) if kind == "status" else (200, {"results": results}))
    with Client(service.url) as client:
        txns = [client.begin_local() for _ in statuses]
        for txn in txns:
            txn.put("kv", "a", 1)
        found = client.batch([txn.prepare() for txn in txns])
    for one in found[:4]:
        assert isinstance(one, Committed), one
        assert one.replayed
    assert [type(one) for one in found[4:]] == [Unavailable, ClientMistake]
    assert len(service.arrived("status")) == 4


def put(client: Client, key: Key, value: object) -> Committed:
    txn = client.begin_local()
    txn.put("kv", key, value)
    verdict = txn.commit()
    assert isinstance(verdict, Committed), verdict
    return verdict


def reason_of(txn: Transaction) -> str:
    verdict = txn.commit()
    return verdict.reason if isinstance(verdict, Aborted) else verdict.status


def test_rows_read_at_begin_are_checked_at_commit(client: Client, prefix: str) -> None:
    binary = b"\xff" + prefix.encode()
    put(client, prefix + "a", 1)
    won = put(client, binary, None)
    read: dict[str, list[Key]] = {"kv": [prefix + "a", binary, prefix + "none"]}
    txn = client.begin(["kv"], read=read)
    assert txn.get("kv", binary) == Row(binary, None, won.version)
    assert txn.get("kv", prefix + "none") is None
    # This row was prefetched and never returned by get, so its change is no conflict.
    put(client, prefix + "a", 2)
    txn.put("kv", prefix + "b", 1)
    assert reason_of(txn) == "committed"

    txn = client.begin(["kv"], read=read)
    found = txn.get("kv", prefix + "a")
    assert found is not None
    assert found.value == 2
    put(client, prefix + "a", 3)
    txn.put("kv", prefix + "b", 2)
    assert reason_of(txn) == "read_conflict"

    values: list[object] = []

    def work(again: Transaction) -> None:
        found = again.get("kv", prefix + "a")
        values.append(None if found is None else found.value)
        if len(values) == 1:
            put(client, prefix + "a", 4)
        again.put("kv", prefix + "b", 3)

    client.run(work, ["kv"], read=read)
    assert values == [3, 4], "each attempt gets fresh rows"


def test_get_many_includes_own_writes_and_each_row_counts_as_read(client: Client, prefix: str) -> None:
    won = put(client, prefix + "a", 1)
    txn = client.begin(["kv"])
    txn.insert("kv", prefix + "own", "mine")
    rows = txn.get_many("kv", [prefix + "own", prefix + "none", prefix + "a"])
    assert rows == [Row(prefix + "own", "mine", None), None, Row(prefix + "a", 1, won.version)]
    put(client, prefix + "none", 1)
    assert reason_of(txn) == "read_conflict"


def test_read_rows_revalidates_a_cached_row(client: Client, prefix: str) -> None:
    key, none = prefix + "a", prefix + "none"
    old = put(client, key, 1)
    assert old.version is not None
    found = client.read_rows("kv", [key, none], known={key: old.version})
    assert found.applied >= old.epoch
    assert found.rows == [Unchanged(old.version), None]
    won = put(client, key, 2)
    assert client.read_rows("kv", [key], known={key: old.version}).rows == [Row(key, 2, won.version)]


def test_keys_stores_and_commits_are_any_iterables(client: Client, prefix: str) -> None:
    keys: dict[str, int] = {prefix + "a": 1, prefix + "b": 2}
    writes = []
    for key, value in keys.items():
        txn = client.begin({"kv"}, read={"kv": keys.keys()})
        txn.put("kv", key, value)
        writes.append(txn)
    versions: dict[str, int] = {}
    for key, verdict in zip(keys, client.batch(txn.prepare() for txn in writes), strict=True):
        assert isinstance(verdict, Committed)
        assert verdict.version is not None
        versions[key] = verdict.version
    assert client.read_rows("kv", (key for key in keys), known=versions).rows == [*map(Unchanged, versions.values())]
    found = client.begin(["kv"]).get_many("kv", keys.keys())
    assert [row and row.value for row in found] == [1, 2]


def test_the_asyncio_client_reads_and_revalidates_rows_as_the_blocking_one(url: str, prefix: str) -> None:
    key, none = prefix + "a", prefix + "none"

    async def increment(txn: AsyncTransaction) -> int:
        [row, missing] = await txn.get_many("kv", [key, none])
        assert row is not None
        assert missing is None
        txn.update("kv", key, row.value + 1)
        return int(row.value)

    async def main() -> None:
        async with AsyncClient(url) as client:
            first = client.begin_local()
            first.put("kv", key, 0)
            await first.commit()
            # Half of the sessions read at Begin, the others with separate requests.
            reads = [{"kv": [key, none]} if n % 2 else None for n in range(10)]
            await asyncio.gather(*(client.run(increment, ["kv"], read=read) for read in reads))
            ran = await client.run(increment, ["kv"])
            assert ran.value == 10
            version = ran.committed.version
            assert version is not None
            found = await client.read_rows("kv", [key, none], known={key: version})
            assert found.rows == [Unchanged(version), None]

    asyncio.run(main())


def test_sessions_whose_requests_are_batched_read_their_own_writes(client: Client, prefix: str) -> None:
    ids: list[str] = []

    def session(number: int) -> None:
        own, shared = f"{prefix}own/{number}", f"{prefix}shared/{number % 4}"
        for round_ in range(5):
            txn = client.begin(["kv"], read={"kv": [own]})
            before = txn.get("kv", own)
            assert (None if before is None else before.value) == (round_ - 1 if round_ else None), "at Begin"
            txn.put("kv", own, round_)
            txn.put("kv", shared, number)
            won = txn.commit()
            assert isinstance(won, Committed)
            assert client.row("kv", own) == Row(own, round_, won.version)
            after = client.row("kv", shared)
            assert after is not None
            assert (after.version or 0) >= (won.version or 0), "after the commit"
            ids.append(txn.id)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    # A session that failed has fewer ids.
    assert (len(ids), len(set(ids))) == (320, 320), "each transaction has an id of its own"


def test_tasks_whose_requests_are_batched_read_their_own_writes(url: str, prefix: str) -> None:
    ids: set[str] = set()

    async def session(client: AsyncClient, number: int) -> None:
        own = f"{prefix}own/{number}"
        for round_ in range(5):
            txn = await client.begin(["kv"], read={"kv": [own]})
            before = await txn.get("kv", own)
            assert (None if before is None else before.value) == (round_ - 1 if round_ else None), "at Begin"
            txn.put("kv", own, round_)
            won = await txn.commit()
            assert isinstance(won, Committed)
            assert await client.row("kv", own) == Row(own, round_, won.version)
            ids.add(txn.id)

    async def main() -> None:
        async with AsyncClient(url) as client:
            await asyncio.gather(*(session(client, number) for number in range(64)))

    asyncio.run(main())
    assert len(ids) == 320, "each transaction has an id of its own"


def test_ranges_are_read_by_begin_and_outside_transactions(client: Client, prefix: str) -> None:
    for key in ("a/1", "a/2", "a/3", "b/1"):
        put(client, prefix + key, 1)
    every, two = KeyRange(prefix + "a/", prefix + "a0", 10), KeyRange(prefix + "a/", prefix + "a0", 2)
    found = client.read_ranges("kv", [two, KeyRange(prefix + "b/", prefix + "c")]).ranges
    assert [[row.key for row in one.rows] for one in found] == [[prefix + "a/1", prefix + "a/2"], [prefix + "b/1"]]
    assert [one.more for one in found] == [True, False]

    ranges = {"kv": [every, two]}
    unused, scanned, part = (client.begin(["kv"], ranges=ranges) for _ in range(3))
    scanned.put("kv", prefix + "a/4", 4)
    assert len(scanned.scan("kv", every.start, every.end, limit=10)) == 4, "own writes included"
    assert len(part.scan("kv", two.start, two.end, limit=2)) == 2
    put(client, prefix + "a/35", 1)
    # Only the scanned part of a range belongs to the read set of a transaction.
    for txn in (unused, part):
        txn.put("kv", prefix + "c", 1)
        assert reason_of(txn) == "committed"
    assert reason_of(scanned) == "range_conflict"


def test_the_asyncio_client_reads_ranges_as_the_blocking_one(url: str, prefix: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client:
            txn = client.begin_local()
            txn.put("kv", prefix + "a", 1)
            await txn.commit()
            keys = KeyRange(prefix, prefix + "~")
            assert len((await client.read_ranges("kv", [keys])).ranges[0].rows) == 1
            ahead = await client.begin(["kv"], ranges={"kv": [keys]})
            other = client.begin_local()
            other.put("kv", prefix + "b", 1)
            await other.commit()
            assert len(await ahead.scan("kv", prefix, prefix + "~")) == 1, "as of the snapshot"

    asyncio.run(main())


def test_the_checksums_of_records_of_all_kinds_are_right(client: Client, prefix: str) -> None:
    values = [
        1,
        1.5,
        -0.25,
        'gr\u00fcn "\\ \u2028',
        None,
        True,
        [],
        {},
        {"nested": {"value": ["]", "}", {"writes": []}]}},
    ]
    txn = client.begin_local()
    for at, value in enumerate(values):
        txn.put("kv", f"{prefix}{at}", value)
    txn.put("kv", b"\xff" + prefix.encode(), "binary")
    won = txn.commit()
    assert isinstance(won, Committed)
    gone = client.begin_local()
    gone.delete("kv", f"{prefix}0")
    gone.commit()
    found = [write.value for record in client.log("kv", won.lsn["kv"] - 1, follow=False) for write in record.writes]
    assert found[: len(values)] == values
