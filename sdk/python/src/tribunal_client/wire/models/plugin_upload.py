from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.plugin_check import PluginCheck
    from ..models.plugin_version import PluginVersion


T = TypeVar("T", bound="PluginUpload")


@_attrs_define
class PluginUpload:
    """An upload that was taken in.

    Attributes:
        checks (list[PluginCheck]): What was checked.
        name (str): The plugin's name.
        version (PluginVersion): One version of a plugin: a component, identified by its bytes.
        world (str): Its world. Example: conflict-rule.
    """

    checks: list[PluginCheck]
    name: str
    version: PluginVersion
    world: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        checks = []
        for checks_item_data in self.checks:
            checks_item = checks_item_data.to_dict()
            checks.append(checks_item)

        name = self.name

        version = self.version.to_dict()

        world = self.world

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "checks": checks,
                "name": name,
                "version": version,
                "world": world,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_check import PluginCheck  # noqa: PLC0415
        from ..models.plugin_version import PluginVersion  # noqa: PLC0415

        d = dict(src_dict)
        checks = []
        _checks = d.pop("checks")
        for checks_item_data in _checks:
            checks_item = PluginCheck.from_dict(checks_item_data)

            checks.append(checks_item)

        name = d.pop("name")

        version = PluginVersion.from_dict(d.pop("version"))

        world = d.pop("world")

        plugin_upload = cls(
            checks=checks,
            name=name,
            version=version,
            world=world,
        )

        plugin_upload.additional_properties = d
        return plugin_upload

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
