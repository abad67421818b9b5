from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.begin_response_lsn import BeginResponseLsn
    from ..models.begin_response_snapshots import BeginResponseSnapshots
    from ..models.read_range import ReadRange
    from ..models.read_row import ReadRow


T = TypeVar("T", bound="BeginResponse")


@_attrs_define
class BeginResponse:
    """A transaction that has begun.

    Attributes:
        epoch (str): The epoch that is open now. Pass it to the commit: some conflict rules compare when transactions
            began. Example: 8842.
        expires_at (str): The time of Begin plus `ttl_ms`: RFC 3339, UTC. Advisory: a commit after it is still decided.
            Two limits are enforced.
            The history that snapshots need is kept for 60 seconds: after that, if other commits were decided meanwhile, a
            commit that names them aborts with `snapshot_too_old` if it is at `snapshot`, has ranges, or uses a store of
            declared
            existence; the versions of rows can always be compared. And once the time in the id is more than 10 minutes
            before or
            after the service's, a commit that writes is refused with `txn_id_expired`. Example: 2026-01-02T03:04:05.678Z.
        session (str): Session token that covers these snapshots. Example: v1-8842.
        snapshots (BeginResponseSnapshots): Snapshot of each store: read at it, and pass it to the commit. Example:
            {'kv': '8841'}.
        txn_id (str): The transaction's id, a UUIDv7 and its idempotency key. Example:
            0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a.
        log (str | Unset): The log that these positions refer to, as in a page of the log: if an engine has its rows
            from another log, it must not read
            them, because the service's log has been salvaged, restored or replaced since. Example:
            8f14e45fceea167a5a36dedd4bea2543.
        lsn (BeginResponseLsn | Unset): For each store, a position of its log: every commit up to the store's snapshot
            is there or before. An engine that keeps the
            rows of a store itself applies the log up to here before it reads them. Earlier releases do not return it.
            Example: {'kv': '120'}.
        ranges (list[ReadRange] | Unset): The ranges, in the order of the request; absent if it has no `ranges`.
        rows (list[ReadRow] | Unset): The rows of `read`, in the order of the request; absent if it has no `read`.
    """

    epoch: str
    expires_at: str
    session: str
    snapshots: BeginResponseSnapshots
    txn_id: str
    log: str | Unset = UNSET
    lsn: BeginResponseLsn | Unset = UNSET
    ranges: list[ReadRange] | Unset = UNSET
    rows: list[ReadRow] | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        epoch = self.epoch

        expires_at = self.expires_at

        session = self.session

        snapshots = self.snapshots.to_dict()

        txn_id = self.txn_id

        log = self.log

        lsn: dict[str, Any] | Unset = UNSET
        if not isinstance(self.lsn, Unset):
            lsn = self.lsn.to_dict()

        ranges: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.ranges, Unset):
            ranges = []
            for ranges_item_data in self.ranges:
                ranges_item = ranges_item_data.to_dict()
                ranges.append(ranges_item)

        rows: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.rows, Unset):
            rows = []
            for rows_item_data in self.rows:
                rows_item = rows_item_data.to_dict()
                rows.append(rows_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "epoch": epoch,
                "expires_at": expires_at,
                "session": session,
                "snapshots": snapshots,
                "txn_id": txn_id,
            }
        )
        if log is not UNSET:
            field_dict["log"] = log
        if lsn is not UNSET:
            field_dict["lsn"] = lsn
        if ranges is not UNSET:
            field_dict["ranges"] = ranges
        if rows is not UNSET:
            field_dict["rows"] = rows

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.begin_response_lsn import BeginResponseLsn  # noqa: PLC0415
        from ..models.begin_response_snapshots import BeginResponseSnapshots  # noqa: PLC0415
        from ..models.read_range import ReadRange  # noqa: PLC0415
        from ..models.read_row import ReadRow  # noqa: PLC0415

        d = dict(src_dict)
        epoch = d.pop("epoch")

        expires_at = d.pop("expires_at")

        session = d.pop("session")

        snapshots = BeginResponseSnapshots.from_dict(d.pop("snapshots"))

        txn_id = d.pop("txn_id")

        log = d.pop("log", UNSET)

        _lsn = d.pop("lsn", UNSET)
        lsn: BeginResponseLsn | Unset
        if isinstance(_lsn, Unset):
            lsn = UNSET
        else:
            lsn = BeginResponseLsn.from_dict(_lsn)

        _ranges = d.pop("ranges", UNSET)
        ranges: list[ReadRange] | Unset = UNSET
        if _ranges is not UNSET:
            ranges = []
            for ranges_item_data in _ranges:
                ranges_item = ReadRange.from_dict(ranges_item_data)

                ranges.append(ranges_item)

        _rows = d.pop("rows", UNSET)
        rows: list[ReadRow] | Unset = UNSET
        if _rows is not UNSET:
            rows = []
            for rows_item_data in _rows:
                rows_item = ReadRow.from_dict(rows_item_data)

                rows.append(rows_item)

        begin_response = cls(
            epoch=epoch,
            expires_at=expires_at,
            session=session,
            snapshots=snapshots,
            txn_id=txn_id,
            log=log,
            lsn=lsn,
            ranges=ranges,
            rows=rows,
        )

        begin_response.additional_properties = d
        return begin_response

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
