"""Retries, sessions, trace contexts and certificates, against a scripted service."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tribunal_client import (
    AsyncClient,
    AsyncTransaction,
    Attempt,
    Client,
    ClientMistake,
    Misuse,
    Transaction,
    TransactionAborted,
)

from .scripted import OVERLOADED, Script, Scripted, Service, aborted, begun, committed, make_certificate

ROW: Scripted = (200, {"applied": "9", "rows": [{"store": "kv", "key": "a", "value": 1, "version": "5"}]})

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


def flaky(kind: str, before: int) -> Scripted:
    """Fail the first request of each kind."""
    match kind:
        case "begin":
            return begun(before) if before else OVERLOADED
        case "rows":
            return ROW if before else OVERLOADED
        case _:
            return committed() if before else aborted("read_conflict")


EXPECTED_OF_FLAKY = [(1, None, False), (2, "aborted", False), (3, "committed", True)]


def summary(attempts: list[Attempt]) -> list[tuple[int, str | None, bool]]:
    return [(at.number, None if at.verdict is None else at.verdict.status, at.wait_s is None) for at in attempts]


def test_an_attempt_of_each_kind_is_reported_and_a_read_is_retried_in_place(start: Start) -> None:
    service = start(flaky)
    attempts: list[Attempt] = []

    def work(txn: Transaction) -> None:
        row = txn.get("kv", "a")
        assert row is not None
        txn.put("kv", "a", row.value)

    with Client(service.url, on_attempt=attempts.append) as client:
        client.run(work)
    assert summary(attempts) == EXPECTED_OF_FLAKY
    assert len(service.arrived("rows")) == 3
    assert [one.body.get("first_attempt_ms") for one in service.arrived("commit")] == [None, "1722655016596"]


def test_the_asyncio_client_retries_as_the_blocking_one(start: Start) -> None:
    service = start(flaky)
    attempts: list[Attempt] = []

    async def work(txn: AsyncTransaction) -> None:
        row = await txn.get("kv", "a")
        assert row is not None
        txn.put("kv", "a", row.value)

    async def fail(_: AsyncTransaction) -> None:
        raise LookupError("mine")

    async def main() -> None:
        async with AsyncClient(service.url, on_attempt=attempts.append) as client:
            await client.run(work)
            with pytest.raises(LookupError, match="mine"):
                await client.run(fail)

    asyncio.run(main())
    assert summary(attempts[:3]) == EXPECTED_OF_FLAKY
    assert [type(at.error) for at in attempts[3:]] == [LookupError]


def test_a_row_that_is_missing_because_of_a_further_commit_is_no_end(start: Start) -> None:
    # Like a move between two index entries that other moves of the same document overtake.
    def script(kind: str, before: int) -> Scripted:
        if kind == "begin":
            return begun(before, 9 + before)
        if kind == "rows":
            row = {"store": "kv", "key": "a", "value": before % 2, "version": str(5 + before)}
            return 200, {"applied": "9", "rows": [row]}
        return aborted("row_missing", 9 + before) if before < 3 else committed()

    service = start(script)

    def move(txn: Transaction) -> None:
        row = txn.get("kv", "a")
        assert row is not None
        txn.delete("kv", "index/0")
        txn.put("kv", "a", 1 - row.value)

    with Client(service.url) as client:
        client.run(move, ["kv"])
    assert len(service.arrived("commit")) == 4


def test_a_refused_insert_gets_one_fresh_read(start: Start) -> None:
    def script(kind: str, before: int) -> Scripted:
        if kind == "begin":
            # The snapshots of the first two attempts do not include the epoch of the refusal.
            return begun(before, 8 if before < 2 else 9)
        return ROW if kind == "rows" else aborted("row_exists")

    service = start(script)

    def read_and_insert(txn: Transaction) -> None:
        txn.get("kv", "b")
        txn.insert("kv", "a", 1)

    with Client(service.url) as client, pytest.raises(TransactionAborted):
        client.run(read_and_insert)
    assert len(service.arrived("commit")) == 3


@pytest.mark.parametrize("read_own_writes", [True, False])
def test_own_commits_are_visible_to_later_transactions_of_their_stores(start: Start, read_own_writes: bool) -> None:
    service = start(lambda kind, before: begun(before) if kind == "begin" else committed(9 - before))
    with Client(service.url, read_own_writes=read_own_writes) as client:
        for _ in range(2):
            txn = client.begin_local()
            txn.put("kv", "a", 1)
            txn.commit()
        client.begin(["kv"])
        client.begin(["other"])
        client.begin(["kv"], session="given")
    sessions = [begin.body.get("session") for begin in service.arrived("begin")]
    assert sessions == ["token-9" if read_own_writes else None, None, "given"]


def test_a_trace_context_goes_with_the_commit_and_comes_back_with_the_verdict(start: Start) -> None:
    service = start(lambda kind, before: begun(before) if kind == "begin" else committed())
    with Client(service.url) as client:
        ran = client.run(lambda txn: txn.put("kv", "a", 1), traceparent="00-mine")
    assert [commit.traceparent for commit in service.arrived("commit")] == ["00-mine"]
    assert ran.committed.traceparent == "00-server"


def test_an_untrusted_certificate_is_final_and_a_ca_file_makes_it_trusted(tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    service = Service(lambda kind, before: begun(before) if kind == "begin" else committed(), certificate)
    attempts: list[Attempt] = []
    try:
        with Client(service.url, on_attempt=attempts.append) as stranger, pytest.raises(Misuse, match="ca_file"):
            stranger.run(lambda _: None)
        assert len(attempts) == 1
        with Client(service.url, ca_file=certificate) as client:
            assert client.run(lambda txn: txn.put("kv", "a", 1)).committed.epoch == 9
        with pytest.raises(Misuse):
            Client(service.url, ca_file=tmp_path / "missing.pem")
    finally:
        service.stop()


EXPIRED: Scripted = (
    422,
    {**OVERLOADED[1], "status": 422, "detail": "too old", "code": "txn_id_expired", "retryable": False},
)


def test_an_outage_that_outlasts_the_id_of_a_transaction_does_not_end_the_retries(start: Start) -> None:
    def script(kind: str, before: int) -> Scripted:
        if kind == "begin":
            return begun(before)
        return (OVERLOADED, OVERLOADED, EXPIRED, committed())[before]

    service = start(script)
    attempts: list[Attempt] = []
    with Client(service.url, on_attempt=attempts.append) as client:
        client.run(lambda txn: txn.put("kv", "a", 1))
    assert summary(attempts) == [(1, None, False), (2, None, False), (3, None, False), (4, "committed", True)]
    assert len(service.arrived("begin")) == 2
    assert [one.body.get("first_attempt_ms") is None for one in service.arrived("commit")] == [True, True, True, False]


def test_work_that_outlasts_the_id_of_its_transaction_is_not_repeated(start: Start) -> None:
    service = start(lambda kind, before: begun(before) if kind == "begin" else EXPIRED)
    with Client(service.url) as client, pytest.raises(ClientMistake, match="txn_id_expired"):
        client.run(lambda txn: txn.put("kv", "a", 1))
    assert len(service.arrived("commit")) == 1
