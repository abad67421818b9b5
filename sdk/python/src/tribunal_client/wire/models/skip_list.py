from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.skipped_record import SkippedRecord


T = TypeVar("T", bound="SkipList")


@_attrs_define
class SkipList:
    """Records of a store that were skipped.

    Attributes:
        skips (list[SkippedRecord]): Oldest decision first.
    """

    skips: list[SkippedRecord]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        skips = []
        for skips_item_data in self.skips:
            skips_item = skips_item_data.to_dict()
            skips.append(skips_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "skips": skips,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.skipped_record import SkippedRecord  # noqa: PLC0415

        d = dict(src_dict)
        skips = []
        _skips = d.pop("skips")
        for skips_item_data in _skips:
            skips_item = SkippedRecord.from_dict(skips_item_data)

            skips.append(skips_item)

        skip_list = cls(
            skips=skips,
        )

        skip_list.additional_properties = d
        return skip_list

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
