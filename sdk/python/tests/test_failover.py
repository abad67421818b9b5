"""The client against several endpoints, some of which fail: services over HTTP that reply by a script."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from typing import Any

import pytest

from tribunal_client import (
    Aborted,
    AsyncClient,
    Client,
    ClientMistake,
    Committed,
    Misuse,
    OutcomeUnknown,
    RetryPolicy,
    ServerMisbehaved,
    Unavailable,
)
from tribunal_client.endpoints import Endpoints

from .endpoints import Reply, Start, client_of, commits, committed, kind_of, prepared, problem, refused, works


def _dead() -> str:
    """Return the URL of an endpoint without a listener.

    A closed port of 127.0.0.1 may be reused by the next server.
    """
    with socket.create_server(("127.0.0.2", 0)) as server:
        return f"http://127.0.0.2:{server.getsockname()[1]}"


def test_a_dead_endpoint_is_passed_over_and_the_next_one_stays_in_use(start: Start) -> None:
    first, second = _dead(), start(works)
    # As in the environment variable `TRIBUNAL_URL`.
    client = Client(f"{first}, {second.url}/")
    assert client.endpoint == first
    client.begin(["kv"])
    commits(client)
    assert client.endpoint == second.url
    assert len(second.asked) == 2


def test_an_unavailable_endpoint_is_left_until_its_cool_down_has_passed(start: Start) -> None:
    first = start(lambda kind, ids, before: works(kind, ids) if before else refused(503, "stopping"))
    # The second endpoint fails at its third request.
    second = start(lambda kind, ids, before: works(kind, ids) if before < 2 else refused(503, "unavailable"))
    third = start(works)
    client = client_of([first.url, second.url, third.url], cool_down_s=3600)

    def counts() -> list[int]:
        client.stores()
        return [len(endpoint.asked) for endpoint in (first, second, third)]

    assert counts() == [1, 1, 0]
    assert counts() == [1, 2, 0], "the second one stays in use"
    assert counts() == [1, 3, 1], "the first one has failed shortly before"


def test_the_endpoint_in_use_stays_so_when_an_earlier_one_may_be_tried_again(start: Start) -> None:
    first = start(lambda kind, ids, before: works(kind, ids) if before else refused(503, "stopping"))
    second = start(works)
    client = client_of([first.url, second.url], cool_down_s=0.05)
    client.stores()
    time.sleep(0.06)
    client.stores()
    assert (len(first.asked), len(second.asked), client.endpoint) == (1, 2, second.url)


def test_a_failed_endpoint_is_tried_again_after_its_cool_down(start: Start) -> None:
    first = start(lambda kind, ids, before: works(kind, ids) if before else "lost")
    second = start(lambda kind, ids, before: refused(503, "unavailable") if before == 1 else works(kind, ids))
    client = client_of([first.url, second.url], cool_down_s=0.05)
    client.stores()
    time.sleep(0.06)
    client.stores()
    assert (len(first.asked), len(second.asked)) == (2, 2)


@pytest.mark.parametrize("lost", ["lost", "silent", refused(504, "outcome_unknown")], ids=["lost", "silent", "unknown"])
def test_a_commit_without_a_reply_is_sent_elsewhere_with_the_same_id_and_body(start: Start, lost: Reply) -> None:
    first, second = start(lambda *_: lost), start(works)
    client = client_of([first.url, second.url], endpoint_timeout_s=2)
    commits(client)
    assert len(first.asked) == 1
    assert first.asked == second.asked, "the same request, and no question about its status"
    assert client.endpoint == second.url


@pytest.mark.parametrize("lost", ["lost", refused(504, "outcome_unknown")], ids=["lost", "unknown"])
def test_a_refusal_after_a_lost_reply_does_not_tell_the_outcome(start: Start, lost: Reply) -> None:
    first = start(lambda *_: lost)
    second = start(lambda kind, ids, _: refused(429, "quota_exceeded") if kind == "commit" else works(kind, ids))
    commits(client_of([first.url, second.url]))
    assert "fence=true" in second.asked[1][0], "the verdict is requested"


@pytest.mark.parametrize(
    ("status", "code"),
    [(422, "bad_write"), (429, "quota_exceeded"), (503, "overloaded"), (401, "unauthenticated")],
)
def test_definite_answers_are_not_repeated_elsewhere(start: Start, status: int, code: str) -> None:
    first, second = start(lambda *_: refused(status, code)), start(works)
    client = client_of([first.url, second.url])
    with pytest.raises((ClientMistake, Unavailable), match=code):
        client.commit(prepared(client))
    assert (len(first.asked), len(second.asked), client.endpoint) == (1, 0, first.url)


def test_an_abort_is_not_repeated_elsewhere(start: Start) -> None:
    aborted = {"status": "aborted", "txn_id": "x", "epoch": "9", "reason": "write_conflict", "retryable": True}
    first, second = start(lambda *_: (200, aborted)), start(works)
    client = client_of([first.url, second.url])
    assert isinstance(client.commit(prepared(client)), Aborted)
    assert not second.asked


def test_the_error_after_all_have_failed_names_each_endpoint_and_its_reason(start: Start) -> None:
    first, second = _dead(), start(lambda *_: refused(503, "no_majority"))
    third = start(lambda *_: (503, "a proxy"))
    client = client_of([first, second.url, third.url])
    with pytest.raises(Unavailable) as unavailable:
        client.begin()
    text = str(unavailable.value)
    for part in (first, second.url, third.url, "refused", "no_majority: says so", "status 503"):
        assert part in text
    assert unavailable.value.code == "no_majority"
    assert (len(second.asked), len(third.asked)) == (2, 2), "each is tried twice"
    with pytest.raises(Unavailable):
        client_of([first, second.url]).commit(prepared(client))
    # The proxy may have forwarded it.
    with pytest.raises(OutcomeUnknown):
        client.commit(prepared(client))


@pytest.mark.parametrize("status", [301, 404, 500])
def test_what_is_not_tribunal_is_passed_over(start: Start, status: int) -> None:
    first, second = start(lambda *_: (status, "a proxy")), start(works)
    client = client_of([first.url, second.url])
    commits(client)
    assert first.asked == second.asked
    assert client.endpoint == second.url


def test_a_refusal_for_the_size_of_a_request_is_not_repeated_elsewhere(start: Start) -> None:
    first, second = start(lambda *_: (413, "a proxy")), start(works)
    client = client_of([first.url, second.url])
    with pytest.raises(ServerMisbehaved, match="status 413"):
        client.begin()
    assert not second.asked


def test_an_answer_that_is_not_of_tribunal_names_its_endpoint(start: Start) -> None:
    missing, page = start(lambda *_: (404, "a proxy")), start(lambda *_: (200, "a page"))
    for endpoint, text in ((missing, "status 404 without a problem document"), (page, "does not fit the API")):
        with pytest.raises(ServerMisbehaved) as misbehaved:
            client_of([endpoint.url]).begin()
        assert str(misbehaved.value).startswith(f"{endpoint.url}: ")
        assert text in str(misbehaved.value)


def test_the_timeout_is_shared_by_the_endpoints(start: Start) -> None:
    endpoints = [start(lambda *_: "silent") for _ in range(2)]
    begun = time.monotonic()
    with pytest.raises(Unavailable):
        client_of([endpoint.url for endpoint in endpoints], timeout_s=4).begin()
    assert time.monotonic() - begun >= 4
    assert [len(endpoint.asked) for endpoint in endpoints] == [1, 1]


def _undecided(kind: str, ids: list[str], _: int) -> Reply:
    """In a batch, the second commit was not accepted; the third one's outcome is unknown; the others are decided."""
    if kind != "batch-commit":
        time.sleep(0.2)  # Further commits are queued meanwhile.
        return works(kind, ids)
    not_taken = {"status": "problem", "problem": problem(503, "unavailable")}
    unknown = {"status": "problem", "problem": problem(504, "outcome_unknown")}
    return [committed(ids[0]), not_taken, unknown, *(committed(txn_id) for txn_id in ids[3:])]


