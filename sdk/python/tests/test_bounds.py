"""Time limits of reads and of `run`, and mistakes that are reported at once."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tribunal_client import (
    AsyncClient,
    Client,
    KeyRange,
    Misuse,
    OutcomeUnknown,
    RangeReads,
    RowReads,
    Transaction,
    TransactionAborted,
    Unavailable,
)
from tribunal_client.exchange import NoReply, no_reply

from .endpoints import Late, Start, prepared, works
from .scripted import OVERLOADED, Service, aborted, begun, make_certificate

Read = Callable[[Any], Any]


@pytest.fixture
def silent() -> Iterator[str]:
    """A service that accepts connections and does not answer."""
    with socket.create_server(("127.0.0.1", 0), backlog=64) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


READS: list[Read] = [
    lambda client: client.row("kv", "a"),
    lambda client: client.rows("kv"),
    lambda client: client.read_rows("kv", ["a"]),
    lambda client: client.read_ranges("kv", [KeyRange()]),
    lambda client: client.begin(["kv"], wait_s=0),
    lambda client: client.stores(),
    lambda client: client.log("kv").next(0),
]


@pytest.mark.parametrize("read", READS, ids=["row", "rows", "read_rows", "read_ranges", "begin", "stores", "log"])
@pytest.mark.parametrize("endpoints", [1, 2])
def test_the_timeout_bounds_a_read_and_all_of_its_repetitions(silent: str, read: Read, endpoints: int) -> None:
    urls = [silent, silent.replace("127.0.0.1", "localhost")][:endpoints]

    async def main() -> None:
        async with AsyncClient(urls, timeout_s=0.4) as client:
            await read(client)

    begun_at = time.monotonic()
    with Client(urls, timeout_s=0.4) as client, pytest.raises(Unavailable):
        read(client)
    with pytest.raises(Unavailable):
        asyncio.run(main())
    # Fifty attempts would take 40 s.
    assert 0.8 <= time.monotonic() - begun_at < 10


def test_a_read_has_a_timeout_of_its_own(silent: str) -> None:
    reads: list[Read] = [
        lambda client: client.row("kv", "a", timeout_s=0.2),
        lambda client: client.rows("kv", timeout_s=0.2),
        lambda client: client.read_rows("kv", ["a"], timeout_s=0.2),
        lambda client: client.read_ranges("kv", [KeyRange()], timeout_s=0.2),
    ]

    async def main() -> None:
        async with AsyncClient(silent) as client:
            for read in reads:
                with pytest.raises(Unavailable):
                    await read(client)

    begun_at = time.monotonic()
    with Client(silent) as client:
        for read in reads:
            with pytest.raises(Unavailable):
                read(client)
        with pytest.raises(Misuse, match="timeout_s"):
            client.row("kv", "a", timeout_s=0)
    asyncio.run(main())
    assert time.monotonic() - begun_at < 20


def test_the_timeout_bounds_reads_that_wait_for_others(silent: str) -> None:
    begun_at = time.monotonic()
    errors: list[str] = []

    def read(client: Client) -> None:
        with pytest.raises(Unavailable) as error:
            client.row("kv", "a")
        errors.append(str(error.value))

    async def main() -> None:
        async with AsyncClient(silent, timeout_s=1) as client:
            results = await asyncio.gather(*(client.row("kv", "a") for _ in range(12)), return_exceptions=True)
            assert [type(result) for result in results] == [Unavailable] * 12

    with Client(silent, timeout_s=1) as client:
        threads = [threading.Thread(target=read, args=(client,)) for _ in range(12)]
        for thread in threads:
            thread.start()
            time.sleep(0.02)
        for thread in threads:
            thread.join(30)
    assert len(errors) == 12
    asyncio.run(main())
    assert time.monotonic() - begun_at < 15


def test_run_begins_no_attempt_after_its_timeout() -> None:
    service = Service(lambda kind, before: begun(before % 10) if kind == "begin" else OVERLOADED)

    def work(txn: Transaction) -> None:
        txn.put("kv", "a", 1)

    async def write(txn: Any) -> None:
        txn.put("kv", "a", 1)

    async def main() -> None:
        async with AsyncClient(service.url) as client:
            await client.run(write, timeout_s=0.2)

    with Client(service.url) as client:
        begun_at = time.monotonic()
        with pytest.raises(Unavailable, match="overloaded"):
            client.run(work, timeout_s=0.2)
        with pytest.raises(Unavailable, match="overloaded"):
            asyncio.run(main())
        assert time.monotonic() - begun_at < 3
        assert 2 <= len(service.arrived("commit")) < 60
        with pytest.raises(Misuse, match="timeout_s"):
            client.run(work, timeout_s=-1)
    service.stop()


def test_run_against_a_silent_service_ends_at_its_timeout(silent: str) -> None:
    begun_at = time.monotonic()
    with Client(silent) as client, pytest.raises(Unavailable):
        client.run(lambda txn: txn.put("kv", "a", 1), timeout_s=0.4)
    assert time.monotonic() - begun_at < 10


def test_the_last_abort_tells_how_many_attempts_there_were() -> None:
    replies = [aborted("read_conflict"), aborted("read_conflict"), aborted("row_exists")]
    service = Service(lambda kind, before: begun(before) if kind == "begin" else replies[before])
    with (
        Client(service.url) as client,
        pytest.raises(TransactionAborted, match=r"row_exists at .* after 3 attempts$") as ended,
    ):
        client.run(lambda txn: txn.insert("kv", "a", 1))
    assert ended.value.attempts == 3
    assert str(TransactionAborted(ended.value.aborted)).endswith("after 1 attempt")
    service.stop()


def test_an_address_with_the_wrong_scheme_is_a_misuse(tmp_path: Path, url: str) -> None:
    certificate = make_certificate(tmp_path)
    over_tls = Alert()
    wrong = [
        (url.replace("http:", "https:"), r"does the service speak TLS there\? Is its address http://\?"),
        (over_tls.url, r"does the service speak TLS there\? Then use https://"),
    ]
    calls: list[Read] = [
        lambda one: one.row("kv", "a"),
        lambda one: one.run(lambda _: None),
        lambda one: one.log("kv").next(),
        lambda one: next(iter(one.log("kv"))),
    ]
    for address, text in wrong:

        async def main(address: str = address) -> None:
            async with AsyncClient(address, ca_file=certificate) as client:
                await client.row("kv", "a")

        with Client(address, ca_file=certificate) as client:
            for call in calls:
                with pytest.raises(Misuse, match=text):
                    call(client)
        with pytest.raises(Misuse, match=text):
            asyncio.run(main())
    over_tls.stop()


def test_a_commit_that_may_have_been_taken_is_in_doubt_whatever_the_address_speaks(url: str, tmp_path: Path) -> None:
    certificate = make_certificate(tmp_path)
    over_tls = Alert()
    wrong: list[tuple[str, type[Exception]]] = [
        (over_tls.url, OutcomeUnknown),
        (url.replace("http:", "https:"), Misuse),
    ]
    for address, error in wrong:

        async def main(address: str = address) -> None:
            async with AsyncClient(address, ca_file=certificate) as client:
                await client.commit(prepared(client))

        with Client(address, ca_file=certificate) as client, pytest.raises(error, match="does the service speak TLS"):
            client.commit(prepared(client))
        with pytest.raises(error, match="does the service speak TLS"):
            asyncio.run(main())
    over_tls.stop()


def test_only_a_connection_that_cannot_be_made_tells_that_its_address_is_wrong() -> None:
    request = httpx.Request("POST", "https://localhost:1/v1")
    broken = httpx.ReadError("[SSL: RECORD_LAYER_FAILURE] record layer failure", request=request)
    broken.__cause__ = ssl.SSLError(1, str(broken))
    assert no_reply(broken) == NoReply(f"https://localhost:1: {broken}", never_sent=False)


class Alert:
    """Answers a plain-text request like a TLS server."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._answer, daemon=True).start()

    def _answer(self) -> None:
        while True:
            try:
                connection, _ = self._server.accept()
            except OSError:
                return
            with connection:
                connection.recv(65536)
                connection.sendall(bytes.fromhex("15030300020232"))

    def stop(self) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()


