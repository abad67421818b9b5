from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.ack import Ack, check_ack
from ..models.isolation_level import IsolationLevel, check_isolation_level
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.batch_txn_snapshots import BatchTxnSnapshots
    from ..models.range_ import Range
    from ..models.read import Read
    from ..models.write import Write


T = TypeVar("T", bound="BatchTxn")


@_attrs_define
class BatchTxn:
    """A commit within a batch: a commit and its id.

    Attributes:
        txn_id (str): The transaction's id, a UUIDv7 and its idempotency key. Example:
            0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a.
        ack (Ack | Unset): When a commit is acknowledged.
        epoch (str | Unset): `epoch` as returned by Begin, for conflict rules that compare when transactions began.
            Example: 8842.
        first_attempt_ms (str | Unset): When the client first attempted this work, Unix milliseconds, for rules that let
            the oldest work win; the same in
            every retry, under any id. If absent or later than the time in the transaction's own id, that time is used.
            Example: 1767225600000.
        isolation (IsolationLevel | Unset): Isolation level.
        priority (int | Unset): Weight for conflict rules that use it, such as `priority`; 100 if absent.
        ranges (list[Range] | Unset): Ranges scanned.
        reads (list[Read] | Unset): Rows read, each at most once.
        snapshots (BatchTxnSnapshots | Unset): Snapshot of each store used, as returned by Begin; see `CommitRequest`.
            Example: {'kv': '8841'}.
        writes (list[Write] | Unset): Rows to write, each at most once.
    """

    txn_id: str
    ack: Ack | Unset = UNSET
    epoch: str | Unset = UNSET
    first_attempt_ms: str | Unset = UNSET
    isolation: IsolationLevel | Unset = UNSET
    priority: int | Unset = UNSET
    ranges: list[Range] | Unset = UNSET
    reads: list[Read] | Unset = UNSET
    snapshots: BatchTxnSnapshots | Unset = UNSET
    writes: list[Write] | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        txn_id = self.txn_id

        ack: str | Unset = UNSET
        if not isinstance(self.ack, Unset):
            ack = self.ack

        epoch = self.epoch

        first_attempt_ms = self.first_attempt_ms

        isolation: str | Unset = UNSET
        if not isinstance(self.isolation, Unset):
            isolation = self.isolation

        priority = self.priority

        ranges: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.ranges, Unset):
            ranges = []
            for ranges_item_data in self.ranges:
                ranges_item = ranges_item_data.to_dict()
                ranges.append(ranges_item)

        reads: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.reads, Unset):
            reads = []
            for reads_item_data in self.reads:
                reads_item = reads_item_data.to_dict()
                reads.append(reads_item)

        snapshots: dict[str, Any] | Unset = UNSET
        if not isinstance(self.snapshots, Unset):
            snapshots = self.snapshots.to_dict()

        writes: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.writes, Unset):
            writes = []
            for writes_item_data in self.writes:
                writes_item = writes_item_data.to_dict()
                writes.append(writes_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "txn_id": txn_id,
            }
        )
        if ack is not UNSET:
            field_dict["ack"] = ack
        if epoch is not UNSET:
            field_dict["epoch"] = epoch
        if first_attempt_ms is not UNSET:
            field_dict["first_attempt_ms"] = first_attempt_ms
        if isolation is not UNSET:
            field_dict["isolation"] = isolation
        if priority is not UNSET:
            field_dict["priority"] = priority
        if ranges is not UNSET:
            field_dict["ranges"] = ranges
        if reads is not UNSET:
            field_dict["reads"] = reads
        if snapshots is not UNSET:
            field_dict["snapshots"] = snapshots
        if writes is not UNSET:
            field_dict["writes"] = writes

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.batch_txn_snapshots import BatchTxnSnapshots  # noqa: PLC0415
        from ..models.range_ import Range  # noqa: PLC0415
        from ..models.read import Read  # noqa: PLC0415
        from ..models.write import Write  # noqa: PLC0415

        d = dict(src_dict)
        txn_id = d.pop("txn_id")

        _ack = d.pop("ack", UNSET)
        ack: Ack | Unset
        if isinstance(_ack, Unset):
            ack = UNSET
        else:
            ack = check_ack(_ack)

        epoch = d.pop("epoch", UNSET)

        first_attempt_ms = d.pop("first_attempt_ms", UNSET)

        _isolation = d.pop("isolation", UNSET)
        isolation: IsolationLevel | Unset
        if isinstance(_isolation, Unset):
            isolation = UNSET
        else:
            isolation = check_isolation_level(_isolation)

        priority = d.pop("priority", UNSET)

        _ranges = d.pop("ranges", UNSET)
        ranges: list[Range] | Unset = UNSET
        if _ranges is not UNSET:
            ranges = []
            for ranges_item_data in _ranges:
                ranges_item = Range.from_dict(ranges_item_data)

                ranges.append(ranges_item)

        _reads = d.pop("reads", UNSET)
        reads: list[Read] | Unset = UNSET
        if _reads is not UNSET:
            reads = []
            for reads_item_data in _reads:
                reads_item = Read.from_dict(reads_item_data)

                reads.append(reads_item)

        _snapshots = d.pop("snapshots", UNSET)
        snapshots: BatchTxnSnapshots | Unset
        if isinstance(_snapshots, Unset):
            snapshots = UNSET
        else:
            snapshots = BatchTxnSnapshots.from_dict(_snapshots)

        _writes = d.pop("writes", UNSET)
        writes: list[Write] | Unset = UNSET
        if _writes is not UNSET:
            writes = []
            for writes_item_data in _writes:
                writes_item = Write.from_dict(writes_item_data)

                writes.append(writes_item)

        batch_txn = cls(
            txn_id=txn_id,
            ack=ack,
            epoch=epoch,
            first_attempt_ms=first_attempt_ms,
            isolation=isolation,
            priority=priority,
            ranges=ranges,
            reads=reads,
            snapshots=snapshots,
            writes=writes,
        )

        batch_txn.additional_properties = d
        return batch_txn

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
