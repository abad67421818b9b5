"""Processes and event loops must not share a client: each has its own connections."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Callable

import pytest

from tribunal_client import AsyncClient, Client, Committed, Misuse


def in_child(work: Callable[[], object]) -> str:
    """Run work in a forked process, and return its result."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            result = repr(work())
        except BaseException as error:
            result = f"{type(error).__name__}: {error}"
        os.write(writer, result.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as pipe:
        result = pipe.read()
    os.waitpid(child, 0)
    return result


def put(client: Client, key: str) -> str:
    txn = client.begin_local()
    txn.put("kv", key, 1)
    assert isinstance(txn.commit(), Committed)
    return txn.id


def test_a_forked_process_does_not_use_the_connections_of_its_parent(url: str, prefix: str) -> None:
    with Client(url) as client:
        assert client.row("kv", prefix) is None
        for call in (
            lambda: client.row("kv", prefix),
            client.stores,
            lambda: client.run(lambda txn: txn.get("kv", prefix)),
        ):
            assert in_child(call).startswith("Misuse: the client was used before this process was forked")
        assert client.row("kv", prefix) is None
        assert in_child(client.close) == "None"
        assert client.row("kv", prefix) is None


def test_a_log_reader_of_the_parent_survives_a_fork(client: Client, prefix: str) -> None:
    put(client, prefix)
    log = client.log("kv", client.store("kv").head_lsn - 1)
    assert log.next(60) is not None
    assert log.next(0) is None, "a thread of the parent waits for the next record"
    assert in_child(lambda: log.next(0)).startswith("Misuse: the client was used before this process was forked")
    written = put(client, prefix)
    record = log.next(60)
    assert record is not None
    assert record.txn_id == written
    log.close()


def test_a_client_that_was_not_used_before_the_fork_can_be_used_after_it(url: str, prefix: str) -> None:
    with Client(url) as client:
        assert in_child(lambda: client.row("kv", prefix)) == "None"
        assert client.row("kv", prefix) is None


def test_each_event_loop_needs_a_client_of_its_own(url: str, prefix: str) -> None:
    client = AsyncClient(url)
    with Client(url) as blocking:
        put(blocking, prefix)
        log = client.log("kv", blocking.store("kv").head_lsn - 1)

    async def read() -> None:
        assert await client.row("kv", prefix) is not None
        assert await log.next(60) is not None

    asyncio.run(read())
    for again in (read, lambda: client.begin(["kv"]), lambda: log.next(0)):
        with pytest.raises(Misuse, match="another event loop: create and close one in each"):
            asyncio.run(again())


def test_a_client_is_closed_in_another_event_loop(url: str) -> None:
    async def fails(client: AsyncClient) -> None:
        async with client:
            raise ValueError("the original error")

    client = AsyncClient(url)
    asyncio.run(client.stores())
    [(_, transport)] = client._pool._idle._idle
    connection = client._pool._sockets[transport]
    with pytest.raises(ValueError, match="the original error"):
        asyncio.run(fails(client))
    with connection.dup() as ended:
        ended.settimeout(60)
        assert ended.recv(1) == b"", "the connection has ended"
    assert not client._pool._idle._idle
    with pytest.raises(Misuse):
        asyncio.run(client.stores())


def test_a_client_is_closed_while_its_event_loop_runs_in_another_thread(url: str) -> None:
    client = AsyncClient(url)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(client.stores(), loop).result(30)
    asyncio.run(client.close())
    assert not client._pool._idle._idle
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def test_close_does_not_bind_a_client_to_its_event_loop(url: str) -> None:
    client = AsyncClient(url)
    asyncio.run(client.close())
    for _ in range(2):
        asyncio.run(client.close())
    with pytest.raises(Misuse, match="the client is closed"):
        asyncio.run(client.stores())


def test_a_forked_process_that_continues_the_event_loop_needs_a_client_of_its_own(url: str) -> None:
    client = AsyncClient(url)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(client.stores())
    found = in_child(lambda: loop.run_until_complete(client.stores()))
    assert found.startswith("Misuse: the client was used before this process was forked")
    assert in_child(lambda: loop.run_until_complete(client.close())) == "None"
    loop.run_until_complete(client.stores())
    assert len(client._pool._sockets) == 1, "the connection is still open"
    loop.run_until_complete(client.close())
    loop.close()


def test_a_lock_that_was_held_at_the_fork_does_not_stop_the_child(url: str) -> None:
    def call() -> object:
        signal.alarm(60)
        return client.stores()

    with Client(url) as client:
        client.stores()
        with client._service._endpoints._lock:
            assert in_child(call).startswith("Misuse: the client was used before this process was forked")
