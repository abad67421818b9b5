"""The queue of items of asyncio, without a service."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from tribunal_client import coalescer
from tribunal_client.coalescer import AsyncCoalescer, Bounds


@dataclass
class _Item:
    group: str = ""
    key: str | None = None
    size: int = 1
    deadline: float = math.inf


async def _sizes_while_items_arrive(bounds: Bounds) -> list[int]:
    """Submit items in every turn of the event loop until two batches are sent. Return the sizes of the requests."""
    sizes: list[int] = []

    async def send(items: list[_Item]) -> Sequence[_Item]:
        sizes.append(len(items))
        await asyncio.sleep(0)
        return items

    items: AsyncCoalescer[_Item, _Item] = AsyncCoalescer(bounds, send)
    ends: list[asyncio.Task[_Item]] = []
    begun = time.monotonic()
    while sum(size > 1 for size in sizes) < 2 and time.monotonic() - begun < 5:
        ends += [asyncio.create_task(items.submit(_Item())) for _ in range(2)]
        await asyncio.sleep(0)
    sent = [*sizes]
    await asyncio.gather(*ends)
    return sent


def test_items_that_keep_arriving_do_not_hold_a_batch_back() -> None:
    bounds = Bounds(in_flight_max=1, head_start_s=0.005, items_max=1_000_000, bytes_max=1_000_000)
    sizes = asyncio.run(_sizes_while_items_arrive(bounds))
    assert sum(size > 1 for size in sizes) == 2, sizes


def test_a_full_batch_waits_for_no_further_items(monkeypatch: pytest.MonkeyPatch) -> None:
    # Time does not end the wait.
    monkeypatch.setattr(coalescer, "_QUEUEING_MAX_S", 60)
    bounds = Bounds(in_flight_max=1, head_start_s=0.005, items_max=8, bytes_max=1_000_000)
    assert asyncio.run(_sizes_while_items_arrive(bounds))[-1] == 8
