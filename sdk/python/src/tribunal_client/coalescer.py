"""Limits how many requests are in flight; items that exceed the limit are queued and sent as one batch.

One class for threads, one for asyncio. They do not interpret items, and never retry one. There is no timer: below the
limit an item is sent at once, by itself. Callers wait for their own replies, so the requests of one session stay in
order.
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
    """Limits on requests in flight."""

    in_flight_max: int
    """Requests in flight at the same time."""
    items_max: int
    """Items in one request."""
    bytes_max: int
    """Bytes in one request."""


@dataclass(eq=False, slots=True)
class _Entry(Generic[Item, Reply]):
    key: str
    item: Item
    size: int
    reply: Reply | None = None
    batch: list[_Entry[Item, Reply]] | None = None
    """The batch that this thread must send, its own item first; `None` if another thread sends the item."""
    woken: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False, slots=True)
class _AsyncEntry(Generic[Item, Reply]):
    key: str
    item: Item
    size: int
    reply: asyncio.Future[Reply]


Queued = TypeVar("Queued", _Entry, _AsyncEntry)  # type: ignore[type-arg]


def _take_batch(queue: deque[Queued], bounds: Bounds) -> list[Queued]:
    """Take the next batch off the queue: the oldest items, within the bounds, each key once."""
    batch: list[Queued] = []
    rest: list[Queued] = []
    keys: set[str] = set()
    size = 0
    while queue and len(batch) < bounds.items_max and (not batch or size + queue[0].size <= bounds.bytes_max):
        one = queue.popleft()
        if one.key in keys:
            rest.append(one)
            continue
        keys.add(one.key)
        batch.append(one)
        size += one.size
    queue.extendleft(reversed(rest))
    return batch


class Coalescer(Generic[Item, Reply]):
    """Coalesces the items of threads. Has no thread of its own: batches are sent by the callers' threads.

    Arguments:
        bounds: limits on requests in flight.
        send: sends a batch, and returns one reply per item, in order.
        lost: makes the reply to an item whose sender was interrupted.

    """

    def __init__(
        self, bounds: Bounds, send: Callable[[list[Item]], Sequence[Reply]], lost: Callable[[], Reply]
    ) -> None:
        self._bounds = bounds
        self._send = send
        self._lost = lost
        self._lock = threading.Lock()
        self._queue: deque[_Entry[Item, Reply]] = deque()
        self._in_flight = 0

    def submit(self, key: str, item: Item, size: int) -> Reply:
        """Send an item, by itself or in a batch, and return its reply. A batch never has the same key twice."""
        own: _Entry[Item, Reply] = _Entry(key, item, size)
        with self._lock:
            if self._in_flight < self._bounds.in_flight_max:
                self._in_flight += 1
                own.batch = [own]
            else:
                self._queue.append(own)
        if own.batch is None:
            self._wait(own)
        if own.batch is not None:
            self._send_batch(own.batch)
        assert own.reply is not None  # noqa: S101
        return own.reply

    def _wait(self, own: _Entry[Item, Reply]) -> None:
        try:
            own.woken.wait()
        except BaseException:
            with self._lock:
                if own in self._queue:
                    self._queue.remove(own)
                elif own.batch is not None:
                    self._queue.extendleft(reversed(own.batch[1:]))
                    self._release()
            raise

    def _send_batch(self, batch: list[_Entry[Item, Reply]]) -> None:
        """Send a batch, then hand its place among the requests in flight over to the next thread."""
        try:
            for one, reply in zip(batch, self._send([one.item for one in batch]), strict=True):
                one.reply = reply
        finally:
            with self._lock:
                self._release()
            for one in batch[1:]:
                if one.reply is None:
                    one.reply = self._lost()
                one.woken.set()

    def _release(self) -> None:
        batch = _take_batch(self._queue, self._bounds)
        if batch:
            batch[0].batch = batch
            batch[0].woken.set()
        else:
            self._in_flight -= 1


class AsyncCoalescer(Generic[Item, Reply]):
    """Coalesces the items of the tasks of one event loop. Sends from tasks of its own, which no caller can cancel.

    Arguments:
        bounds: limits on requests in flight.
        send: sends a batch, and returns one reply per item, in order.

    """

    def __init__(self, bounds: Bounds, send: Callable[[list[Item]], Awaitable[Sequence[Reply]]]) -> None:
        self._bounds = bounds
        self._send = send
        self._queue: deque[_AsyncEntry[Item, Reply]] = deque()
        self._in_flight: set[asyncio.Task[None] | None] = set()

    async def submit(self, key: str, item: Item, size: int) -> Reply:
        """Send an item, by itself or in a batch, and return its reply. A batch never has the same key twice."""
        own: _AsyncEntry[Item, Reply] = _AsyncEntry(key, item, size, asyncio.get_running_loop().create_future())
        self._queue.append(own)
        if len(self._in_flight) < self._bounds.in_flight_max:
            self._in_flight.add(asyncio.create_task(self._drain()))
        try:
            return await own.reply
        except asyncio.CancelledError:
            if own in self._queue:
                self._queue.remove(own)
            raise

    async def _drain(self) -> None:
        """Send batches until the queue is empty."""
        try:
            while batch := _take_batch(self._queue, self._bounds):
                await self._send_batch(batch)
        finally:
            # Not in a done callback: until it ran, other tasks would still count this one as in flight.
            self._in_flight.remove(asyncio.current_task())

    async def _send_batch(self, batch: list[_AsyncEntry[Item, Reply]]) -> None:
        try:
            for one, reply in zip(batch, await self._send([one.item for one in batch]), strict=True):
                if not one.reply.done():
                    one.reply.set_result(reply)
        except BaseException as error:
            for one in batch:
                if not one.reply.done():
                    one.reply.set_exception(error)
            if not isinstance(error, Exception):
                raise
