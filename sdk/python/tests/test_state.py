"""State images: copies of a store from its state and the following log."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tribunal_client import (
    AsyncClient,
    Client,
    ClientMistake,
    Key,
    LogRecord,
    Misuse,
    RetryPolicy,
    Row,
    ServerMisbehaved,
    Unavailable,
)

from .holding import problem
from .test_log_stream import LOG, LogService, Script

COMMITS = 150


@pytest.fixture
def store(client: Client) -> str:
    """A store of the test's own, with some rows."""
    store = f"state-{uuid.uuid4().hex[:12]}"
    client.declare_store(store, {"adaptor": "kv"})
    for number in range(20):
        txn = client.begin_local()
        for at in range(100):
            txn.put(store, f"{number}/{at}", {"number": at})
        txn.put(store, b"\xff" + bytes([number]), {"$b64": "AAE="})
        txn.put(store, f"n/{number}", 0)
        txn.commit()
    return store


def write(client: Client, store: str) -> None:
    for number in range(COMMITS):
        txn = client.begin_local()
        txn.put(store, f"{number % 20}/{number}", {"again": number})
        txn.add(store, f"n/{number % 20}", number)
        if number % 3 == 0:
            txn.put(store, f"deleted/{number}", 1)
        elif number % 3 == 1:
            txn.delete(store, f"deleted/{number - 1}")
        txn.commit()


def apply(copy: dict[Key, Any], record: LogRecord) -> None:
    for one in record.writes:
        if one.op == "delete":
            del copy[one.key]
        elif one.op == "add":
            copy[one.key] += one.value
        else:
            copy[one.key] = one.value


def stored(client: Client, store: str) -> dict[Key, Any]:
    page = client.rows(store, limit=10_000)
    assert not page.more
    return {row.key: row.value for row in page.rows}


def test_a_copy_from_the_state_and_the_log_is_that_of_the_store(client: Client, store: str) -> None:
    writing = threading.Thread(target=write, args=(client, store))
    writing.start()
    copies = []
    for _ in range(5):
        with client.state(store) as image:
            assert (image.store, image.kind) == (store, "rows")
            copies.append(({row.key: row.value for row in image}, image.lsn, image.log))
    writing.join()
    expected = stored(client, store)
    for copy, lsn, log in copies:
        for record in client.log(store, after=lsn, log=log, follow=False):
            apply(copy, record)
        assert copy == expected


def test_the_asyncio_client_copies_as_the_blocking_one(client: Client, url: str, store: str) -> None:
    async def main() -> None:
        writing = asyncio.create_task(asyncio.to_thread(write, client, store))
        async with AsyncClient(url) as tasks:
            async with await tasks.state(store) as image:
                copy = {row.key: row.value async for row in image}
            await writing
            async for record in tasks.log(store, after=image.lsn, log=image.log, follow=False):
                apply(copy, record)
        assert copy == stored(client, store)

    asyncio.run(main())


