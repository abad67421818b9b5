from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.plugin_info import PluginInfo
    from ..models.plugin_slot import PluginSlot


T = TypeVar("T", bound="PluginList")


@_attrs_define
class PluginList:
    """All plugins and slots.

    Attributes:
        plugins (list[PluginInfo]): Plugins by name.
        slots (list[PluginSlot]): Slots by name.
    """

    plugins: list[PluginInfo]
    slots: list[PluginSlot]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        plugins = []
        for plugins_item_data in self.plugins:
            plugins_item = plugins_item_data.to_dict()
            plugins.append(plugins_item)

        slots = []
        for slots_item_data in self.slots:
            slots_item = slots_item_data.to_dict()
            slots.append(slots_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "plugins": plugins,
                "slots": slots,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_info import PluginInfo  # noqa: PLC0415
        from ..models.plugin_slot import PluginSlot  # noqa: PLC0415

        d = dict(src_dict)
        plugins = []
        _plugins = d.pop("plugins")
        for plugins_item_data in _plugins:
            plugins_item = PluginInfo.from_dict(plugins_item_data)

            plugins.append(plugins_item)

        slots = []
        _slots = d.pop("slots")
        for slots_item_data in _slots:
            slots_item = PluginSlot.from_dict(slots_item_data)

            slots.append(slots_item)

        plugin_list = cls(
            plugins=plugins,
            slots=slots,
        )

        plugin_list.additional_properties = d
        return plugin_list

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
