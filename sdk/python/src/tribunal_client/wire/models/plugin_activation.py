from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.plugin_activation_config import PluginActivationConfig


T = TypeVar("T", bound="PluginActivation")


@_attrs_define
class PluginActivation:
    """An entry of the control log that fills a slot.

    Attributes:
        by (str): `configuration`, `activate` or `rollback`. Example: activate.
        config_digest (str): SHA-256 of its configuration's text.
        control (str): Position in the control log. Example: 7.
        digest (str): SHA-256 of its component; zeros for a native twin.
        from_epoch (str): First epoch at which it may hold; it does from the first one at or after it that carries the
            entry. Example: 9000.
        name (str): The plugin. Example: most-writes-wins.
        slot (str): The slot. Example: rule.
        config (PluginActivationConfig | Unset): Its configuration.
    """

    by: str
    config_digest: str
    control: str
    digest: str
    from_epoch: str
    name: str
    slot: str
    config: PluginActivationConfig | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        by = self.by

        config_digest = self.config_digest

        control = self.control

        digest = self.digest

        from_epoch = self.from_epoch

        name = self.name

        slot = self.slot

        config: dict[str, Any] | Unset = UNSET
        if not isinstance(self.config, Unset):
            config = self.config.to_dict()

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "by": by,
                "config_digest": config_digest,
                "control": control,
                "digest": digest,
                "from_epoch": from_epoch,
                "name": name,
                "slot": slot,
            }
        )
        if config is not UNSET:
            field_dict["config"] = config

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_activation_config import PluginActivationConfig  # noqa: PLC0415

        d = dict(src_dict)
        by = d.pop("by")

        config_digest = d.pop("config_digest")

        control = d.pop("control")

        digest = d.pop("digest")

        from_epoch = d.pop("from_epoch")

        name = d.pop("name")

        slot = d.pop("slot")

        _config = d.pop("config", UNSET)
        config: PluginActivationConfig | Unset
        if isinstance(_config, Unset):
            config = UNSET
        else:
            config = PluginActivationConfig.from_dict(_config)

        plugin_activation = cls(
            by=by,
            config_digest=config_digest,
            control=control,
            digest=digest,
            from_epoch=from_epoch,
            name=name,
            slot=slot,
            config=config,
        )

        plugin_activation.additional_properties = d
        return plugin_activation

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
