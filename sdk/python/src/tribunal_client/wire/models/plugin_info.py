from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.plugin_slot import PluginSlot
    from ..models.plugin_version import PluginVersion


T = TypeVar("T", bound="PluginInfo")


@_attrs_define
class PluginInfo:
    """A plugin with its versions.

    Attributes:
        builtin (bool): It came with the program.
        name (str): Its name. Example: most-writes-wins.
        slots (list[PluginSlot]): Slots that it fills.
        versions (list[PluginVersion]): Versions, newest first.
        world (str): `conflict-rule`, `isolation-validator` or `log-adaptor`. Example: conflict-rule.
    """

    builtin: bool
    name: str
    slots: list[PluginSlot]
    versions: list[PluginVersion]
    world: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        builtin = self.builtin

        name = self.name

        slots = []
        for slots_item_data in self.slots:
            slots_item = slots_item_data.to_dict()
            slots.append(slots_item)

        versions = []
        for versions_item_data in self.versions:
            versions_item = versions_item_data.to_dict()
            versions.append(versions_item)

        world = self.world

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "builtin": builtin,
                "name": name,
                "slots": slots,
                "versions": versions,
                "world": world,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_slot import PluginSlot  # noqa: PLC0415
        from ..models.plugin_version import PluginVersion  # noqa: PLC0415

        d = dict(src_dict)
        builtin = d.pop("builtin")

        name = d.pop("name")

        slots = []
        _slots = d.pop("slots")
        for slots_item_data in _slots:
            slots_item = PluginSlot.from_dict(slots_item_data)

            slots.append(slots_item)

        versions = []
        _versions = d.pop("versions")
        for versions_item_data in _versions:
            versions_item = PluginVersion.from_dict(versions_item_data)

            versions.append(versions_item)

        world = d.pop("world")

        plugin_info = cls(
            builtin=builtin,
            name=name,
            slots=slots,
            versions=versions,
            world=world,
        )

        plugin_info.additional_properties = d
        return plugin_info

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
