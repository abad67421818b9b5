"""Mistakes of a caller, and what their errors tell."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tribunal_client import AsyncClient, AsyncTransaction, Client, ClientMistake, Misuse, Transaction, Unavailable

NOWHERE = "http://127.0.0.1:1"


@pytest.mark.parametrize("key", ["a\nb", "schl\u00fcssel", "a\0"])
def test_an_api_key_that_no_header_can_have_is_a_misuse(key: str) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(Misuse, match="API key"):
            kind(NOWHERE, api_key=key)


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


@pytest.mark.parametrize(("timeout_s", "resolve_timeout_s"), [(0, 1), (-1, 1), (1, -1), (float("nan"), 1)])
def test_a_timeout_is_positive(timeout_s: float, resolve_timeout_s: float) -> None:
    for kind in (Client, AsyncClient):
        with pytest.raises(Misuse, match="timeout_s"):
            kind(NOWHERE, timeout_s=timeout_s, resolve_timeout_s=resolve_timeout_s)


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
