from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.plugin_faults import PluginFaults


T = TypeVar("T", bound="PluginHealth")


@_attrs_define
class PluginHealth:
    """How the plugin in a slot does, since this process runs it there.

    Attributes:
        calls (str): Calls. Example: 1200.
        fallbacks (str): Epochs that its stand-in decided, because it failed. Example: 0.
        faults (list[PluginFaults]): Its faults by kind.
        fuel_per_item (str): Fuel of an item, on the average. Example: 310.
        items (str): Transactions or records in them. Example: 34000.
        ns_per_item (str): Time of an item, nanoseconds, on the average. Example: 140.
        last_fault (str | Unset): What the last fault said.
    """

    calls: str
    fallbacks: str
    faults: list[PluginFaults]
    fuel_per_item: str
    items: str
    ns_per_item: str
    last_fault: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        calls = self.calls

        fallbacks = self.fallbacks

        faults = []
        for faults_item_data in self.faults:
            faults_item = faults_item_data.to_dict()
            faults.append(faults_item)

        fuel_per_item = self.fuel_per_item

        items = self.items

        ns_per_item = self.ns_per_item

        last_fault = self.last_fault

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "calls": calls,
                "fallbacks": fallbacks,
                "faults": faults,
                "fuel_per_item": fuel_per_item,
                "items": items,
                "ns_per_item": ns_per_item,
            }
        )
        if last_fault is not UNSET:
            field_dict["last_fault"] = last_fault

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_faults import PluginFaults  # noqa: PLC0415

        d = dict(src_dict)
        calls = d.pop("calls")

        fallbacks = d.pop("fallbacks")

        faults = []
        _faults = d.pop("faults")
        for faults_item_data in _faults:
            faults_item = PluginFaults.from_dict(faults_item_data)

            faults.append(faults_item)

        fuel_per_item = d.pop("fuel_per_item")

        items = d.pop("items")

        ns_per_item = d.pop("ns_per_item")

        last_fault = d.pop("last_fault", UNSET)

        plugin_health = cls(
            calls=calls,
            fallbacks=fallbacks,
            faults=faults,
            fuel_per_item=fuel_per_item,
            items=items,
            ns_per_item=ns_per_item,
            last_fault=last_fault,
        )

        plugin_health.additional_properties = d
        return plugin_health

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