def test_a_store_that_does_not_exist_has_no_state(client: Client, url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as tasks:
            with pytest.raises(ClientMistake, match="unknown_store"):
                await tasks.state("none")

    with pytest.raises(ClientMistake, match="unknown_store"):
        client.state("none")
    asyncio.run(main())


def test_an_image_that_is_left_frees_its_connection(url: str, store: str) -> None:
    with Client(url, connections_max=1, timeout_s=5) as client:
        for _ in client.state(store):
            break
        assert client.stores()
        image = client.state(store)
        image.close()
        assert client.stores()
        with pytest.raises(Misuse, match="closed, or was read already"):
            list(image)
        image = client.state(store)
    with pytest.raises(Misuse, match="closed"):
        list(image)


HEAD = json.dumps({"event": "state", "store": "kv", "kind": "rows", "log": LOG, "lsn": "7"}) + "\n"
ROWS = "".join(json.dumps({"key": key, "value": key, "version": "8"}) + "\n" for key in "abc")
END = json.dumps({"event": "end", "rows": "3"}) + "\n"
FAILED = json.dumps({"event": "failed", "problem": problem(503, "unavailable")}) + "\n"

Read = Callable[[str], list[Row]]


def read_blocking(url: str) -> list[Row]:
    with Client(url, retry=RetryPolicy(attempts_max=3)) as client:
        image = client.state("kv")
        assert (image.lsn, image.log) == (7, LOG)
        return list(image)


def read_asyncio(url: str) -> list[Row]:
    async def main() -> list[Row]:
        async with AsyncClient(url, retry=RetryPolicy(attempts_max=3)) as client:
            image = await client.state("kv")
            assert (image.lsn, image.log) == (7, LOG)
            return [row async for row in image]

    return asyncio.run(main())


@pytest.fixture
def services() -> Iterator[list[LogService]]:
    services: list[LogService] = []
    yield services
    for service in services:
        service.stop()


@pytest.mark.parametrize("read", [read_blocking, read_asyncio])
def test_an_image_is_whole_or_an_error(services: list[LogService], read: Read) -> None:
    def served(*scripts: Script) -> str:
        services.append(LogService(*scripts))
        return services[-1].url

    whole = HEAD + ROWS + END
    down, broken = Script(refuse=(503, "overloaded")), Script([HEAD[:20]], "break")
    pieces = [whole[at : at + 5] for at in range(0, len(whole), 5)]
    assert [row.key for row in read(served(down, broken, Script(pieces)))] == ["a", "b", "c"]
    for script in (Script([HEAD + ROWS], "end"), Script([HEAD + ROWS], "break"), Script([HEAD, ROWS[:50]], "end")):
        with pytest.raises(Unavailable, match="state image stream was interrupted"):
            read(served(script))
    with pytest.raises(Unavailable, match="unavailable"):
        read(served(Script([HEAD + ROWS + FAILED])))
    for lines in (HEAD + ROWS[:-1] + "x\n", HEAD + "[1]\n", HEAD + '{"value":1}\n', HEAD + END, ROWS + END, "{}\n"):
        with pytest.raises(ServerMisbehaved):
            read(served(Script([lines])))
    for lines in (HEAD + '{"event":"failed"}\n', HEAD + '{"event":"end","rows":0}\n'):
        with pytest.raises(ServerMisbehaved):
            read(served(Script([lines])))


@pytest.mark.parametrize("read", [read_blocking, read_asyncio])
@pytest.mark.parametrize("field", ["store", "kind", "log", "lsn"])
def test_an_image_whose_first_line_lacks_something_is_refused_and_closed(
    services: list[LogService], read: Read, field: str
) -> None:
    head = {"event": "state", "store": "kv", "kind": "rows", "log": LOG, "lsn": "7"}
    for wrong in ({key: value for key, value in head.items() if key != field}, {**head, field: 7}):
        services.append(LogService(Script([json.dumps(wrong) + "\n"], "stay")))
        with pytest.raises(ServerMisbehaved, match="begins with"):
            read(services[-1].url)
        with Client(services[-1].url, connections_max=1, timeout_s=5) as client:
            for _ in range(2):
                # The second one finds a free connection.
                with pytest.raises(ClientMistake, match="no_script"):
                    client.state("kv")


def test_the_timeout_of_a_state_bounds_silence(services: list[LogService]) -> None:
    services.append(LogService(*[Script([HEAD, ROWS], "stay")] * 2))

    async def main() -> None:
        async with AsyncClient(services[-1].url) as client:
            async for _ in await client.state("kv", timeout_s=0.3):
                pass

    begun_at = time.monotonic()
    with Client(services[-1].url) as client, pytest.raises(Unavailable, match="interrupted"):
        list(client.state("kv", timeout_s=0.3))
    with pytest.raises(Unavailable, match="interrupted"):
        asyncio.run(main())
    assert time.monotonic() - begun_at < 10