@pytest.mark.parametrize("read", READS[:5])
def test_reads_wait_for_a_free_connection_once(client: Client, url: str, prefix: str, read: Read) -> None:
    txn = client.begin_local()
    txn.put("kv", prefix, 1)
    txn.commit()
    with Client(url, connections_max=1, timeout_s=0.5) as one, one.log("kv") as log:
        assert log.next() is not None
        begun_at = time.monotonic()
        with pytest.raises(Unavailable, match="raise `connections_max`, or close log readers") as refused:
            read(one)
        assert refused.value.no_connection
        with pytest.raises(Unavailable, match="close log readers"):
            one.run(lambda txn: txn.put("kv", prefix, 2))
        assert time.monotonic() - begun_at < 5


@pytest.mark.parametrize("read", [READS[0], READS[4], READS[5]], ids=["row", "begin", "stores"])
def test_the_wait_for_a_connection_counts_for_the_bound_of_a_read(start: Start, read: Read) -> None:
    endpoint = start(lambda kind, ids, _: Late(1.6, works(kind, ids)))
    with Client(endpoint.url, connections_max=1, timeout_s=2) as one:
        before = threading.Thread(target=one.stores)
        before.start()
        time.sleep(0.2)
        begun_at = time.monotonic()
        with pytest.raises(Unavailable):
            read(one)
        # The request gets the connection after 1.4 s.
        assert time.monotonic() - begun_at < 2.8
        before.join()


