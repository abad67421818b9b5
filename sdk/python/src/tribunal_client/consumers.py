"""Offsets that the service stores for consumers of the log."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .wire.models import ConsumerInfo


@dataclass(frozen=True, slots=True)
class Offset:
    """A consumer's position in a store's log."""

    lsn: int
    """Position of the last record that the consumer has processed: `after` of `Client.log`."""
    log: str
    """The log that the position belongs to: `log` of `Client.log`."""


def offset_of(consumers: Sequence[ConsumerInfo], consumer: str, store: str) -> Offset | None:
    """Find a consumer's offset in a store's log."""
    for known in consumers:
        if known.name == consumer:
            for at in known.offsets:
                if at.store == store:
                    return Offset(int(at.lsn), at.log)
    return None
