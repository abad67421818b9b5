"""Connections whose requests end at a deadline.

httpx bounds each read and write separately, so a trickling response would never end. Here each step gets the time left
for the whole exchange: connection, request and response.
"""

from __future__ import annotations

import math
import time
from typing import TYPE_CHECKING, Any

import httpcore
import httpx

if TYPE_CHECKING:
    import ssl
    from collections.abc import Iterable

DEADLINE = "tribunal_deadline"
"""Name of the request extension that contains the `Deadline`."""


class Deadline:
    """Time by which a request must end. Its timeout starts when the request gets a connection."""

    def __init__(self, timeout_s: float, until: float = math.inf) -> None:
        self._timeout_s = timeout_s
        self._at_most = until
        self._started_at = math.inf
        self._until: float | None = None

    @property
    def elapsed_s(self) -> float:
        """How long ago the timeout started; 0 if it did not."""
        return max(0.0, time.monotonic() - self._started_at)

    def start(self) -> None:
        """Start the timeout."""
        self._started_at = time.monotonic()
        self._until = min(self._started_at + self._timeout_s, self._at_most)

    def lift(self) -> None:
        """Lift the deadline for the rest of the response."""
        self._until = None

    def end_at(self, until: float | None) -> None:
        """Move the deadline to a time; `None` or infinity lifts it."""
        self._until = until if until is not None and until < math.inf else None

    def within(self, timeout_s: float | None, error: type[httpcore.TimeoutException]) -> float | None:
        """Return how long one step may take; raise the error if no time is left."""
        if self._until is None:
            return timeout_s
        left_s = self._until - time.monotonic()
        if left_s <= 0:
            raise error(f"the request has not ended within {self._timeout_s:g} s")
        return left_s if timeout_s is None else min(timeout_s, left_s)


class _Current:
    """The deadline of a connection's current request."""

    def __init__(self) -> None:
        self.deadline: Deadline | None = None

    def within(self, timeout_s: float | None, error: type[httpcore.TimeoutException]) -> float | None:
        return timeout_s if self.deadline is None else self.deadline.within(timeout_s, error)


def deadline_of(request: httpx.Request) -> Deadline | None:
    """Return the deadline of a request, if it has one."""
    deadline: Deadline | None = request.extensions.get(DEADLINE)
    return deadline


def started(request: httpx.Request) -> Deadline | None:
    """Start the timeout of a request, if it has a deadline."""
    deadline = deadline_of(request)
    if deadline is not None:
        deadline.start()
    return deadline


class Connection(httpx.HTTPTransport):
    """A connection of the blocking client."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._current = _Current()
        # The only way to replace the network backend without replacing the rest of the transport.
        pool: Any = self._pool
        pool._network_backend = _Network(pool._network_backend, self._current)

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        self._current.deadline = started(request)
        return super().handle_request(request)


class AsyncConnection(httpx.AsyncHTTPTransport):
    """A connection of the asyncio client."""

    def __init__(self, **options: Any) -> None:  # noqa: ANN401
        super().__init__(**options)
        self._current = _Current()
        pool: Any = self._pool
        pool._network_backend = _AsyncNetwork(pool._network_backend, self._current)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request."""
        self._current.deadline = started(request)
        return await super().handle_async_request(request)


class _Network(httpcore.NetworkBackend):
    def __init__(self, inner: httpcore.NetworkBackend, current: _Current) -> None:
        self._inner = inner
        self._current = current

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.NetworkStream:
        timeout = self._current.within(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.connect_tcp(host, port, timeout, local_address, socket_options), self._current)


class _Stream(httpcore.NetworkStream):
    def __init__(self, inner: httpcore.NetworkStream, current: _Current) -> None:
        self._inner = inner
        self._current = current

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return self._inner.read(max_bytes, self._current.within(timeout, httpcore.ReadTimeout))

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        self._inner.write(buffer, self._current.within(timeout, httpcore.WriteTimeout))

    def close(self) -> None:
        self._inner.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        timeout = self._current.within(timeout, httpcore.ConnectTimeout)
        return _Stream(self._inner.start_tls(ssl_context, server_hostname, timeout), self._current)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401
        return self._inner.get_extra_info(info)


class _AsyncNetwork(httpcore.AsyncNetworkBackend):
    def __init__(self, inner: httpcore.AsyncNetworkBackend, current: _Current) -> None:
        self._inner = inner
        self._current = current

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        timeout = self._current.within(timeout, httpcore.ConnectTimeout)
        inner = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return _AsyncStream(inner, self._current)


class _AsyncStream(httpcore.AsyncNetworkStream):
    def __init__(self, inner: httpcore.AsyncNetworkStream, current: _Current) -> None:
        self._inner = inner
        self._current = current

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        return await self._inner.read(max_bytes, self._current.within(timeout, httpcore.ReadTimeout))

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        await self._inner.write(buffer, self._current.within(timeout, httpcore.WriteTimeout))

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.AsyncNetworkStream:
        timeout = self._current.within(timeout, httpcore.ConnectTimeout)
        return _AsyncStream(await self._inner.start_tls(ssl_context, server_hostname, timeout), self._current)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401
        return self._inner.get_extra_info(info)
