"""Coalesced commits of threads and tasks, against a service that holds requests back and a live one."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, Literal

import pytest

from tribunal_client import (
    AsyncClient,
    AsyncTransaction,
    Client,
    ClientMistake,
    Committed,
    PreparedCommit,
    Transaction,
    TribunalError,
    Unavailable,
    Verdict,
)
from tribunal_client.commit_batch import BOUNDS

from .holding import Held, HoldingService, aborted, committed, problem, refused
from .proxy import Proxy

Kind = Literal["threads", "tasks"]


class Crowd:
    """Callers of one client with the maximum number of requests in flight; each caller is a thread or a task."""

    def __init__(self, kind: Kind, *, coalesce: bool = True) -> None:
        self.service = HoldingService()
        self.kind = kind
        self._threaded = Client(self.service.url, coalesce=coalesce)
        self._loop = asyncio.new_event_loop()
        self._client: AsyncClient | None = None
        self._running = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._running.start()

        async def connect() -> AsyncClient:
            return AsyncClient(self.service.url, coalesce=coalesce)

        self._async = self._run(connect()).result()
        self._firsts: list[tuple[Held, Future[str]]] = []
        for _ in range(BOUNDS.in_flight_max):
            end = self.commit(self.prepared())
            held = self.service.request()
            assert not held.batch, "an idle client sends a commit at once, by itself"
            self._firsts.append((held, end))

    def release(self) -> None:
        """Answer the requests in flight."""
        for held, end in self._firsts:
            held.commit()
            assert end.result(30) == "committed"

    def prepared(self, value: Any = 1, **fields: Any) -> PreparedCommit:
        txn = self._threaded.begin_local()
        txn.put("kv", "a", value)
        for name, given in fields.items():
            setattr(txn, name, given)
        return txn.prepare()

    def read_only(self) -> PreparedCommit:
        txn = self._threaded.begin_local()
        txn.observe("kv", "a", None)
        return txn.prepare()

    def commit(self, prepared: PreparedCommit) -> Future[str]:
        """Commit, and return the outcome."""
        if self.kind == "tasks":

            async def task() -> str:
                verdict = await self._async.commit(prepared)
                return _word(verdict)

            return self._run(_guarded(task()))
        end: Future[str] = Future()

        def thread() -> None:
            try:
                end.set_result(_word(self._threaded.commit(prepared)))
            except TribunalError as error:
                end.set_result(_error_word(error))

        threading.Thread(target=thread, daemon=True).start()
        return end

    def queued(self, *commits: PreparedCommit) -> list[Future[str]]:
        """Commit one by one, each after the previous one is queued."""
        ends = []
        for prepared in commits:
            before = self.waiting
            ends.append(self.commit(prepared))
            while self.waiting == before:
                time.sleep(0.001)
        return ends

    @property
    def waiting(self) -> int:
        client: Any = self._async if self.kind == "tasks" else self._threaded
        return sum(len(group.queue) for group in client._coalescers["commits"]._groups.values())

    def close(self) -> None:
        self._run(self._async.close()).result(30)
        self._threaded.close()

    def stop(self) -> None:
        self.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._running.join()
        self._loop.close()
        self.service.stop()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


async def _guarded(work: Coroutine[Any, Any, str]) -> str:
    try:
        return await work
    except TribunalError as error:
        return _error_word(error)


def _word(verdict: Verdict) -> str:
    return f"{verdict.status} again" if verdict.replayed else verdict.status


def _error_word(error: TribunalError) -> str:
    word = type(error).__name__
    return f"{word} {error.code}" if isinstance(error, ClientMistake | Unavailable) else word


def _ends(ends: list[Future[str]]) -> list[str]:
    return [end.result(30) for end in ends]


@pytest.fixture(params=["threads", "tasks"])
def crowded(request: pytest.FixtureRequest) -> Iterator[Callable[..., Crowd]]:
    crowds: list[Crowd] = []

    def start(*, coalesce: bool = True) -> Crowd:
        crowds.append(Crowd(request.param, coalesce=coalesce))
        return crowds[-1]

    yield start
    for crowd in crowds:
        crowd.stop()


def test_queued_commits_are_sent_as_one_batch_and_each_gets_its_own_verdict(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    waiting = [crowd.prepared() for _ in range(6)]
    ends = crowd.queued(*waiting)
    crowd.release()
    held = crowd.service.request()
    assert held.batch
    # The thread that has waited longest sends.
    assert held.ids == [prepared.txn_id for prepared in waiting]
    a, b, c, d, e, f = held.ids
    # The service loses the reply to the third, which is resolved by its id.
    lost, mistake, busy = refused(c, 504, "outcome_unknown"), refused(d, 404, "unknown_store"), refused(e, 429, "quota")
    held.answer(200, committed(a), aborted(b), lost, mistake, busy, {**committed(f), "replayed": True})
    expected = ["committed", "aborted", "committed again", "ClientMistake unknown_store", "Unavailable quota"]
    assert _ends(ends) == [*expected, "committed again"]


def test_a_batch_never_contains_the_same_id_twice(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    twice, other = crowd.prepared(), crowd.prepared()
    ends = crowd.queued(twice, twice, other)
    crowd.release()
    requests = [crowd.service.request()]
    requests[0].commit()
    requests.append(crowd.service.request())
    requests[1].commit()
    assert sorted(txn_id for held in requests for txn_id in held.ids) == sorted(
        [twice.txn_id, twice.txn_id, other.txn_id]
    )
    assert all(len(set(held.ids)) == len(held.ids) for held in requests)
    assert _ends(ends) == ["committed"] * 3


def test_a_batch_has_at_most_512_commits_and_4_mib(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    large = [crowd.prepared("x" * (1 << 20)) for _ in range(5)]
    small = [crowd.prepared() for _ in range(600)]
    ends = crowd.queued(*large, *small)
    crowd.release()
    sizes: list[int] = []
    while sum(sizes) < len(ends):
        held = crowd.service.request()
        sizes.append(len(held.ids))
        held.commit()
    assert max(sizes) == 512
    assert 3 in sizes
    assert set(_ends(ends)) == {"committed"}


def test_commits_with_a_trace_context_or_ack_applied_are_sent_at_once_by_themselves(
    crowded: Callable[..., Crowd],
) -> None:
    crowd = crowded()
    for prepared in (crowd.prepared(traceparent="00-mine"), crowd.prepared(ack="applied")):
        end = crowd.commit(prepared)
        held = crowd.service.request()
        assert (held.batch, held.ids, held.traceparent) == (False, [prepared.txn_id], prepared.traceparent)
        held.commit()
        assert end.result(30) == "committed"
    crowd.release()


def test_a_rejected_batch_fails_each_of_its_commits(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    ends = crowd.queued(crowd.prepared(), crowd.prepared())
    crowd.release()
    crowd.service.request().answer(503, problem(503, "overloaded"))
    assert _ends(ends) == ["Unavailable overloaded"] * 2


def test_a_refused_batch_is_halved_down_to_single_commits(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    waiting = [crowd.prepared() for _ in range(4)]
    ends = crowd.queued(*waiting)
    crowd.release()
    ids = [prepared.txn_id for prepared in waiting]
    for refused_ids in (ids, ids[:2]):
        held = crowd.service.request()
        assert held.ids == refused_ids
        held.answer(413, problem(413, "too_large"))
    for batch, taken in ((False, ids[:1]), (False, ids[1:2]), (True, ids[2:])):
        held = crowd.service.request()
        assert (held.batch, held.ids) == (batch, taken)
        held.commit()
    assert _ends(ends) == ["committed"] * 4


def test_commits_that_wait_when_the_client_is_closed_are_not_in_doubt(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    ends = crowd.queued(*(crowd.prepared() for _ in range(3)))
    crowd.close()
    crowd.release()
    assert _ends(ends) == ["Misuse"] * 3
    assert crowd.service.arrived.empty()


def test_a_part_of_a_batch_that_was_sent_before_the_client_was_closed_has_its_verdicts(
    crowded: Callable[..., Crowd],
) -> None:
    crowd = crowded()
    ends = crowd.queued(*(crowd.prepared() for _ in range(4)))
    crowd.release()
    crowd.service.request().answer(413, problem(413, "too_large"))
    half = crowd.service.request()
    crowd.close()
    half.commit()
    assert _ends(ends) == ["committed"] * 2 + ["Unavailable unreachable"] * 2


@pytest.mark.parametrize("readable", [True, False])
def test_an_unreadable_reply_to_a_batch_is_resolved_for_each_commit(
    crowded: Callable[..., Crowd],
    readable: bool,
) -> None:
    crowd = crowded()
    ends = crowd.queued(crowd.prepared(), crowd.prepared())
    crowd.release()
    held = crowd.service.request()
    held.answer(200, committed(held.ids[0]) if readable else {"nothing": "known"})
    assert _ends(ends) == ["committed again"] * 2


def test_a_cancelled_task_does_not_affect_others() -> None:
    crowd = Crowd("tasks")
    goes, flies = crowd.prepared(), crowd.prepared()
    [gone] = crowd.queued(goes)
    gone.cancel()
    while crowd.waiting:
        time.sleep(0.001)
    [away, *ends] = crowd.queued(flies, crowd.prepared(), crowd.prepared())
    crowd.release()
    held = crowd.service.request()
    assert len(held.ids) == 3
    assert goes.txn_id not in held.ids
    away.cancel()
    held.commit()
    assert _ends(ends) == ["committed"] * 2
    crowd.stop()


def test_without_coalesce_every_commit_is_a_request_of_its_own(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded(coalesce=False)
    for _ in range(3):
        prepared = crowd.prepared()
        end = crowd.commit(prepared)
        held = crowd.service.request()
        assert (held.batch, held.ids) == (False, [prepared.txn_id])
        held.commit()
        assert end.result(30) == "committed"
    crowd.release()


def test_commits_that_write_nothing_share_no_batch_with_those_that_write(crowded: Callable[..., Crowd]) -> None:
    crowd = crowded()
    reads, writes = [crowd.read_only() for _ in range(3)], [crowd.prepared(), crowd.prepared()]
    writing = crowd.queued(*writes)
    # No request of their own kind is in flight.
    reading = [crowd.commit(prepared) for prepared in reads]
    sent: list[str] = []
    while len(sent) < 3:
        held = crowd.service.request()
        sent += held.ids
        held.commit()
    assert sorted(sent) == sorted(prepared.txn_id for prepared in reads)
    assert _ends(reading) == ["committed"] * 3, "while commits that write wait for theirs"
    crowd.release()
    held = crowd.service.request()
    assert held.ids == [prepared.txn_id for prepared in writes]
    held.commit()
    assert _ends(writing) == ["committed"] * 2


def _pair(
    begin: Callable[[], Transaction | AsyncTransaction], key: str, version: int | None, round_: int
) -> list[PreparedCommit]:
    good, bad = begin(), begin()
    good.observe("kv", key, version)
    good.put("kv", key, round_)
    # The other commit read a version that never existed.
    bad.observe("kv", key, 1)
    bad.put("kv", key, -1)
    return [good.prepare(), bad.prepare()]


def _check(pair: list[PreparedCommit], won: Verdict, lost: Verdict) -> None:
    assert isinstance(won, Committed)
    assert [won.txn_id, lost.txn_id] == [prepared.txn_id for prepared in pair]
    assert lost.status == "aborted"
    assert lost.reason == "read_conflict"


def sessions(client: Client, prefix: str, rounds: int) -> int:
    """Commit from 64 sessions to disjoint rows, check every verdict, and return how many were resolved."""
    passed: list[int] = []

    def session(number: int) -> None:
        key, version, replayed = f"{prefix}{number:02}", None, 0
        for round_ in range(rounds):
            pair = _pair(client.begin_local, key, version, round_)
            won, lost = client.commit(pair[0]), client.commit(pair[1])
            _check(pair, won, lost)
            assert isinstance(won, Committed)
            version = won.version
            replayed += won.replayed
        passed.append(replayed)

    threads = [threading.Thread(target=session, args=(number,)) for number in range(64)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(passed) == 64
    rows = client.begin(["kv"]).scan("kv", prefix, prefix + "~")
    assert [row.value for row in rows] == [rounds - 1] * 64
    return sum(passed)


def test_64_threads_on_disjoint_rows_get_their_verdicts_in_order(client: Client, prefix: str) -> None:
    sessions(client, prefix, 5)


def test_64_tasks_on_disjoint_rows_get_their_verdicts_in_order(url: str, prefix: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client:

            async def session(number: int) -> None:
                key, version = f"{prefix}{number:02}", None
                for round_ in range(5):
                    pair = _pair(client.begin_local, key, version, round_)
                    won, lost = await client.commit(pair[0]), await client.commit(pair[1])
                    _check(pair, won, lost)
                    assert isinstance(won, Committed)
                    version = won.version

            await asyncio.gather(*(session(number) for number in range(64)))
            rows = await (await client.begin(["kv"])).scan("kv", prefix, prefix + "~")
            assert [row.value for row in rows] == [4] * 64

    asyncio.run(main())


def test_each_commit_of_a_batch_whose_reply_is_lost_is_resolved(proxy: Proxy, prefix: str) -> None:
    proxy.lose("reply", "/batch-commit")
    with Client(proxy.url) as client:
        assert sessions(client, prefix, 3) >= 1
    assert proxy.lost.acquire(blocking=False)
