"""Batches of reads: joins the rows of several callers into one request, and splits the response into parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

import attrs

from .coalescer import HEAD_START_S, Bounds
from .errors import ServerMisbehaved
from .exchange import Answer, Refusal, Reply
from .wire.types import Unset
from .writes import fresh

if TYPE_CHECKING:
    from .wire.models import ReadRow, RowRead

ROW_BYTES = 128
"""Bytes that a row counts for in addition to its key, so that the byte limit also bounds the number of rows."""

BOUNDS = Bounds(in_flight_max=2, head_start_s=HEAD_START_S, items_max=512, bytes_max=10_000 * ROW_BYTES)
"""Bounds of batched reads: 512 callers and 10,000 rows."""

BYTES_ALONE = 1_000 * ROW_BYTES
"""Larger reads are sent alone: other reads would wait for the response, or be refused with it."""


class Alone:
    """The result of a caller that has to send its own request."""


T = TypeVar("T")
A = TypeVar("A")

Shared = Reply[T] | Alone | ServerMisbehaved
"""The result of one caller of a shared request."""


def bytes_of(rows: Sequence[RowRead]) -> int:
    """Estimate the bytes of rows in a request."""
    keys = (row.key_b64 if isinstance(row.key, Unset) else row.key for row in rows)
    return sum(ROW_BYTES + (0 if isinstance(key, Unset) else len(key)) for key in keys)


def parts(reply: Reply[A], count: int, apart: Callable[[A], Sequence[T]]) -> Sequence[Shared[T]]:
    """Split the reply to a request of several callers.

    If the service refused it because of its content, such as rows with more than 8 MiB or one invalid key, each has to
    send a request of its own.
    """
    if isinstance(reply, Answer):
        return [Answer(part, reply.headers) for part in apart(reply.data)]
    if count > 1 and isinstance(reply, Refusal) and reply.status in (400, 413, 422):
        return [Alone()] * count
    return [reply] * count


class Union:
    """The rows of several callers, each row once, or once per version that callers know."""

    def __init__(self, callers: Sequence[Sequence[RowRead]]) -> None:
        self.rows: list[RowRead] = []
        """The rows to request."""
        known: dict[tuple[object, ...], int] = {}
        self._places: list[list[int]] = []
        for rows in callers:
            places = []
            for row in rows:
                place = known.setdefault((row.store, row.key, row.key_b64, row.version), len(self.rows))
                if place == len(self.rows):
                    self.rows.append(row)
                places.append(place)
            self._places.append(places)

    def apart(self, found: Sequence[ReadRow] | Unset) -> list[list[ReadRow]]:
        """Return each caller's rows, with values of its own."""
        rows = [] if isinstance(found, Unset) else found
        if len(rows) != len(self.rows):
            raise ServerMisbehaved(f"{len(rows)} rows returned where {len(self.rows)} were requested")
        given: set[int] = set()
        return [[_own(rows[place], place, given) for place in places] for places in self._places]


def _own(row: ReadRow, place: int, given: set[int]) -> ReadRow:
    """Return a row whose value no other caller has, so that its caller may change it."""
    if place not in given:
        given.add(place)
        return row
    return row if isinstance(row.value, Unset) else attrs.evolve(row, value=fresh(row.value))
