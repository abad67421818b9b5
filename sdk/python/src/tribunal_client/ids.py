"""Ids of transactions."""

from __future__ import annotations

import secrets
import time
import uuid


def uuid7() -> str:
    """Create a UUIDv7: 48 bits of the time in milliseconds, then random bits."""
    bits = (time.time_ns() // 1_000_000) << 80 | secrets.randbits(80)
    bits = bits & ~(0xF << 76) | 0x7 << 76
    bits = bits & ~(0x3 << 62) | 0x2 << 62
    return str(uuid.UUID(int=bits))
