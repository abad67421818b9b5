"""Verdicts: the final decisions of the service."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeVar

from .errors import ServerMisbehaved, error_of
from .keys import Key, key_of, readable
from .wire.types import Unset

if TYPE_CHECKING:
    from .wire.models import Conflict as WireConflict
    from .wire.models import TxnOutcome


@dataclass(frozen=True, slots=True)
class Committed:
    """The transaction is durable."""

    txn_id: str
    epoch: int
    """Epoch that decided it."""
    csn: int | None
    """Arrival stamp; read-only transactions have none."""
    version: int | None
    """Version of every row written; `None` if nothing was."""
    lsn: dict[str, int]
    """Position in the log of each store written."""
    session: str | None
    """Token for a Begin elsewhere that must see this commit; this client's own transactions do by default."""
    applied: bool | None
    """With `ack="applied"`: whether every store had applied it in time."""
    replayed: bool
    """Whether the verdict is an earlier one: the request was a repetition, or its first reply was lost."""
    traceparent: str | None = None
    """W3C trace context of the server's span, if the request was traced."""
    status: Literal["committed"] = "committed"


@dataclass(frozen=True, slots=True)
class Conflict:
    """A row or range that defeated a transaction."""

    store: str
    key: Key
    """The row's key, or the range's start."""
    end: Key | None
    """The range's end; `None` if it extends to the end of the store, and for a row."""
    row: Key | None
    """For a range: the first row in it that the winner wrote, if the server still remembers."""
    op: str
    """Which operation lost: `read`, `range` or `write`."""
    stage: str
    """Stage of the pipeline that found it."""
    read_version: int | None
    """Version that the transaction had read."""
    current_version: int | None
    """Version that the row has now."""
    by_txn: str | None
    """The transaction that won, if the server still remembers."""


@dataclass(frozen=True, slots=True)
class Aborted:
    """The transaction had no effect."""

    txn_id: str
    epoch: int
    """Epoch that decided it."""
    reason: str
    """`read_conflict`, `write_conflict`, `range_conflict`, `row_exists`, `row_missing` and so on.

    A newer service may have reasons that this client does not know.
    """
    retryable: bool
    """Whether the same work on fresh reads, under a new id, may commit."""
    retry_after_s: float
    """Wait before that attempt, seconds."""
    conflicts: tuple[Conflict, ...]
    """The rows and ranges that defeated it."""
    replayed: bool
    """Whether the verdict is an earlier one: the request was a repetition, or its first reply was lost."""
    traceparent: str | None = None
    """W3C trace context of the server's span, if the request was traced."""
    plugin_code: int | None = None
    """With reason `plugin`: the code that the isolation validator returned."""
    status: Literal["aborted"] = "aborted"


T = TypeVar("T")

Verdict = Committed | Aborted
"""A verdict, distinguished by its type or its `status`."""


@dataclass(frozen=True, slots=True)
class WouldCommit:
    """A dry run: the commit would pass now if it were alone."""

    txn_id: str
    epoch: int
    """Epoch on whose state it was evaluated."""
    status: Literal["would_commit"] = "would_commit"


@dataclass(frozen=True, slots=True)
class WouldAbort:
    """A dry run: the commit would abort now, for a reason and conflicts as those of `Aborted`."""

    txn_id: str
    epoch: int
    """Epoch on whose state it was evaluated."""
    reason: str
    retryable: bool
    conflicts: tuple[Conflict, ...]
    plugin_code: int | None = None
    status: Literal["would_abort"] = "would_abort"


DryRun = WouldCommit | WouldAbort | Verdict
"""The result of a dry run: what the verdict would be, or the verdict that the transaction already has."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The transaction has no verdict."""

    txn_id: str
    status: Literal["in_flight", "unknown", "unknown_expired"]
    """It is being decided; it has not arrived, but still may; it is no longer known, and can no longer commit."""


def number(text: str) -> int:
    """Read a 64-bit number."""
    if not (text.isascii() and text.isdigit()):
        raise ServerMisbehaved(f"`{text}` where a number was expected")
    return int(text)


def maybe_number(text: str | Unset) -> int | None:
    """Read a 64-bit number that may be absent."""
    return None if isinstance(text, Unset) else number(text)


def given(value: T | Unset) -> T | None:
    """Convert an absent field to `None`."""
    return None if isinstance(value, Unset) else value


def verdict_of(outcome: TxnOutcome, *, replayed: bool, traceparent: str | None = None) -> Verdict:
    """Read a verdict."""
    txn_id = given(outcome.txn_id) or ""
    match outcome.status:
        case "committed":
            return Committed(
                txn_id=txn_id,
                epoch=maybe_number(outcome.epoch) or 0,
                csn=maybe_number(outcome.csn),
                version=maybe_number(outcome.version),
                lsn={}
                if isinstance(outcome.lsn, Unset)
                else {store: number(lsn) for store, lsn in outcome.lsn.additional_properties.items()},
                session=given(outcome.session),
                applied=given(outcome.applied),
                replayed=replayed,
                traceparent=traceparent,
            )
        case "aborted":
            return Aborted(
                txn_id=txn_id,
                epoch=maybe_number(outcome.epoch) or 0,
                reason=given(outcome.reason) or "",
                retryable=given(outcome.retryable) or False,
                retry_after_s=(given(outcome.retry_after_ms) or 0) / 1000,
                conflicts=tuple(_conflict_of(conflict) for conflict in outcome.conflicts or []),
                replayed=replayed,
                traceparent=traceparent,
                plugin_code=given(outcome.plugin_code),
            )
        case _:
            if not isinstance(outcome.problem, Unset):
                raise error_of(outcome.problem)
            raise ServerMisbehaved(_unexpected(outcome.status))


_NO_VERDICTS = ("in_flight", "unknown", "unknown_expired", "would_commit", "would_abort", "problem")


def _unexpected(status: str) -> str:
    """Return what is wrong with a status that is not a verdict."""
    if status in _NO_VERDICTS:
        return f"status {status} where a verdict was expected"
    return f"status `{status}`, which this client does not know: the client is older than the server"


def dry_run_of(outcome: TxnOutcome) -> DryRun:
    """Read the result of a dry run."""
    txn_id, epoch = given(outcome.txn_id) or "", maybe_number(outcome.epoch) or 0
    match outcome.status:
        case "would_commit":
            return WouldCommit(txn_id, epoch)
        case "would_abort":
            return WouldAbort(
                txn_id=txn_id,
                epoch=epoch,
                reason=given(outcome.reason) or "",
                retryable=given(outcome.retryable) or False,
                conflicts=tuple(_conflict_of(conflict) for conflict in outcome.conflicts or []),
                plugin_code=given(outcome.plugin_code),
            )
        case _:
            return verdict_of(outcome, replayed=True)


def _conflict_of(conflict: WireConflict) -> Conflict:
    key, end = key_of(conflict.key, conflict.key_b64), key_of(conflict.end, conflict.end_b64)
    row = key_of(conflict.row, conflict.row_b64)
    return Conflict(
        store=conflict.store,
        key=readable(key or b""),
        end=None if end is None else readable(end),
        row=None if row is None else readable(row),
        op=conflict.op,
        stage=conflict.stage,
        read_version=maybe_number(conflict.read_version),
        current_version=maybe_number(conflict.current_version),
        by_txn=given(conflict.by_txn),
    )
