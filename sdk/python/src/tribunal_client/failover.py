"""One call on the endpoints of a service: where to send it next, for how long, and when to give up.

With one endpoint, a request is sent once. With several, it moves to the next one after a failure, in rounds. Every
request of this client may be repeated, except for changes of a consumer: it changes nothing, or has no further effect;
a commit is decided once, by its id. A copy of a change of a consumer that is taken late would undo a later one. A
reader whose records were truncated at one endpoint is sent to the others, too: each node truncates its own log.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .exchange import NoReply, Refusal, Reply
from .flow import Flow, Sleep
from .wire.types import Unset

if TYPE_CHECKING:
    from .endpoints import Endpoints
    from .retry import RetryPolicy
    from .wire.models import Problem

T = TypeVar("T")

_ROUNDS_MAX = 2
"""How often each of several endpoints is tried for one call."""

ATTEMPT_MAX_S = 1_000_000.0
"""Longest timeout of one attempt; a socket still supports it."""

_TIMER_S = 0.001
"""How much too early a timeout may end."""

_TRUNCATED = ("log_truncated", "state_gone")
"""Codes of what an endpoint no longer has, but another one may have."""

_ABOUT_THE_REQUEST = (413, 414, 431)
"""Refusals because of a request's size, which every endpoint would repeat."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an endpoint has not answered a request."""

    text: str
    maybe_taken: bool
    """The request may have taken effect."""
    mistake: str | None = None
    """What is wrong with the address or the trust, if that is known."""
    problem: Problem | None = None
    waited_s: float | None = None
    """How long the endpoint had to answer, if it did not answer in time."""


def failure_of(reply: Reply[Any]) -> Failure | None:
    """Return why a reply does not count as one: no connection, an unavailable endpoint, or something else in its place.

    `overloaded` is an answer: the same load would follow to the next endpoint.
    """
    match reply:
        case NoReply(text, never_sent, mistake, problem, waited_s=waited_s):
            return Failure(text, not never_sent, mistake, problem, waited_s)
        case Refusal(status, None) if status not in _ABOUT_THE_REQUEST:
            # Without a problem, even a 503 comes from an intermediary, which may have forwarded the request.
            return Failure(f"status {status} without a problem document", status >= 500)
        case Refusal(502 | 503 | 504 as status, problem) if problem is not None:
            if not problem.retryable or problem.code == "overloaded":
                return None
            return Failure(f"{status} {problem.code}: {problem.detail}", status != 503, problem=problem)
    return None


def in_doubt(reply: Reply[T], *, maybe_taken: bool) -> Reply[T]:
    """Return the reply to a commit whose copy another endpoint may have accepted.

    A refusal of this copy does not reveal the fate of the other.
    """
    match reply:
        case Refusal(status, problem) if maybe_taken:
            return NoReply(f"status {status}" if problem is None else f"{status} {problem.code}", never_sent=False)
        case NoReply(text) if maybe_taken:
            return NoReply(text, never_sent=False)
        case _:
            return reply


