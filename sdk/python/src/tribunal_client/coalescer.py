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
from typing import Generic, Protocol, TypeVar

Reply = TypeVar("Reply")
One = TypeVar("One")


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the requests of one group in flight."""

    in_flight_max: int
    """Requests in flight at the same time."""
    items_max: int
    """Items in one request."""
    bytes_max: int
    """Bytes in one request."""


class Batchable(Protocol):
    """An item that can share a request with others."""

    @property
    def group(self) -> str:
        """Only items of the same group share a request. Each group has a queue and limits of its own."""

    @property
    def key(self) -> str | None:
        """Two items with the same key are never put into the same batch."""

    @property
    def size(self) -> int:
        """Bytes that the item takes up in a request."""


Item = TypeVar("Item", bound=Batchable)


@dataclass(eq=False, slots=True)
class _Entry(Generic[Item, Reply]):
    item: Item
    reply: Reply | None = None
    batch: list[_Entry[Item, Reply]] | None = None
    """The batch that this thread must send, its own item first; `None` if another thread sends the item."""
    woken: threading.Event = field(default_factory=threading.Event)


@dataclass(eq=False, slots=True)
class _AsyncEntry(Generic[Item, Reply]):
    item: Item
    reply: asyncio.Future[Reply]


Queued = TypeVar("Queued", _Entry, _AsyncEntry)  # type: ignore[type-arg]


@dataclass(eq=False, slots=True)
class _Group(Generic[One]):
    name: str
    queue: deque[One] = field(default_factory=deque)
    in_flight: int = 0


def _take_batch(queue: deque[Queued], bounds: Bounds) -> list[Queued]:
    """Take the next batch off the queue: the oldest items, within the bounds, each key once."""
    batch: list[Queued] = []
    rest: list[Queued] = []
    keys: set[str] = set()
    size = 0
    while queue and len(batch) < bounds.items_max and (not batch or size + queue[0].item.size <= bounds.bytes_max):
        one = queue.popleft()
        key = one.item.key
        if key is not None and key in keys:
            rest.append(one)
            continue
        if key is not None:
            keys.add(key)
        batch.append(one)
        size += one.item.size
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
        self._groups: dict[str, _Group[_Entry[Item, Reply]]] = {}
        """Groups with a request in flight."""

    def submit(self, item: Item) -> Reply:
        """Send an item, by itself or in a batch, and return its reply."""
        own: _Entry[Item, Reply] = _Entry(item)
        with self._lock:
            group = self._groups.setdefault(item.group, _Group(item.group))
            if group.in_flight < self._bounds.in_flight_max:
                group.in_flight += 1
                own.batch = [own]
            else:
                group.queue.append(own)
        if own.batch is None:
            self._wait(group, own)
        if own.batch is not None:
            self._send_batch(group, own.batch)
        assert own.reply is not None  # noqa: S101
        return own.reply

    def _wait(self, group: _Group[_Entry[Item, Reply]], own: _Entry[Item, Reply]) -> None:
        try:
            own.woken.wait()
        except BaseException:
            with self._lock:
                if own in group.queue:
                    group.queue.remove(own)
                elif own.batch is not None:
                    group.queue.extendleft(reversed(own.batch[1:]))
                    self._release(group)
            raise

    def _send_batch(self, group: _Group[_Entry[Item, Reply]], batch: list[_Entry[Item, Reply]]) -> None:
        """Send a batch, then hand its place among the requests in flight over to the next thread."""
        try:
            for one, reply in zip(batch, self._send([one.item for one in batch]), strict=True):
                one.reply = reply
        finally:
            with self._lock:
                self._release(group)
            for one in batch[1:]:
                if one.reply is None:
                    one.reply = self._lost()
                one.woken.set()

    def _release(self, group: _Group[_Entry[Item, Reply]]) -> None:
        batch = _take_batch(group.queue, self._bounds)
        if batch:
            batch[0].batch = batch
            batch[0].woken.set()
            return
        group.in_flight -= 1
        if group.in_flight == 0:
            del self._groups[group.name]


class AsyncCoalescer(Generic[Item, Reply]):
    """Coalesces the items of the tasks of one event loop. Sends from tasks of its own, which no caller can cancel.

    Arguments:
        bounds: limits on requests in flight.
        send: sends a batch, and returns one reply per item, in order.

    """

    def __init__(self, bounds: Bounds, send: Callable[[list[Item]], Awaitable[Sequence[Reply]]]) -> None:
        self._bounds = bounds
        self._send = send
        self._groups: dict[str, _Group[_AsyncEntry[Item, Reply]]] = {}
        """Groups with a request in flight."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Kept here, because an event loop only has weak references to them."""

    async def submit(self, item: Item) -> Reply:
        """Send an item, by itself or in a batch, and return its reply."""
        own: _AsyncEntry[Item, Reply] = _AsyncEntry(item, asyncio.get_running_loop().create_future())
        group = self._groups.setdefault(item.group, _Group(item.group))
        group.queue.append(own)
        if group.in_flight < self._bounds.in_flight_max:
            group.in_flight += 1
            task = asyncio.create_task(self._drain(group))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        try:
            return await own.reply
        except asyncio.CancelledError:
            if own in group.queue:
                group.queue.remove(own)
            raise

    async def _drain(self, group: _Group[_AsyncEntry[Item, Reply]]) -> None:
        """Send batches until the queue is empty."""
        try:
            while batch := _take_batch(group.queue, self._bounds):
                await self._send_batch(batch)
        finally:
            # Not in a done callback: until it ran, other tasks would still count this one as in flight.
            group.in_flight -= 1
            if group.in_flight == 0:
                del self._groups[group.name]

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
