"""Flows: the logic of a client, without I/O.

A flow is a generator of steps. A driver, blocking or asyncio, performs each step and sends its result back, so that
both clients share all decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    from .coalescer import Batchable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Send:
    """Send one request. The result is an `httpx.Response` or a `NoReply`."""

    request: dict[str, Any]
    timeout_s: float
    connection_s: float
    """How long to wait for a free connection."""
    until: float
    """Time by which it must have ended, on the monotonic clock, no matter when it got its connection."""


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Send a commit, a Begin or a read, by itself or in a batch. The result is its reply."""

    kind: Literal["commits", "begins", "reads"]
    item: Batchable


@dataclass(frozen=True, slots=True)
class Open:
    """Send a request whose response is read as it arrives.

    The result is a `Stream`, or a `NoReply`, or the whole `httpx.Response` if it is no success.
    """

    request: dict[str, Any]
    timeout_s: float
    connection_s: float
    """How long to wait for a free connection."""
    silence_s: float
    """How long the response may be silent."""
    until: float
    """Time by which the response must have begun, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Pull:
    """Read on. The result is some bytes, none at the end, or a `NoReply`; `None` if nothing arrives in time."""

    stream: Any
    wait_s: float | None
    """How long to wait; `None` waits until something arrives."""
    until: float = math.inf
    """Time from which silence counts as a failure, on the monotonic clock."""


@dataclass(frozen=True, slots=True)
class Close:
    """Close a stream."""

    stream: Any


@dataclass(frozen=True, slots=True)
class Sleep:
    """Wait."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Work:
    """Call the caller's work with its transaction. The result is that of the work; its exception is thrown back."""

    work: Callable[[Any], Any]
    txn: Any


TOO_LATE = "the request could not be sent in time: earlier ones have not ended"
UNANSWERED = "the request has not been answered in time"

TOGETHER_MAX = 64
"""Maximum number of flows that are performed at the same time."""


@dataclass(frozen=True, slots=True)
class Together:
    """Perform several flows at the same time, at most `TOGETHER_MAX`. The result is the list of their results."""

    flows: Sequence[Generator[Any, Any, Any]]


Step = Send | Coalesce | Open | Pull | Close | Sleep | Work | Together
Flow = Generator[Step, Any, T]