class Failover:
    """The attempts of one call."""

    def __init__(
        self, endpoints: Endpoints, retry: RetryPolicy, wait_s: float, timeout_s: float, until: float = math.inf
    ) -> None:
        """Begin a call that may take `timeout_s`, in addition to the time that the request itself may wait.

        It ends at `until`, the caller's bound, in any case.
        """
        self._endpoints = endpoints
        self._retry = retry
        self._wait_s = wait_s
        self._deadline = min(time.monotonic() + wait_s + timeout_s, until)
        self.until = until
        """Time by which each attempt must have ended, on the monotonic clock, no matter when it got its connection."""
        self._due_s = wait_s + min(endpoints.timeout_s, timeout_s / (_ROUNDS_MAX * len(endpoints.urls)))
        """How long an endpoint has to answer, whatever the caller's bound, before its silence counts as a failure."""
        self._tried = [0] * len(endpoints.urls)
        self._failures: list[Failure | None] = [None] * len(endpoints.urls)
        self.is_single = len(endpoints.urls) == 1
        """Whether there is only one endpoint."""
        self.endpoint = 0
        """The endpoint of the latest attempt."""
        self.maybe_taken = False
        """Whether some attempt may have taken effect."""
        self.if_not_taken = False
        """Whether the request moves to the next endpoint only if the preceding one certainly has not taken it."""
        self._truncated: Refusal | None = None
        """The first refusal of an endpoint that no longer has the records."""
        self.left_s = 0.0
        """Time left for the call at the latest attempt, which may wait this long for a free connection."""

    def next(self) -> Flow[float | None]:
        """Choose the endpoint of the next attempt, after a wait if all have had their turn.

        Return the timeout of the attempt in seconds; `None` if none is left.
        """
        turn = min(self._tried)
        if turn >= (1 if self.is_single else _ROUNDS_MAX):
            return None
        if turn > 0 and all(tried in (turn, _ROUNDS_MAX) for tried in self._tried):
            pause = self._retry.wait_s(turn, self._retry_after_s())
            if pause is None or time.monotonic() + pause >= self._deadline:
                return None
            yield Sleep(pause)
        left = max(0.0, self._deadline - time.monotonic())
        if left == 0 and any(self._tried):
            return None
        at = self._endpoints.choose(lambda one: self._tried[one] == turn)
        if at is None:
            return None
        self.left_s = min(left, ATTEMPT_MAX_S)
        # Each endpoint left to try in this round gets an equal share of the time.
        others = self._tried.count(turn)
        self.endpoint = at
        self._tried[at] += 1
        if self.if_not_taken:
            # No other endpoint gets what this one may take.
            return self.left_s
        share = max(0.0, left - self._wait_s) / others
        if self._endpoints.has_rested(lambda one: self._tried[one] == 0):
            share = min(share, self._endpoints.timeout_s)
        return min(left, self._wait_s + share, ATTEMPT_MAX_S)

    def addressed(self, request: dict[str, Any]) -> dict[str, Any]:
        """Return a request with the endpoint of the latest attempt."""
        if self.is_single:
            return request
        return {**request, "url": self._endpoints.urls[self.endpoint] + request["url"]}

    def ends_with(self, reply: Reply[Any]) -> bool:
        """Record the reply to the latest attempt. Return whether it is the reply of the call."""
        if isinstance(reply, NoReply) and reply.no_connection:
            # The endpoint received no request, so this implies nothing about it.
            return True
        return self.is_over(failure_of(reply))

    def is_truncated(self, reply: Reply[Any] | None) -> bool:
        """Record whether the endpoint of the latest attempt no longer has the records. Another one may have them."""
        if self.is_single or not isinstance(reply, Refusal) or reply.status != 410:
            return False
        if reply.problem is None or reply.problem.code not in _TRUNCATED:
            return False
        self._endpoints.works(self.endpoint)
        self._tried[self.endpoint] = _ROUNDS_MAX
        self._failures[self.endpoint] = None
        self._truncated = self._truncated or reply
        return True

    def is_over(self, failure: Failure | None) -> bool:
        """Record how the latest attempt ended. Return whether its reply is the reply of the call."""
        if failure is None:
            self._endpoints.works(self.endpoint)
            return True
        if failure.problem is not None and failure.problem.code == "store_lagging":
            # The endpoint works: it waited for the commits that the request must see.
            self._tried[self.endpoint] = _ROUNDS_MAX
        elif not self._is_cut_short(failure):
            self._endpoints.failed(self.endpoint)
        self._failures[self.endpoint] = failure
        self.maybe_taken |= failure.maybe_taken and not self.is_single
        # The service decides no transaction while it stops, but may still make another change.
        is_stopping = failure.problem is not None and failure.problem.code == "stopping"
        return self.is_single or (self.if_not_taken and (failure.maybe_taken or is_stopping))

    def _is_cut_short(self, failure: Failure) -> bool:
        """Return whether the caller's bound ended the latest attempt before silence counts as a failure."""
        return self.until < math.inf and failure.waited_s is not None and failure.waited_s < self._due_s - _TIMER_S

    def nowhere(self) -> NoReply | Refusal:
        """Return the result of a stream that no endpoint has sent.

        If one of them no longer has the records, it is that refusal, with the others that were not reached.
        """
        refusal = self._truncated
        if refusal is None or refusal.problem is None:
            return self.exhausted()
        reasons = self._reasons()
        text = (
            f"none of this client's endpoints that answered has enough of the log, and these did not: {reasons}"
            if reasons
            else "none of this client's endpoints has enough of the log"
        )
        refusal.problem.detail += f"; {text}"
        return refusal

    def _reasons(self) -> str:
        """List each endpoint that failed, and why."""
        each = zip(self._endpoints.urls, self._failures, strict=True)
        # Failures of the network name the endpoint already.
        return "; ".join(
            failure.text if failure.text.startswith(url) else f"{url}: {failure.text}"
            for url, failure in each
            if failure is not None
        )

    def exhausted(self) -> NoReply:
        """Return the result of a call that has no attempt left."""
        failures = [failure for failure in self._failures if failure is not None]
        mistakes = [failure.mistake for failure in failures if failure.mistake is not None]
        return NoReply(
            f"no endpoint has answered: {self._reasons()}",
            never_sent=not self.maybe_taken,
            mistake="; ".join(mistakes) if len(mistakes) == len(failures) > 0 else None,
            problem=next((failure.problem for failure in failures if failure.problem is not None), None),
        )

    def _retry_after_s(self) -> float:
        """Return the shortest wait that an endpoint requested."""
        problems = (failure.problem for failure in self._failures if failure is not None)
        asked = (problem.retry_after_ms for problem in problems if problem is not None)
        return min((ms / 1000 for ms in asked if not isinstance(ms, Unset)), default=0.0)
