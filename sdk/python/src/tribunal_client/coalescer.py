"""Limits how many requests are in flight; items that exceed the limit are queued and sent as one batch.

One class for threads, one for asyncio. They do not interpret items, and never retry one. While nothing is in flight, an
item is sent at once. A second request follows only if the first takes longer than the head start: one batch of all
queued items costs less than two, and its commits conflict less, because their callers know the outcomes of the
preceding batch. Callers wait for their own replies, so the requests of one session stay in order.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from threading import TIMEOUT_MAX
from typing import Any, Generic, Protocol, TypeVar

from .errors import Misuse

Reply = TypeVar("Reply")
One = TypeVar("One")

HEAD_START_S = 0.005
"""How long a request is in flight before another may follow: the longest time that a slow response delays an item."""

_QUEUEING_MAX_S = 0.005
"""Longest time that just-answered tasks get to queue their next items.

They need microseconds, unless others that never stop keep the queue growing.
"""

_RETURN_S = 0.0005
"""How long a thread waits for another just-answered caller to queue an item."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits on the requests of one group in flight."""

    in_flight_max: int
    """Requests in flight at the same time."""
    head_start_s: float
    """How long a request is in flight before another may follow."""
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

    @property
    def deadline(self) -> float:
        """Time at which its caller gives up, on the monotonic clock: `submit` then raises a `TimeoutError`."""


class Unanswered(TimeoutError):
    """The item was sent, but its caller gave up before the reply arrived. The request goes on for other callers."""


Item = TypeVar("Item", bound=Batchable)


@dataclass(eq=False, slots=True)
class _Entry(Generic[Item, Reply]):
    item: Item
    woken: threading.Condition
    """Notified when the thread has something to do."""
    reply: Reply | None = None
    error: Misuse | TimeoutError | None = None
    """Why there is no reply."""
    leads: bool = False
    """Whether this thread holds an in-flight place."""
    batch: list[_Entry[Item, Reply]] = field(default_factory=list)
    """The items that this thread sends."""

    @property
    def is_settled(self) -> bool:
        """Whether the thread has nothing to wait for."""
        return self.reply is not None or self.error is not None


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
    sent_at: float = 0.0
    """When the last request was sent."""

    def departs(self) -> None:
        """Count a request that is sent now."""
        self.in_flight += 1
        self.sent_at = time.monotonic()

    def wait_s(self, bounds: Bounds) -> float | None:
        """Return how long the next request has to wait; `None` if it waits until another one ends."""
        if self.in_flight == 0:
            return 0.0
        if self.in_flight == bounds.in_flight_max:
            return None
        return max(0.0, self.sent_at + bounds.head_start_s - time.monotonic())


@dataclass(eq=False, slots=True)
class _ThreadGroup(_Group[_Entry[Item, Reply]]):
    returning: int = 0
    """Callers that were just answered and have not queued another item since."""
    answered_at: float = 0.0


