"""Commits that leave together: their form in a batch, and its reply as one reply per commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .coalescer import Bounds
from .exchange import Answer, NoReply, Refusal, Reply
from .wire.models import TxnOutcome
from .wire.types import Unset

if TYPE_CHECKING:
    import httpx

    from .transaction import PreparedCommit

# A second flight commits as many per second as one (measured: 1 and 2 alike, 4 fewer), fills the way to a distant
# service, and a request that hangs does not hold up the others.
BOUNDS = Bounds(flights_max=2, items_max=512, bytes_max=4 * 1024 * 1024)


@dataclass(frozen=True, slots=True)
class Gathered:
    """A commit, and the body of its request."""

    prepared: PreparedCommit
    body: bytes

    @property
    def size(self) -> int:
        """The length of its line, or a little more."""
        return len(self.body) + 6 * len(self.prepared.txn_id) + 16

    @property
    def is_free(self) -> bool:
        """Whether it may leave with others. A batch has one trace context, and its reply waits for the slowest."""
        waits = self.prepared.request.ack == "applied"
        return self.prepared.traceparent is None and not waits and self.size <= BOUNDS.bytes_max

    @property
    def line(self) -> bytes:
        """Its line of a batch: the body with the id before the other members."""
        txn_id = json.dumps(self.prepared.txn_id).encode()
        comma = b"," if len(self.body) > 2 else b""
        return b'{"txn_id":' + txn_id + comma + self.body[1:] + b"\n"


def gather(prepared: PreparedCommit) -> Gathered:
    """Write the body of a commit's request."""
    text = json.dumps(prepared.request.to_dict(), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Gathered(prepared, text.encode())


def outcomes(*, client: object, response: httpx.Response) -> list[TxnOutcome]:  # noqa: ARG001
    """Read the response to a batch in NDJSON."""
    return [TxnOutcome.from_dict(json.loads(line)) for line in response.content.split(b"\n") if line.strip()]


def is_refused_as_batch(reply: Reply[list[TxnOutcome]]) -> bool:
    """Tell whether the service refused the form of a batch, so that each commit has to be sent on its own."""
    return isinstance(reply, Refusal) and reply.status in (400, 413)


def apart(reply: Reply[list[TxnOutcome]], count: int) -> list[Reply[TxnOutcome]]:
    """Turn the reply to a batch into one reply per commit, as if each had been sent on its own."""
    if not isinstance(reply, Answer):
        return [reply] * count
    if len(reply.data) != count:
        return lost(f"{len(reply.data)} results for {count} commits", count)
    return [single(outcome, reply.headers) for outcome in reply.data]


def lost(text: str, count: int) -> list[Reply[TxnOutcome]]:
    """Make replies to commits that may have arrived: each is to be resolved by its id."""
    return [NoReply(text, never_sent=False)] * count


def single(outcome: TxnOutcome, headers: Mapping[str, str]) -> Reply[TxnOutcome]:
    """Turn the result of one commit of a batch into the reply that it would have been on its own."""
    problem = outcome.problem
    return Answer(outcome, headers) if isinstance(problem, Unset) else Refusal(problem.status, problem)
