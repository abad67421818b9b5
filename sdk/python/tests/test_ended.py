"""A transaction after its verdict, and work that reads or writes too late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest

from tribunal_client import Aborted, AsyncClient, AsyncTransaction, Client, Committed, Misuse, Transaction

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
