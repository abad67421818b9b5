from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.plugin_activation import PluginActivation
    from ..models.plugin_health import PluginHealth


T = TypeVar("T", bound="PluginSlot")


@_attrs_define
class PluginSlot:
    """A slot and what fills it.

    Attributes:
        active (PluginActivation): An entry of the control log that fills a slot.
        health (PluginHealth): How the plugin in a slot does, since this process runs it there.
        history (list[PluginActivation]): The newest entries of the control log for this slot, newest first.
        slot (str): `rule`, `validator:<level>` or `adaptor:<name>`. Example: rule.
        pending (PluginActivation | Unset): An entry of the control log that fills a slot.
        since_epoch (str | Unset): The epoch since which it is; absent if that lies before the newest state image.
    """

    active: PluginActivation
    health: PluginHealth
    history: list[PluginActivation]
    slot: str
    pending: PluginActivation | Unset = UNSET
    since_epoch: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        active = self.active.to_dict()

        health = self.health.to_dict()

        history = []
        for history_item_data in self.history:
            history_item = history_item_data.to_dict()
            history.append(history_item)

        slot = self.slot

        pending: dict[str, Any] | Unset = UNSET
        if not isinstance(self.pending, Unset):
            pending = self.pending.to_dict()

        since_epoch = self.since_epoch

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "active": active,
                "health": health,
                "history": history,
                "slot": slot,
            }
        )
        if pending is not UNSET:
            field_dict["pending"] = pending
        if since_epoch is not UNSET:
            field_dict["since_epoch"] = since_epoch

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_activation import PluginActivation  # noqa: PLC0415
        from ..models.plugin_health import PluginHealth  # noqa: PLC0415

        d = dict(src_dict)
        active = PluginActivation.from_dict(d.pop("active"))

        health = PluginHealth.from_dict(d.pop("health"))

        history = []
        _history = d.pop("history")
        for history_item_data in _history:
            history_item = PluginActivation.from_dict(history_item_data)

            history.append(history_item)

        slot = d.pop("slot")

        _pending = d.pop("pending", UNSET)
        pending: PluginActivation | Unset
        if isinstance(_pending, Unset):
            pending = UNSET
        else:
            pending = PluginActivation.from_dict(_pending)

        since_epoch = d.pop("since_epoch", UNSET)

        plugin_slot = cls(
            active=active,
            health=health,
            history=history,
            slot=slot,
            pending=pending,
            since_epoch=since_epoch,
        )

        plugin_slot.additional_properties = d
        return plugin_slot

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