@dataclass(eq=False, slots=True)
class _TaskGroup(_Group[_AsyncEntry[Item, Reply]]):
    gathering: int = 0
    """Completed requests whose callers may be about to queue their next items. Nothing is sent while there are any."""
    timer: asyncio.TimerHandle | None = None
    """Fires when another request may follow."""


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

    As soon as a request may be sent, the thread that has waited longest takes an in-flight place and a batch of queued
    items. The thread of the batch that gives up last sends it; the others wait until their own deadlines. However that
    ends, it gives up the place, and the other callers of its batch get replies.

    Arguments:
        bounds: limits on requests in flight.
        send: sends a batch, and returns one reply per item, in order. Raises `Misuse` only if it has sent nothing.
        lost: makes the reply to an item whose sender was interrupted.

    """

    def __init__(
        self, bounds: Bounds, send: Callable[[list[Item]], Sequence[Reply]], lost: Callable[[], Reply]
    ) -> None:
        self._bounds = bounds
        self._send = send
        self._lost = lost
        # A lock that only its owner can release, so that an interrupted thread cannot release another thread's lock.
        self._lock = threading.RLock()
        self._groups: dict[str, _ThreadGroup[Item, Reply]] = {}
        """Groups with a request in flight, and the group that became idle last."""
        self._idle: str | None = None
        """Name of the idle group that is kept."""

    def submit(self, item: Item) -> Reply:
        """Send an item, by itself or in a batch, and return its reply."""
        own: _Entry[Item, Reply] = _Entry(item, threading.Condition(self._lock))
        with self._lock:
            group = self._enqueue(own)
        try:
            with self._lock:
                self._await_turn(group, own)
            if own.batch:
                for one, reply in zip(own.batch, self._send([one.item for one in own.batch]), strict=True):
                    one.reply = reply
        except Misuse as error:
            for one in own.batch:
                # One exception each: a raised one collects the traceback of its thread.
                one.error = Misuse(*error.args)
        finally:
            if own.leads or not own.is_settled:
                with self._lock:
                    self._leave(group, own)
        if own.error is not None:
            raise own.error
        assert own.reply is not None  # noqa: S101
        return own.reply

    def _enqueue(self, own: _Entry[Item, Reply]) -> _ThreadGroup[Item, Reply]:
        name = own.item.group
        group = self._groups.setdefault(name, _ThreadGroup(name))
        if self._idle == name:
            self._idle = None
        group.queue.append(own)
        if group.returning > 0:
            group.returning -= 1
            if group.returning == 0:
                self._wake_first(group)
        return group

    def _await_turn(self, group: _ThreadGroup[Item, Reply], own: _Entry[Item, Reply]) -> None:
        """Wait until this thread has a batch to send, or has its reply, or gives up."""
        while not own.is_settled and not own.batch:
            # Only the first in the queue waits for its turn by the clock.
            is_first = bool(group.queue) and group.queue[0] is own
            wait_s = group.wait_s(self._bounds) if is_first else None
            if wait_s == 0:
                group.departs()
                own.leads = True
                self._let_callers_queue(group, own)
                self._appoint_sender(group, own)
                continue
            if own.item.deadline < math.inf:
                left_s = own.item.deadline - time.monotonic()
                if left_s > 0:
                    wait_s = min(left_s, TIMEOUT_MAX if wait_s is None else wait_s)
                elif own in group.queue:
                    group.queue.remove(own)
                    own.error = TimeoutError()
                    self._wake_first(group)
                    break
                else:
                    own.error = Unanswered()
                    break
            self._wait(own, wait_s)

    def _appoint_sender(self, group: _ThreadGroup[Item, Reply], own: _Entry[Item, Reply]) -> None:
        """Take a batch, and give it and the in-flight place to the thread of the batch that gives up last."""
        batch = _take_batch(group.queue, self._bounds)
        sender = max(batch, key=lambda one: one.item.deadline)
        if sender is not own:
            own.leads, sender.leads = False, True
            sender.woken.notify()
        sender.batch = batch
        self._wake_first(group)

    def _let_callers_queue(self, group: _ThreadGroup[Item, Reply], own: _Entry[Item, Reply]) -> None:
        """Let just-answered callers queue their next items, so that the next batch includes them."""
        until = group.answered_at + self._bounds.head_start_s
        while group.returning > 0 and time.monotonic() < until:
            queued = len(group.queue)
            self._wait(own, _RETURN_S)
            if len(group.queue) == queued:
                break
        group.returning = 0

    def _wait(self, own: _Entry[Item, Reply], wait_s: float | None) -> None:
        """Release the lock and wait until the thread is woken."""
        try:
            own.woken.wait(wait_s)
        except BaseException:
            # A KeyboardInterrupt may have arrived before the thread reacquired the lock.
            lock: Any = self._lock
            if not lock._is_owned():
                lock.acquire()
            raise

    def _wake_first(self, group: _ThreadGroup[Item, Reply]) -> None:
        if group.queue:
            group.queue[0].woken.notify()

    def _leave(self, group: _ThreadGroup[Item, Reply], own: _Entry[Item, Reply]) -> None:
        """Give up the in-flight place, and hand out the replies."""
        if own in group.queue:
            group.queue.remove(own)
        for one in own.batch:
            if not one.is_settled and one is not own:
                one.reply = self._lost()
            one.woken.notify()
        if own.leads:
            group.in_flight -= 1
            group.returning = len(own.batch) if len(own.batch) > 1 else 0
            group.answered_at = time.monotonic()
        self._wake_first(group)
        if group.in_flight == 0 and not group.queue:
            if self._idle is not None:
                del self._groups[self._idle]
            self._idle = group.name


class AsyncCoalescer(Generic[Item, Reply]):
    """Coalesces the items of the tasks of one event loop. Sends from tasks of its own, which no caller can cancel.

    Arguments:
        bounds: limits on requests in flight.
        send: sends a batch, and returns one reply per item, in order.

    """

    def __init__(self, bounds: Bounds, send: Callable[[list[Item]], Awaitable[Sequence[Reply]]]) -> None:
        self._bounds = bounds
        self._send = send
        self._groups: dict[str, _TaskGroup[Item, Reply]] = {}
        """Groups with a request in flight."""
        self._tasks: set[asyncio.Task[None]] = set()
        """Kept here, because an event loop only has weak references to them."""

    async def submit(self, item: Item) -> Reply:
        """Send an item, by itself or in a batch, and return its reply."""
        own: _AsyncEntry[Item, Reply] = _AsyncEntry(item, asyncio.get_running_loop().create_future())
        group = self._groups.setdefault(item.group, _TaskGroup(item.group))
        group.queue.append(own)
        self._dispatch(group)
        timer: asyncio.TimerHandle | None = None
        if item.deadline < math.inf:
            left_s = item.deadline - time.monotonic()
            timer = asyncio.get_running_loop().call_later(left_s, self._expire, group, own)
        try:
            return await own.reply
        except asyncio.CancelledError:
            if own in group.queue:
                group.queue.remove(own)
            raise
        finally:
            if timer is not None:
                timer.cancel()

    def _expire(self, group: _TaskGroup[Item, Reply], own: _AsyncEntry[Item, Reply]) -> None:
        """Give up an item. If it was sent, the request goes on for the other callers of its batch."""
        if own.reply.done():
            return
        if own in group.queue:
            group.queue.remove(own)
            own.reply.set_exception(TimeoutError())
        else:
            own.reply.set_exception(Unanswered())

    def _dispatch(self, group: _TaskGroup[Item, Reply]) -> None:
        """Send the queued items as soon as a request may follow those in flight."""
        while group.queue and group.queue[0].reply.done():
            group.queue.popleft()
        wait_s = group.wait_s(self._bounds)
        if not group.queue or group.gathering > 0 or wait_s is None:
            return
        if wait_s > 0:
            if group.timer is None:
                group.timer = asyncio.get_running_loop().call_later(wait_s, self._timed, group)
            return
        group.departs()
        task = asyncio.create_task(self._send_next(group))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _timed(self, group: _TaskGroup[Item, Reply]) -> None:
        group.timer = None
        self._dispatch(group)

    async def _send_next(self, group: _TaskGroup[Item, Reply]) -> None:
        """Send a batch, then give up its in-flight place."""
        try:
            batch = _take_batch(group.queue, self._bounds)
            self._dispatch(group)
            if batch:
                await self._send_batch(batch)
            if len(batch) > 1:
                group.gathering += 1
                try:
                    await self._let_callers_queue(group)
                finally:
                    group.gathering -= 1
        finally:
            # Not in a done callback: until it runs, other tasks would still count this request as in flight.
            group.in_flight -= 1
            self._dispatch(group)
            if group.in_flight == 0:
                del self._groups[group.name]
                if group.timer is not None:
                    group.timer.cancel()

    async def _let_callers_queue(self, group: _TaskGroup[Item, Reply]) -> None:
        """Let just-answered callers queue their next items: yield until the queue no longer grows, or fills a batch."""
        queued = unchanged = 0
        until = time.monotonic() + _QUEUEING_MAX_S
        while unchanged < 2 and queued < self._bounds.items_max and time.monotonic() < until:
            await asyncio.sleep(0)
            unchanged = 0 if len(group.queue) > queued else unchanged + 1
            queued = len(group.queue)

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
