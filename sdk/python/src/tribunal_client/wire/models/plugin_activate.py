from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.plugin_activate_config import PluginActivateConfig


T = TypeVar("T", bound="PluginActivate")


@_attrs_define
class PluginActivate:
    """Which version to activate, where, and from when on.

    Attributes:
        at_epoch (str | Unset): First epoch; the next one if left out. An epoch that has passed counts as the next one.
            Example: 9000.
        config (PluginActivateConfig | Unset): Configuration of the rule or validator. An adaptor has its store's.
        digest (str | Unset): SHA-256 of the version; the newest one if left out.
        slot (str | Unset): `rule`, `validator:<level>` or `adaptor:<name>`; may be left out where the plugin's world
            leaves one choice. Example: rule.
    """

    at_epoch: str | Unset = UNSET
    config: PluginActivateConfig | Unset = UNSET
    digest: str | Unset = UNSET
    slot: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        at_epoch = self.at_epoch

        config: dict[str, Any] | Unset = UNSET
        if not isinstance(self.config, Unset):
            config = self.config.to_dict()

        digest = self.digest

        slot = self.slot

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if at_epoch is not UNSET:
            field_dict["at_epoch"] = at_epoch
        if config is not UNSET:
            field_dict["config"] = config
        if digest is not UNSET:
            field_dict["digest"] = digest
        if slot is not UNSET:
            field_dict["slot"] = slot

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_activate_config import PluginActivateConfig  # noqa: PLC0415

        d = dict(src_dict)
        at_epoch = d.pop("at_epoch", UNSET)

        _config = d.pop("config", UNSET)
        config: PluginActivateConfig | Unset
        if isinstance(_config, Unset):
            config = UNSET
        else:
            config = PluginActivateConfig.from_dict(_config)

        digest = d.pop("digest", UNSET)

        slot = d.pop("slot", UNSET)

        plugin_activate = cls(
            at_epoch=at_epoch,
            config=config,
            digest=digest,
            slot=slot,
        )

        plugin_activate.additional_properties = d
        return plugin_activate

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
