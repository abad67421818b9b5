"""Reads several rows or ranges of an embedded store in one request, all at the same epoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .arguments import by_store, items_of, limit_of, session_token, wait_ms, whole
from .errors import ServerMisbehaved
from .keys import Key, key_fields, key_of, normal, normals, readable
from .log import value_of
from .read_batch import BYTES_ALONE
from .transaction import Row
from .verdict import maybe_number
from .wire.models import RangeRead, ReadRequest, RowRead
from .wire.types import UNSET, Unset

if TYPE_CHECKING:
    from .transaction import RowName
    from .wire.models import ReadRange, ReadRow
    from .wire.models import Row as WireRow
    from .wire.models.consistency import Consistency

RowsToRead = Mapping[str, Iterable[Key]]
"""Keys of rows of embedded stores, by store."""

# The keys of a `Mapping` are invariant.
KnownVersions = Mapping[str, int] | Mapping[bytes, int] | Mapping[Key, int]
"""Versions of rows that a caller has cached, by key."""


@dataclass(frozen=True, slots=True)
class Unchanged:
    """A row that still has the version that the caller has cached."""

    version: int


@dataclass(frozen=True, slots=True)
class RowReads:
    """The results of reading rows, all at the same epoch."""

    applied: int
    """The epoch that the rows reflect: they include all of its commits, and none of later epochs."""
    rows: list[Row | Unchanged | None]
    """One result per key, in the order of the request; `None` if the row does not exist."""
    session: str | None = None
    """Token for a later read that must reflect at least this epoch, on any node; `None` from an older service."""


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from `start` on, before `end`; empty bounds are the store's."""

    start: Key = ""
    end: Key = ""
    limit: int = 1000
    """Maximum number of rows, at most 10,000."""

    @property
    def identity(self) -> tuple[bytes, bytes, int]:
        """The fields by which two ranges are the same."""
        return normal(self.start), normal(self.end), limit_of(self.limit)


RangesToRead = Mapping[str, Iterable[KeyRange]]
"""Ranges of embedded stores, by store."""


@dataclass(frozen=True, slots=True)
class RangeRows:
    """Rows of a range, in key order."""

    rows: list[Row]
    more: bool
    """Whether the range has more rows. There can be fewer than `limit` nevertheless, if their values are large."""


@dataclass(frozen=True, slots=True)
class RangeReads:
    """Ranges, all read at the same epoch."""

    applied: int
    """The epoch that they reflect: they include all of its commits, and none of later epochs."""
    ranges: list[RangeRows]
    """One result per range, in the order of the request."""
    session: str | None = None
    """Token for a later read that must reflect at least this epoch, on any node; `None` from an older service."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """Options of reads outside transactions: what the rows include, and bounds."""

    session: str | None
    consistency: Consistency
    wait_s: float | None
    timeout_s: float | None = None
    """Bound of the whole read, in addition to `wait_s`; the client's if `None`."""

    @property
    def own_wait_s(self) -> float:
        """How long the service may wait before it answers."""
        return freshness_wait_s(self.session, self.consistency, self.wait_s)

    def request(self) -> ReadRequest:
        """Return a request with these options that reads nothing."""
        return ReadRequest(
            session=session_token(self.session),
            consistency=consistency_asked(self.consistency),
            wait_ms=wait_asked(self.wait_s),
        )


NO_OPTIONS = ReadOptions(session=None, consistency="session", wait_s=None)
"""Options of reads within transactions."""


WAIT_DEFAULT_S = 5.0
"""Default time that the service waits for the commits that a request must include."""


def freshness_wait_s(session: str | Unset | None, consistency: Consistency | Unset, wait_s: float | None) -> float:
    """Return how long the service may wait for the commits that a request must include."""
    if wait_s is not None:
        return wait_s
    return WAIT_DEFAULT_S if session or consistency == "fresh" else 0


