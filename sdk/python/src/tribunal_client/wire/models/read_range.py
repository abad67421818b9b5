from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.row import Row


T = TypeVar("T", bound="ReadRange")


@_attrs_define
class ReadRange:
    """The result of reading a range.

    Attributes:
        more (bool): Whether the range has more rows: continue after the last key. A range of large rows may be cut
            before its limit, also
            because of the other ranges of the request; one that has rows has at least one here.
        rows (list[Row]): The rows, in key order.
        store (str): Store of the range. Example: kv.
    """

    more: bool
    rows: list[Row]
    store: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        more = self.more

        rows = []
        for rows_item_data in self.rows:
            rows_item = rows_item_data.to_dict()
            rows.append(rows_item)

        store = self.store

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "more": more,
                "rows": rows,
                "store": store,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.row import Row  # noqa: PLC0415

        d = dict(src_dict)
        more = d.pop("more")

        rows = []
        _rows = d.pop("rows")
        for rows_item_data in _rows:
            rows_item = Row.from_dict(rows_item_data)

            rows.append(rows_item)

        store = d.pop("store")

        read_range = cls(
            more=more,
            rows=rows,
            store=store,
        )

        read_range.additional_properties = d
        return read_range

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
