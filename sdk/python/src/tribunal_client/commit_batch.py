"""Batches of commits: encodes commits as lines of a batch, and splits its response into one reply per commit."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .coalescer import HEAD_START_S, Bounds
from .errors import Misuse
from .exchange import Answer, NoReply, Refusal, Reply
from .wire.models import TxnOutcome
from .wire.types import Unset

if TYPE_CHECKING:
    import httpx

    from .transaction import PreparedCommit

# A second request in flight hides the latency of a distant service, and keeps one slow response from stalling every
# session.
BOUNDS = Bounds(in_flight_max=2, head_start_s=HEAD_START_S, items_max=512, bytes_max=4 * 1024 * 1024)

WRITES = "writes"
"""Group of the commits that write."""


@dataclass(frozen=True, slots=True)
class CommitItem:
    """A commit and the body of its request."""

    prepared: PreparedCommit
    body: bytes
    deadline: float = math.inf

    @property
    def group(self) -> str:
        """Key of the commits that share a batch.

        A commit that writes nothing is decided without a log sync, and would wait for one in a batch with writes.
        """
        return WRITES if self.prepared.request.writes else "read-only"

    @property
    def key(self) -> str:
        """The commit's transaction."""
        return self.prepared.txn_id

    @property
    def size(self) -> int:
        """An upper bound of the length of the commit's line."""
        return len(self.body) + 6 * len(self.prepared.txn_id) + 16

    @property
    def is_batchable(self) -> bool:
        """Whether the commit may be sent in a batch.

        A batch has one trace context, and is answered only when the slowest of its commits is.
        """
        waits = self.prepared.request.ack == "applied"
        return self.prepared.traceparent is None and not waits and self.size <= BOUNDS.bytes_max

    @property
    def line(self) -> bytes:
        """The commit's line of a batch: its body with the id as the first member."""
        txn_id = json.dumps(self.prepared.txn_id).encode()
        comma = b"," if len(self.body) > 2 else b""
        return b'{"txn_id":' + txn_id + comma + self.body[1:] + b"\n"


_REQUEST_BYTES_MAX = 10 * 1024 * 1024
"""Largest body of a request."""


def commit_item(prepared: PreparedCommit) -> CommitItem:
    """Encode the body of a commit's request."""
    return CommitItem(prepared, body_of(prepared.request.to_dict()))


def body_of(document: dict[str, Any]) -> bytes:
    """Encode the body of a request.

    A body that is too large is not sent: the service closes the connection when it refuses a body in transit, which may
    lose the refusal and leave the outcome unknown.
    """
    try:
        body = json.dumps(document, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()
    except (TypeError, ValueError) as error:
        raise Misuse(f"the request cannot be represented in JSON: {error}") from error
    if len(body) > _REQUEST_BYTES_MAX:
        raise Misuse(f"a request of {len(body)} bytes is too large, {_REQUEST_BYTES_MAX} is the limit: split it")
    return body


def outcomes(*, client: object, response: httpx.Response) -> list[TxnOutcome]:  # noqa: ARG001
    """Parse the NDJSON response to a batch."""
    return [TxnOutcome.from_dict(json.loads(line)) for line in response.content.split(b"\n") if line.strip()]


def part_size(reply: Reply[list[TxnOutcome]], count: int) -> int | None:
    """Return how many commits to send together after a batch of `count` was refused as such; `None` if it was not."""
    if not isinstance(reply, Refusal):
        return None
    return {400: 1, 413: (count + 1) // 2}.get(reply.status)


def split_reply(reply: Reply[list[TxnOutcome]], count: int) -> list[Reply[TxnOutcome]]:
    """Split the reply to a batch into one reply per commit, as if each had been a request of its own."""
    if not isinstance(reply, Answer):
        return [reply] * count
    if len(reply.data) != count:
        return lost(f"{len(reply.data)} results for {count} commits", count)
    return [single(outcome, reply.headers) for outcome in reply.data]


def lost(text: str, count: int) -> list[Reply[TxnOutcome]]:
    """Make replies to commits that may have taken effect: each must be resolved by its id."""
    return [NoReply(text, never_sent=False)] * count


def single(outcome: TxnOutcome, headers: Mapping[str, str]) -> Reply[TxnOutcome]:
    """Turn the result of one commit of a batch into the reply that a request of its own would have received."""
    problem = outcome.problem
    return Answer(outcome, headers) if isinstance(problem, Unset) else Refusal(problem.status, problem)
