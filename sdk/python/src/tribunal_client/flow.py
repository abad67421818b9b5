"""Flows: what a client does, without input and output.

A flow is a generator of steps. A driver, blocking or asyncio, performs each step and sends its result back, so that
both clients share all decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .gathered import Gathered

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request. The result is an `httpx.Response` or a `NoReply`."""

    request: dict[str, Any]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Gather:
    """Send a commit, alone or with others. The result is its `Reply`."""

    commit: Gathered


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call the caller's work with its transaction. The result is that of the work; its exception is thrown back."""

    work: Callable[[Any], Any]
    txn: Any


Step = Send | Gather | Sleep | Work
Flow = Generator[Step, Any, T]
