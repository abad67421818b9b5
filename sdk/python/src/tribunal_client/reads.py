"""Reads several rows of an embedded store in one request, all at the same epoch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .errors import ServerMisbehaved
from .keys import Key, key_fields, normals, readable
from .log import value_of
from .transaction import Row
from .verdict import maybe_number
from .wire.models import RowRead
from .wire.types import UNSET

if TYPE_CHECKING:
    from .transaction import RowName
    from .wire.models import ReadRow

RowsToRead = Mapping[str, Sequence[Key]]
"""Keys of rows of embedded stores, by store."""


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


def names_of(rows: RowsToRead | None) -> list[RowName]:
    """Return the names of the rows that Begin reads."""
    names: list[RowName] = []
    for store, keys in (rows or {}).items():
        names += [(store, key) for key in normals(keys)]
    return names


def asked(key: bytes, *, store: str | None = None, known: int | None = None) -> RowRead:
    """Convert a row to read to its wire form."""
    text, in_base64 = key_fields(key)
    return RowRead(
        store=UNSET if store is None else store,
        key=text,
        key_b64=in_base64,
        version=UNSET if known is None else str(known),
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
