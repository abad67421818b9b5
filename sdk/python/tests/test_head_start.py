"""When a second request follows the first, for threads and for tasks."""

from __future__ import annotations

import asyncio
import math
import os
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler
from types import SimpleNamespace
from typing import Any, Protocol

import httpx
import pytest

from tribunal_client import Client
from tribunal_client.coalescer import AsyncCoalescer, Bounds, Coalescer
from tribunal_client.commit_batch import BOUNDS

from .crowds import CrowdServer
from .test_coalesce import sessions

NEVER_SLOW = Bounds(in_flight_max=2, head_start_s=3600, items_max=100, bytes_max=100)
ALWAYS_SLOW = replace(NEVER_SLOW, head_start_s=0.005)


@dataclass(frozen=True)
class Item:
    name: int
    group: str = ""
    key: str | None = None
    size: int = 1
    deadline: float = math.inf


@dataclass
class Held:
    """A request that waits for its reply."""

    items: list[int]
    end: Future[None] = field(default_factory=Future)

    @property
    def replies(self) -> list[str]:
        return [f"reply {item}" for item in self.items]


class Service(Protocol):
    """A coalescer whose requests are held."""

    arrived: queue.Queue[Held]

    def submit(self, item: int) -> Future[str]: ...

    @property
    def queued(self) -> int: ...


class Threads:
    def __init__(self, bounds: Bounds) -> None:
        self.arrived: queue.Queue[Held] = queue.Queue()
        self.coalescer: Coalescer[Item, str] = Coalescer(bounds, self._send, lambda: "lost")
        self._pool = ThreadPoolExecutor(20)

    def submit(self, item: int, deadline: float = math.inf) -> Future[str]:
        return self._pool.submit(self.coalescer.submit, Item(item, deadline=deadline))

    @property
    def queued(self) -> int:
        return sum(len(group.queue) for group in list(self.coalescer._groups.values()))

    def _send(self, items: list[Item]) -> Sequence[str]:
        held = Held([item.name for item in items])
        self.arrived.put(held)
        held.end.result(30)
        return held.replies


class Tasks:
    def __init__(self, bounds: Bounds) -> None:
        self.arrived: queue.Queue[Held] = queue.Queue()
        self.coalescer: AsyncCoalescer[Item, str] = AsyncCoalescer(bounds, self._send)
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def submit(self, item: int) -> Future[str]:
        return asyncio.run_coroutine_threadsafe(self.coalescer.submit(Item(item)), self._loop)

    @property
    def queued(self) -> int:
        return sum(len(group.queue) for group in list(self.coalescer._groups.values()))

    async def _send(self, items: list[Item]) -> Sequence[str]:
        held = Held([item.name for item in items])
        self.arrived.put(held)
        await asyncio.wrap_future(held.end)
        return held.replies


@pytest.fixture(params=[Threads, Tasks])
def coalescing(request: pytest.FixtureRequest) -> Callable[[Bounds], Service]:
    service: Callable[[Bounds], Service] = request.param
    return service


def _gathered(service: Service, items: range) -> list[Future[str]]:
    """Submit items one by one. None may be sent."""
    ends = []
    for count, item in enumerate(items, 1):
        ends.append(service.submit(item))
        while service.queued < count:
            assert service.arrived.empty(), "a request beside one that is not slow"
            time.sleep(0.001)
    return ends


def test_items_gather_while_a_request_is_not_slow(coalescing: Callable[[Bounds], Service]) -> None:
    service = coalescing(NEVER_SLOW)
    first = service.submit(0)
    held = service.arrived.get(timeout=30)
    ends = _gathered(service, range(1, 4))
    held.end.set_result(None)
    assert first.result(30) == "reply 0"
    batch = service.arrived.get(timeout=30)
    assert batch.items == [1, 2, 3]
    batch.end.set_result(None)
    assert [end.result(30) for end in ends] == batch.replies


def test_a_second_request_follows_a_slow_one(coalescing: Callable[[Bounds], Service]) -> None:
    service = coalescing(ALWAYS_SLOW)
    first = service.submit(0)
    slow = service.arrived.get(timeout=30)
    ends = [service.submit(item) for item in range(1, 4)]
    left = 3
    while left:
        held = service.arrived.get(timeout=30)
        held.end.set_result(None)
        left -= len(held.items)
    assert [end.result(30) for end in ends] == ["reply 1", "reply 2", "reply 3"]
    slow.end.set_result(None)
    assert first.result(30) == "reply 0"


