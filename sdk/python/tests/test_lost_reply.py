"""Lost replies, against a live server through a proxy that cuts connections."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from tribunal_client import Aborted, AsyncClient, Client, Committed, OutcomeUnknown, PreparedCommit, Transaction

from .holding import problem
from .proxy import Proxy
from .scripted import Scripted, Service


def test_a_lost_reply_is_resolved_by_id_and_the_commit_is_kept(client: Client, proxy: Proxy, prefix: str) -> None:
    txn = Client(proxy.url).begin_local()
    txn.insert("kv", prefix + "a", 1)
    proxy.lose("reply", "/commit")
    verdict = txn.commit()
    assert proxy.lost.acquire(blocking=False)
    assert isinstance(verdict, Committed)
    assert verdict.replayed
    row = client.begin(["kv"], session=verdict.session, wait_s=60).get("kv", prefix + "a")
    assert row is not None
    assert row.version == verdict.version


def test_a_lost_request_is_fenced_and_run_repeats_the_work(client: Client, proxy: Proxy, prefix: str) -> None:
    proxied = Client(proxy.url)
    txn = proxied.begin_local()
    txn.insert("kv", prefix + "a", 1)
    proxy.lose("request", "/commit")
    verdict = txn.commit()
    assert isinstance(verdict, Aborted)
    assert verdict.reason == "fenced"
    late = client.commit(txn.prepare())  # The request itself, late.
    assert isinstance(late, Aborted)
    assert late.reason == "fenced"

    ids: list[str] = []

    def work(again: Transaction) -> None:
        ids.append(again.id)
        again.insert("kv", prefix + "a", 2)

    proxy.lose("request", "/commit")
    ran = proxied.run(work)
    assert len(ids) == 2
    assert ids[1] == ran.committed.txn_id, "under a new id"


def test_a_reply_that_never_arrives_is_requested_after_the_timeout(proxy: Proxy, prefix: str) -> None:
    txn = Client(proxy.url, timeout_s=0.5).begin_local()
    txn.put("kv", prefix + "a", 1)
    proxy.lose("silence", "/commit")
    verdict = txn.commit()
    assert isinstance(verdict, Committed)
    assert verdict.replayed


def test_each_commit_of_a_lost_batch_is_resolved(proxy: Proxy, prefix: str) -> None:
    client = Client(proxy.url)
    txns = [client.begin_local() for _ in range(3)]
    for n, txn in enumerate(txns):
        txn.insert("kv", f"{prefix}{n % 2}", n)
    proxy.lose("reply", "/batch-commit")
    verdicts = client.batch([txn.prepare() for txn in txns])
    assert [type(verdict) for verdict in verdicts] == [Committed, Committed, Aborted]


def test_a_repeated_commit_gets_the_same_verdict_and_is_executed_once(client: Client, prefix: str) -> None:
    key = prefix + "counter"
    set_up = client.begin_local()
    set_up.put("kv", key, 0)
    set_up.commit()
    txn = client.begin_local()
    txn.add("kv", key, 5)
    prepared = txn.prepare()
    first, second = client.commit(prepared), client.commit(prepared)
    assert isinstance(first, Committed)
    assert isinstance(second, Committed)
    assert (first.replayed, second.replayed) == (False, True)
    assert first.version == second.version
    row = client.run(lambda last: last.get("kv", key)).value
    assert row is not None
    assert row.value == 5
    status = client.status(prepared.txn_id)
    assert isinstance(status, Committed)
    assert status.version == first.version


def test_an_outcome_that_cannot_be_determined_is_unknown(client: Client, proxy: Proxy, prefix: str) -> None:
    txn = Client(proxy.url, timeout_s=5, resolve_timeout_s=1).begin_local()
    txn.put("kv", prefix + "a", 1)
    proxy.lose("silence", "/commit")

    def stop_when_lost() -> None:
        proxy.lost.acquire()
        proxy.stop()

    stopping = threading.Thread(target=stop_when_lost)
    stopping.start()
    with pytest.raises(OutcomeUnknown) as unknown:
        txn.commit()
    stopping.join()
    assert unknown.value.txn_id == txn.id
    # Once the service is reachable again, the id determines the outcome: the commit arrived, or never will.
    assert isinstance(client.status(txn.id, fence=True, wait_s=60), Committed | Aborted)


@pytest.mark.parametrize("by_line", [False, True])
def test_the_lost_commits_of_a_batch_share_one_deadline(by_line: bool) -> None:
    unknown = {"status": "problem", "problem": problem(504, "outcome_unknown")}

    def script(kind: str, _: int) -> Scripted:
        if kind != "batch":
            return 200, {"status": "in_flight"}
        return (200, {"results": [unknown] * 100}) if by_line else (504, problem(504, "outcome_unknown"))

    service = Service(script)

    def commits(client: Client | AsyncClient) -> list[PreparedCommit]:
        return [client.begin_local().prepare() for _ in range(100)]

    async def tasks() -> list[object]:
        async with AsyncClient(service.url, resolve_timeout_s=1) as client:
            return list(await client.batch(commits(client)))

    for results in (
        lambda: Client(service.url, resolve_timeout_s=1).batch(commits(Client(service.url))),
        lambda: asyncio.run(tasks()),
    ):
        begun = time.monotonic()
        assert [type(result) for result in results()] == [OutcomeUnknown] * 100
        assert time.monotonic() - begun < 30, "not 100 times as long"
    service.stop()


def test_the_lost_commits_of_a_batch_are_resolved_together() -> None:
    together = threading.Barrier(64)

    def script(kind: str, _: int) -> Scripted:
        if kind == "batch":
            return 504, problem(504, "outcome_unknown")
        together.wait(30)
        return 200, {"status": "aborted", "txn_id": "x", "epoch": "9", "reason": "fenced", "retryable": True}

    service = Service(script)
    with Client(service.url) as client:
        verdicts = client.batch([client.begin_local().prepare() for _ in range(128)])
    assert [type(verdict) for verdict in verdicts] == [Aborted] * 128
    service.stop()
