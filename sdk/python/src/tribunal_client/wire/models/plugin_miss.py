from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="PluginMiss")


@_attrs_define
class PluginMiss:
    """A level whose anomalies a validator does not all reject.

    Attributes:
        anomaly (str): The first anomaly that the validator accepts. Example: phantom (PMP, G2): a scanned range has
            changed.
        level (str): The level. Example: serializable.
    """

    anomaly: str
    level: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        anomaly = self.anomaly

        level = self.level

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "anomaly": anomaly,
                "level": level,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        anomaly = d.pop("anomaly")

        level = d.pop("level")

        plugin_miss = cls(
            anomaly=anomaly,
            level=level,
        )

        plugin_miss.additional_properties = d
        return plugin_miss

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
