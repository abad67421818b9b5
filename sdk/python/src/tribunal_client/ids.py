"""Ids of transactions."""

from __future__ import annotations

import secrets
import time
import uuid


def time_of(txn_id: str) -> int | None:
    """Return the time in a UUIDv7, Unix milliseconds; `None` if the id has another form."""
    try:
        parsed = uuid.UUID(txn_id)
    except ValueError:
        return None
    return parsed.int >> 80 if parsed.version == 7 else None


def uuid7(time_ms: int | None = None) -> str:
    """Create a UUIDv7: 48 bits of the time in milliseconds, then random bits."""
    bits = (time.time_ns() // 1_000_000 if time_ms is None else time_ms) << 80 | secrets.randbits(80)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=bits))