def test_commits_of_a_batch_without_an_outcome_are_sent_elsewhere(start: Start) -> None:
    first, second = start(_undecided), start(works)

    async def commits() -> None:
        async with AsyncClient([first.url, second.url]) as client:
            items = [prepared(client) for _ in range(4)]
            verdicts = await asyncio.gather(*(client.commit(commit) for commit in items))
        for verdict, commit in zip(verdicts, items, strict=True):
            assert isinstance(verdict, Committed)
            assert verdict.txn_id == commit.txn_id

    asyncio.run(commits())
    [(path, lines)] = second.asked
    [sent] = [body for path, body in first.asked if kind_of(path) == "batch-commit"]
    assert kind_of(path) == "batch-commit"
    assert lines.splitlines() == sent.splitlines()[1:3], "the same lines"


def test_commits_of_an_explicit_batch_are_sent_elsewhere(start: Start) -> None:
    unknown = {"status": "problem", "problem": problem(504, "outcome_unknown")}
    first = start(lambda _, __, before: refused(503, "stopping") if before else (200, {"results": [unknown]}))
    second = start(works)
    client = client_of([first.url, second.url])
    commit = prepared(client)
    [verdict] = client.batch([commit])
    assert isinstance(verdict, Committed)
    assert second.asked[0][0] == f"/v1/txns/{commit.txn_id}/commit"


