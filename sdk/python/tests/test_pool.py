"""Connections: their number, their reuse, and their release at the end of a response."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler

import httpx
import pytest

from tribunal_client import AsyncClient, Client, Unavailable
from tribunal_client.pool import IDLE_MAX_S, AsyncPool, Pool, _Idle

from .crowds import CrowdServer

ONE = httpx.Limits(max_connections=1, max_keepalive_connections=1)


class Service:
    """Answers with the number of the connection; holds back answers to `/held` until the test releases them."""

    def __init__(self) -> None:
        self.ports: list[int] = []
        self.held = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                port = self.client_address[1]
                if port not in service.ports:
                    service.ports.append(port)
                if self.path == "/held":
                    service.held.wait(30)
                data = str(service.ports.index(port)).encode()
                self.send_response(200)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = CrowdServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self.held.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def service() -> Iterator[Service]:
    service = Service()
    yield service
    service.stop()


def test_a_connection_is_used_again_and_their_number_is_bounded(service: Service) -> None:
    pool = Pool(2, lambda: httpx.HTTPTransport(limits=ONE, trust_env=False))
    with httpx.Client(transport=pool, base_url=service.url, timeout=20) as client:
        assert [client.get("/").text for _ in range(3)] == ["0", "0", "0"]
        with client.stream("GET", "/") as first, client.stream("GET", "/"):
            # Both connections are in use until their responses are closed.
            with pytest.raises(httpx.PoolTimeout, match="close log readers"):
                client.get("/", timeout=httpx.Timeout(20, pool=0.05))
            first.read()
        assert client.get("/").status_code == 200
        with pytest.raises(httpx.ReadTimeout):
            client.get("/held", timeout=httpx.Timeout(0.05, pool=20))
        service.held.set()
        assert [client.get("/").status_code for _ in range(3)] == [200] * 3
    assert len(service.ports) <= 4, "only those that were given up are replaced"


def test_the_pool_for_asyncio_does_the_same(service: Service) -> None:
    async def main() -> None:
        pool = AsyncPool(2, lambda: httpx.AsyncHTTPTransport(limits=ONE, trust_env=False))
        async with httpx.AsyncClient(transport=pool, base_url=service.url, timeout=20) as client:
            assert [(await client.get("/")).text for _ in range(3)] == ["0", "0", "0"]
            async with client.stream("GET", "/") as first, client.stream("GET", "/"):
                with pytest.raises(httpx.PoolTimeout, match="close log readers"):
                    await client.get("/", timeout=httpx.Timeout(20, pool=0.05))
                await first.aread()
            # A cancelled request frees its connection.
            gone = asyncio.create_task(client.get("/held"))
            await asyncio.sleep(0.05)
            gone.cancel()
            with pytest.raises(asyncio.CancelledError):
                await gone
            service.held.set()
            both = await asyncio.gather(*(client.get("/") for _ in range(20)))
            assert {one.status_code for one in both} == {200}
        assert len(service.ports) <= 4, "only those that were given up are replaced"

    asyncio.run(main())


def test_connections_that_were_not_used_for_long_are_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    idle: _Idle[httpx.HTTPTransport] = _Idle(httpx.HTTPTransport)
    first, second = idle.take(), idle.take()
    assert idle.give(first) == []
    now = IDLE_MAX_S + 1
    assert idle.give(second) == [first]
    assert idle.take() is second
    assert idle.drain() == []


def test_an_endpoint_has_not_failed_if_all_connections_are_in_use(client: Client, url: str, prefix: str) -> None:
    endpoints = [url, "http://127.0.0.1:1"]
    txn = client.begin_local()
    txn.put("kv", prefix, 1)
    txn.commit()

    async def tasks() -> None:
        async with AsyncClient(endpoints, connections_max=1, endpoint_timeout_s=20) as client:
            async with client.log("kv") as log:
                assert await log.next() is not None
                client._service._timeout_s = 0.2  # The normal timeout, until all connections are in use.
                with pytest.raises(Unavailable, match="close log readers"):
                    await client.stores()
            assert client._service._endpoints._failed_at == [None, None]

    with Client(endpoints, connections_max=1, endpoint_timeout_s=20) as one:
        with one.log("kv") as log:
            assert log.next() is not None
            one._service._timeout_s = 0.2
            with pytest.raises(Unavailable, match="close log readers"):
                one.stores()
        assert one._service._endpoints._failed_at == [None, None]
    asyncio.run(tasks())