def test_a_failed_request_lets_those_that_gathered_leave_together(coalescing: Callable[[Bounds], Service]) -> None:
    service = coalescing(NEVER_SLOW)
    first = service.submit(0)
    held = service.arrived.get(timeout=30)
    ends = _gathered(service, range(1, 4))
    held.end.set_exception(ZeroDivisionError())
    with pytest.raises(ZeroDivisionError):
        first.result(30)
    batch = service.arrived.get(timeout=30)
    assert batch.items == [1, 2, 3]
    batch.end.set_result(None)
    assert [end.result(30) for end in ends] == batch.replies


def test_a_thread_that_is_interrupted_while_it_sends_leaves_nobody_waiting() -> None:
    service = Threads(NEVER_SLOW)
    service.submit(0)
    held = service.arrived.get(timeout=30)
    leader, *followers = _gathered(service, range(1, 4))
    held.end.set_result(None)
    batch = service.arrived.get(timeout=30)
    [later] = _gathered(service, range(4, 5))
    batch.end.set_exception(KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt):
        leader.result(30)
    assert [end.result(30) for end in followers] == ["lost", "lost"]
    service.arrived.get(timeout=30).end.set_result(None)
    assert later.result(30) == "reply 4"


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Have SIGINT raise `KeyboardInterrupt`, even in a process that was started to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("place", [1, 2, 3])
@pytest.mark.usefixtures("interruptible")
def test_a_thread_that_is_interrupted_while_it_waits_disturbs_nobody(place: int) -> None:
    service = Threads(NEVER_SLOW)
    service.submit(0)
    held = service.arrived.get(timeout=30)
    before = _gathered(service, range(1, place))

    def interrupt() -> None:
        while service.queued < place:
            time.sleep(0.001)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        service.coalescer.submit(Item(9))
    ends = before + [service.submit(item) for item in range(place, 4)]
    while service.queued < 3:
        time.sleep(0.001)
    held.end.set_result(None)
    batch = service.arrived.get(timeout=30)
    assert sorted(batch.items) == [1, 2, 3]
    batch.end.set_result(None)
    assert [end.result(30) for end in ends] == ["reply 1", "reply 2", "reply 3"]


@pytest.mark.usefixtures("interruptible")
def test_the_thread_that_gives_up_last_sends_and_gives_up_its_place_when_it_is_interrupted() -> None:
    service = Threads(NEVER_SLOW)
    service.submit(0)
    held = service.arrived.get(timeout=30)
    now = time.monotonic()
    other = service.submit(1, deadline=now + 60)
    while service.queued < 1:
        time.sleep(0.001)

    def interrupt() -> None:
        while service.queued < 2:
            time.sleep(0.001)
        held.end.set_result(None)
        service.arrived.get(timeout=30)
        # A signal just before the thread waits would be handled only after the wait.
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        service.coalescer.submit(Item(9, deadline=now + 120))
    assert other.result(20) == "lost"
    later = service.submit(2)
    service.arrived.get(timeout=30).end.set_result(None)
    assert later.result(30) == "reply 2"


def test_an_interrupted_thread_does_not_release_the_lock_of_another_one(monkeypatch: pytest.MonkeyPatch) -> None:
    service = Threads(NEVER_SLOW)
    service.submit(0)
    held = service.arrived.get(timeout=30)
    lock: Any = service.coalescer._lock
    enqueue: Callable[[Any], Any] = service.coalescer._enqueue
    taken, failed = threading.Event(), list[RuntimeError]()

    def take() -> None:
        try:
            with lock:
                taken.set()
                time.sleep(0.05)
        except RuntimeError as error:
            failed.append(error)

    other = threading.Thread(target=take)

    def wait(_: float | None) -> None:
        """Wait as a `Condition` does, and be interrupted before the lock is taken again."""
        lock.release()
        other.start()
        taken.wait(30)
        raise KeyboardInterrupt

    def enqueued(own: Any) -> Any:
        own.woken = SimpleNamespace(wait=wait, notify=lambda: None)
        return enqueue(own)

    with monkeypatch.context() as patched:
        patched.setattr(service.coalescer, "_enqueue", enqueued)
        with pytest.raises(KeyboardInterrupt):
            service.coalescer.submit(Item(9))
    other.join(30)
    assert failed == []
    [end] = _gathered(service, range(1, 2))
    held.end.set_result(None)
    service.arrived.get(timeout=30).end.set_result(None)
    assert end.result(30) == "reply 1"


