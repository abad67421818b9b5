"""Batches of Begins and of reads, by threads and by tasks, against a service that holds requests back."""

from __future__ import annotations

import asyncio
import json
import queue
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

import pytest

from tribunal_client import (
    AsyncClient,
    AsyncTransaction,
    Client,
    ClientMistake,
    Key,
    KeyRange,
    RetryPolicy,
    Row,
    RowReads,
    ServerMisbehaved,
    Transaction,
    Unavailable,
    Unchanged,
)
from tribunal_client.read_batch import BOUNDS

from .crowds import CrowdServer
from .holding import committed, problem

SOME_ID = "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a"
SHORT_S = 2.0
"""A timeout that ends while a request is held."""

Begun = Transaction | AsyncTransaction


@dataclass
class Held:
    """A Begin or a read that waits for its answer."""

    path: str
    body: dict[str, Any]
    answers: queue.Queue[tuple[int, Any] | None] = field(default_factory=lambda: queue.Queue())

    @property
    def keys(self) -> list[str]:
        return [row["key"] for row in self.body.get("read", [])]

    def answer(self, status: int, body: Any) -> None:
        self.answers.put((status, body))

    def refuse(self, status: int, code: str) -> None:
        self.answer(status, problem(status, code))

    def lose(self) -> None:
        """Close the connection without an answer."""
        self.answers.put(None)

    def read(self) -> None:
        """Answer with all rows: x/7 is 7, none is absent, and one whose version 5 is known is unchanged."""
        rows = [_row(row) for row in self.body.get("read", [])]
        if self.path == "/v1/txns":
            begun = {"txn_id": SOME_ID, "snapshots": {"kv": "9"}, "epoch": "10", "expires_at": "", "session": "s"}
            self.answer(201, {**begun, "rows": rows})
        else:
            self.answer(200, {"applied": "9", "rows": rows})


def _row(asked: dict[str, str]) -> dict[str, Any]:
    key = asked["key"]
    if key == "none":
        return {"store": "kv", "key": key}
    if asked.get("version") == "5":
        return {"store": "kv", "key": key, "version": "5", "unchanged": True}
    return {"store": "kv", "key": key, "version": "5", "value": int(key.split("/")[1])}