def record(lsn: int) -> dict[str, Any]:
    numbers = {"lsn": str(lsn), "prev_lsn": str(lsn - 1), "epoch": "9", "csn": "1", "version": "5"}
    return {"store": "kv", **numbers, "txn_id": "x", "writes": []}


def test_a_log_reader_at_its_quota_stays_at_its_endpoint(start: Start) -> None:
    full = {**problem(429, "quota_exceeded"), "retryable": True}
    ends = {"event": "end", "next": "1", "reason": "quota_exceeded", "problem": full}
    first = start(lambda _, __, before: [record(2)] if before else [record(1), ends])
    second = start(lambda *_: [record(2)])
    client = client_of([first.url, second.url])
    log = client.log("kv")
    for lsn in (1, 2):
        found = log.next()
        assert found is not None
        assert found.lsn == lsn
    log.close()
    assert (len(first.asked), len(second.asked)) == (2, 0)
    assert client.endpoint == first.url


def test_a_log_reader_continues_at_its_position_on_another_endpoint(start: Start) -> None:
    first = start(lambda *_: [record(1), record(2), {"event": "end", "reason": "stopping"}])
    second = start(lambda *_: [record(3)])
    client = client_of([first.url, second.url])
    log = client.log("kv")
    for lsn in (1, 2, 3):
        found = log.next()
        assert found is not None
        assert found.lsn == lsn
    log.close()
    assert len(first.asked) == 1
    assert "after=2" in second.asked[0][0]
    assert client.endpoint == second.url


def test_a_node_that_lags_is_asked_once_and_remains_in_use(start: Start) -> None:
    first = start(lambda kind, ids, before: works(kind, ids) if before else refused(503, "store_lagging"))
    second = start(works)
    client = client_of([first.url, second.url])
    client.begin(["kv"])
    assert (len(first.asked), len(second.asked), client.endpoint) == (1, 1, first.url)


def test_an_endpoint_that_failed_for_another_call_is_passed_over_until_its_cool_down_has_passed() -> None:
    endpoints = Endpoints("http://a:1, http://b:2/,http://c:3,http://a:1", 1, 3600)
    assert endpoints.urls == ["http://a:1", "http://b:2", "http://c:3"]
    # For example, a log reader that is still connected to the second one.
    endpoints.failed(1)
    assert endpoints.in_use == 0
    endpoints.failed(0)
    assert endpoints.in_use == 2
    endpoints._failed_at[1] = time.monotonic() - 7200
    endpoints.failed(2)
    assert endpoints.in_use == 1, "unlike the first one, it has rested"
    # Of three failed endpoints, the first to answer is used.
    endpoints.failed(1)
    endpoints.works(0)
    assert endpoints.in_use == 0


