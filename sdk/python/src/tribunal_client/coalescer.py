"""Gathers requests that wait for a free flight, and sends them together; for threads, and for asyncio.

Knows nothing of what they ask for, and never repeats one. A request that finds a free flight leaves at once: there is
no timer. Each caller waits for its own reply, so the requests of one session keep their order.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

Item = TypeVar("Item")
Reply = TypeVar("Reply")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of what is in flight."""

    flights_max: int
    """Requests in flight at a time."""
    items_max: int
    """Items of one request."""
    bytes_max: int
    """Bytes of one request."""


@dataclass(eq=False, slots=True)
class _Waiting(Generic[Item, Reply]):
    key: str
    item: Item
    size: int
    reply: Reply | None = None
    crew: list[_Waiting[Item, Reply]] | None = None
    """What its thread has to send, itself first; `None` if another thread sends it."""
    woken: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False, slots=True)
class _Awaiting(Generic[Item, Reply]):
    key: str
    item: Item
    size: int
    reply: asyncio.Future[Reply]


Queued = TypeVar("Queued", _Waiting, _Awaiting)  # type: ignore[type-arg]


def _take(queue: deque[Queued], bounds: Bounds) -> list[Queued]:
    """Take what leaves next: the oldest, within the bounds, each key once."""
    crew: list[Queued] = []
    rest: list[Queued] = []
    keys: set[str] = set()
    size = 0
    while queue and len(crew) < bounds.items_max and (not crew or size + queue[0].size <= bounds.bytes_max):
        one = queue.popleft()
        if one.key in keys:
            rest.append(one)
            continue
        keys.add(one.key)
        crew.append(one)
        size += one.size
    queue.extendleft(reversed(rest))
    return crew


class Coalescer(Generic[Item, Reply]):
    """Gathers the items of threads. The thread that finds a free flight sends; it has no thread of its own.

    Arguments:
        bounds: bounds of what is in flight.
        send: sends what was gathered, and returns one reply per item, in order.
        lost: makes the reply to an item whose sender was interrupted.

    """

    def __init__(
        self, bounds: Bounds, send: Callable[[list[Item]], Sequence[Reply]], lost: Callable[[], Reply]
    ) -> None:
        self._bounds = bounds
        self._send = send
        self._lost = lost
        self._lock = threading.Lock()
        self._queue: deque[_Waiting[Item, Reply]] = deque()
        self._flights = 0

    def ask(self, key: str, item: Item, size: int) -> Reply:
        """Send an item, alone or with others, and return its reply. Two items with one key never leave together."""
        own: _Waiting[Item, Reply] = _Waiting(key, item, size)
        with self._lock:
            if self._flights < self._bounds.flights_max:
                self._flights += 1
                own.crew = [own]
            else:
                self._queue.append(own)
        if own.crew is None:
            self._wait(own)
        if own.crew is not None:
            self._fly(own.crew)
        assert own.reply is not None  # noqa: S101
        return own.reply

    def _wait(self, own: _Waiting[Item, Reply]) -> None:
        try:
            own.woken.wait()
        except BaseException:
            with self._lock:
                if own in self._queue:
                    self._queue.remove(own)
                elif own.crew is not None:
                    self._queue.extendleft(reversed(own.crew[1:]))
                    self._land()
            raise

    def _fly(self, crew: list[_Waiting[Item, Reply]]) -> None:
        """Send what the own thread has to send, and hand the flight over to another thread."""
        try:
            for one, reply in zip(crew, self._send([one.item for one in crew]), strict=True):
                one.reply = reply
        finally:
            with self._lock:
                self._land()
            for one in crew[1:]:
                if one.reply is None:
                    one.reply = self._lost()
                one.woken.set()

    def _land(self) -> None:
        crew = _take(self._queue, self._bounds)
        if crew:
            crew[0].crew = crew
            crew[0].woken.set()
        else:
            self._flights -= 1


class AsyncCoalescer(Generic[Item, Reply]):
    """Gathers the items of the tasks of one event loop. A request is a task of its own: no caller can cancel it.

    Arguments:
        bounds: bounds of what is in flight.
        send: sends what was gathered, and returns one reply per item, in order.

    """

    def __init__(self, bounds: Bounds, send: Callable[[list[Item]], Awaitable[Sequence[Reply]]]) -> None:
        self._bounds = bounds
        self._send = send
        self._queue: deque[_Awaiting[Item, Reply]] = deque()
        self._flights: set[asyncio.Task[None] | None] = set()

    async def ask(self, key: str, item: Item, size: int) -> Reply:
        """Send an item, alone or with others, and return its reply. Two items with one key never leave together."""
        own: _Awaiting[Item, Reply] = _Awaiting(key, item, size, asyncio.get_running_loop().create_future())
        self._queue.append(own)
        if len(self._flights) < self._bounds.flights_max:
            flight = asyncio.create_task(self._fly())
            self._flights.add(flight)
        try:
            return await own.reply
        except asyncio.CancelledError:
            if own in self._queue:
                self._queue.remove(own)
            raise

    async def _fly(self) -> None:
        """Send what waits, until nothing does."""
        try:
            while crew := _take(self._queue, self._bounds):
                await self._carry(crew)
        finally:
            # Not in a callback, which would run after another task has found this flight taken.
            self._flights.remove(asyncio.current_task())

    async def _carry(self, crew: list[_Awaiting[Item, Reply]]) -> None:
        try:
            for one, reply in zip(crew, await self._send([one.item for one in crew]), strict=True):
                if not one.reply.done():
                    one.reply.set_result(reply)
        except BaseException as error:
            for one in crew:
                if not one.reply.done():
                    one.reply.set_exception(error)
            if not isinstance(error, Exception):
                raise
