"""Begin: its options, its request, and which Begins may share one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import attrs

from .arguments import header, session_token, store_names
from .errors import ServerMisbehaved
from .ids import time_of, uuid7
from .read_batch import BYTES_ALONE, Union, bytes_of
from .reads import (
    KeyRange,
    RangesToRead,
    RowsToRead,
    asked,
    consistency_asked,
    names_of,
    range_asked,
    ranges_of,
    wait_asked,
)
from .wire.models import BeginRequest
from .wire.types import UNSET, Unset

if TYPE_CHECKING:
    from .transaction import RowName
    from .wire.models import BeginResponse
    from .wire.models.consistency import Consistency
    from .wire.models.isolation_level import IsolationLevel


@dataclass(frozen=True, slots=True)
class BeginOptions:
    """Options of a transaction."""

    stores: Iterable[str] | None = None
    isolation: IsolationLevel = "serializable"
    session: str | None = None
    wait_s: float | None = None
    traceparent: str | None = None
    read: RowsToRead | None = None
    ranges: RangesToRead | None = None
    consistency: Consistency = "session"


@dataclass(frozen=True, slots=True)
class BeginItem:
    """A Begin of one caller."""

    body: BeginRequest
    """The request, without the client's own session."""
    stores: list[str] | None
    """The stores that the Begin names or reads; `None` for all stores of the namespace."""
    names: list[RowName]
    ranges: list[tuple[str, KeyRange]]
    wait_s: float | None
    size: int
    deadline: float = math.inf
    """Time by which the Begin must have ended, on the monotonic clock."""
    key: None = None

    @property
    def group(self) -> str:
        """Key of the Begins that can share snapshots: same stores, same freshness requirement, same wait.

        Without a list of stores, the stores that are read count, so that a missing one fails no other Begin.
        """
        read = sorted({store for store, _ in self.names}) if self.stores is None else []
        wait_ms = None if isinstance(self.body.wait_ms, Unset) else self.body.wait_ms
        return repr((self.stores, read, self.body.session or None, self.body.consistency, wait_ms))

    @property
    def is_batchable(self) -> bool:
        """Whether the Begin may share a request. Ranges and many rows can fill a response by themselves."""
        return not self.ranges and self.size <= BYTES_ALONE


def begin_item(options: BeginOptions) -> BeginItem:
    """Convert options to a request."""
    given = None if options.stores is None else store_names(options.stores)
    if options.traceparent is not None:
        header("`traceparent`", options.traceparent)
    names, ranges = names_of(options.read), ranges_of(options.ranges)
    stores = None
    if given:
        stores = sorted({*given, *(store for store, _ in names), *(store for store, _ in ranges)})
    read = [asked(key, store=store) for store, key in names]
    body = BeginRequest(
        isolation=options.isolation,
        session=session_token(options.session),
        stores=UNSET if stores is None else stores,
        consistency=consistency_asked(options.consistency),
        wait_ms=wait_asked(options.wait_s),
        read=read or UNSET,
        ranges=[range_asked(keys, store=store) for store, keys in ranges] or UNSET,
    )
    return BeginItem(body, stores, names, ranges, options.wait_s, bytes_of(read))


def responses(begun: BeginResponse, union: Union) -> list[BeginResponse]:
    """Split the response to several Begins: each one gets its own id and rows."""
    each = union.apart(begun.rows)
    ids = [begun.txn_id, *(_id_beside(begun.txn_id) for _ in each[1:])]
    return [attrs.evolve(begun, txn_id=txn_id, rows=rows) for txn_id, rows in zip(ids, each, strict=True)]


def union_of(items: Sequence[BeginItem]) -> Union:
    """Join the rows of Begins."""
    return Union([[] if isinstance(item.body.read, Unset) else item.body.read for item in items])


def _id_beside(txn_id: str) -> str:
    """Create an id with the time of an id from the service, whose clock may differ from the local one."""
    time_ms = time_of(txn_id)
    if time_ms is None:
        raise ServerMisbehaved(f"`{txn_id}` is not a UUIDv7")
    return uuid7(time_ms)
