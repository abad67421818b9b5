"""Freshness of requests: the snapshot of a scan, the client's session and its end, and the service's wait."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest

from tribunal_client import Client, ClientMistake, Committed, KeyRange
from tribunal_client.session import Session

from .endpoints import Late, Reply, Start, client_of, commits, problem, refused, works
from .scripted import Script, Scripted, Service, begun, committed

Serve = Callable[[Script], Service]


@pytest.fixture
def serve() -> Iterator[Serve]:
    services: list[Service] = []

    def serve(script: Script) -> Service:
        services.append(Service(script))
        return services[-1]

    yield serve
    for service in services:
        service.stop()


def sessions(service: Service, kind: str) -> list[str | None]:
    return [one.body.get("session") for one in service.arrived(kind)]


def test_a_scan_is_never_older_than_the_snapshot(serve: Serve) -> None:
    def page(applied: int, keys: str, *, more: bool) -> Scripted:
        rows = [{"key": key, "value": 1, "version": "8388608"} for key in keys]
        return 200, {"applied": str(applied), "ranges": [{"store": "kv", "rows": rows, "more": more}]}

    # The first and the third page come from a lagging node.
    pages = [page(6, "", more=False), page(7, "a", more=True), page(6, "", more=False), page(8, "b", more=False)]
    service = serve(lambda kind, before: begun(before) if kind == "begin" else pages[before])
    with Client(service.url) as client:
        assert [row.key for row in client.begin(["kv"]).scan("kv")] == ["a", "b"]
    assert sessions(service, "rows") == ["s"] * 4


def test_an_own_token_that_the_service_does_not_know_is_forgotten(serve: Serve) -> None:
    def script(kind: str, before: int) -> Scripted:
        if kind != "begin":
            return committed(9000)
        return (422, problem(422, "session_unknown")) if before in (0, 3) else begun(before)

    service = serve(script)
    with Client(service.url) as client:
        txn = client.begin_local()
        txn.put("kv", "a", 1)
        txn.commit()
        # Refused, resent without the token, and sent without it from then on.
        client.begin(["kv"])
        client.begin(["kv"])
        assert sessions(service, "begin") == ["token-9000", None, None]
        # A token that the caller named is the caller's to omit.
        with pytest.raises(ClientMistake, match="session_unknown"):
            client.begin(session="mine")
    assert sessions(service, "begin")[3:] == ["mine"]


def test_forgetting_a_token_forgets_those_of_the_same_log_after_it() -> None:
    session = Session()
    for epoch, store in (7, "a"), (8, "b"), (9, "c"):
        session.record(Committed("txn", epoch, None, None, {store: 1}, f"token-{epoch}", None, False, None))
    session.forget("other")
    assert session.token(None) == "token-9"
    session.forget("token-8")
    assert session.token(None) == "token-7"


@pytest.mark.parametrize("way", ["rows", "range"])
def test_reads_go_on_after_the_log_has_been_replaced(start: Start, way: str) -> None:
    found = {"applied": "5", "rows": [{"store": "kv"}], "ranges": [{"store": "kv", "rows": [], "more": False}]}
    first = start(lambda kind, ids, before: refused(503, "stopping") if before else works(kind, ids))
    # The commit belonged to epoch 9.
    second = start(lambda _, __, before: refused(422, "session_unknown") if before == 1 else (200, found))
    client = client_of([first.url, second.url])
    commits(client)
    assert (client.read_rows("kv", ["n"]) if way == "rows" else client.rows("kv")).applied == 5
    assert [json.loads(body).get("session") for _, body in second.asked] == [None, "s", None]


def test_an_endpoint_may_wait_for_what_a_request_must_include(start: Start) -> None:
    # The service waits 5 s by default, which is not a failure of its endpoint.
    def slow(kind: str, ids: list[str], before: int) -> Reply:
        if kind == "commit":
            return works(kind, ids, before)
        found = {"applied": "9", "rows": [{"store": "kv"}], "ranges": [{"store": "kv", "rows": [], "more": False}]}
        return Late(3, works(kind, ids, before) if kind == "begin" else (200, found))

    first, second = start(slow), start(works)
    client = client_of([first.url, second.url], endpoint_timeout_s=2)
    commits(client)
    client.begin(["kv"])
    client.read_rows("kv", ["n"], consistency="fresh")
    client.read_ranges("kv", [KeyRange()], session="s")
    assert (second.asked, client.endpoint) == ([], first.url)


def test_a_verdict_that_was_asked_for_counts_as_an_own_commit(serve: Serve) -> None:
    def script(kind: str, before: int) -> Scripted:
        return begun(before) if kind == "begin" else committed(9 if kind == "status" else 12)

    service = serve(script)
    with Client(service.url) as client:
        client.status("a")
        client.begin(["kv"])
        client.abort("b")
        client.begin(["kv"])
    assert sessions(service, "begin") == ["token-9", "token-12"]
