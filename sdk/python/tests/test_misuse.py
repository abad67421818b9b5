"""Mistakes of a caller, and their error texts."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import pytest

from tribunal_client import (
    AsyncClient,
    AsyncTransaction,
    Client,
    ClientMistake,
    CommitRequest,
    Committed,
    KeyRange,
    Misuse,
    OutcomeUnknown,
    PreparedCommit,
    RetryPolicy,
    StoreDeclaration,
    Transaction,
    Unavailable,
)

from .scripted import Scripted, Service

NOWHERE = "http://127.0.0.1:1"

Call = Callable[[Any], Any]
"""A call of a method of either client."""


CANNOT_WORK: list[tuple[dict[str, Any], str]] = [
    ({"api_key": "a\nb"}, "the API key has characters"),
    ({"api_key": "schl\u00fcssel"}, "the API key has characters"),
    ({"api_key": "a\0"}, "the API key has characters"),
    ({"api_key": b"trb_0"}, "the API key must be a str, not bytes"),
    ({"api_key": "\n"}, "the API key is empty: pass None"),
    ({"client_name": "b\u00fcro"}, "`client_name` has characters"),
    ({"timeout_s": 0}, "`timeout_s` must be a number of seconds, more than 0, not 0"),
    ({"timeout_s": True}, "`timeout_s` must be a number .* not True"),
    ({"timeout_s": -1}, "`timeout_s` must be"),
    ({"timeout_s": float("nan")}, "`timeout_s` must be"),
    ({"timeout_s": None}, "`timeout_s` must be a number .* not None"),
    ({"timeout_s": "30"}, "`timeout_s` must be a number .* not '30'"),
    ({"resolve_timeout_s": -1}, "`resolve_timeout_s` must be a number of seconds, at least 0"),
    ({"endpoint_timeout_s": 0}, "`endpoint_timeout_s` must be"),
    ({"endpoint_cool_down_s": -1}, "`endpoint_cool_down_s` must be"),
    ({"connections_max": 0}, "`connections_max` must be at least 1, not 0"),
    ({"connections_max": 1.5}, "`connections_max` must be an int, not float"),
    ({"retry": 5}, "`retry` must be a RetryPolicy, not int"),
    ({"on_attempt": 5}, "`on_attempt` must be a function of the attempt, not int"),
    ({"url": None}, "a list of str was expected, not NoneType: pass a URL"),
    ({"url": b"http://127.0.0.1:1"}, "a str was expected, not int: pass a URL"),
    ({"url": [NOWHERE, None]}, "a str was expected, not NoneType: pass a URL"),
    ({"url": ""}, "is not of the form http://host:port"),
    ({"url": "http://127.0.0.1:port"}, "is not of the form http://host:port"),
    ({"url": "http://127.0.0.1:99999"}, "is not of the form http://host:port"),
    ({"url": NOWHERE + "?a=b"}, "is not of the form http://host:port"),
]


@pytest.mark.parametrize(("arguments", "text"), CANNOT_WORK)
def test_a_client_that_cannot_work_is_a_misuse(arguments: dict[str, Any], text: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(Misuse, match=text):
            kind(**{"url": NOWHERE, **arguments})


@pytest.mark.parametrize("bounds", [{"attempts_max": 0}, {"wait_min_s": -1}, {"wait_max_s": float("nan")}])
def test_the_bounds_of_retries_are_positive(bounds: dict[str, Any]) -> None:
    with pytest.raises(Misuse, match=next(iter(bounds))):
        RetryPolicy(**bounds)


def test_a_timeout_may_be_infinite(url: str, prefix: str) -> None:
    forever = float("inf")
    with Client(url, timeout_s=forever, resolve_timeout_s=forever, endpoint_timeout_s=forever) as client:
        assert client.row("kv", prefix) is None
        txn = client.begin(["kv"])
        txn.put("kv", prefix, 1)
        txn.commit()
        assert client.log("kv", wait_s=forever).next() is not None


class Whole:
    """An integer of another library."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __index__(self) -> int:
        return self._number


def test_integers_of_other_libraries_are_integers(client: Client, prefix: str) -> None:
    txn = client.begin_local()
    txn.add("kv", prefix, Whole(2), or_=Whole(40))
    verdict = txn.commit()
    assert isinstance(verdict, Committed)
    assert verdict.version is not None
    again = client.begin_local()
    again.observe("kv", prefix, Whole(verdict.version))
    again.add("kv", prefix, Whole(0))
    assert isinstance(again.commit(), Committed)
    row = client.row("kv", prefix)
    assert row is not None
    assert (row.value, type(row.value)) == (42, int)
    limit: Any = Whole(1)
    keys = KeyRange(prefix, limit=limit)
    assert len(client.rows("kv", prefix, limit=limit).rows) == 1
    assert len(client.begin(["kv"], ranges={"kv": [keys]}).scan("kv", prefix, limit=limit)) == 1
    assert len(client.read_ranges("kv", [keys]).ranges[0].rows) == 1


