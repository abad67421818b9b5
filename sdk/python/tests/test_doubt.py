"""Commits whose response does not determine their outcome: they are resolved by their ids."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace

import pytest

from tribunal_client import AsyncClient, Committed, Misuse, OutcomeUnknown, RetryPolicy, Unavailable, Verdict

from .endpoints import Reply, Start, client_of, committed, prepared, problem, refused, works

UNCLEAR: dict[str, Reply] = {
    "503 of a proxy": (503, "upstream connect error or disconnect/reset before headers", "text/plain"),
    "520 of a proxy": (520, "<html>unknown error</html>", "text/html"),
    "page of a proxy": (200, "<html>Please log in</html>", "text/html"),
    "broken": (200, '{"status":"commit', "application/json"),
    "other form": (200, {"status": "committed", "lsn": 7, "problem": 3}),
}
TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize("count", [1, 2])
@pytest.mark.parametrize("name", UNCLEAR)
def test_a_commit_whose_response_is_unclear_is_resolved_by_its_id(start: Start, name: str, count: int) -> None:
    def script(kind: str, ids: list[str], before: int) -> Reply:
        return works(kind, ids, before) if kind == "status" else UNCLEAR[name]

    urls = [start(script).url for _ in range(count)]
    client = client_of(urls)
    results = [client.commit(prepared(client)), client.commit(replace(prepared(client), traceparent=TRACEPARENT))]
    results += [
        verdict for verdict in client.batch([prepared(client), prepared(client)]) if isinstance(verdict, Committed)
    ]

    async def together() -> list[Verdict]:
        async with AsyncClient(urls, retry=RetryPolicy(attempts_max=4), coalesce=False) as client:
            return await asyncio.gather(*(client.commit(prepared(client)) for _ in range(3)))

    results += asyncio.run(together())
    assert len(results) == 7
    for verdict in results:
        assert isinstance(verdict, Committed)
        assert verdict.replayed


@pytest.mark.parametrize("code", ["txn_id_forgotten", "verdict_truncated"])
def test_a_commit_whose_verdict_is_forgotten_is_unknown_and_not_a_mistake(start: Start, code: str) -> None:
    def script(kind: str, ids: list[str], before: int) -> Reply:
        if kind == "begin":
            return works(kind, ids, before)
        line = {"status": "problem", "problem": problem(422, code)}
        return refused(422, code) if kind == "commit" else (200, {"results": [line]})

    client = client_of([start(script).url])
    txn = client.begin(["kv"])
    txn.put("kv", "a", 1)
    with pytest.raises(OutcomeUnknown, match=code):
        txn.commit()
    with pytest.raises(Misuse):
        txn.put("kv", "a", 2)
    (result,) = client.batch([prepared(client)])
    assert isinstance(result, OutcomeUnknown)


def test_a_transaction_stays_closed_while_its_outcome_is_unknown(start: Start) -> None:
    def script(kind: str, ids: list[str], before: int) -> Reply:
        if kind == "begin":
            return works(kind, ids, before)
        return UNCLEAR["503 of a proxy"] if kind == "commit" else refused(503, "stopping")

    txn = client_of([start(script).url], resolve_timeout_s=1).begin(["kv"])
    txn.put("kv", "a", 1)
    with pytest.raises(OutcomeUnknown):
        txn.commit()
    with pytest.raises(Misuse):
        txn.put("kv", "a", 2)


def test_a_batch_with_too_few_results_is_resolved_by_its_ids(start: Start) -> None:
    service = start(
        lambda kind, ids, _: works(kind, ids) if kind == "status" else (200, {"results": [committed("one")]})
    )
    client = client_of([service.url])
    for result in client.batch([prepared(client), prepared(client)]):
        assert isinstance(result, Committed)
        assert result.replayed


def test_commits_of_a_batch_that_were_refused_are_sent_again_within_one_timeout(start: Start) -> None:
    count = 6 * 64
    line = {"status": "problem", "problem": problem(503, "stopping")}

    def script(kind: str, _: list[str], __: int) -> Reply:
        if kind == "batch-commit":
            return 200, {"results": [line] * count}
        return (200, {"status": "in_flight"}) if kind == "status" else "silent"

    client = client_of([start(script).url, start(script).url], timeout_s=2, resolve_timeout_s=1)
    begun = time.monotonic()
    results = client.batch([prepared(client) for _ in range(count)])
    assert time.monotonic() - begun < 60
    assert isinstance(results[0], OutcomeUnknown)
    assert isinstance(results[-1], Unavailable), "one that was not sent again was not taken in"
