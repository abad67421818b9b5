"""Log readers that outlive a restart, and log readers that are closed while they wait."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from tribunal_client import (
    AsyncClient,
    AsyncLogReader,
    Client,
    ClientMistake,
    Committed,
    LogReader,
    RetryPolicy,
    Unavailable,
)
from tribunal_client.log import Cursor
from tribunal_client.response_stream import AsyncResponseStream
from tribunal_client.stops import AsyncStop
from tribunal_client.wire.models import Problem

from .holding import problem
from .proxy import Proxy
from .test_log_stream import LogService, Reader, Script, beat, end, record

ONCE = RetryPolicy(attempts_max=1)
LONG_S = 30


@pytest.fixture
def flaky() -> Iterator[LogService]:
    """A service that is unavailable several times between the records."""
    down = Script(refuse=(503, "unavailable"))
    first, second = Script([beat(2), record(1)], "break"), Script([beat(2), record(2), end("stopping")])
    service = LogService(down, down, first, down, down, down, second, Script(refuse=(410, "log_truncated")))
    yield service
    service.stop()


def test_an_iteration_outlives_what_ends_a_single_call(flaky: LogService) -> None:
    with Client(flaky.url, retry=ONCE) as client:
        with pytest.raises(Unavailable):
            client.log("kv").next()
        lsns: list[int] = []
        with pytest.raises(ClientMistake) as mistake:
            lsns.extend(one.lsn for one in client.log("kv"))
    assert lsns == [1, 2]
    assert mistake.value.code == "log_truncated"


def test_an_asyncio_iteration_outlives_what_ends_a_single_call(flaky: LogService) -> None:
    lsns: list[int] = []

    async def follow(reader: AsyncLogReader) -> None:
        async for one in reader:
            lsns.append(one.lsn)

    async def main() -> None:
        async with AsyncClient(flaky.url, retry=ONCE) as client:
            with pytest.raises(ClientMistake) as mistake:
                await follow(client.log("kv"))
        assert lsns == [1, 2]
        assert mistake.value.code == "log_truncated"

    asyncio.run(main())


def test_an_iteration_gives_up_after_the_time_to_reconnect() -> None:
    async def main() -> None:
        async with AsyncClient("http://127.0.0.1:1") as client:
            async for _ in client.log("kv", reconnect_s=0.3):
                pass

    begun_at = time.monotonic()
    with Client("http://127.0.0.1:1") as client, pytest.raises(Unavailable, match="refused"):
        next(iter(client.log("kv", reconnect_s=0.3)))
    with pytest.raises(Unavailable, match=r"refused|failed"):
        asyncio.run(main())
    assert time.monotonic() - begun_at < 20
    asked = Problem.from_dict({**problem(503, "unavailable"), "retry_after_ms": 30_000})
    with Client("http://127.0.0.1:1") as client:
        reader = client.log("kv")
        reader._reached = True
        pauses = [Cursor._pause_s(reader, failed, Unavailable("x", asked)) for failed in range(1, 60)]
    assert pauses == [2] * 59


def test_an_iteration_that_has_reached_no_endpoint_ends_after_the_attempts_of_a_read() -> None:
    async def main() -> None:
        async with AsyncClient("http://127.0.0.1:1", retry=ONCE) as client:
            async for _ in client.log("kv"):
                pass

    begun_at = time.monotonic()
    with Client("http://127.0.0.1:1", retry=ONCE) as client, pytest.raises(Unavailable):
        next(iter(client.log("kv")))
    with pytest.raises(Unavailable):
        asyncio.run(main())
    assert time.monotonic() - begun_at < 20


def test_each_iteration_has_the_time_to_reconnect_and_waits() -> None:
    down, idle = Script(refuse=(503, "unavailable")), Script([beat(1), end("idle")])
    ended = Script(refuse=(410, "log_truncated"))
    service = LogService(down, idle, ended, down, idle, ended)

    async def main() -> None:
        async with AsyncClient(service.url, retry=ONCE) as client:
            reader = client.log("kv", wait_s=0, reconnect_s=100)
            reader._lost_at = time.monotonic() - 1000
            async for _ in reader:
                pass

    with Client(service.url, retry=ONCE) as client:
        reader = client.log("kv", wait_s=0, reconnect_s=100)
        # An earlier iteration ended during an outage.
        reader._lost_at = time.monotonic() - 1000
        with pytest.raises(ClientMistake, match="log_truncated"):
            next(iter(reader))
    with pytest.raises(ClientMistake, match="log_truncated"):
        asyncio.run(main())
    service.stop()
    assert len(service.asked) == 6
    assert not any("wait_ms=0&" in one for one in service.asked)


@pytest.mark.parametrize("closed", ["reader", "client"])
@pytest.mark.parametrize("waits", ["socket", "thread", "open", "pause"])
def test_a_close_in_another_thread_ends_an_iteration(proxy: Proxy, prefix: str, closed: str, waits: str) -> None:
    with Client(proxy.url) as client:
        if waits == "open":
            proxy.lose("silence", "/v1/log")
        if waits == "pause":
            proxy.stop()
        reader = client.log("kv", wait_s=LONG_S)
        if waits == "thread":
            # A read that is still pending after a short wait.
            txn = client.begin_local()
            txn.put("kv", prefix, 1)
            verdict = txn.commit()
            assert isinstance(verdict, Committed)
            reader = client.log("kv", after=verdict.lsn["kv"] - 1, wait_s=LONG_S)
            assert reader.next() is not None
            assert reader.next(0.05) is None
        ended: list[float] = []

        def follow() -> None:
            for _ in reader:
                pass
            ended.append(time.monotonic())

        thread = threading.Thread(target=follow, daemon=True)
        thread.start()
        time.sleep(0.5)
        assert thread.is_alive()
        begun_at = time.monotonic()
        (reader if closed == "reader" else client).close()
        thread.join(LONG_S)
        assert ended
        assert ended[0] - begun_at < 5
        if closed == "reader" and waits == "socket":
            txn = client.begin_local()
            txn.put("kv", prefix, 1)
            txn.commit()
            assert reader.next() is not None


@pytest.mark.parametrize("closed", ["reader", "client"])
@pytest.mark.parametrize("waits", ["socket", "open", "pause"])
def test_a_close_in_another_task_ends_an_iteration(proxy: Proxy, closed: str, waits: str) -> None:
    async def main() -> None:
        async with AsyncClient(proxy.url) as client:
            if waits == "open":
                proxy.lose("silence", "/v1/log")
            if waits == "pause":
                proxy.stop()
            reader = client.log("kv", wait_s=LONG_S)

            async def follow() -> None:
                async for _ in reader:
                    pass

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.5)
            assert not following.done()
            await (reader if closed == "reader" else client).close()
            await asyncio.wait_for(following, 5)

    asyncio.run(main())


def test_a_follower_that_reconnects_while_its_client_is_closed_ends() -> None:
    service = LogService(*[Script(refuse=(503, "unavailable"))] * 100)
    ended: list[BaseException | None] = []
    client = Client(service.url)
    close = client._http.close

    def close_slowly() -> None:
        close()
        time.sleep(0.5)

    def follow() -> None:
        try:
            for _ in client.log("kv"):
                pass
            ended.append(None)
        except BaseException as error:
            ended.append(error)

    client._http.close = close_slowly  # type: ignore[method-assign]
    thread = threading.Thread(target=follow, daemon=True)
    thread.start()
    while len(service.asked) < 3:
        time.sleep(0.01)
    client.close()
    thread.join(5)
    assert ended == [None]

    async def main() -> None:
        tasks = AsyncClient(service.url)
        aclose = tasks._http.aclose

        async def aclose_slowly() -> None:
            await aclose()
            await asyncio.sleep(0.5)

        async def follow() -> None:
            async for _ in tasks.log("kv"):
                pass

        tasks._http.aclose = aclose_slowly  # type: ignore[method-assign]
        before = len(service.asked)
        following = asyncio.create_task(follow())
        while len(service.asked) < before + 3:
            await asyncio.sleep(0.01)
        await tasks.close()
        await asyncio.wait_for(following, 5)

    asyncio.run(main())
    service.stop()


def test_a_stream_that_opens_when_its_task_is_cancelled_is_closed() -> None:
    closed: list[str] = []

    class Opened(AsyncResponseStream):
        def __init__(self) -> None:
            pass

        async def close(self) -> None:
            closed.append("closed")

    async def main() -> None:
        async def opening() -> Opened:
            await asyncio.sleep(0.05)
            asyncio.get_running_loop().call_soon(waiting.cancel)
            return Opened()

        waiting = asyncio.create_task(AsyncStop().outcome_of(opening()))
        with pytest.raises(asyncio.CancelledError):
            await waiting

    asyncio.run(main())
    assert closed == ["closed"]


def test_a_close_ends_a_wait_and_an_iteration_that_closes_its_reader(client: Client, prefix: str) -> None:
    txn = client.begin_local()
    txn.put("kv", prefix, 1)
    lsn = txn.commit().lsn["kv"]  # type: ignore[union-attr]
    reader = client.log("kv", after=lsn, wait_s=LONG_S)
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(reader.next()), daemon=True)
    thread.start()
    time.sleep(0.3)
    reader.close()
    thread.join(5)
    assert found == [None]
    count = 0
    for _ in (again := client.log("kv", after=lsn - 1)):
        count += 1
        again.close()
    assert count == 1


def test_a_task_that_is_cancelled_in_an_iteration_is_cancelled(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url) as client:

            async def follow() -> None:
                async for _ in client.log("kv"):
                    pass

            following = asyncio.create_task(follow())
            await asyncio.sleep(0.2)
            following.cancel()
            with pytest.raises(asyncio.CancelledError):
                await following

    asyncio.run(main())


PROCESS = """
import os, threading, time
from tribunal_client import Client

