"""Answers of a newer service, with values that this client does not know."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tribunal_client import (
    Aborted,
    Client,
    Misuse,
    OutcomeUnknown,
    RetryPolicy,
    ServerMisbehaved,
    TransactionAborted,
    WouldAbort,
)

from .scripted import Script, Scripted, Service, aborted, begun, committed

UNKNOWN = "status `parked`, which this client does not know: the client is older than the server"


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Callable[[Script], Service]:
    def start(script: Script) -> Service:
        service = Service(script)
        request.addfinalizer(service.stop)
        return service

    return start


def outcome(status: str, **fields: Any) -> Scripted:
    return 200, {"status": status, "txn_id": "txn", "epoch": "9", **fields}


@pytest.mark.parametrize("coalesce", [True, False])
def test_an_abort_for_an_unknown_reason_is_an_abort(served: Callable[[Script], Service], coalesce: bool) -> None:
    conflict = {"store": "kv", "key": "a", "op": "lease", "stage": "admission-2"}
    service = served(lambda *_: outcome("aborted", reason="lease_lost", retryable=True, conflicts=[conflict]))
    client = Client(service.url, coalesce=coalesce)
    verdict = client.begin_local().commit()
    assert isinstance(verdict, Aborted)
    assert (verdict.reason, verdict.retryable) == ("lease_lost", True)
    assert (verdict.conflicts[0].op, verdict.conflicts[0].stage) == ("lease", "admission-2")
    again = client.status("txn")
    assert isinstance(again, Aborted)
    assert again.reason == "lease_lost"


@pytest.mark.parametrize(("answered", "attempts"), [({"retryable": True}, 2), ({"retryable": False}, 1), ({}, 1)])
def test_run_repeats_an_unknown_abort_only_if_the_service_says_so(
    served: Callable[[Script], Service], answered: dict[str, bool], attempts: int
) -> None:
    def script(kind: str, before: int) -> Scripted:
        if kind == "begin":
            return begun(before)
        return committed() if before == 1 else outcome("aborted", reason="lease_lost", **answered)

    service = served(script)
    client = Client(service.url, retry=RetryPolicy(wait_min_s=0.001))
    if attempts == 2:
        client.run(lambda txn: txn.put("kv", "a", 1), ["kv"])
    else:
        with pytest.raises(TransactionAborted, match="aborted: lease_lost"):
            client.run(lambda txn: txn.put("kv", "a", 1), ["kv"])
    assert len(service.arrived("commit")) == attempts


@pytest.mark.parametrize("coalesce", [True, False])
def test_a_commit_with_an_unknown_status_has_an_unknown_outcome(
    served: Callable[[Script], Service],
    coalesce: bool,
) -> None:
    service = served(lambda *_: outcome("parked"))
    txn = Client(service.url, coalesce=coalesce).begin_local()
    with pytest.raises(OutcomeUnknown, match=UNKNOWN) as error:
        txn.commit()
    assert error.value.txn_id == txn.id
    assert not service.arrived("status"), "another request would get the same answer"


def test_an_unknown_status_in_a_batch_leaves_the_other_verdicts(served: Callable[[Script], Service]) -> None:
    results = [committed()[1], outcome("parked")[1], aborted("lease_lost")[1]]
    client = Client(served(lambda *_: (200, {"results": results})).url)
    done, unknown, refused = client.batch([client.begin_local().prepare() for _ in results])
    assert done.status == "committed"  # type: ignore[union-attr]
    assert isinstance(unknown, OutcomeUnknown)
    assert UNKNOWN in str(unknown)
    assert isinstance(refused, Aborted)
    assert refused.reason == "lease_lost"


def test_an_unknown_status_is_an_error_that_names_it(served: Callable[[Script], Service]) -> None:
    client = Client(served(lambda *_: outcome("parked")).url)
    prepared = client.begin_local().prepare()
    for ask in (lambda: client.status("txn"), lambda: client.abort("txn"), lambda: client.validate(prepared)):
        with pytest.raises(ServerMisbehaved, match=UNKNOWN):
            ask()


def test_a_dry_run_may_have_an_unknown_reason(served: Callable[[Script], Service]) -> None:
    client = Client(served(lambda *_: outcome("would_abort", reason="lease_lost", retryable=True)).url)
    verdict = client.validate(client.begin_local().prepare())
    assert isinstance(verdict, WouldAbort)
    assert verdict.reason == "lease_lost"


def test_a_store_may_have_an_unknown_existence_that_cannot_be_declared(served: Callable[[Script], Service]) -> None:
    numbers = dict.fromkeys(("acked_lsn", "applied", "committed", "durable", "head_lsn"), "1")
    flags = {"multi_version": False, "transactional": True}
    store = {"store": "kv", "existence": "leased", "push": {"state": "paused", "lag_ms": "0"}, **numbers, **flags}
    replies: list[dict[str, Any]] = [store, {"stores": [store, {**store, "existence": "tracked"}]}, store]
    client = Client(served(lambda _, before: (200, replies[before])).url)
    info = client.store("kv")
    assert (info.existence, info.push.state) == ("leased", "paused")
    assert [one.existence for one in client.stores()] == ["leased", "tracked"]
    assert client.declare_store("kv", {"adaptor": "kv"}).existence == "leased"
    with pytest.raises(Misuse, match="leased"):
        client.declare_store("kv", {"existence": "leased"})
