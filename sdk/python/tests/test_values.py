"""Values: stored as passed, and a caller that changes a value it read changes nothing else."""

from __future__ import annotations

import asyncio
import datetime
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from typing import Any

import pytest

from tribunal_client import AsyncClient, AsyncTransaction, Client, Committed, Misuse, Row


def put(client: Client, key: str, value: object) -> None:
    txn = client.begin_local()
    txn.put("kv", key, value)
    assert isinstance(txn.commit(), Committed)


def value_of(row: Row | None) -> Any:
    assert row is not None
    return row.value


def test_a_value_that_was_read_may_be_changed(client: Client, prefix: str) -> None:
    key, other = prefix + "a", prefix + "b"
    put(client, key, {"tags": ["x"]})
    put(client, other, {"tags": ["x"]})
    txn = client.begin(["kv"], read={"kv": [key]})
    value_of(txn.get("kv", key))["tags"].append("y")
    assert value_of(txn.get("kv", key)) == {"tags": ["x"]}
    value_of(txn.scan("kv", other, other + "~")[0])["tags"].append("y")
    assert value_of(txn.get("kv", other)) == {"tags": ["x"]}
    for row in client.read_rows("kv", [key, key]).rows:
        assert isinstance(row, Row)
        row.value["tags"].append("y")
        assert row.value == {"tags": ["x", "y"]}


def test_a_value_that_was_written_is_changed_by_a_further_write_only(client: Client, prefix: str) -> None:
    key = prefix + "a"
    txn = client.begin(["kv"])
    txn.put("kv", key, {"tags": ["x"]})
    value_of(txn.get("kv", key))["tags"].append("y")
    value_of(txn.scan("kv", key, key + "~")[0])["tags"].append("y")
    assert isinstance(txn.commit(), Committed)
    assert value_of(client.row("kv", key)) == {"tags": ["x"]}


def test_transactions_whose_reads_share_a_request_share_no_value(url: str, prefix: str) -> None:
    keys = [prefix + "a", prefix + "b"]

    def read(client: Client) -> list[Any]:
        return [value_of(row) for row in client.begin(["kv"]).get_many("kv", keys)]

    async def read_async(txn: AsyncTransaction) -> list[Any]:
        return [value_of(row) for row in await txn.get_many("kv", keys)]

    async def tasks() -> list[list[Any]]:
        async with AsyncClient(url) as client:
            rows = client.read_rows("kv", keys)
            also = [client.run(read_async, ["kv"], read={"kv": keys}) for _ in range(8)]
            ran, outside = await asyncio.gather(
                asyncio.gather(*also), asyncio.gather(rows, client.read_rows("kv", keys))
            )
            return [
                *(one.value for one in ran),
                *([value_of(row if isinstance(row, Row) else None) for row in one.rows] for one in outside),
            ]

    with Client(url) as client:
        for key in keys:
            put(client, key, {"balance": 100})
        with ThreadPoolExecutor(8) as pool:
            each = [*pool.map(read, [client] * 64), *asyncio.run(tasks())]
    assert len({id(value) for values in each for value in values}) == 2 * len(each)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ({1: "a"}, "must be str, not int: 1"),
        ({1: "a", "1": "b"}, "must be str, not int: 1"),
        ([{"a": ({None: 1},)}], "must be str, not NoneType: None"),
        ({True: 1}, "must be str, not bool: True"),
        ({("a", 1): 1}, "keys must be str"),
        (b"a", r'contains bytes; a binary value is {"\$b64": TEXT}'),
        ({"a": [bytearray(b"a")]}, "contains bytearray; a binary value"),
        (datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC), "contains datetime; convert it to text or a number first"),
        ([Decimal(1)], "contains Decimal; convert it"),
        ((number for number in [1]), "contains generator"),
        (float("inf"), "Out of range float"),
    ],
)
def test_a_value_that_json_cannot_represent_is_a_misuse(value: object, text: str) -> None:
    with Client("http://127.0.0.1:1") as client, pytest.raises(Misuse, match=text):
        client.begin_local().put("kv", "a", value)


@pytest.mark.parametrize("copies", [2, 3])
def test_a_row_that_is_requested_several_times_is_returned_as_often(client: Client, prefix: str, copies: int) -> None:
    put(client, prefix, [])
    rows = client.begin(["kv"]).get_many("kv", [prefix] * copies)
    assert len({id(value_of(row)) for row in rows}) == copies