@dataclass(frozen=True, slots=True)
class ReadItem:
    """A read of one caller."""

    store: str
    rows: list[RowRead]
    size: int
    options: ReadOptions
    deadline: float
    """Time by which the read must have ended, on the monotonic clock."""
    key: None = None

    @property
    def group(self) -> str:
        """Identifies reads that can share a request: of one store, with the same options except for the timeout."""
        return repr((self.store, replace(self.options, timeout_s=None)))

    @property
    def is_batchable(self) -> bool:
        """Whether the read may share a request."""
        return 0 < self.size <= BYTES_ALONE


def consistency_asked(consistency: Consistency) -> Consistency | Unset:
    """Return a consistency in its wire form; the default is absent."""
    return UNSET if consistency == "session" else consistency


def wait_asked(wait_s: float | None) -> int | Unset:
    """Return a wait in its wire form, milliseconds."""
    return UNSET if wait_s is None else wait_ms(wait_s)


def ranges_of(ranges: RangesToRead | None) -> list[tuple[str, KeyRange]]:
    """Return the names of the ranges that Begin reads."""
    several = by_store(ranges, "ranges", '{"kv": [KeyRange("a", "b")]}')
    return [(store, keys) for store, each in several.items() for keys in ranges_only(each)]


def ranges_only(ranges: Iterable[KeyRange]) -> list[KeyRange]:
    """Return a list that contains only ranges."""
    return items_of(ranges, KeyRange, 'pass a list such as [KeyRange("a", "b")]')


def range_asked(keys: KeyRange, *, store: str | None = None) -> RangeRead:
    """Convert a range to read to its wire form."""
    read = RangeRead(store=UNSET if store is None else store, limit=limit_of(keys.limit))
    if keys.start:
        read.start, read.start_b64 = key_fields(normal(keys.start))
    if keys.end:
        read.end, read.end_b64 = key_fields(normal(keys.end))
    return read


def range_rows(found: Sequence[ReadRange] | Unset, count: int) -> list[RangeRows]:
    """Read the ranges of a response, one per range that was requested."""
    ranges = [] if isinstance(found, Unset) else found
    if len(ranges) != count:
        raise ServerMisbehaved(f"{len(ranges)} ranges returned where {count} were requested")
    return [RangeRows([row_of(row) for row in one.rows], one.more) for one in ranges]


def row_of(row: WireRow) -> Row:
    """Read a row of a range."""
    key = key_of(row.key, row.key_b64)
    if key is None:
        raise ServerMisbehaved("a row without a key")
    return Row(readable(key), value_of(row.value, row.value_b64), maybe_number(row.version))


def names_of(rows: RowsToRead | None) -> list[RowName]:
    """Return the names of the rows that Begin reads."""
    names: list[RowName] = []
    for store, keys in by_store(rows, "read", '{"kv": ["a", "b"]}').items():
        names += [(store, key) for key in normals(keys)]
    return names


def asked(key: bytes, *, store: str | None = None, known: int | None = None) -> RowRead:
    """Convert a row to read to its wire form."""
    text, in_base64 = key_fields(key)
    return RowRead(
        store=UNSET if store is None else store,
        key=text,
        key_b64=in_base64,
        version=UNSET if known is None else str(whole("known", known)),
    )


def states(found: Sequence[ReadRow], keys: Sequence[bytes]) -> list[Row | Unchanged | None]:
    """Convert the rows of a response, of which there must be one per requested key."""
    if len(found) != len(keys):
        raise ServerMisbehaved(f"{len(found)} rows returned where {len(keys)} were requested")
    return [_state(row, key) for row, key in zip(found, keys, strict=True)]


def _state(found: ReadRow, key: bytes) -> Row | Unchanged | None:
    version = maybe_number(found.version)
    if version is None:
        return None
    if found.unchanged is True:
        return Unchanged(version)
    return Row(readable(key), value_of(found.value, found.value_b64), version)
