"""Checks a caller's arguments before anything is sent: a mistake is a `Misuse` that names what to pass instead."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from operator import index
from typing import SupportsIndex, TypeVar

from .errors import Misuse
from .wire.models.isolation_level import ISOLATION_LEVEL_VALUES, IsolationLevel, check_isolation_level
from .wire.types import UNSET, Unset

T = TypeVar("T")

ROWS_MAX = 10_000
"""Maximum number of rows that one request reads."""


def items_of(values: Iterable[T], kind: type[T], remedy: str) -> list[T]:
    """Return values as a list, all of which must be of one kind."""
    if not isinstance(values, Iterable):
        raise Misuse(f"a list of {kind.__name__} was expected, not {type(values).__name__}: {remedy}")
    listed = list(values)
    for value in listed:
        if not isinstance(value, kind):
            raise Misuse(f"a {kind.__name__} was expected, not {type(value).__name__}: {remedy}")
    return listed


def by_store(given: Mapping[str, T] | None, name: str, example: str) -> Mapping[str, T]:
    """Check a mapping by store; an absent one is empty."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise Misuse(f"`{name}` must be a dict by store, such as {example}, not {type(given).__name__}")
    for store in given:
        store_name(store)
    return given


def wait_ms(wait_s: object) -> int:
    """Convert the time that a request may wait to milliseconds."""
    if isinstance(wait_s, bool) or not isinstance(wait_s, int | float) or not 0 <= wait_s < math.inf:
        raise Misuse(f"`wait_s` must be a finite number of seconds, at least 0, not {wait_s!r}")
    return round(wait_s * 1000)


def seconds(name: str, value: object, *, above_0: bool = False) -> float:
    """Check a time in seconds, which may be infinite."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not (value > 0 if above_0 else value >= 0):
        least = "more than 0" if above_0 else "at least 0"
        raise Misuse(f"`{name}` must be a number of seconds, {least}, not {value!r}")
    return value


def whole(name: str, value: object, *, at_least: int = 0) -> int:
    """Check a whole number, an `int` or another type of integer, such as those of numpy."""
    if isinstance(value, bool) or not isinstance(value, int | SupportsIndex):
        raise Misuse(f"`{name}` must be an int, not {type(value).__name__}")
    number = index(value)
    if number < at_least:
        raise Misuse(f"`{name}` must be at least {at_least}, not {number}")
    return number


def header(name: str, value: object) -> str:
    """Check text that is sent in a header."""
    if not isinstance(value, str):
        raise Misuse(f"{name} must be a str, not {type(value).__name__}")
    if not (value.isascii() and value.isprintable()):
        raise Misuse(f"{name} has characters that no header can have: only printable ASCII is possible")
    return value


def session_token(session: object) -> str | Unset:
    """Check the token of a commit that a request must see."""
    if session is None:
        return UNSET
    if not isinstance(session, str):
        raise Misuse(f"`session` must be a str, the `session` of a `Committed`, not {type(session).__name__}")
    return text("`session`", session)


def store_names(stores: Iterable[str]) -> list[str]:
    """List the names of stores."""
    if isinstance(stores, str | bytes):
        raise Misuse(f"`{stores!r}` is one store where a list of stores was expected")
    return [store_name(store) for store in items_of(stores, str, 'pass the names of stores, such as ["kv"]')]


def text(what: str, value: object) -> str:
    """Check text that is sent in a request."""
    if not isinstance(value, str):
        raise Misuse(f"{what} must be str, not {type(value).__name__}")
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise Misuse(f"{what} cannot be written as UTF-8: {error}") from error
    return value


def segment(what: str, value: object) -> str:
    """Check text that becomes a path segment. Empty text, or dots, would name another resource."""
    checked = text(what, value)
    if checked in ("", ".", ".."):
        raise Misuse(f"{checked!r} cannot be {what}")
    return checked


def store_name(store: str) -> str:
    """Check the name of a store."""
    return text("the name of a store", store)


def store_segment(store: str) -> str:
    """Check the name of a store that becomes a path segment."""
    return segment("the name of a store", store)


def txn_segment(txn_id: str) -> str:
    """Check the id of a transaction that becomes a path segment."""
    return segment("the id of a transaction", txn_id)


def page_limit(limit: object) -> int | None:
    """Check how many records a response may have; `None` is no bound."""
    return None if limit is None else limit_of(limit, "page_max")


def limit_of(limit: object, name: str = "limit") -> int:
    """Check how many rows a range may return."""
    number = index(limit) if isinstance(limit, SupportsIndex) and not isinstance(limit, bool) else 0
    if not 1 <= number <= ROWS_MAX:
        raise Misuse(f"`{name}` must be an int from 1 to {ROWS_MAX}, not {limit!r}")
    return number


def isolation_level(level: IsolationLevel) -> IsolationLevel:
    """Check a level that no request names until the commit."""
    try:
        return check_isolation_level(level)
    except TypeError as error:
        levels = ", ".join(sorted(ISOLATION_LEVEL_VALUES))
        raise Misuse(f"`isolation` must be one of {levels}, not {level!r}") from error
