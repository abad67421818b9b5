from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.distribution import Distribution


T = TypeVar("T", bound="Timing")


@_attrs_define
class Timing:
    """Times of one kind, microseconds.

    Attributes:
        name (str): Which time. Example: sync.
        us (Distribution): Values of one kind; percentiles are right within an eighth, all are 0 if there is no value.
    """

    name: str
    us: Distribution
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        us = self.us.to_dict()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "name": name,
                "us": us,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.distribution import Distribution  # noqa: PLC0415

        d = dict(src_dict)
        name = d.pop("name")

        us = Distribution.from_dict(d.pop("us"))

        timing = cls(
            name=name,
            us=us,
        )

        timing.additional_properties = d
        return timing

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