client = Client(os.environ["TRIBUNAL_URL"])
reader = client.log("kv")
following = threading.Thread(target=lambda: [None for _ in reader])
following.start()
time.sleep(0.5)
client.close()
"""


def test_a_process_exits_after_its_client_was_closed(url: str) -> None:
    env = {**os.environ, "TRIBUNAL_URL": url}
    subprocess.run([sys.executable, "-c", PROCESS], check=True, timeout=LONG_S, env=env)  # noqa: S603


def test_a_reader_that_was_dropped_is_not_kept(client: Client) -> None:
    reader: LogReader | None = client.log("kv")
    assert list(client._readers) == [reader]
    reader = None
    assert list(client._readers) == []


def truncated_end(lsn: int) -> str:
    event = {"event": "end", "next": str(lsn), "reason": "log_truncated", "problem": problem(410, "log_truncated")}
    return json.dumps(event) + "\n"


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_reader_continues_at_an_endpoint_that_has_the_records(kind: str) -> None:
    truncated = Script(refuse=(410, "log_truncated"))
    services = [
        LogService(truncated, truncated),
        LogService(Script([beat(2), record(1), truncated_end(1)]), truncated),
        LogService(Script([beat(2), record(2)], "stay")),
    ]
    reader = Reader(kind, ",".join(service.url for service in services))
    assert [reader.lsn(), reader.lsn()] == [1, 2]
    assert [len(service.asked) for service in services] == [2, 2, 1]
    reader.close()
    for service in services:
        service.stop()


@pytest.mark.parametrize("kind", ["threads", "tasks"])
def test_a_reader_whose_records_no_endpoint_has_ends_and_is_told_which_was_not_reached(kind: str) -> None:
    nowhere = "http://127.0.0.1:1"
    for others, told in [
        (True, "none of this client's endpoints has enough of the log"),
        (False, f"and these did not: {nowhere}: "),
    ]:
        truncated = [LogService(Script(refuse=(410, "log_truncated"))) for _ in range(2)]
        reader = Reader(kind, f"{truncated[0].url},{truncated[1].url if others else nowhere}")
        with pytest.raises(ClientMistake, match=told) as mistake:
            reader.next()
        assert mistake.value.code == "log_truncated"
        assert [len(service.asked) for service in truncated] == [1, int(others)]
        reader.close()
        for service in truncated:
            service.stop()
