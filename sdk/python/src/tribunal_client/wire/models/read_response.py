from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.read_range import ReadRange
    from ..models.read_row import ReadRow


T = TypeVar("T", bound="ReadResponse")


@_attrs_define
class ReadResponse:
    """Rows and ranges, all read at the same epoch.

    Attributes:
        applied (str): The epoch that the results reflect: they include all of its commits, and none of later epochs.
            Example: 8841.
        ranges (list[ReadRange] | Unset): The ranges, in the order of the request; absent if it has no ranges.
        rows (list[ReadRow] | Unset): The rows, in the order of the request; absent if it has no rows.
        session (str | Unset): Session token: pass it to a later read or Begin that must reflect this epoch or a later
            one, also on another node. Example: v1-8841.
    """

    applied: str
    ranges: list[ReadRange] | Unset = UNSET
    rows: list[ReadRow] | Unset = UNSET
    session: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        applied = self.applied

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

        session = self.session

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "applied": applied,
            }
        )
        if ranges is not UNSET:
            field_dict["ranges"] = ranges
        if rows is not UNSET:
            field_dict["rows"] = rows
        if session is not UNSET:
            field_dict["session"] = session

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.read_range import ReadRange  # noqa: PLC0415
        from ..models.read_row import ReadRow  # noqa: PLC0415

        d = dict(src_dict)
        applied = d.pop("applied")

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

        session = d.pop("session", UNSET)

        read_response = cls(
            applied=applied,
            ranges=ranges,
            rows=rows,
            session=session,
        )

        read_response.additional_properties = d
        return read_response

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
