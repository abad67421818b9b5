"""Flows: what a client does, without input and output.

A flow is a generator of steps. A driver, blocking or asyncio, performs each step and sends its result back, so that
both clients share all decisions.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from .commit_batch import CommitItem

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request. The result is an `httpx.Response` or a `NoReply`."""

    request: dict[str, Any]
    timeout_s: float


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Send a commit, by itself or in a batch. The result is its `Reply`."""

    commit: CommitItem


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call the caller's work with its transaction. The result is that of the work; its exception is thrown back."""

    work: Callable[[Any], Any]
    txn: Any


Step = Send | Coalesce | Sleep | Work
Flow = Generator[Step, Any, T]