class HoldingService:
    """Holds Begins and reads; answers commits at once."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[Held] = queue.Queue()
        arrived = self.arrived

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length", 0)))
                if self.path.endswith("/commit"):
                    self._respond(200, {**committed("txn"), "session": "mine"})
                    return
                held = Held(self.path, json.loads(text))
                arrived.put(held)
                answer = held.answers.get()
                if answer is None:
                    self.close_connection = True
                else:
                    self._respond(*answer)

            def _respond(self, status: int, body: Any) -> None:
                data = json.dumps(body).encode()
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = CrowdServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


class Crowd:
    """Callers of one client; each caller is a thread or a task."""

    def __init__(self, kind: Literal["threads", "tasks"], *, coalesce: bool = True) -> None:
        self.service = HoldingService()
        self.kind = kind
        once = RetryPolicy(attempts_max=1)
        self.threaded = Client(self.service.url, coalesce=coalesce, retry=once, connections_max=1000)
        self._pool = ThreadPoolExecutor(700)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def connect() -> AsyncClient:
            return AsyncClient(self.service.url, coalesce=coalesce, retry=once)

        self.tasked: AsyncClient = self.run(connect()).result()
        self._first: list[Held] = []

    def run(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def request(self) -> Held:
        return self.service.arrived.get(timeout=30)

    def occupy(self, call: Callable[[], object]) -> Crowd:
        """Start the maximum number of requests in flight."""
        for _ in range(BOUNDS.in_flight_max):
            call()
            self._first.append(self.request())
        return self

    def release(self) -> None:
        for held in self._first:
            held.read()

    def read(
        self, *keys: Key, store: str = "kv", known: int | None = None, timeout_s: float | None = None
    ) -> Future[str]:
        """Read rows, and return the result or the error."""
        versions = {} if known is None else dict.fromkeys(keys, known)
        if self.kind == "tasks":

            async def task() -> str:
                try:
                    return _shown(await self.tasked.read_rows(store, keys, known=versions, timeout_s=timeout_s))
                except (ClientMistake, Unavailable, ServerMisbehaved) as error:
                    return _told(error)

            return self.run(task())

        def thread() -> str:
            try:
                return _shown(self.threaded.read_rows(store, keys, known=versions, timeout_s=timeout_s))
            except (ClientMistake, Unavailable, ServerMisbehaved) as error:
                return _told(error)

        return self._pool.submit(thread)

    def begin(self, stores: Sequence[str] | None = ("kv",), **options: Any) -> Future[Begun | str]:
        if self.kind == "tasks":

            async def task() -> Begun | str:
                try:
                    return await self.tasked.begin(stores, **options)
                except (ClientMistake, Unavailable, ServerMisbehaved) as error:
                    return _told(error)

            begun: Future[Begun | str] = self.run(task())
            return begun

        def thread() -> Begun | str:
            try:
                return self.threaded.begin(stores, **options)
            except (ClientMistake, Unavailable, ServerMisbehaved) as error:
                return _told(error)

        return self._pool.submit(thread)

    def run_begin(self, timeout_s: float) -> Future[str]:
        """Run a transaction on the store `kv`, and return the error of its Begin."""
        if self.kind == "tasks":

            async def task() -> str:
                with pytest.raises(Unavailable) as error:
                    await self.tasked.run(lambda _: asyncio.sleep(0), ["kv"], timeout_s=timeout_s)
                return _told(error.value)

            return self.run(task())

        def thread() -> str:
            with pytest.raises(Unavailable) as error:
                self.threaded.run(lambda _: None, ["kv"], timeout_s=timeout_s)
            return _told(error.value)

        return self._pool.submit(thread)

    def got(self, txn: Begun, key: str) -> Row | None:
        """Get a row that is known."""
        if isinstance(txn, AsyncTransaction):
            row: Row | None = self.run(txn.get("kv", key)).result(30)
            return row
        return txn.get("kv", key)

    def wait(self, count: int) -> None:
        """Wait until this many are queued."""
        client: Any = self.tasked if self.kind == "tasks" else self.threaded
        while True:
            groups = [
                group for kind in ("begins", "reads") for group in list(client._coalescers[kind]._groups.values())
            ]
            if sum(len(group.queue) for group in groups) == count:
                return
            time.sleep(0.001)

    def stop(self) -> None:
        self._pool.shutdown(wait=False, cancel_futures=True)
        self.run(self.tasked.close()).result(30)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self.threaded.close()
        self.service.stop()


def _shown(found: RowReads) -> str:
    words = []
    for row in found.rows:
        words.append("absent" if row is None else "unchanged" if isinstance(row, Unchanged) else str(row.value))
    return " ".join(words)


def _told(error: ClientMistake | Unavailable | ServerMisbehaved) -> str:
    return str(error) if isinstance(error, ServerMisbehaved) else f"{type(error).__name__} {error.code}"


def _begun(end: Begun | str) -> Begun:
    assert not isinstance(end, str), end
    return end


Start = Callable[..., Crowd]


@pytest.fixture(params=["threads", "tasks"])
def crowded(request: pytest.FixtureRequest) -> Iterator[Start]:
    crowds: list[Crowd] = []

    def start(*, coalesce: bool = True) -> Crowd:
        crowds.append(Crowd(request.param, coalesce=coalesce))
        return crowds[-1]

    yield start
    for crowd in crowds:
        crowd.stop()


def reading(crowded: Start) -> Crowd:
    crowd = crowded()
    return crowd.occupy(lambda: crowd.read("first/1"))


def beginning(crowded: Start) -> Crowd:
    crowd = crowded()
    return crowd.occupy(crowd.begin)


def test_reads_that_wait_leave_together_and_each_gets_its_rows(crowded: Start) -> None:
    crowd = reading(crowded)
    reads = []
    for keys in (["a/1", "b/2"], ["none"], ["b/2", "c/3", "a/1"]):
        reads.append(crowd.read(*keys))
        crowd.wait(len(reads))
    crowd.release()
    held = crowd.request()
    assert (held.path, held.keys) == ("/v1/stores/kv/rows/read", ["a/1", "b/2", "none", "c/3"])
    held.read()
    assert [read.result(30) for read in reads] == ["1 2", "absent", "2 3 1"]


def test_a_row_is_asked_for_once_for_each_version_that_callers_have(crowded: Start) -> None:
    crowd = reading(crowded)
    reads = [crowd.read("a/1", known=known) for known in (None, 5, 4, None)]
    crowd.wait(4)
    crowd.release()
    held = crowd.request()
    assert len(held.keys) == 3
    held.read()
    assert [read.result(30) for read in reads] == ["1", "unchanged", "1", "1"]


def test_reads_of_other_stores_and_large_ones_wait_for_nobody(crowded: Start) -> None:
    crowd = reading(crowded)
    other = crowd.read("a/1", store="other")
    held = crowd.request()
    assert held.path == "/v1/stores/other/rows/read"
    held.read()
    assert other.result(30) == "1"
    large = crowd.read(*(f"x/{n}" for n in range(1001)))
    held = crowd.request()
    assert len(held.keys) == 1001
    held.read()
    assert large.result(30).endswith(" 1000")
    crowd.release()


@pytest.mark.parametrize(("status", "code"), [(422, "read_too_large"), (400, "bad_request")])
def test_a_refusal_of_what_is_read_sends_each_alone(crowded: Start, status: int, code: str) -> None:
    crowd = reading(crowded)
    reads = [crowd.read("a/1"), crowd.read("b/2")]
    crowd.wait(2)
    crowd.release()
    crowd.request().refuse(status, code)
    for _ in range(2):
        held = crowd.request()
        if held.keys == ["a/1"]:
            held.read()
        else:
            held.refuse(status, code)
    assert [read.result(30) for read in reads] == ["1", f"ClientMistake {code}"]


@pytest.mark.parametrize(
    ("fail", "expected"),
    [
        (lambda held: held.refuse(503, "overloaded"), "Unavailable overloaded"),
        (Held.lose, "Unavailable unreachable"),
        (lambda held: held.answer(200, {"applied": "9", "rows": []}), "0 rows returned where 2 were requested"),
    ],
)
def test_other_failures_of_a_read_reach_each(crowded: Start, fail: Callable[[Held], None], expected: str) -> None:
    crowd = reading(crowded)
    reads = [crowd.read("a/1"), crowd.read("b/2")]
    crowd.wait(2)
    crowd.release()
    fail(crowd.request())
    for read in reads:
        assert expected in read.result(30)


@pytest.mark.parametrize(("callers", "rows"), [(600, 1), (14, 900)])
def test_a_request_has_at_most_512_callers_and_10000_rows(crowded: Start, callers: int, rows: int) -> None:
    crowd = reading(crowded)
    reads = [crowd.read(*(f"x/{caller * rows + row}" for row in range(rows))) for caller in range(callers)]
    crowd.wait(callers)
    crowd.release()
    held = [crowd.request(), crowd.request()]
    sizes = [len(one.keys) for one in held]
    assert sum(sizes) == callers * rows
    assert max(sizes) <= (512 if rows == 1 else 10_000)
    for one in held:
        one.read()
    assert [read.result(30).split(" ")[0] for read in reads] == [str(caller * rows) for caller in range(callers)]


@pytest.mark.parametrize("order", [(SHORT_S, 30, SHORT_S), (30, SHORT_S, SHORT_S)])
def test_a_shared_read_goes_on_until_its_last_caller_gives_up(crowded: Start, order: tuple[float, ...]) -> None:
    crowd = reading(crowded)
    reads = []
    for timeout_s in order:
        reads.append(crowd.read(f"x/{timeout_s:g}", timeout_s=timeout_s))
        crowd.wait(len(reads))
    crowd.release()
    held = crowd.request()
    assert len(held.keys) == 2, "all share one request, and two of them a row"
    begun_at = time.monotonic()
    late = [read for read, timeout_s in zip(reads, order, strict=True) if timeout_s == SHORT_S]
    assert [read.result(20) for read in late] == ["Unavailable unreachable"] * 2
    assert time.monotonic() - begun_at < 20
    held.read()
    assert reads[order.index(30)].result(30) == "30"
    assert crowd.service.arrived.empty(), "the read of the last caller was not sent again"


def test_a_shared_begin_goes_on_until_its_last_caller_gives_up(crowded: Start) -> None:
    crowd = beginning(crowded)
    short = crowd.run_begin(timeout_s=SHORT_S)
    crowd.wait(1)
    long = crowd.begin()
    crowd.wait(2)
    crowd.release()
    held = crowd.request()
    assert short.result(20) == "Unavailable unreachable"
    held.read()
    _begun(long.result(30))
    assert crowd.service.arrived.empty(), "the Begin of the last caller was not sent again"


def test_a_task_that_is_cancelled_disturbs_nobody() -> None:
    crowd = Crowd("tasks")
    crowd.occupy(lambda: crowd.read("first/1"))
    gone = crowd.read("a/1")
    crowd.wait(1)
    gone.cancel()
    crowd.wait(0)
    away, stays = crowd.read("b/2"), crowd.read("c/3")
    crowd.wait(2)
    crowd.release()
    held = crowd.request()
    assert held.keys == ["b/2", "c/3"]
    away.cancel()
    held.read()
    assert stays.result(30) == "3"
    crowd.stop()


def test_begins_that_wait_leave_together_with_an_id_each(crowded: Start) -> None:
    crowd = beginning(crowded)
    all_options: list[dict[str, Any]] = [
        {"read": {"kv": ["a/1", "b/2"]}},
        {},
        {"read": {"kv": ["b/2", "none"]}, "isolation": "snapshot"},
    ]
    ends = []
    for options in all_options:
        ends.append(crowd.begin(**options))
        crowd.wait(len(ends))
    crowd.release()
    held = crowd.request()
    assert (held.body["stores"], held.keys) == (["kv"], ["a/1", "b/2", "none"])
    held.read()
    first, second, third = (_begun(end.result(30)) for end in ends)
    assert first.id == SOME_ID
    assert len({first.id, second.id, third.id}) == 3
    for txn in (second, third):
        assert txn.id[:15] == SOME_ID[:15], "the same millisecond and version"
        assert txn.snapshots == {"kv": 9}
    # Each transaction has its rows without another request.
    assert crowd.got(first, "a/1") == Row("a/1", 1, 5)
    assert crowd.got(third, "b/2") == Row("b/2", 2, 5)
    assert crowd.got(third, "none") is None
    assert third.prepare().request.isolation == "snapshot"
    assert second.blind, "rows of others are no reads"


def test_begins_with_other_stores_sessions_or_waits_leave_apart(crowded: Start) -> None:
    crowd = beginning(crowded)
    others: list[tuple[Any, dict[str, Any]]] = [
        (None, {}),
        (["other"], {}),
        (["kv"], {"read": {"other": ["a/1"]}}),
        (["kv"], {"session": "s"}),
        (["kv"], {"wait_s": 1}),
        (["kv"], {"wait_s": 0}),
        (None, {"read": {"kv": ["a/1"]}}),
    ]
    for stores, options in others:
        end = crowd.begin(stores, **options)
        crowd.request().read()
        _begun(end.result(30))
    end = crowd.begin(["kv"], ranges={"kv": [KeyRange("a", limit=7)]})
    held = crowd.request()
    assert held.body["ranges"] == [{"store": "kv", "start": "a", "limit": 7}]
    held.read()
    assert end.result(30) == "0 ranges returned where 1 were requested"
    crowd.release()


def test_begins_are_sent_with_the_session_of_the_moment_when_they_leave(crowded: Start) -> None:
    crowd = beginning(crowded)
    before = crowd.begin()
    crowd.wait(1)
    if crowd.kind == "tasks":
        local = crowd.tasked.begin_local()
        local.put("kv", "a/1", 1)
        crowd.run(local.commit()).result(30)
    else:
        txn = crowd.threaded.begin_local()
        txn.put("kv", "a/1", 1)
        txn.commit()
    later = crowd.begin()
    crowd.wait(2)
    crowd.release()
    held = crowd.request()
    assert held.body["session"] == "mine"
    held.read()
    _begun(before.result(30))
    _begun(later.result(30))


def test_begins_that_are_refused_together_are_sent_alone(crowded: Start) -> None:
    crowd = beginning(crowded)
    ends = [crowd.begin(read={"kv": [key]}) for key in ("a/1", "b/2")]
    crowd.wait(2)
    crowd.release()
    crowd.request().refuse(422, "read_too_large")
    for _ in range(2):
        held = crowd.request()
        if held.keys == ["a/1"]:
            held.read()
        else:
            held.refuse(422, "read_too_large")
    assert _begun(ends[0].result(30)).id == SOME_ID
    assert ends[1].result(30) == "ClientMistake read_too_large"


def test_a_lost_connection_reaches_each_begin(crowded: Start) -> None:
    crowd = beginning(crowded)
    ends = [crowd.begin(), crowd.begin()]
    crowd.wait(2)
    crowd.release()
    crowd.request().lose()
    assert [end.result(30) for end in ends] == ["Unavailable unreachable"] * 2


def test_without_coalesce_every_begin_and_read_is_a_request_of_its_own(crowded: Start) -> None:
    crowd = crowded(coalesce=False)
    reads = [crowd.read("a/1") for _ in range(4)]
    ends = [crowd.begin() for _ in range(4)]
    for held in [crowd.request() for _ in range(8)]:
        held.read()
    assert [read.result(30) for read in reads] == ["1"] * 4
    for end in ends:
        _begun(end.result(30))
