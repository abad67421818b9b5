from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.consistency import Consistency, check_consistency
from ..models.isolation_level import IsolationLevel, check_isolation_level
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.range_read import RangeRead
    from ..models.row_read import RowRead


T = TypeVar("T", bound="BeginRequest")


@_attrs_define
class BeginRequest:
    """A request to begin a transaction.

    Attributes:
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read, must include.
        isolation (IsolationLevel | Unset): Isolation level.
        ranges (list[RangeRead] | Unset): Ranges of embedded stores to read at the snapshots. The response has one
            element in `ranges` for each.
        read (list[RowRead] | Unset): Rows of embedded stores to read at the snapshots. The response has one element in
            `rows` for each.
        session (str | Unset): Session token of an earlier response: wait until what it covers is visible.
        stores (list[str] | Unset): Stores that the transaction will use, at most 64; all stores of the namespace if
            absent or empty, which then may not
            be more. A store whose storage is detached, or has not been reached since the node's start, is then left out.
            Example: ['kv'].
        ttl_ms (int | Unset): Expected duration of the transaction, milliseconds; 600000 if absent. Advisory: it only
            sets `expires_at`, where the
            enforced limits are described.
        wait_ms (int | Unset): Timeout of the wait for `session`, `consistency` or a store that is being opened,
            milliseconds. With `read` or `ranges`
            and a store that keeps versions (`multi_version`), also of the wait until every store has applied what was read:
            without it, such a Begin fails with `store_lagging` if a store lags. Example: 1000.
    """

    consistency: Consistency | Unset = UNSET
    isolation: IsolationLevel | Unset = UNSET
    ranges: list[RangeRead] | Unset = UNSET
    read: list[RowRead] | Unset = UNSET
    session: str | Unset = UNSET
    stores: list[str] | Unset = UNSET
    ttl_ms: int | Unset = UNSET
    wait_ms: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        consistency: str | Unset = UNSET
        if not isinstance(self.consistency, Unset):
            consistency = self.consistency

        isolation: str | Unset = UNSET
        if not isinstance(self.isolation, Unset):
            isolation = self.isolation

        ranges: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.ranges, Unset):
            ranges = []
            for ranges_item_data in self.ranges:
                ranges_item = ranges_item_data.to_dict()
                ranges.append(ranges_item)

        read: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.read, Unset):
            read = []
            for read_item_data in self.read:
                read_item = read_item_data.to_dict()
                read.append(read_item)

        session = self.session

        stores: list[str] | Unset = UNSET
        if not isinstance(self.stores, Unset):
            stores = self.stores

        ttl_ms = self.ttl_ms

        wait_ms = self.wait_ms

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if consistency is not UNSET:
            field_dict["consistency"] = consistency
        if isolation is not UNSET:
            field_dict["isolation"] = isolation
        if ranges is not UNSET:
            field_dict["ranges"] = ranges
        if read is not UNSET:
            field_dict["read"] = read
        if session is not UNSET:
            field_dict["session"] = session
        if stores is not UNSET:
            field_dict["stores"] = stores
        if ttl_ms is not UNSET:
            field_dict["ttl_ms"] = ttl_ms
        if wait_ms is not UNSET:
            field_dict["wait_ms"] = wait_ms

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.range_read import RangeRead  # noqa: PLC0415
        from ..models.row_read import RowRead  # noqa: PLC0415

        d = dict(src_dict)
        _consistency = d.pop("consistency", UNSET)
        consistency: Consistency | Unset
        if isinstance(_consistency, Unset):
            consistency = UNSET
        else:
            consistency = check_consistency(_consistency)

        _isolation = d.pop("isolation", UNSET)
        isolation: IsolationLevel | Unset
        if isinstance(_isolation, Unset):
            isolation = UNSET
        else:
            isolation = check_isolation_level(_isolation)

        _ranges = d.pop("ranges", UNSET)
        ranges: list[RangeRead] | Unset = UNSET
        if _ranges is not UNSET:
            ranges = []
            for ranges_item_data in _ranges:
                ranges_item = RangeRead.from_dict(ranges_item_data)

                ranges.append(ranges_item)

        _read = d.pop("read", UNSET)
        read: list[RowRead] | Unset = UNSET
        if _read is not UNSET:
            read = []
            for read_item_data in _read:
                read_item = RowRead.from_dict(read_item_data)

                read.append(read_item)

        session = d.pop("session", UNSET)

        stores = cast(list[str], d.pop("stores", UNSET))

        ttl_ms = d.pop("ttl_ms", UNSET)

        wait_ms = d.pop("wait_ms", UNSET)

        begin_request = cls(
            consistency=consistency,
            isolation=isolation,
            ranges=ranges,
            read=read,
            session=session,
            stores=stores,
            ttl_ms=ttl_ms,
            wait_ms=wait_ms,
        )

        begin_request.additional_properties = d
        return begin_request

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