def test_a_read_waits_for_the_clients_own_commits(start: Start) -> None:
    def lagging(_: str, __: list[str], before: int) -> Reply:
        # The commit belongs to epoch 9.
        row = {"store": "kv", "key": "n", "value": 1, "version": "5"}
        return 200, {"applied": str(8 + before), "rows": [row]}

    first = start(lambda kind, ids, before: refused(503, "stopping") if before else works(kind, ids))
    second = start(lagging)
    client = client_of([first.url, second.url])
    commits(client)
    assert client.read_rows("kv", ["n"]).applied == 9
    assert len(second.asked) == 2


@pytest.mark.parametrize("urls", [["http://a:1,b:2"], ["http://a:1", "ftp://b:2"], ["http://a:1,"], []])
def test_urls_that_cannot_be_used_are_named(urls: list[str]) -> None:
    with pytest.raises(Misuse):
        Client(urls)


def test_an_endpoint_that_does_not_answer_is_left_before_its_share_of_the_timeout_is_over(start: Start) -> None:
    for kind in ("begin", "commit"):
        paused, second, third = start(lambda *_: "silent"), start(works), start(works)
        with client_of([paused.url, second.url, third.url], timeout_s=90, endpoint_timeout_s=2) as client:
            for _ in range(2):
                begun = time.monotonic()
                if kind == "begin":
                    client.begin(["kv"])
                else:
                    assert isinstance(client.commit(prepared(client)), Committed)
                assert time.monotonic() - begun < 30
        assert (len(paused.asked), len(second.asked), len(third.asked)) == (1, 2, 0)


@pytest.mark.parametrize("is_async", [False, True])
def test_a_callers_own_bound_does_not_make_an_endpoint_fail(start: Start, is_async: bool) -> None:
    slow, second = start(lambda *_: "silent"), start(lambda *_: (200, {"applied": "9", "rows": [{"store": "kv"}]}))
    urls = [slow.url, second.url]

    def endpoint_after(**bounds: float) -> str:
        timeout_s, endpoint_timeout_s = bounds["timeout_s"], bounds["endpoint_timeout_s"]
        if not is_async:
            with Client(urls, endpoint_timeout_s=endpoint_timeout_s) as client:
                assert client.row("kv", "a", timeout_s=timeout_s) is None
                return client.endpoint

        async def read() -> str:
            async with AsyncClient(urls, endpoint_timeout_s=endpoint_timeout_s) as client:
                assert await client.row("kv", "a", timeout_s=timeout_s) is None
                return client.endpoint

        return asyncio.run(read())

    # Each endpoint gets half of the caller's bound, less than the time after which its silence counts as a failure.
    assert endpoint_after(timeout_s=4, endpoint_timeout_s=10) == slow.url
    assert endpoint_after(timeout_s=30, endpoint_timeout_s=0.2) == second.url
    # The bound cuts off the first endpoint; the second one refuses the connection, which is a failure.
    urls[1] = _dead()
    with Client(urls, retry=RetryPolicy(attempts_max=1)) as client, pytest.raises(Unavailable):
        client.row("kv", "a", timeout_s=1)
    failed_at = client._service._endpoints._failed_at
    assert failed_at[0] is None
    assert failed_at[1] is not None


def test_the_last_endpoint_has_the_time_that_is_left(start: Start) -> None:
    paused = [start(lambda *_: "silent"), start(lambda *_: "silent")]
    with client_of([one.url for one in paused], timeout_s=5, endpoint_timeout_s=2) as client:
        begun = time.monotonic()
        with pytest.raises(Unavailable):
            client.begin(["kv"])
        assert time.monotonic() - begun >= 4.9
    assert [len(one.asked) for one in paused] == [1, 1]


@pytest.mark.parametrize(
    "page",
    [(200, "<html>Please log in</html>", "text/html"), (200, "login", "text/plain"), (200, "<", "application/json")],
)
def test_a_page_of_a_proxy_is_no_answer(start: Start, page: tuple[int, str, str]) -> None:
    proxy, second = start(lambda *_: page), start(works)
    with client_of([proxy.url, second.url]) as client:
        client.begin(["kv"])
        assert client.endpoint == second.url
    with client_of([proxy.url, second.url]) as client:
        commit = prepared(client)
        assert isinstance(client.commit(commit), Committed)
        assert proxy.asked[-1] == second.asked[-1]
    with client_of([proxy.url]) as client, pytest.raises(ServerMisbehaved):
        client.begin(["kv"])


