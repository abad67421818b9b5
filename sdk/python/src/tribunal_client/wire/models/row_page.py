from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.row import Row


T = TypeVar("T", bound="RowPage")


@_attrs_define
class RowPage:
    """Rows in key order.

    Attributes:
        applied (str): The epoch that the rows reflect: all of its commits, and none of later epochs. Example: 8841.
        more (bool): Whether the range has more rows: continue after the last key. A range of large rows may be cut
            before its limit.
        rows (list[Row]): The rows.
        session (str | Unset): Session token: pass it to a later read or Begin that must reflect this epoch or a later
            one, also on another node. Example: v1-8841.
    """

    applied: str
    more: bool
    rows: list[Row]
    session: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        applied = self.applied

        more = self.more

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
                "more": more,
                "rows": rows,
            }
        )
        if session is not UNSET:
            field_dict["session"] = session

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.row import Row  # noqa: PLC0415

        d = dict(src_dict)
        applied = d.pop("applied")

        more = d.pop("more")

        rows = []
        _rows = d.pop("rows")
        for rows_item_data in _rows:
            rows_item = Row.from_dict(rows_item_data)

            rows.append(rows_item)

        session = d.pop("session", UNSET)

        row_page = cls(
            applied=applied,
            more=more,
            rows=rows,
            session=session,
        )

        row_page.additional_properties = d
        return row_page

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