CALLERS, ROUNDS = 8, 50


def test_threads_that_were_just_answered_are_in_the_next_batch() -> None:
    """Otherwise batches would alternate between two halves of the callers."""
    sizes: list[int] = []

    def send(items: list[Item]) -> list[str]:
        sizes.append(len(items))
        time.sleep(0.001)
        return [f"reply {item.name}" for item in items]

    coalescer: Coalescer[Item, str] = Coalescer(NEVER_SLOW, send, lambda: "lost")

    def caller(name: int) -> None:
        for _ in range(ROUNDS):
            assert coalescer.submit(Item(name)) == f"reply {name}"
            time.sleep(0.0001)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(caller, range(CALLERS)))
    assert sum(sizes) == CALLERS * ROUNDS
    # On a busy machine some callers are late. Without the gathering, almost no batch is full.
    assert sizes.count(CALLERS) >= ROUNDS / 5, sizes


@pytest.mark.parametrize(("bounds", "expected"), [(NEVER_SLOW, 8), (replace(NEVER_SLOW, head_start_s=0), 6)])
def test_tasks_that_were_just_answered_leave_together(bounds: Bounds, expected: int) -> None:
    sizes: list[int] = []

    async def send(items: list[Item]) -> list[str]:
        sizes.append(len(items))
        await asyncio.sleep(0.001)
        return [f"reply {item.name}" for item in items]

    coalescer: AsyncCoalescer[Item, str] = AsyncCoalescer(bounds, send)

    async def caller(name: int) -> None:
        for _ in range(ROUNDS):
            assert await coalescer.submit(Item(name)) == f"reply {name}"
            for _ in range(name % 2):
                await asyncio.sleep(0)

    async def main() -> None:
        await asyncio.gather(*(caller(name) for name in range(CALLERS)))

    asyncio.run(main())
    assert sum(sizes) == CALLERS * ROUNDS
    assert sum(size >= expected for size in sizes) >= ROUNDS - 5, sizes


def test_idle_groups_are_forgotten() -> None:
    coalescer: Coalescer[Item, str] = Coalescer(NEVER_SLOW, lambda items: ["reply"] * len(items), lambda: "lost")
    for name in ("a", "b", "b", "a", "c"):
        coalescer.submit(Item(0, name))
        assert list(coalescer._groups) == [name]


@pytest.fixture
def counting(url: str) -> Iterator[tuple[str, list[int]]]:
    """A proxy that delays replies, and counts the requests with commits that are in flight at the same time."""
    lock = threading.Lock()
    in_flight = [0]
    counts: list[int] = []
    target = httpx.Client(base_url=url, limits=httpx.Limits(max_connections=None))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            commits = int(self.path.endswith("commit"))
            with lock:
                in_flight[0] += commits
                counts.append(in_flight[0])
            types = {name: self.headers[name] for name in ("content-type", "accept") if name in self.headers}
            response = target.request(self.command, self.path, content=body, headers=types)
            time.sleep(0.002)
            # Before the reply is sent: the client may send its next request as soon as it receives it.
            with lock:
                in_flight[0] -= commits
            self.send_response(response.status_code)
            self.send_header("content-type", response.headers["content-type"])
            self.send_header("content-length", str(len(response.content)))
            self.end_headers()
            self.wfile.write(response.content)

        def do_GET(self) -> None:
            self.do_POST()

        def log_message(self, *_: Any) -> None:
            pass

    server = CrowdServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", counts
    server.shutdown()
    server.server_close()
    target.close()


def test_one_request_with_commits_is_in_flight_as_long_as_none_is_slow(
    counting: tuple[str, list[int]], prefix: str
) -> None:
    proxied, counts = counting
    with Client(proxied) as client:
        client._coalescers["commits"]._bounds = replace(BOUNDS, head_start_s=3600)
        sessions(client, prefix, 3)
    assert max(counts) == 1