def test_nothing_to_read_needs_no_request() -> None:
    async def main() -> None:
        async with AsyncClient("http://127.0.0.1:1") as client:
            assert await client.read_rows("kv", []) == RowReads(0, [])
            assert await client.read_ranges("kv", []) == RangeReads(0, [])
            assert await client.batch([]) == []

    with Client("http://127.0.0.1:1") as client:
        assert client.read_rows("kv", []) == RowReads(0, [])
        assert client.read_ranges("kv", []) == RangeReads(0, [])
        assert client.batch([]) == []
    asyncio.run(main())


def test_a_comma_too_many_is_named() -> None:
    for urls in ("http://a:1,", "http://a:1,,http://b:1", ["http://a:1", ""]):
        with pytest.raises(Misuse, match="is empty: is there a comma too many"):
            Client(urls)


def test_a_use_of_a_store_that_begin_did_not_name_is_refused_at_once(start: Start) -> None:
    endpoint = start(works)

    async def main() -> None:
        async with AsyncClient(endpoint.url) as client:
            txn = await client.begin(["kv"])
            with pytest.raises(Misuse, match="store_not_named: Begin did not name store `other`, only `kv`"):
                await txn.get("other", "a")

    with Client(endpoint.url) as client:
        txn = client.begin(["kv"])
        uses: list[Callable[[], object]] = [
            lambda: txn.get("other", "a"),
            lambda: txn.get_many("other", ["a"]),
            lambda: txn.scan("other"),
            lambda: txn.put("other", "a", 1),
            lambda: txn.observe("other", "a", 1),
            lambda: txn.observe_range("other"),
        ]
        for use in uses:
            with pytest.raises(Misuse, match="store_not_named: Begin did not name store `other`, only `kv`"):
                use()
        # Without names, the service determines the stores.
        client.begin().put("other", "a", 1)
    asyncio.run(main())
    assert len(endpoint.asked) == 3
