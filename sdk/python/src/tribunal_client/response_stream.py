"""A response that is read as it arrives, one piece at a time, with a bounded wait per piece.

httpx cannot continue after an interrupted read. A read that may have to end before its piece arrives is therefore made
by a thread or task, and left to the next call.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from concurrent.futures import Future, wait
from contextlib import suppress
from typing import Any

import httpx

from .deadline import Deadline
from .exchange import NoReply

_POLL_S = 0.005
"""Shortest wait. A piece that is already in the socket is found within it."""


_SILENT = NoReply("nothing has arrived in time", never_sent=False)
_CLOSED = NoReply("closed", never_sent=False)


def _bound(wait_s: float | None, until: float) -> float | None:
    """Return how long to wait for a piece."""
    bound = max(0.0, until - time.monotonic()) if wait_s is None else max(wait_s, _POLL_S)
    return None if bound >= threading.TIMEOUT_MAX else bound


def may_be_silent(request: httpx.Request, silence_s: float) -> None:
    """Bound the silence of a response that has begun. The wait for its beginning is that of any other response."""
    request.extensions["timeout"]["read"] = silence_s


class ResponseStream:
    """A response of the blocking client. Not shared by threads."""

    def __init__(self, response: httpx.Response, deadline: Deadline) -> None:
        self._response = response
        self._deadline = deadline
        self._pieces = response.iter_bytes()
        self._pending: Future[bytes | NoReply] | None = None

    def pull(self, wait_s: float | None, until: float) -> bytes | NoReply | None:
        """Return some bytes, none at the end; `None` if nothing arrives in time."""
        if self._pending is None:
            if wait_s is None:
                self._deadline.end_at(until)
                return self._read()
            self._deadline.lift()
            self._pending = _in_thread(self)
        pending = self._pending
        wait([pending], _bound(wait_s, until))
        if not pending.done():
            return _SILENT if wait_s is None else None
        self._pending = None
        return pending.result()

    def close(self) -> None:
        """End the response."""
        if self._pending is not None:
            self.interrupt()
            wait([self._pending])
            self._pending = None
        self._response.close()

    def interrupt(self) -> None:
        """End a read in progress. Closing a socket does not wake a thread that reads from it."""
        connection: Any = self._response.extensions["network_stream"]
        with suppress(OSError, AttributeError):
            # Not `SSLSocket.shutdown`, which changes the object that the thread uses.
            socket.socket.shutdown(connection.get_extra_info("socket"), socket.SHUT_RDWR)

    def _read(self) -> bytes | NoReply:
        try:
            return next(self._pieces, b"")
        except (httpx.TransportError, httpx.StreamError) as lost:
            return _lost(lost)


def _in_thread(stream: ResponseStream) -> Future[bytes | NoReply]:
    pending: Future[bytes | NoReply] = Future()

    def read() -> None:
        try:
            pending.set_result(stream._read())
        except BaseException as error:
            pending.set_exception(error)

    # A reader that was not closed must not keep the process alive.
    threading.Thread(target=read, name="tribunal-log", daemon=True).start()
    return pending


class AsyncResponseStream:
    """A response of the asyncio client."""

    def __init__(self, response: httpx.Response) -> None:
        self._response = response
        self._pieces = response.aiter_bytes()
        self._pending: asyncio.Task[bytes | NoReply] | None = None

    async def pull(self, wait_s: float | None, until: float) -> bytes | NoReply | None:
        """Return some bytes, none at the end; `None` if nothing arrives in time.

        Reading can continue after a cancellation, too.
        """
        if self._pending is None:
            self._pending = asyncio.create_task(self._read())
        pending = self._pending
        await asyncio.wait([pending], timeout=_bound(wait_s, until))
        if not pending.done():
            return _SILENT if wait_s is None else None
        self._pending = None
        return _CLOSED if pending.cancelled() else pending.result()

    def interrupt(self) -> None:
        """End a read in progress."""
        if self._pending is not None:
            self._pending.cancel()

    async def close(self) -> None:
        """End the response."""
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)
            self._pending = None
        await self._response.aclose()

    async def _read(self) -> bytes | NoReply:
        try:
            return await anext(self._pieces, b"")
        except (httpx.TransportError, httpx.StreamError) as lost:
            return _lost(lost)


def _lost(error: Exception) -> NoReply:
    return NoReply(str(error) or type(error).__name__, never_sent=False)