def test_the_line_break_after_a_key_in_a_file_is_no_part_of_it(url: str) -> None:
    with Client(url, api_key="trb_0\n") as client:
        client.stores()


def test_text_that_is_no_unicode_is_a_misuse() -> None:
    with Client(NOWHERE) as client, pytest.raises(Misuse, match="surrogate"):
        client.begin_local().put("kv", "a", ["\ud800"])


def test_an_offset_is_a_number() -> None:
    offset: Any = "1"
    with Client(NOWHERE) as client, pytest.raises(Misuse, match="`after` must be an int, not str"):
        client.log("kv", offset)


def test_a_closed_client_sends_nothing(url: str) -> None:
    async def closed() -> None:
        client = AsyncClient(url)
        await client.close()
        for call in (client.begin(["kv"]), client.stores(), client.log("kv").next(0)):
            with pytest.raises(Misuse, match="closed"):
                await call

    client = Client(url)
    client.close()
    for call in (lambda: client.begin(["kv"]), client.stores, lambda: client.log("kv").next(0)):
        with pytest.raises(Misuse, match="closed"):
            call()
    asyncio.run(closed())


@pytest.mark.parametrize("in_a_batch", [False, True])
def test_a_commit_that_an_endpoint_may_have_taken_is_in_doubt_after_the_client_is_closed(in_a_batch: bool) -> None:
    clients: list[Client] = []

    def close(_kind: str, _before: int) -> Scripted:
        clients[0].close()
        fields = {"type": "about:blank", "title": "x", "detail": "x", "code": "x", "status": 504, "retryable": True}
        return 504, fields

    service = Service(close)
    client = Client([service.url, NOWHERE])
    clients.append(client)
    txn = client.begin_local()
    txn.put("kv", "a", 1)
    if in_a_batch:
        assert isinstance(client.batch([txn.prepare()])[0], OutcomeUnknown)
    else:
        with pytest.raises(OutcomeUnknown):
            txn.commit()
    service.stop()


def test_a_client_that_another_thread_closes_at_the_last_moment_is_closed() -> None:
    calls: list[tuple[str, Call]] = [("request", Client.stores), ("send", lambda client: client.log("kv").next(0))]
    for method, call in calls:
        client = Client(NOWHERE)

        def closed(*_: object, http: Any = client._http, **__: object) -> None:
            http.close()
            raise RuntimeError("Cannot send a request, as the client has been closed.")

        setattr(client._http, method, closed)
        with pytest.raises(Misuse, match="closed"):
            call(client)


def test_a_store_is_declared_by_a_mapping_as_well(url: str, prefix: str) -> None:
    store = prefix.strip("/").replace("/", "-")
    with Client(url) as client:
        assert client.declare_store(store, {"existence": "declared"}).existence == "declared"
        with pytest.raises(ClientMistake, match="unknown_field"):
            client.declare_store(store, {"existance": "declared"})


def test_an_error_tells_what_cannot_be_reached() -> None:
    with Client(NOWHERE) as client, pytest.raises(Unavailable, match=NOWHERE):
        client.begin(["kv"])


def test_each_client_runs_work_of_its_own_kind(url: str, prefix: str) -> None:
    async def put(txn: AsyncTransaction) -> None:
        txn.put("kv", prefix, 1)

    def put_blocking(txn: Transaction) -> None:
        txn.put("kv", prefix, 1)

    async def run(work: Any) -> None:
        async with AsyncClient(url) as client:
            await client.run(work, ["kv"])

    blocking: Any = put
    with Client(url) as client:
        with pytest.raises(Misuse, match="AsyncClient"):
            client.run(blocking, ["kv"])
        with pytest.raises(Misuse, match="async def"):
            asyncio.run(run(put_blocking))
        assert client.row("kv", prefix) is None


def test_a_request_that_is_too_large_is_not_sent() -> None:
    async def commit() -> None:
        async with AsyncClient(NOWHERE) as client:
            txn = client.begin_local()
            txn.put("kv", "a", "x" * (11 << 20))
            await txn.commit()

    with pytest.raises(Misuse, match="limit"):
        asyncio.run(commit())
    with Client(NOWHERE) as client:
        txn = client.begin_local()
        txn.put("kv", "a", "x" * (11 << 20))
        with pytest.raises(Misuse, match="limit"):
            client.batch([txn.prepare()])


