"""A connection pool in which every connection is an httpx transport of its own.

The pool inside a transport scans all of its connections several times per request. With 64 connections, an event loop
spends more time on that than on the requests.
"""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from typing import Any, Generic, TypeVar
from weakref import WeakKeyDictionary

import httpx

IDLE_MAX_S = 5.0
"""How long an idle connection is kept."""

_EXHAUSTED = "no connection is free: raise `connections_max`, or close log readers, which have one each"

Transport = TypeVar("Transport", httpx.HTTPTransport, httpx.AsyncHTTPTransport)


class _Idle(Generic[Transport]):
    """Idle transports. The one that was used last is used next."""

    def __init__(self, make: Callable[[], Transport]) -> None:
        self._make: Callable[[], Transport] = make
        self._idle: deque[tuple[float, Transport]] = deque()

    def take(self) -> Transport:
        return self._idle.pop()[1] if self._idle else self._make()

    def give(self, transport: Transport) -> list[Transport]:
        """Take a transport back, and return those that have been idle for too long."""
        now = time.monotonic()
        self._idle.append((now, transport))
        return [self._idle.popleft()[1] for at, _ in list(self._idle) if at < now - IDLE_MAX_S]

    def drain(self) -> list[Transport]:
        return [self._idle.pop()[1] for _ in list(self._idle)]


def _wait_s(request: httpx.Request) -> float | None:
    timeout: float | None = request.extensions.get("timeout", {}).get("pool")
    return timeout


def _with(response: httpx.Response, body: httpx.SyncByteStream | httpx.AsyncByteStream) -> httpx.Response:
    return httpx.Response(response.status_code, headers=response.headers, stream=body, extensions=response.extensions)


class Pool(httpx.BaseTransport):
    """Connections of the blocking client."""

    def __init__(self, connections_max: int, make: Callable[[], httpx.HTTPTransport]) -> None:
        self._idle: _Idle[httpx.HTTPTransport] = _Idle(make)
        self._lock = threading.Lock()
        self._room = threading.Semaphore(connections_max)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over an idle connection."""
        if not self._room.acquire(timeout=_wait_s(request)):
            raise httpx.PoolTimeout(_EXHAUSTED, request=request)
        with self._lock:
            transport = self._idle.take()
        try:
            response = transport.handle_request(request)
        except BaseException:
            self._give(transport)
            raise
        return _with(response, _Body(response, lambda: self._give(transport)))

    def close(self) -> None:
        """Close the idle connections."""
        with self._lock:
            idle = self._idle.drain()
        for transport in idle:
            transport.close()

    def _give(self, transport: httpx.HTTPTransport) -> None:
        with self._lock:
            old = self._idle.give(transport)
        self._room.release()
        for one in old:
            one.close()


class _Body(httpx.SyncByteStream):
    """The body of a response, after which its connection is free."""

    def __init__(self, response: httpx.Response, free: Callable[[], None]) -> None:
        self._stream: Any = response.stream
        self._free: Callable[[], None] | None = free

    def __iter__(self) -> Iterator[bytes]:
        yield from self._stream

    def close(self) -> None:
        try:
            self._stream.close()
        finally:
            free, self._free = self._free, None
            if free is not None:
                free()


class AsyncPool(httpx.AsyncBaseTransport):
    """Connections of the asyncio client."""

    def __init__(self, connections_max: int, make: Callable[[], httpx.AsyncHTTPTransport]) -> None:
        self._idle: _Idle[httpx.AsyncHTTPTransport] = _Idle(make)
        self._room = asyncio.Semaphore(connections_max)
        self._sockets: WeakKeyDictionary[httpx.AsyncHTTPTransport, Any] = WeakKeyDictionary()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request over an idle connection."""
        if self._room.locked():
            try:
                await asyncio.wait_for(self._room.acquire(), _wait_s(request))
            except TimeoutError as error:
                raise httpx.PoolTimeout(_EXHAUSTED, request=request) from error
        else:
            await self._room.acquire()
        transport = self._idle.take()
        try:
            response = await transport.handle_async_request(request)
        except BaseException:
            await self._give(transport)
            raise
        self._sockets[transport] = response.extensions["network_stream"].get_extra_info("socket")
        return _with(response, _AsyncBody(response, transport, self._give))

    async def aclose(self) -> None:
        """Close the idle connections."""
        for transport in self._idle.drain():
            await transport.aclose()

    def abandon(self, *, is_shared: bool) -> None:
        """Abandon the idle connections when their event loop does not run.

        Connections shared with another process remain open there. Others are shut down.
        """
        for transport in self._idle.drain():
            connection = self._sockets.pop(transport, None)
            if connection is not None and not is_shared:
                with suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)

    async def _give(self, transport: httpx.AsyncHTTPTransport) -> None:
        old = self._idle.give(transport)
        self._room.release()
        for one in old:
            await one.aclose()


class _AsyncBody(httpx.AsyncByteStream):
    """The body of a response, after which its connection is free."""

    def __init__(self, response: httpx.Response, transport: Any, give: Callable[[Any], Any]) -> None:  # noqa: ANN401
        self._stream: Any = response.stream
        self._transport = transport
        self._give = give

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._stream:
            yield piece

    async def aclose(self) -> None:
        try:
            await self._stream.aclose()
        finally:
            transport, self._transport = self._transport, None
            if transport is not None:
                await self._give(transport)
