"""Consumers of logs, and the offsets that the service stores for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from .verdict import number
from .wire.types import Unset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .wire.models import ConsumerInfo as WireInfo


@dataclass(frozen=True, slots=True)
class Offset:
    """A consumer's position in a store's log."""

    lsn: int
    """Position of the last record that the consumer has processed: `after` of `Client.log`."""
    log: str
    """The log that the position belongs to: `log` of `Client.log`."""


@dataclass(frozen=True, slots=True)
class ConsumerOffset:
    """A consumer's offset in one store's log."""

    store: str
    lsn: int
    """Position of the last record that the consumer has processed."""
    log: str
    """The log that `lsn` belongs to. If it is not the consumer's, `lsn` no longer names the same record."""
    head_lsn: int
    """Last position of the log."""
    lag_records: int
    """Records that the consumer has not processed."""
    lag_ms: int
    """Age of the oldest of them, milliseconds; 0 if there is none; a lower bound if that was truncated."""
    updated_at_ms: int
    """When this offset was stored, Unix milliseconds."""
    truncated_below: int | None = None
    """Where the node's log begins, if it has truncated records after `lsn`: restart from the state of the store."""


@dataclass(frozen=True, slots=True)
class ConsumerInfo:
    """A consumer and its offsets."""

    name: str
    log: str
    """The log of the service."""
    offsets: tuple[ConsumerOffset, ...]
    """One per store that it reads, in the order of the stores' names."""


def consumer_of(info: WireInfo) -> ConsumerInfo:
    """Read a consumer and its offsets."""
    offsets = tuple(
        ConsumerOffset(
            store=at.store,
            lsn=number(at.lsn),
            log=at.log,
            head_lsn=number(at.head_lsn),
            lag_records=number(at.lag_records),
            lag_ms=number(at.lag_ms),
            updated_at_ms=number(at.updated_at_ms),
            truncated_below=None if isinstance(at.truncated_below, Unset) else number(at.truncated_below),
        )
        for at in info.offsets
    )
    return ConsumerInfo(info.name, info.log, offsets)


def offset_of(consumers: Sequence[ConsumerInfo], consumer: str, store: str) -> Offset | None:
    """Find a consumer's offset in a store's log."""
    for known in consumers:
        if known.name == consumer:
            for at in known.offsets:
                if at.store == store:
                    return Offset(at.lsn, at.log)
    return None
