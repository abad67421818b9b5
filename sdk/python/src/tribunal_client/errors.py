"""Errors, classified by who can act on them.

A verdict is not an error, except at the end of `Client.run`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .wire.types import Unset

if TYPE_CHECKING:
    from .verdict import Aborted
    from .wire.models import Problem, ProblemError


class TribunalError(Exception):
    """Any error of this package."""

    def __reduce__(self) -> tuple[object, ...]:
        # By default an exception is recreated from its message, which is not the argument of these constructors.
        return Exception.__new__, (type(self), *self.args), self.__dict__


class ClientMistake(TribunalError):
    """The request is wrong, and so would be a retry; `errors` has the details."""

    retryable = False

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        # The detail of a single error is already that of the problem.
        missing = [fault for fault in problem.errors or [] if fault.detail not in problem.detail]
        faults = "; ".join(f"{fault.pointer}: {fault.detail}" for fault in missing)
        super().__init__(f"{problem.code}: {problem.detail}" + (f" ({faults})" if faults else ""))

    @property
    def code(self) -> str:
        """Code of the error, for programs: `unknown_store`, `log_truncated` and so on."""
        return self.problem.code

    @property
    def errors(self) -> list[ProblemError]:
        """All errors found in the request: `pointer`, `code`, `detail`."""
        return self.problem.errors or []


class Unavailable(TribunalError):
    """Nothing was decided, and the same request may succeed later."""

    retryable = True

    def __init__(self, message: str, problem: Problem | None = None, *, no_connection: bool = False) -> None:
        super().__init__(message)
        self.problem = problem
        """The service's problem document; `None` if the service could not be reached."""
        self.no_connection = no_connection
        """Whether no request was sent because all `connections_max` connections of the client were in use."""

    @property
    def code(self) -> str:
        """Code of the error, for programs; `unreachable` if the service could not be reached."""
        return "unreachable" if self.problem is None else self.problem.code

    @property
    def retry_after_s(self) -> float:
        """How long to wait before a retry, seconds."""
        if self.problem is None or isinstance(self.problem.retry_after_ms, Unset):
            return 0.0
        return self.problem.retry_after_ms / 1000


class OutcomeUnknown(TribunalError):
    """It is not known whether the transaction committed. Its status can be requested by its id."""

    def __init__(self, txn_id: str, message: str) -> None:
        super().__init__(f"the outcome of transaction {txn_id} is unknown: {message}")
        self.txn_id = txn_id


class TransactionAborted(TribunalError):
    """`Client.run` has ended without a commit: the last abort was final, or the retries are used up."""

    def __init__(self, aborted: Aborted, attempts: int = 1) -> None:
        first = aborted.conflicts[0] if aborted.conflicts else None
        at = f" at {first.store}/{first.key!r}" if first else ""
        after = f" after {attempts} attempt{'' if attempts == 1 else 's'}"
        super().__init__(f"transaction {aborted.txn_id} aborted: {aborted.reason}{at}{after}")
        self.aborted = aborted
        """The verdict of the last attempt."""
        self.attempts = attempts
        """Number of attempts, including those for which the service was unavailable."""


class ServerMisbehaved(TribunalError):
    """The server's response violates the API, or comes from a newer server and is unknown to this client."""


class Misuse(TribunalError):
    """The client is used or configured in a way that cannot work."""


FORKED = "the client was used before this process was forked: create one in each process"


FORGOTTEN = ("txn_id_forgotten", "verdict_truncated")
"""Codes of a commit whose id an earlier request may have used: the service no longer has its verdict."""


SESSION_UNKNOWN = "session_unknown"
"""Code of a refusal: no node of the service's log issued the session token."""


def error_of(problem: Problem) -> ClientMistake | Unavailable:
    """Create the error for a problem document."""
    if problem.retryable or problem.status >= 500:
        return Unavailable(f"{problem.code}: {problem.detail}", problem)
    return ClientMistake(problem)