COMMITTED = Committed("a", 1, None, None, {}, "token", None, False)

WRONG: Any = b"x"

MISTAKES: list[tuple[Call, str]] = [
    (lambda client: client.commit(client.begin_local()), r"not (Async)?Transaction: pass what `prepare\(\)`"),
    (lambda client: client.validate(client.begin_local()), r"not (Async)?Transaction: pass what `prepare\(\)`"),
    (lambda client: client.batch(["a"]), r"a PreparedCommit was expected, not str: pass what `prepare\(\)`"),
    (lambda client: client.batch(client.begin_local().prepare()), "a list of PreparedCommit was expected"),
    (lambda client: client.begin(read=["a"]), re.escape('`read` must be a dict by store, such as {"kv"')),
    (lambda client: client.run(print, read=["a"]), "`read` must be a dict"),
    (lambda client: client.begin(read={"kv": 1}), "a list of keys was expected, not int"),
    (lambda client: client.begin(ranges=["a"]), "`ranges` must be a dict"),
    (lambda client: client.begin(ranges={"kv": [("a", "b")]}), "a KeyRange was expected, not tuple"),
    (lambda client: client.read_ranges("kv", [("a", "b")]), re.escape('not tuple: pass a list such as [KeyRange("a"')),
    (lambda client: client.status("a", wait_s=float("inf")), "`wait_s` must be a finite number .* not inf"),
    (lambda client: client.status("a", wait_s=-1), "`wait_s` must be .* at least 0, not -1"),
    (lambda client: client.begin(wait_s=float("nan")), "`wait_s` must be"),
    (lambda client: client.begin(wait_s=True), "`wait_s` must be"),
    (lambda client: client.begin(wait_s="1"), "`wait_s` must be"),
    (lambda client: client.read_rows("kv", ["a"], wait_s=-1), "`wait_s` must be"),
    (lambda client: client.read_ranges("kv", [], wait_s=-1), "`wait_s` must be"),
    (lambda client: client.begin_local().observe("kv", "a", True), "`version` must be an int, not bool"),
    (lambda client: client.begin_local().observe("kv", "a", 5.0), "`version` must be an int, not float"),
    (lambda client: client.read_rows("kv", ["a"], known={"a": "5"}), "`known` must be an int, not str"),
    (lambda client: client.set_offset("c", "kv", 1.0), "`lsn` must be an int, not float"),
    (lambda client: client.set_offset("c", "kv", -1), "`lsn` must be at least 0, not -1"),
    (lambda client: client.log("kv", -1), "`after` must be at least 0, not -1"),
    (lambda client: client.log("kv", wait_s=None), "`wait_s` must be a number of seconds"),
    (lambda client: client.log("kv").next(-1), "`wait_s` must be a number of seconds, at least 0, not -1"),
    (lambda client: client.begin(["kv", 5]), 'a str was expected, not int: pass the names of stores, such as \\["kv"'),
    (lambda client: client.begin(5), "a list of str was expected, not int"),
    (lambda client: client.begin(["kv"], session=COMMITTED), "the `session` of a `Committed`, not Committed"),
    (lambda client: client.read_rows("kv", ["a"], session=COMMITTED), "`session` must be a str"),
    (lambda client: client.read_ranges("kv", [], session=COMMITTED), "`session` must be a str"),
    (lambda client: client.begin(["kv"], traceparent=5), "`traceparent` must be a str, not int"),
    (lambda client: client.commit(PreparedCommit("a", CommitRequest(), "a\nb")), "`traceparent` has characters"),
    (lambda client: client.begin_local().put(b"kv", "a", 1), "the name of a store must be str, not bytes"),
    (lambda client: client.begin_local().put(None, "a", 1), "the name of a store must be str, not NoneType"),
    (lambda client: client.commit(PreparedCommit("a", CommitRequest(priority=WRONG))), "cannot be represented in JSON"),
    (lambda client: client.batch([PreparedCommit("a", CommitRequest(ack=WRONG))]), "cannot be sent: .* b'x'"),
    (lambda client: client.declare_store("kv", "kv"), re.escape('such as {"adaptor": "kv"}, not \'kv\'')),
    (lambda client: client.declare_store("kv", None), "not None"),
    (lambda client: client.declare_store("kv", ["kv"]), r"not \['kv'\]"),
    (lambda client: client.declare_store("kv", {"existence": "trackd"}), "trackd"),
    (lambda client: client.rows("kv", limit=0), "`limit` must be an int from 1 to 10000, not 0"),
    (lambda client: client.begin_local().scan("kv", limit=-1), "`limit` must be an int"),
    (lambda client: client.begin_local().scan("kv", limit="3"), "`limit` must be an int .* not '3'"),
    (lambda client: client.begin(ranges={"kv": [KeyRange(limit=10_001)]}), "`limit` must be an int"),
    (lambda client: client.begin_local("foo"), "`isolation` must be one of read-committed, .* not 'foo'"),
    (lambda client: client.begin_local(["kv"]), "`isolation` must be one of"),
    (lambda client: client.begin_local().observe("kv", "a", 0), "at least 1, not 0: pass None for a row that is"),
]


