"""Ends the wait of a reader when another thread or task closes it or its client."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from .response_stream import AsyncResponseStream, ResponseStream

T = TypeVar("T")


class Stopped(Exception):
    """The reader was closed while it waited."""


class Stop:
    """Ends the waits of a thread; set by another one."""

    def __init__(self) -> None:
        self._set = threading.Event()
        self._lock = threading.Lock()
        self._waiting: Future[Any] | None = None

    @property
    def is_set(self) -> bool:
        """Whether the reader was closed."""
        return self._set.is_set()

    def set(self) -> None:
        """End the wait, and all later ones."""
        with self._lock:
            self._set.set()
            if self._waiting is not None and not self._waiting.done():
                self._waiting.set_exception(Stopped())

    def sleep(self, seconds: float) -> None:
        """Wait."""
        self._set.wait(seconds)

    def outcome_of(self, opening: Callable[[], T]) -> T:
        """Open a stream in a thread, which is abandoned if the reader is closed."""
        outcome: Future[T] = Future()
        with self._lock:
            if self._set.is_set():
                raise Stopped
            self._waiting = outcome

        def settle(settled: Callable[[], None]) -> bool:
            with self._lock:
                if outcome.done():
                    return False
                settled()
                return True

        def perform() -> None:
            try:
                opened = opening()
            except BaseException as error:
                raised = error
                settle(lambda: outcome.set_exception(raised))
                return
            if not settle(lambda: outcome.set_result(opened)) and isinstance(opened, ResponseStream):
                opened.close()

        # The thread must not keep the process alive.
        threading.Thread(target=perform, name="tribunal-log-open", daemon=True).start()
        try:
            return outcome.result()
        except BaseException:
            # For example a KeyboardInterrupt: a stream that opens later has no owner.
            late = not settle(lambda: outcome.set_exception(Stopped()))
            if late and outcome.exception() is None and isinstance(opened := outcome.result(), ResponseStream):
                opened.close()
            raise
        finally:
            # With the lock, so that `set` does not use a future that it has just found.
            with self._lock:
                self._waiting = None


class AsyncStop:
    """Ends the waits of a task; set by another one of the same event loop."""

    def __init__(self) -> None:
        self.is_set = False
        self._waiting: asyncio.Future[Any] | None = None

    def set(self) -> None:
        """End the wait, and all later ones."""
        self.is_set = True
        if self._waiting is not None:
            self._waiting.cancel()

    async def outcome_of(self, awaitable: Awaitable[T]) -> T:
        """Await the end of something, unless the reader is closed before."""
        waiting = asyncio.ensure_future(awaitable)
        self._waiting = waiting
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.done() and not waiting.cancelled() and waiting.exception() is None:
                # It ended together with the wait, and the opened stream has no owner.
                opened = waiting.result()
                if isinstance(opened, AsyncResponseStream):
                    await opened.close()
            current = asyncio.current_task()
            if self.is_set and (current is None or not current.cancelling()):
                raise Stopped from None
            raise
        finally:
            self._waiting = None
