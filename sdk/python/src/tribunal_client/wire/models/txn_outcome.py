from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.abort_reason import AbortReason, check_abort_reason
from ..models.txn_state import TxnState, check_txn_state
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.conflict import Conflict
    from ..models.problem import Problem
    from ..models.txn_outcome_lsn import TxnOutcomeLsn


T = TypeVar("T", bound="TxnOutcome")


@_attrs_define
class TxnOutcome:
    """Outcome of a transaction. `status` determines which fields are present.

    Attributes:
        status (TxnState): Status of a transaction.
        applied (bool | Unset): With `ack: applied`: whether every store had applied it in time.
        conflicts (list[Conflict] | Unset): The conflicts that caused the abort: as a rule only the first one found, in
            the order of the request's reads, ranges and
            writes. Others may exist.
        csn (str | Unset): Arrival stamp: identifies the transaction, and is not the commit order. Example:
            1808217543843841024.
        epoch (str | Unset): The epoch that decided it. A read-only transaction belongs to no epoch: it was judged on
            the state after this one, and
            follows its commits in the serial order. Example: 8842.
        lsn (TxnOutcomeLsn | Unset): Position of its record in the log of each store that it wrote. Example: {'kv':
            '120'}.
        plugin_code (int | Unset): With reason `plugin`: the code that the isolation validator returned. 64 to 127 are
            final: `retryable` is `false`.
        problem (Problem | Unset): Why there is no decision (RFC 9457, `application/problem+json`).
        read_only (bool | Unset): Whether it was read-only. Its verdict is not stored, so its status by id is `unknown`
            afterwards.
        reason (AbortReason | Unset): Why a transaction aborted:

            * `read_conflict`: a row that it read has changed, appeared or disappeared.
            * `write_conflict`: another transaction wrote the row first.
            * `range_conflict`: a range that it scanned has changed.
            * `row_exists`: it inserts a row that exists.
            * `row_missing`: it updates, deletes or adds to a row that does not exist.
            * `not_a_number`: it adds to a value that is not an integer.
            * `add_overflow`: the sum of an add does not fit into 64 bits.
            * `snapshot_too_old`: the history that its snapshot needs is no longer retained.
            * `snapshot_from_the_future`: its snapshot is newer than every complete epoch.
            * `snapshots_differ`: its snapshots of multi-version stores are not one state of the database.
            * `order_conflict`: it would close a cycle in the serial order of its epoch.
            * `client_abort`: the client aborted it.
            * `fenced`: a fence closed its id before it was decided.
            * `plugin`: an isolation validator rejected it for a reason of its own; see `plugin_code`.
            * `lock_lost`, `deadlock`: reserved for locks; this release never returns them.
        replayed (bool | Unset): Batches only: whether the request was a retry, and this is the stored outcome. A
            response to a single commit has the
            header `idempotency-replayed` instead.
        retry_after_ms (int | Unset): When to retry, milliseconds from now.
        retryable (bool | Unset): Whether the same work may commit on fresh reads, under a new id. With `row_exists` and
            `row_missing`, that requires work
            that reads the row and depends on it: an `insert`, `update`, `delete` or `add` that is only repeated fails again
            until
            another transaction has deleted or created the row.
        session (str | Unset): Session token: pass it to a Begin that must see this commit. Example: v1-8842.
        txn_id (str | Unset): The transaction; absent only for a batch item without a readable id. Example:
            0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a.
        version (str | Unset): Version of every row that it wrote. Versions of one row rise and are never equal; two
            transactions of one epoch that
            wrote no row in common may have the same version. Example: 9271508992.
    """

    status: TxnState
    applied: bool | Unset = UNSET
    conflicts: list[Conflict] | Unset = UNSET
    csn: str | Unset = UNSET
    epoch: str | Unset = UNSET
    lsn: TxnOutcomeLsn | Unset = UNSET
    plugin_code: int | Unset = UNSET
    problem: Problem | Unset = UNSET
    read_only: bool | Unset = UNSET
    reason: AbortReason | Unset = UNSET
    replayed: bool | Unset = UNSET
    retry_after_ms: int | Unset = UNSET
    retryable: bool | Unset = UNSET
    session: str | Unset = UNSET
    txn_id: str | Unset = UNSET
    version: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        status: str = self.status

        applied = self.applied

        conflicts: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.conflicts, Unset):
            conflicts = []
            for conflicts_item_data in self.conflicts:
                conflicts_item = conflicts_item_data.to_dict()
                conflicts.append(conflicts_item)

        csn = self.csn

        epoch = self.epoch

        lsn: dict[str, Any] | Unset = UNSET
        if not isinstance(self.lsn, Unset):
            lsn = self.lsn.to_dict()

        plugin_code = self.plugin_code

        problem: dict[str, Any] | Unset = UNSET
        if not isinstance(self.problem, Unset):
            problem = self.problem.to_dict()

        read_only = self.read_only

        reason: str | Unset = UNSET
        if not isinstance(self.reason, Unset):
            reason = self.reason

        replayed = self.replayed

        retry_after_ms = self.retry_after_ms

        retryable = self.retryable

        session = self.session

        txn_id = self.txn_id

        version = self.version

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "status": status,
            }
        )
        if applied is not UNSET:
            field_dict["applied"] = applied
        if conflicts is not UNSET:
            field_dict["conflicts"] = conflicts
        if csn is not UNSET:
            field_dict["csn"] = csn
        if epoch is not UNSET:
            field_dict["epoch"] = epoch
        if lsn is not UNSET:
            field_dict["lsn"] = lsn
        if plugin_code is not UNSET:
            field_dict["plugin_code"] = plugin_code
        if problem is not UNSET:
            field_dict["problem"] = problem
        if read_only is not UNSET:
            field_dict["read_only"] = read_only
        if reason is not UNSET:
            field_dict["reason"] = reason
        if replayed is not UNSET:
            field_dict["replayed"] = replayed
        if retry_after_ms is not UNSET:
            field_dict["retry_after_ms"] = retry_after_ms
        if retryable is not UNSET:
            field_dict["retryable"] = retryable
        if session is not UNSET:
            field_dict["session"] = session
        if txn_id is not UNSET:
            field_dict["txn_id"] = txn_id
        if version is not UNSET:
            field_dict["version"] = version

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.conflict import Conflict  # noqa: PLC0415
        from ..models.problem import Problem  # noqa: PLC0415
        from ..models.txn_outcome_lsn import TxnOutcomeLsn  # noqa: PLC0415

        d = dict(src_dict)
        status = check_txn_state(d.pop("status"))

        applied = d.pop("applied", UNSET)

        _conflicts = d.pop("conflicts", UNSET)
        conflicts: list[Conflict] | Unset = UNSET
        if _conflicts is not UNSET:
            conflicts = []
            for conflicts_item_data in _conflicts:
                conflicts_item = Conflict.from_dict(conflicts_item_data)

                conflicts.append(conflicts_item)

        csn = d.pop("csn", UNSET)

        epoch = d.pop("epoch", UNSET)

        _lsn = d.pop("lsn", UNSET)
        lsn: TxnOutcomeLsn | Unset
        if isinstance(_lsn, Unset):
            lsn = UNSET
        else:
            lsn = TxnOutcomeLsn.from_dict(_lsn)

        plugin_code = d.pop("plugin_code", UNSET)

        _problem = d.pop("problem", UNSET)
        problem: Problem | Unset
        if isinstance(_problem, Unset):
            problem = UNSET
        else:
            problem = Problem.from_dict(_problem)

        read_only = d.pop("read_only", UNSET)

        _reason = d.pop("reason", UNSET)
        reason: AbortReason | Unset
        if isinstance(_reason, Unset):
            reason = UNSET
        else:
            reason = check_abort_reason(_reason)

        replayed = d.pop("replayed", UNSET)

        retry_after_ms = d.pop("retry_after_ms", UNSET)

        retryable = d.pop("retryable", UNSET)

        session = d.pop("session", UNSET)

        txn_id = d.pop("txn_id", UNSET)

        version = d.pop("version", UNSET)

        txn_outcome = cls(
            status=status,
            applied=applied,
            conflicts=conflicts,
            csn=csn,
            epoch=epoch,
            lsn=lsn,
            plugin_code=plugin_code,
            problem=problem,
            read_only=read_only,
            reason=reason,
            replayed=replayed,
            retry_after_ms=retry_after_ms,
            retryable=retryable,
            session=session,
            txn_id=txn_id,
            version=version,
        )

        txn_outcome.additional_properties = d
        return txn_outcome

    @property
    def additional_keys(self) -> list[str]:
        return list(self.additional_properties.keys())

    def __getitem__(self, key: str) -> Any:
        return self.additional_properties[key]

    def __setitem__(self, key: str, value: Any) -> None:
        self.additional_properties[key] = value

    def __delitem__(self, key: str) -> None:
        del self.additional_properties[key]

    def __contains__(self, key: str) -> bool:
        return key in self.additional_properties
