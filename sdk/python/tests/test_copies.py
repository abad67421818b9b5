"""Copies: the client's results and errors can be copied, stored, and sent to another process."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import pytest

from tribunal_client import (
    Client,
    ClientMistake,
    Committed,
    Misuse,
    OutcomeUnknown,
    StoreDeclaration,
    TransactionAborted,
    Unavailable,
)

COPIES: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))]  # noqa: S301


def refused(url: str) -> None:
    with Client(url) as client:
        client.store("nowhere")


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_an_error_is_the_same_error(client: Client, prefix: str, copied: Callable[[Any], Any]) -> None:
    with pytest.raises(ClientMistake) as mistake:
        client.store("nowhere")
    with pytest.raises(TransactionAborted) as aborted:
        client.run(lambda txn: txn.update("kv", prefix, 1))
    with Client("http://127.0.0.1:1") as nobody, pytest.raises(Unavailable) as unavailable:
        nobody.stores()
    unknown = OutcomeUnknown("an id", "lost")
    unknown.add_note("the caller's note")
    for error in (mistake.value, aborted.value, unavailable.value, unknown, Misuse("a misuse")):
        again = copied(error)
        assert type(again) is type(error)
        assert str(again) == str(error)
        assert again.__dict__ == error.__dict__
    assert copied(mistake.value).code == "unknown_store"
    assert copied(aborted.value).aborted.reason == "row_missing"


def test_an_error_of_a_worker_process_reaches_its_parent(url: str) -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool, pytest.raises(ClientMistake) as mistake:
        pool.submit(refused, url).result()
    assert mistake.value.code == "unknown_store"


@pytest.mark.parametrize("copied", COPIES)
def test_a_copy_of_a_prepared_commit_is_the_same_request(
    client: Client, prefix: str, copied: Callable[[Any], Any]
) -> None:
    txn = client.begin_local()
    txn.put("kv", prefix, 1)
    prepared = txn.prepare()
    assert isinstance(txn.commit(), Committed)
    again = client.commit(copied(prepared))
    assert isinstance(again, Committed)
    assert again.replayed
    assert copied(prepared) == prepared
    assert repr(copied(StoreDeclaration())) == repr(StoreDeclaration())