def test_a_page_of_a_proxy_is_no_answer_to_an_asyncio_client(start: Start) -> None:
    proxy, second = start(lambda *_: (200, "<html>", "text/html")), start(works)

    async def begins() -> str:
        async with AsyncClient([proxy.url, second.url]) as client:
            await client.begin(["kv"])
            return client.endpoint

    assert asyncio.run(begins()) == second.url


def _one_record(kind: str, ids: list[str], _: int) -> Reply:
    if kind != "other":
        return works(kind, ids)
    numbers = {"lsn": "1", "prev_lsn": "0", "epoch": "9", "csn": "1", "version": "5"}
    return [{"store": "kv", **numbers, "txn_id": "x", "writes": []}]


def test_a_call_waits_for_a_free_connection_for_all_of_its_time(start: Start) -> None:
    urls = [start(_one_record).url, _dead()]

    async def tasks() -> None:
        async with AsyncClient(urls, connections_max=1, timeout_s=30, endpoint_timeout_s=0.2) as client:
            log = client.log("kv")
            assert await log.next() is not None
            closing = asyncio.get_running_loop().call_later(0.6, lambda: asyncio.create_task(log.close()))
            await client.begin(["kv"])
            closing.cancel()

    with Client(urls, connections_max=1, timeout_s=30, endpoint_timeout_s=0.2) as client:
        log = client.log("kv")
        assert log.next() is not None
        closing = threading.Timer(0.6, log.close)
        closing.start()
        client.begin(["kv"])
        closing.join()
    asyncio.run(tasks())


def test_a_wait_for_a_free_connection_tells_nothing_about_an_endpoint(start: Start) -> None:
    urls = [start(_one_record).url, _dead()]
    with Client(urls, connections_max=1, retry=RetryPolicy(attempts_max=1)) as client:
        log = client.log("kv")
        assert log.next() is not None
        client._service._timeout_s = 0.2
        endpoints = client._service._endpoints
        endpoints.failed(1)
        endpoints.failed(0)
        failed_at = list(endpoints._failed_at)
        with pytest.raises(Unavailable, match="close log readers"):
            client.begin(["kv"])
        with pytest.raises(Unavailable, match="close log readers"):
            client.log("kv").next(0)
        assert endpoints._failed_at == failed_at
        log.close()


@pytest.mark.parametrize(
    "lost",
    ["lost", refused(504, "outcome_unknown"), refused(503, "stopping"), (502, "a proxy", "text/plain")],
    ids=["lost", "unknown", "stopping", "proxy"],
)
def test_a_consumers_offset_that_may_have_been_taken_is_not_sent_elsewhere(start: Start, lost: Reply) -> None:
    first, second = start(lambda *_: lost), start(lambda *_: (200, {"name": "view", "log": "l", "offsets": []}))
    client = client_of([first.url, second.url])
    with pytest.raises(Unavailable) as unknown:
        client.set_offset("view", "kv", 1)
    assert lost != "lost" or str(unknown.value).endswith("; the offset may have been set")
    assert (len(first.asked), len(second.asked)) == (1, 0)
    assert client.set_offset("view", "kv", 1).name == "view", "set again"


def test_a_consumers_offset_that_was_not_taken_is_sent_elsewhere(start: Start) -> None:
    second = start(lambda *_: (200, {"name": "view", "log": "l", "offsets": []}))
    for first in (_dead(), start(lambda *_: refused(503, "unavailable")).url):
        assert client_of([first, second.url]).set_offset("view", "kv", 1).name == "view"


def test_an_error_of_a_commit_that_is_sent_again_leaves_the_results_of_the_others(start: Start) -> None:
    results = [committed("first"), {"status": "problem", "problem": problem(503, "unavailable")}]
    first = start(lambda _, __, before: refused(503, "stopping") if before else (200, {"results": results}))
    second = start(lambda *_: (413, "a proxy", "text/plain"))
    client = client_of([first.url, second.url])
    decided, refusal = client.batch([prepared(client), prepared(client)])
    assert isinstance(decided, Committed)
    assert isinstance(refusal, ServerMisbehaved)
