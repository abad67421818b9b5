"""Checks what a caller passes before anything is sent: a mistake is a `Misuse` that tells what to pass instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TypeVar

from .errors import Misuse
from .wire.models.isolation_level import ISOLATION_LEVEL_VALUES, IsolationLevel, check_isolation_level

T = TypeVar("T")

ROWS_MAX = 10_000
"""Maximum number of rows that one request reads."""


def items_of(values: Iterable[T], kind: type[T], remedy: str) -> list[T]:
    """List values that must all be of one kind."""
    if not isinstance(values, Iterable):
        raise Misuse(f"a list of {kind.__name__} was expected, not {type(values).__name__}: {remedy}")
    listed = list(values)
    for value in listed:
        if not isinstance(value, kind):
            raise Misuse(f"a {kind.__name__} was expected, not {type(value).__name__}: {remedy}")
    return listed


def by_store(given: Mapping[str, T] | None, name: str, example: str) -> Mapping[str, T]:
    """Return what is given for each store."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise Misuse(f"`{name}` must be a dict by store, such as {example}, not {type(given).__name__}")
    return given


def wait_ms(wait_s: object) -> int:
    """Convert the time that a request may wait to milliseconds."""
    if not isinstance(wait_s, int | float) or not 0 <= wait_s < math.inf:
        raise Misuse(f"`wait_s` must be a finite number of seconds, at least 0, not {wait_s!r}")
    return round(wait_s * 1000)


def limit_of(limit: object) -> int:
    """Check how many rows a range may return."""
    if not isinstance(limit, int) or isinstance(limit, bool) or not 1 <= limit <= ROWS_MAX:
        raise Misuse(f"`limit` must be an int from 1 to {ROWS_MAX}, not {limit!r}")
    return limit


def isolation_level(level: IsolationLevel) -> IsolationLevel:
    """Check a level that no request names until the commit."""
    try:
        return check_isolation_level(level)
    except TypeError as error:
        levels = ", ".join(sorted(ISOLATION_LEVEL_VALUES))
        raise Misuse(f"`isolation` must be one of {levels}, not {level!r}") from error
