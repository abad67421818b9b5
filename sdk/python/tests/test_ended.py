"""A transaction after its verdict, and work that reads or writes too late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tribunal_client import (
    Aborted,
    AsyncClient,
    AsyncTransaction,
    Attempt,
    Client,
    ClientMistake,
    Committed,
    Misuse,
    OutcomeUnknown,
    Transaction,
    Unavailable,
)

from .holding import HoldingService, problem
from .scripted import OVERLOADED, Scripted, Service
from .scripted import committed as scripted_commit

LATE: list[Callable[[Any], Any]] = [
    lambda txn: txn.put("kv", "a", 1),
    lambda txn: txn.insert("kv", "a", 1),
    lambda txn: txn.update("kv", "a", 1),
    lambda txn: txn.delete("kv", "a"),
    lambda txn: txn.add("kv", "a", 1),
    lambda txn: txn.observe("kv", "a", None),
    lambda txn: txn.observe_range("kv"),
    lambda txn: txn.get("kv", "a"),
    lambda txn: txn.get("kv", "ahead"),
    lambda txn: txn.get_many("kv", ["a"]),
    lambda txn: txn.scan("kv"),
]


@pytest.mark.parametrize("late", LATE)
def test_a_transaction_that_has_its_verdict_takes_no_reads_and_writes(
    url: str, prefix: str, late: Callable[[Any], Any]
) -> None:
    async def in_task() -> None:
        async with AsyncClient(url) as client:
            txn = await client.begin(["kv"], read={"kv": ["ahead"]})
            txn.put("kv", prefix, 1)
            await txn.commit()
            with pytest.raises(Misuse, match="has committed already: begin another one"):
                await late(txn)

    with Client(url) as client:
        txn = client.begin(["kv"], read={"kv": ["ahead"]})
        assert txn.get("kv", prefix) is None
        txn.put("kv", prefix, 1)
        assert isinstance(txn.commit(), Committed)
        with pytest.raises(Misuse, match="has committed already: begin another one"):
            late(txn)
        row = txn.get("kv", prefix)
        assert row is not None, "what it has read and written already is known"
        assert isinstance(txn.commit(), Committed), "the verdict can be requested again"
        lost = client.begin(["kv"])
        lost.abort()
        with pytest.raises(Misuse, match="has aborted already"):
            late(lost)
    asyncio.run(in_task())


def test_a_transaction_of_an_earlier_attempt_takes_no_writes(client: Client, prefix: str) -> None:
    txns: list[Transaction] = []

    def work(txn: Transaction) -> None:
        txns.append(txn)
        if len(txns) == 1:
            txn.get("kv", prefix)
            other = client.begin_local()
            other.put("kv", prefix, 1)
            assert isinstance(other.commit(), Committed)
        txn.put("kv", prefix, 2)

    client.run(work, ["kv"])
    for txn, status in zip(txns, ["aborted", "committed"], strict=True):
        with pytest.raises(Misuse, match=f"has {status} already"):
            txn.put("kv", prefix, 3)


def test_what_work_returns_cannot_read_later(client: Client, prefix: str) -> None:
    found = client.run(lambda txn: (txn.get("kv", key) for key in [prefix]), ["kv"]).value
    with pytest.raises(Misuse, match="has committed already"):
        list(found)


def test_work_with_a_yield_is_a_misuse(client: Client, url: str, prefix: str) -> None:
    def work(txn: Transaction, _: int = 0) -> Iterator[None]:
        txn.put("kv", prefix, 1)
        yield

    async def work_async(txn: AsyncTransaction) -> Any:
        txn.put("kv", prefix, 1)
        yield

    async def run() -> None:
        wrong: Any = work_async
        async with AsyncClient(url) as other:
            await other.run(wrong)

    for lazy in (work, partial(work, _=1)):
        with pytest.raises(Misuse, match="yield"):
            client.run(lazy)
    with pytest.raises(Misuse, match="yield"):
        asyncio.run(run())
    assert client.row("kv", prefix) is None


def test_each_attempt_begins_with_the_same_stores_and_rows(client: Client, prefix: str) -> None:
    client.declare_store("ended-py", {})
    snapshots: list[list[str]] = []
    ahead: list[bool] = []

    def work(txn: Transaction) -> None:
        snapshots.append(sorted(txn.snapshots))
        ahead.append(txn._knows(("kv", prefix.encode())))
        txn.get("kv", prefix)
        if len(snapshots) == 1:
            other = client.begin_local()
            other.put("kv", prefix, 1)
            assert isinstance(other.commit(), Committed)
        txn.put("kv", prefix, 2)

    stores: Any = (store for store in ["kv"])
    keys: Any = (key for key in [prefix])
    client.run(work, stores, read={"kv": keys})
    assert snapshots == [["kv"], ["kv"]]
    assert ahead == [True, True]


def test_a_verdict_of_a_prepared_commit_is_no_end_of_the_transaction(client: Client, prefix: str) -> None:
    txn = client.begin(["kv"])
    txn.update("kv", prefix, 1)
    assert isinstance(client.commit(txn.prepare()), Aborted)
    txn.get("kv", prefix)


@pytest.fixture
def holding() -> Iterator[HoldingService]:
    service = HoldingService()
    yield service
    service.stop()


@pytest.mark.parametrize("late", LATE)
def test_a_transaction_takes_no_reads_and_writes_during_its_commit(
    holding: HoldingService, late: Callable[[Any], Any]
) -> None:
    async def main() -> None:
        async with AsyncClient(holding.url) as client:
            txn = client.begin_local()
            txn.put("kv", "own", 1)
            committing = asyncio.create_task(txn.commit())
            held = await asyncio.to_thread(holding.request)
            with pytest.raises(Misuse, match="under way"):
                await late(txn)
            own = await txn.get("kv", "own")
            assert own is not None
            held.commit()
            assert isinstance(await committing, Committed)

    asyncio.run(main())


@pytest.mark.parametrize(
    "read", [lambda txn: txn.get("kv", "a"), lambda txn: txn.get_many("kv", ["a"])], ids=["get", "get_many"]
)
def test_a_commit_does_not_overtake_a_read(holding: HoldingService, read: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with AsyncClient(holding.url, coalesce=False) as client:
            txn = client.begin_local()
            reading = asyncio.create_task(read(txn))
            await asyncio.to_thread(holding.request)
            for early in (txn.commit, txn.validate):
                with pytest.raises(Misuse, match="a read of the transaction has not finished"):
                    await early()
            # A cancelled read counts as finished.
            reading.cancel()
            with pytest.raises(asyncio.CancelledError):
                await reading
            txn.put("kv", "a", 1)
            committing = asyncio.create_task(txn.commit())
            (await asyncio.to_thread(holding.request)).commit()
            assert isinstance(await committing, Committed)

    asyncio.run(main())


def test_a_read_that_work_does_not_await_fails_the_attempt(holding: HoldingService) -> None:
    ended: list[Attempt] = []
    reads: list[asyncio.Task[Any]] = []

    async def work(txn: AsyncTransaction) -> None:
        reads.append(asyncio.create_task(txn.get("kv", "a")))
        await asyncio.to_thread(holding.request)

    async def main() -> None:
        async with AsyncClient(holding.url, coalesce=False, on_attempt=ended.append) as client:
            running = asyncio.create_task(client.run(work))
            begun = {"txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "snapshots": {}, "epoch": "8"}
            held = await asyncio.to_thread(holding.request)
            held.answer(201, {**begun, "expires_at": "2026-01-01T00:00:00Z", "session": "s"})
            with pytest.raises(Misuse, match="a read of the transaction has not finished"):
                await running
            reads[0].cancel()

    asyncio.run(main())
    assert [type(attempt.error) for attempt in ended] == [Misuse]


def test_a_commit_that_was_cancelled_leaves_the_transaction_closed(holding: HoldingService) -> None:
    async def main() -> None:
        async with AsyncClient(holding.url, coalesce=False) as client:
            txn = client.begin_local()
            committing = asyncio.create_task(txn.commit())
            await asyncio.to_thread(holding.request)
            committing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await committing
            again = asyncio.create_task(txn.commit())
            (await asyncio.to_thread(holding.request)).answer(503, problem(503, "unavailable"))
            with pytest.raises(Unavailable):
                await again
            with pytest.raises(Misuse, match="its outcome is unknown"):
                txn.put("kv", "a", 1)

    asyncio.run(main())


UNKNOWN: Scripted = (504, problem(504, "outcome_unknown"))
MISMATCH: Scripted = (422, problem(422, "body_mismatch"))
REFUSED: Scripted = (422, problem(422, "bad_write"))


@pytest.mark.parametrize(
    ("replies", "errors", "is_open"),
    [
        ([OVERLOADED], [Unavailable], True),
        ([REFUSED], [ClientMistake], True),
        ([UNKNOWN], [OutcomeUnknown], False),
        ([UNKNOWN, OVERLOADED], [OutcomeUnknown, Unavailable], False),
        ([MISMATCH], [ClientMistake], False),
        ([MISMATCH, OVERLOADED], [ClientMistake, Unavailable], False),
        ([OVERLOADED, UNKNOWN], [Unavailable, OutcomeUnknown], False),
    ],
)
def test_a_transaction_is_open_again_only_if_nothing_can_have_been_decided(
    replies: list[Scripted], errors: list[type[Exception]], is_open: bool
) -> None:
    script = [*replies, scripted_commit()]
    service = Service(lambda _, before: script[before])
    with Client(service.url, resolve_timeout_s=0) as client:
        txn = client.begin_local()
        txn.put("kv", "a", 1)
        for error in errors:
            with pytest.raises(error):
                txn.commit()
        if is_open:
            txn.put("kv", "b", 1)
        else:
            with pytest.raises(Misuse, match="its outcome is unknown"):
                txn.put("kv", "b", 1)
            client._http.close()
            with pytest.raises(Misuse, match="closed"):
                txn.commit()
            with pytest.raises(Misuse, match="its outcome is unknown"):
                txn.put("kv", "b", 1)
            return
        assert isinstance(txn.commit(), Committed)
    assert [len(one.body["writes"]) for one in service.arrived("commit")] == [1] * len(errors) + [2]
    service.stop()


def test_a_commit_of_unknown_outcome_can_be_repeated() -> None:
    service = Service(lambda _, before: scripted_commit() if before else UNKNOWN)
    with Client(service.url, resolve_timeout_s=0) as client:
        txn = client.begin_local()
        txn.put("kv", "a", 1)
        with pytest.raises(OutcomeUnknown):
            txn.commit()
        assert isinstance(txn.commit(), Committed)
        with pytest.raises(Misuse, match="has committed already"):
            txn.put("kv", "b", 1)
    first, second = service.arrived("commit")
    assert first.body == second.body
    service.stop()
