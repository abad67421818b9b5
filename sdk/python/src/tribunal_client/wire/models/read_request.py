from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.consistency import Consistency, check_consistency
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.range_read import RangeRead
    from ..models.row_read import RowRead


T = TypeVar("T", bound="ReadRequest")


@_attrs_define
class ReadRequest:
    """Rows and ranges to read; at least one of either.

    Attributes:
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read, must include.
        ranges (list[RangeRead] | Unset): Ranges to read.
        read (list[RowRead] | Unset): Rows to read.
        session (str | Unset): Session token of an earlier response: wait until the store has applied what it covers.
        wait_ms (int | Unset): Timeout of the wait for `session`, `consistency` or a store that is being opened,
            milliseconds; 5000 if absent. Example: 1000.
    """

    consistency: Consistency | Unset = UNSET
    ranges: list[RangeRead] | Unset = UNSET
    read: list[RowRead] | Unset = UNSET
    session: str | Unset = UNSET
    wait_ms: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        consistency: str | Unset = UNSET
        if not isinstance(self.consistency, Unset):
            consistency = self.consistency

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

        wait_ms = self.wait_ms

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if consistency is not UNSET:
            field_dict["consistency"] = consistency
        if ranges is not UNSET:
            field_dict["ranges"] = ranges
        if read is not UNSET:
            field_dict["read"] = read
        if session is not UNSET:
            field_dict["session"] = session
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

        wait_ms = d.pop("wait_ms", UNSET)

        read_request = cls(
            consistency=consistency,
            ranges=ranges,
            read=read,
            session=session,
            wait_ms=wait_ms,
        )

        read_request.additional_properties = d
        return read_request

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
