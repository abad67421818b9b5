from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.consumer_offset import ConsumerOffset


T = TypeVar("T", bound="ConsumerInfo")


@_attrs_define
class ConsumerInfo:
    """A consumer and its offsets.

    Attributes:
        log (str): The log of this node; in a cluster, of all nodes. Example: 8f14e45fceea167a5a36dedd4bea2543.
        name (str): Its name. Example: search-index.
        offsets (list[ConsumerOffset]): One per store that it reads, in the order of the stores' names.
    """

    log: str
    name: str
    offsets: list[ConsumerOffset]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        log = self.log

        name = self.name

        offsets = []
        for offsets_item_data in self.offsets:
            offsets_item = offsets_item_data.to_dict()
            offsets.append(offsets_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "log": log,
                "name": name,
                "offsets": offsets,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.consumer_offset import ConsumerOffset  # noqa: PLC0415

        d = dict(src_dict)
        log = d.pop("log")

        name = d.pop("name")

        offsets = []
        _offsets = d.pop("offsets")
        for offsets_item_data in _offsets:
            offsets_item = ConsumerOffset.from_dict(offsets_item_data)

            offsets.append(offsets_item)

        consumer_info = cls(
            log=log,
            name=name,
            offsets=offsets,
        )

        consumer_info.additional_properties = d
        return consumer_info

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
