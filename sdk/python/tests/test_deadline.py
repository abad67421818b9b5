"""A trickling response ends at the timeout, although each piece of it arrives in time."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from tribunal_client import AsyncClient, Client, Unavailable

BODY = b'{"stores":[]}'
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY)
PAUSE_S = 0.1


@pytest.fixture(params=[0, len(HEAD)], ids=["head", "body"])
def trickling(request: pytest.FixtureRequest) -> Iterator[str]:
    """A service that sends its response byte by byte, from some byte on."""
    server = socket.create_server(("127.0.0.1", 0))
    stopped = threading.Event()

    def respond(connection: socket.socket) -> None:
        with connection:
            connection.recv(65_536)
            connection.sendall(HEAD[: request.param])
            for at in range(request.param, len(HEAD + BODY)):
                if stopped.wait(PAUSE_S):
                    return
                try:
                    connection.sendall((HEAD + BODY)[at : at + 1])
                except OSError:
                    return

    def accept() -> None:
        while not stopped.is_set():
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=respond, args=[connection], daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    yield f"http://127.0.0.1:{server.getsockname()[1]}"
    stopped.set()
    server.close()


def test_a_response_that_trickles_ends_at_the_timeout(trickling: str) -> None:
    begun = time.monotonic()
    with (
        Client(trickling, timeout_s=0.4) as client,
        pytest.raises(Unavailable, match=r"not ended within|timed out"),
    ):
        client.stores()
    assert time.monotonic() - begun < len(BODY) * PAUSE_S


def test_a_response_that_trickles_ends_at_the_timeout_on_an_event_loop(trickling: str) -> None:
    async def ask() -> None:
        async with AsyncClient(trickling, timeout_s=0.4) as client:
            await client.stores()

    begun = time.monotonic()
    with pytest.raises(Unavailable):
        asyncio.run(ask())
    assert time.monotonic() - begun < len(BODY) * PAUSE_S


def test_a_response_that_is_slow_arrives_within_the_timeout(trickling: str) -> None:
    with Client(trickling, timeout_s=60) as client:
        assert client.stores() == []


def test_a_stream_may_last_longer_than_the_timeout(client: Client, prefix: str, url: str) -> None:
    with Client(url, timeout_s=0.5) as follower, follower.log("kv", client.store("kv").head_lsn) as log:
        assert log.next(0.8) is None
        txn = client.begin_local()
        txn.put("kv", prefix + "a", 1)
        txn.commit()
        assert log.next(5) is not None
