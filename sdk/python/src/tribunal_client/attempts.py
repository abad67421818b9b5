"""The attempts of one `run`: how many, how long to wait between them, and which abort is final."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from .errors import ClientMistake, TransactionAborted, TribunalError, Unavailable
from .flow import Flow, Sleep, Work
from .keys import normal

if TYPE_CHECKING:
    from .retry import RetryPolicy
    from .transaction import Draft, PreparedCommit, RowName
    from .verdict import Aborted, Committed, Verdict

T = TypeVar("T")

_EXPIRED = "txn_id_expired"
"""Code of a commit whose id is too old to be decided, and has no known verdict."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """The end of one attempt of `Client.run`."""

    number: int
    """1 for the first."""
    txn_id: str | None = None
    """`None` if no transaction could begin."""
    verdict: Verdict | None = None
    """`None` if there is an error."""
    error: Exception | None = None
    """Error of the work, or the reason why there is no verdict."""
    wait_s: float | None = None
    """Wait before the next attempt, seconds; `None` if this was the last."""


class Attempts:
    """Counts attempts against a policy, and reports each one."""

    def __init__(
        self, policy: RetryPolicy, report: Callable[[Attempt], object], timeout_s: float | None = None
    ) -> None:
        self._policy = policy
        self.until = math.inf if timeout_s is None else time.monotonic() + timeout_s
        """Time from which no further attempt begins."""
        self._report = report
        # Rows that were refused as existing or missing: the epoch, and the versions that the attempt had read.
        self._refused: dict[RowName, tuple[int, dict[RowName, int | None]]] = {}
        self._failed = 0

    def available(self, ask: Callable[[], Flow[T]], txn_id: str | None = None) -> Flow[T]:
        """Repeat a request until the service is available."""
        while True:
            try:
                return (yield from ask())
            except Unavailable as error:
                if error.no_connection:
                    # The request has already waited for a free connection.
                    self._end(txn_id=txn_id, error=error)
                    raise
                yield from self._pause(error.retry_after_s, error, txn_id=txn_id, error=error)
            except TribunalError as error:
                self._end(txn_id=txn_id, error=error)
                raise

    def decided(self, commit: Callable[[], Flow[Verdict]], txn_id: str) -> Flow[Verdict | None]:
        """Repeat a commit until the service is available.

        Return `None`, after a wait, if the service was unavailable for so long that it no longer decides the id: the
        work has to run again.
        """
        refused = False
        late: ClientMistake | None = None

        def ask() -> Flow[Verdict | None]:
            nonlocal refused, late
            try:
                return (yield from commit())
            except Unavailable:
                refused = True
                raise
            except ClientMistake as error:
                # All earlier replies mean that nothing was decided: after any other error, the commit is not repeated.
                # If there are none, the work itself has taken too long, and would again.
                if not refused or error.code != _EXPIRED:
                    raise
                late = error
                return None

        verdict = yield from self.available(ask, txn_id)
        if late is not None:
            yield from self._pause(0, late, txn_id=txn_id, error=late)
        return verdict

    def work(self, txn: Draft, work: Callable[[Any], Any]) -> Flow[tuple[Any, PreparedCommit]]:
        """Run the caller's work. Return its result and the commit."""
        try:
            return (yield Work(work, txn)), txn._final()
        except Exception as error:
            self._end(txn_id=txn.id, error=error)
            raise

    def committed(self, verdict: Committed) -> None:
        """Report the commit."""
        self._end(txn_id=verdict.txn_id, verdict=verdict)

    def aborted(self, txn: Draft, verdict: Aborted) -> Flow[None]:
        """Wait before the next attempt; raise if the abort is final or was the last."""
        error = TransactionAborted(verdict, self._failed + 1)
        if not self._may_pass(txn, verdict):
            self._end(txn_id=txn.id, verdict=verdict)
            raise error
        yield from self._pause(verdict.retry_after_s, error, txn_id=txn.id, verdict=verdict)

    def _may_pass(self, txn: Draft, verdict: Aborted) -> bool:
        """Return whether another attempt may pass."""
        if verdict.reason == "fenced":
            # The client itself fenced the transaction after losing the request: the work was not refused.
            return True
        if not verdict.retryable or verdict.reason not in ("row_exists", "row_missing"):
            return verdict.retryable
        # Work that reads nothing would repeat the same writes. Other work gets a fresh read: an attempt whose snapshot
        # includes the epoch that refused the row. If it reads the same versions, the work does not depend on the
        # change. If it reads others, another commit may have intervened, as before the first refusal.
        if txn.blind:
            return False
        store, key = (verdict.conflicts[0].store, verdict.conflicts[0].key) if verdict.conflicts else ("", "")
        row = (store, normal(key))
        epoch, versions = self._refused.get(row, (0, None))
        if versions != txn.versions_read:
            self._refused[row] = (verdict.epoch, txn.versions_read)
            return True
        return txn.snapshots.get(store, epoch) < epoch

    def _pause(self, asked_s: float, raised: TribunalError, **ended: Any) -> Flow[None]:  # noqa: ANN401
        wait = self._policy.wait_s(self._failed + 1, asked_s)
        if wait is not None and time.monotonic() + wait >= self.until:
            wait = None
        self._end(**ended, wait_s=wait)
        if wait is None:
            raise raised
        yield Sleep(wait)

    def _end(self, **ended: Any) -> None:  # noqa: ANN401
        self._failed += 1
        self._report(Attempt(self._failed, **ended))