@pytest.mark.parametrize(("call", "text"), MISTAKES)
def test_an_argument_that_cannot_work_is_a_misuse_that_tells_what_to_pass(call: Call, text: str) -> None:
    async def awaited() -> None:
        async with AsyncClient(NOWHERE) as client:
            await call(client)

    with Client(NOWHERE) as client, pytest.raises(Misuse, match=text):
        call(client)
    with pytest.raises(Misuse, match=text):
        asyncio.run(awaited())


def test_an_absent_field_is_printed_by_name() -> None:
    text = repr(StoreDeclaration())
    assert "adaptor=UNSET" in text
    assert " object at 0x" not in text


NAMED: dict[str, Callable[[Client, Any], object]] = {
    "store": lambda client, name: client.store(name),
    "declare_store": lambda client, name: client.declare_store(name, {"adaptor": "kv"}),
    "row": lambda client, name: client.row(name, "a"),
    "rows": lambda client, name: client.rows(name),
    "read_rows": lambda client, name: client.read_rows(name, ["a"]),
    "read_ranges": lambda client, name: client.read_ranges(name, [KeyRange("a", "b")]),
    "set_offset": lambda client, name: client.set_offset(name, "kv", 0),
    "forget_consumer": lambda client, name: client.forget_consumer(name),
    "status": lambda client, name: client.status(name),
    "abort": lambda client, name: client.abort(name),
}
TEXTS: dict[str, Callable[[Client, Any], object]] = {
    **NAMED,
    "log": lambda client, name: client.log(name),
    "log, its log": lambda client, name: client.log("kv", log=name),
    "offset": lambda client, name: client.offset("consumer", name),
    "offset of": lambda client, name: client.offset(name, "kv"),
    "set_offset in": lambda client, name: client.set_offset("consumer", name, 0),
    "set_offset, its log": lambda client, name: client.set_offset("consumer", "kv", 0, log=name),
    "begin": lambda client, name: client.begin([name]),
    "begin, its session": lambda client, name: client.begin(["kv"], session=name),
    "begin, its isolation": lambda client, name: client.begin(["kv"], isolation=name),
    "begin, its consistency": lambda client, name: client.begin(["kv"], consistency=name),
    "begin, read": lambda client, name: client.begin(read={"kv": ["a"], name: ["a"]}),
    "begin, ranges": lambda client, name: client.begin(ranges={"kv": [], name: [KeyRange("a", "b")]}),
    "put": lambda client, name: client.begin_local().put(name, "a", 1),
    "adaptor": lambda client, name: client.declare_store("kv", {"adaptor": name}),
}


# As text, None would name the store "None", and dots would name another resource.
@pytest.mark.parametrize("name", [None, 5, b"kv", "", ".", ".."])
@pytest.mark.parametrize("use", NAMED)
def test_a_name_that_is_no_segment_of_a_path_is_a_misuse(use: str, name: Any) -> None:
    with pytest.raises(Misuse, match=r"(name|id) of a"):
        NAMED[use](Client(NOWHERE), name)


@pytest.mark.parametrize("use", TEXTS)
def test_text_that_is_not_utf8_is_a_misuse(use: str) -> None:
    with pytest.raises(Misuse, match="surrogates"):
        TEXTS[use](Client(NOWHERE), "\ud800")


@pytest.mark.parametrize("use", TEXTS)
def test_bytes_are_a_misuse_where_text_is_expected(use: str) -> None:
    with pytest.raises(Misuse, match="bytes"):
        TEXTS[use](Client(NOWHERE), b"kv")


@pytest.mark.parametrize("limit", [0, -1, 10_001, 1.5, "1", True])
def test_a_page_max_that_is_no_limit_is_a_misuse(limit: Any) -> None:
    with pytest.raises(Misuse, match="`page_max` must be an int from 1"):
        Client(NOWHERE).log("kv", page_max=limit)


@pytest.mark.parametrize("work", [None, 5, "work"])
def test_work_that_is_no_function_is_a_misuse(work: Any) -> None:
    with pytest.raises(Misuse, match="`run` takes the work"):
        Client(NOWHERE).run(work)
