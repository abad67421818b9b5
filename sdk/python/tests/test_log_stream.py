"""Log readers, blocking and asyncio, against a service that streams by a script."""

from __future__ import annotations

import asyncio
import json
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Literal

import pytest

from tribunal_client import (
    AsyncClient,
    AsyncLogReader,
    Client,
    ClientMistake,
    LogReader,
    LogRecord,
    RetryPolicy,
    ServerMisbehaved,
    Unavailable,
)
from tribunal_client.checksum import crc32c, value_texts

from .crowds import CrowdServer
from .holding import problem
from .scripted import make_certificate

LOG = "8f14e45fceea167a5a36dedd4bea2543"


@dataclass
class Script:
    """The service's reaction to one request."""

    pieces: list[str] = field(default_factory=list)
    then: Literal["end", "break", "stay"] = "end"
    refuse: tuple[int, str] | None = None
    later: queue.Queue[str] = field(default_factory=queue.Queue)
    """Further pieces, for a stream that stays open."""


class LogService:
    """Streams by scripts, one for each request."""

    def __init__(self, *scripts: Script, certificate: Path | None = None) -> None:
        self.asked: list[str] = []
        self.written = 0
        self.stopped = threading.Event()
        service = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                at = len(service.asked)
                service.asked.append(f"{self.path} {self.headers.get('accept')}")
                service.play(self, scripts[at] if at < len(scripts) else Script(refuse=(404, "no_script")))

            def log_message(self, *_: object) -> None:
                pass

        self._server = CrowdServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = f"https://localhost:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def play(self, handler: BaseHTTPRequestHandler, script: Script) -> None:
        if script.refuse is not None:
            data = json.dumps(problem(*script.refuse)).encode()
            handler.send_response(script.refuse[0])
            handler.send_header("content-length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data)
            return
        handler.send_response(200)
        handler.send_header("transfer-encoding", "chunked")
        handler.end_headers()
        try:
            for piece in script.pieces:
                self.write(handler, piece)
            while script.then == "stay" and not self.stopped.is_set():
                with suppress(queue.Empty):
                    self.write(handler, script.later.get(timeout=0.05))
            if script.then == "end":
                handler.wfile.write(b"0\r\n\r\n")
        except OSError:
            return
        handler.close_connection = script.then != "end"

    def write(self, handler: BaseHTTPRequestHandler, piece: str) -> None:
        data = piece.encode()
        handler.wfile.write(b"%x\r\n%s\r\n" % (len(data), data))
        self.written += len(data)

    def stop(self) -> None:
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()


class Reader:
    """A reader of either client."""

    def __init__(
        self, kind: str, url: str, *, ca_file: Path | None = None, timeout_s: float = 30, **options: Any
    ) -> None:
        self._loop = asyncio.new_event_loop()
        common: dict[str, Any] = {"retry": RetryPolicy(attempts_max=3), "ca_file": ca_file, "timeout_s": timeout_s}
        self._client: Client | AsyncClient
        self.reader: LogReader | AsyncLogReader
        if kind == "tasks":
            self._client = AsyncClient(url, **common)
            self.reader = self._client.log("kv", **options)
        else:
            self._client = Client(url, **common)
            self.reader = self._client.log("kv", **options)

    def next(self, wait_s: float | None = None) -> LogRecord | None:
        if isinstance(self.reader, AsyncLogReader):
            return self._loop.run_until_complete(self.reader.next(wait_s))
        return self.reader.next(wait_s)

    def lsn(self, wait_s: float | None = None) -> int | None:
        record = self.next(wait_s)
        return None if record is None else record.lsn

    def rest(self) -> list[int]:
        """Iterate to the end."""
        reader = self.reader
        if isinstance(reader, AsyncLogReader):

            async def all_of() -> list[int]:
                return [record.lsn async for record in reader]

            return self._loop.run_until_complete(all_of())
        return [record.lsn for record in reader]

    def cancelled(self, after_s: float) -> None:
        """Start to wait for a record, and cancel the wait."""
        assert isinstance(self.reader, AsyncLogReader)
        with pytest.raises(TimeoutError):
            self._loop.run_until_complete(asyncio.wait_for(self.reader.next(), after_s))

    def close(self) -> None:
        if isinstance(self.reader, AsyncLogReader):
            self._loop.run_until_complete(self.reader.close())
        else:
            self.reader.close()

    def stop(self) -> None:
        self.close()
        if isinstance(self._client, AsyncClient):
            self._loop.run_until_complete(self._client.close())
        else:
            self._client.close()
        self._loop.close()


Start = Callable[..., tuple[LogService, Reader]]


@pytest.fixture(params=["threads", "tasks"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    started: list[LogService | Reader] = []

    def begin(*scripts: Script, certificate: Path | None = None, **options: Any) -> tuple[LogService, Reader]:
        service = LogService(*scripts, certificate=certificate)
        reader = Reader(request.param, service.url, **options)
        started.extend([reader, service])
        return service, reader

    yield begin
    for one in started:
        one.stop()


def record(lsn: int, value: str = "v\u00e4lue", checksum: str = "") -> str:
    head = f'"lsn":"{lsn}","prev_lsn":"{lsn - 1}","epoch":"9","csn":"7","version":"8","txn_id":"t","store":"kv"'
    return f'{{{head},{checksum}"writes":[{{"op":"put","key":"a","value":"{value}"}}]}}\n'


def beat(head: int) -> str:
    return json.dumps({"event": "heartbeat", "log": LOG, "next": "0", "head_lsn": str(head)}) + "\n"


def end(reason: str) -> str:
    return json.dumps({"event": "end", "log": LOG, "next": "0", "reason": reason}) + "\n"


def test_one_stream_has_all_records_however_it_is_cut_into_pieces(start: Start) -> None:
    text = beat(3) + record(1) + record(2) + beat(3) + record(3) + end("idle")
    service, reader = start(Script([text[at : at + 7] for at in range(0, len(text), 7)]), wait_s=0.04)
    for lsn in (1, 2, 3):
        found = reader.next()
        assert found is not None
        assert (found.lsn, found.writes[0].value) == (lsn, "v\u00e4lue")
        assert (reader.reader.offset, reader.reader.head, reader.reader.log_id) == (lsn, 3, LOG)
    [asked] = service.asked
    assert "store=kv&after=0&wait_ms=40&heartbeat_ms=" in asked
    assert asked.endswith(" application/x-ndjson")


def test_a_stream_that_breaks_off_is_resumed_from_the_offset(start: Start) -> None:
    service, reader = start(
        Script([beat(9), record(1), record(2)[:40]], "break"),
        Script(refuse=(503, "overloaded")),
        Script([beat(9), record(2), end("stopping")]),
        Script([beat(9), record(3), end("limit")]),
        Script([beat(9), record(4)], "stay"),
        page_max=7,
    )
    assert [reader.lsn() for _ in range(4)] == [1, 2, 3, 4]
    assert "log=" not in service.asked[0]
    assert "limit=7" in service.asked[0]
    for asked, after in zip(service.asked[1:], (1, 1, 2, 3), strict=True):
        assert f"after={after}&log={LOG}&" in asked


def test_a_reader_gives_up_once_its_retries_are_used_up(start: Start) -> None:
    service, reader = start(*[Script([beat(9)], "break")] * 9)
    with pytest.raises(Unavailable):
        reader.next()
    assert len(service.asked) == 3


def test_only_a_stream_that_was_idle_during_the_call_ends_the_wait(start: Start) -> None:
    service, reader = start(
        Script([beat(1), record(1), end("idle")]),
        Script([beat(2), record(2), end("idle")]),
        Script([beat(2), end("idle")]),
        Script([beat(2), end("idle")]),
        wait_s=0,
    )
    assert reader.lsn() == 1
    # The first stream has ended, but before this call.
    assert reader.lsn() == 2
    assert reader.lsn() is None
    assert len(service.asked) == 3
    assert reader.lsn() is None
    assert reader.reader.offset == 2


def test_problems_before_and_within_a_stream_reach_the_reader(start: Start) -> None:
    failed = {"event": "end", "next": "1", "reason": "log_truncated", "problem": problem(410, "log_truncated")}
    _, reader = start(
        Script([beat(9), record(1), json.dumps(failed) + "\n"]),
        Script(refuse=(410, "log_replaced")),
        Script(refuse=(401, "unauthorized")),
        Script([beat(9), record(3)]),
        Script([beat(9), '{"lsn":\n']),
        Script([beat(9), "[1]\n"]),
        Script([beat(9), record(2, "x", '"checksum":"00000000",')]),
    )
    assert reader.lsn() == 1
    for code in ("log_truncated", "log_replaced", "unauthorized"):
        with pytest.raises(ClientMistake) as mistake:
            reader.next()
        assert mistake.value.code == code
    for text in (r"record 3 \(after 2\) where 2", "cannot be parsed", "cannot be parsed", "checksum"):
        with pytest.raises(ServerMisbehaved, match=text):
            reader.next()
        assert reader.reader.offset == 1


def test_operations_of_a_newer_service_are_passed_on_and_its_events_passed_over(start: Start) -> None:
    event = json.dumps({"event": "moved", "log": LOG, "to": {"node": 2}}) + "\n"
    pieces = (b"1", b"9", b"7", b"8", b"t", b"merge", b"a", '"v\u00e4lue"'.encode())
    checksum = crc32c(b"".join(len(piece).to_bytes(4, "little") + piece for piece in pieces))
    later = record(1, checksum=f'"checksum":"{checksum:08x}",').replace('"op":"put"', '"op":"merge"')
    _, reader = start(Script([event, beat(9), later, event, record(2)], "stay"))
    found = reader.next()
    assert found is not None
    assert [(write.op, write.key, write.value) for write in found.writes] == [("merge", "a", "v\u00e4lue")]
    assert reader.lsn() == 2


def test_a_line_without_an_end_is_refused(start: Start) -> None:
    _, reader = start(Script(["x" * (1 << 20)] * 40, "stay"))
    with pytest.raises(ServerMisbehaved, match="bytes"):
        reader.next()


def test_a_reader_that_does_not_read_holds_up_the_stream(start: Start) -> None:
    value = "x" * 65536
    service, reader = start(Script([beat(9), *(record(lsn, value) for lsn in range(1, 501))], "stay"))
    assert reader.lsn() == 1
    time.sleep(0.5)
    assert service.written < 250 * len(value)
    for lsn in range(2, 501):
        assert reader.lsn() == lsn


def test_a_closed_reader_resumes(start: Start) -> None:
    service, reader = start(Script([beat(9), record(1)], "stay"), Script([beat(9), record(2)], "stay"))
    assert reader.lsn() == 1
    reader.close()
    assert reader.lsn() == 2
    assert "after=1&" in service.asked[1]


def test_a_cancelled_wait_loses_no_record_and_leaves_the_stream() -> None:
    stays = Script([beat(9), record(1), record(2)[:40]], "stay")
    service = LogService(stays)
    reader = Reader("tasks", service.url)
    assert reader.lsn() == 1
    reader.cancelled(0.05)
    stays.later.put(record(2)[40:])
    assert reader.lsn() == 2
    assert len(service.asked) == 1, "otherwise the endpoint would count as failed"
    reader.stop()
    service.stop()


@pytest.mark.parametrize("tls", [False, True])
def test_a_wait_shorter_than_that_of_the_stream_ends_in_time_and_the_stream_goes_on(
    start: Start, tmp_path: Path, tls: bool
) -> None:
    certificate = make_certificate(tmp_path) if tls else None
    line = record(2)
    script = Script([beat(9), record(1), line[:40]], "stay")
    options: dict[str, Any] = {"wait_s": 60, "timeout_s": 600, "certificate": certificate, "ca_file": certificate}
    service, reader = start(script, Script([record(5)], "stay"), **options)
    assert reader.lsn() == 1
    assert [reader.lsn(wait_s) for wait_s in (0.02, 0, 0, 0.02)] == [None] * 4
    script.later.put(line[40:])
    script.later.put(record(3) + record(4))
    assert [reader.lsn() for _ in range(2)] == [2, 3]
    assert [reader.lsn(0) for _ in range(2)] == [4, None]
    assert (reader.reader.offset, len(service.asked)) == (4, 1)
    # It ends the abandoned read, which would otherwise take ten minutes.
    reader.close()
    assert reader.lsn() == 5


def test_a_wait_longer_than_the_service_waits_is_continued_on_another_stream(start: Start) -> None:
    idle = Script([beat(1), end("idle")])
    service, reader = start(idle, idle, Script([beat(1), record(1)], "stay"), wait_s=float("inf"))
    assert reader.lsn() == 1
    assert ["wait_ms=60000&" in asked for asked in service.asked] == [True] * 3


def test_short_waits_do_not_hide_that_a_stream_is_silent(start: Start) -> None:
    scripts = [Script([beat(9), record(1)], "stay"), Script([beat(9), record(2)], "stay")]
    service, reader = start(*scripts, wait_s=60, timeout_s=3)
    assert reader.lsn() == 1
    while (found := reader.lsn(0.05)) is None:
        assert len(service.asked) < 3
    assert (found, len(service.asked)) == (2, 2)


def test_an_iteration_to_the_end_of_the_log_does_not_rely_on_a_stream_that_waits(start: Start) -> None:
    service, reader = start(
        Script([beat(2), record(1)], "stay"),
        Script([beat(2), record(2), end("idle")]),
        Script([beat(2), end("idle")]),
        wait_s=60,
        follow=False,
    )
    assert reader.lsn() == 1
    assert reader.rest() == [2]
    assert "after=1&" in service.asked[1]
    assert "wait_ms=0&" in service.asked[1]


def test_the_texts_of_values_are_found_as_they_were_posted() -> None:
    line = (
        '{ "lsn" : "1", "s": {"writes": [{"value": 9}]}, "writes": [ {"op":"put","value": {"a": [1.50, "]}\\"\\\\"]} }'
        ', {"op":"delete","key":"\\"value\\":}"},{"value":1e3},{"value":"x"} ,{"value":null}, {}], "z":[]}'
    )
    json.loads(line)
    assert value_texts(line) == ['{"a": [1.50, "]}\\"\\\\"]}', "", "1e3", '"x"', "null", ""]
    # The check value in the CRC catalogue.
    assert crc32c(b"123456789") == 0xE3069283


def test_an_iteration_that_is_left_frees_its_connection(url: str, prefix: str) -> None:
    with Client(url, connections_max=1, timeout_s=5) as client:
        txn = client.begin_local()
        txn.put("kv", prefix, 1)
        txn.commit()
        for _ in client.log("kv"):
            break
        assert client.stores()


def test_an_asyncio_iteration_that_is_closed_frees_its_connection(url: str, prefix: str) -> None:
    async def main() -> None:
        async with AsyncClient(url, connections_max=1, timeout_s=5) as client:
            txn = client.begin_local()
            txn.put("kv", prefix, 1)
            await txn.commit()
            async with aclosing(client.log("kv").__aiter__()) as records:
                async for _ in records:
                    break
            assert await client.stores()

    asyncio.run(main())


def _read_blocking(url: str) -> None:
    with Client(url, timeout_s=0.3, retry=RetryPolicy(attempts_max=1)) as client:
        client.log("kv").next(0.1)


def _read_asyncio(url: str) -> None:
    async def main() -> None:
        async with AsyncClient(url, timeout_s=0.3, retry=RetryPolicy(attempts_max=1)) as client:
            await client.log("kv").next(0.1)

    asyncio.run(main())


@pytest.mark.parametrize("read", [_read_blocking, _read_asyncio])
def test_a_log_that_does_not_begin_is_given_up_after_the_timeout(
    read: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    # Extends the time for which a stream may be silent.
    monkeypatch.setattr("tribunal_client.service.HEARTBEAT_S", 300)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        begun = time.monotonic()
        with pytest.raises(Unavailable, match=r"timed out|ReadTimeout"):
            read(f"http://127.0.0.1:{silent.getsockname()[1]}")
        assert time.monotonic() - begun < 200
