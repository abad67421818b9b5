"""The asyncio client against a live server."""

from __future__ import annotations

import asyncio

from tribunal_client import AsyncClient, AsyncTransaction, Committed


def test_concurrent_tasks_lose_no_increment_and_the_log_has_all(url: str, prefix: str) -> None:
    key = prefix + "counter"

    async def increment(txn: AsyncTransaction) -> None:
        row = await txn.get("kv", key)
        assert row is not None
        txn.update("kv", key, row.value + 1)

    async def main() -> None:
        async with AsyncClient(url) as client:
            first = client.begin_local()
            first.put("kv", key, 0)
            verdict = await first.commit()
            assert isinstance(verdict, Committed)
            await asyncio.gather(*(client.run(increment, ["kv"]) for _ in range(20)))
            ran = await client.run(lambda txn: txn.get("kv", key), ["kv"])
            assert ran.value is not None
            assert ran.value.value == 20
            values = []
            async for record in client.log("kv", verdict.lsn["kv"] - 1, follow=False):
                values += [write.value for write in record.writes if write.key == key]
            assert values == list(range(21))

    asyncio.run(main())
