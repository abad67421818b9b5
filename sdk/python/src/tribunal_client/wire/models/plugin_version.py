from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.plugin_miss import PluginMiss


T = TypeVar("T", bound="PluginVersion")


@_attrs_define
class PluginVersion:
    """One version of a plugin: a component, identified by its bytes.

    Attributes:
        about (str): What it says of itself.
        bytes_ (str): Size, bytes. Example: 10240.
        digest (str): SHA-256 of the component's bytes, hexadecimal.
        version (str): The version that the plugin gives itself. Example: 0.1.0.
        behaviour (str | Unset): SHA-256 over its answers to the golden vectors: equal for versions that behave alike on
            them.
        budget_per_item (str | Unset): Fuel that the limits grant for each.
        fuel_per_call (str | Unset): Fuel of a call that does next to nothing; absent for built-in ones, which are not
            measured here.
        fuel_per_item (str | Unset): Fuel of each further transaction or record.
        levels (list[str] | Unset): A validator's levels, whose anomalies it all rejects.
        misses (list[PluginMiss] | Unset): A validator's other levels.
        signature (str | Unset): That signature, hexadecimal.
        signer (str | Unset): Whose signature it was taken for, as the node's configuration calls them; absent if it
            asked for none. Example: release.
        uploaded_ms (str | Unset): When it was uploaded, Unix milliseconds; absent for built-in ones.
    """

    about: str
    bytes_: str
    digest: str
    version: str
    behaviour: str | Unset = UNSET
    budget_per_item: str | Unset = UNSET
    fuel_per_call: str | Unset = UNSET
    fuel_per_item: str | Unset = UNSET
    levels: list[str] | Unset = UNSET
    misses: list[PluginMiss] | Unset = UNSET
    signature: str | Unset = UNSET
    signer: str | Unset = UNSET
    uploaded_ms: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        about = self.about

        bytes_ = self.bytes_

        digest = self.digest

        version = self.version

        behaviour = self.behaviour

        budget_per_item = self.budget_per_item

        fuel_per_call = self.fuel_per_call

        fuel_per_item = self.fuel_per_item

        levels: list[str] | Unset = UNSET
        if not isinstance(self.levels, Unset):
            levels = self.levels

        misses: list[dict[str, Any]] | Unset = UNSET
        if not isinstance(self.misses, Unset):
            misses = []
            for misses_item_data in self.misses:
                misses_item = misses_item_data.to_dict()
                misses.append(misses_item)

        signature = self.signature

        signer = self.signer

        uploaded_ms = self.uploaded_ms

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "about": about,
                "bytes": bytes_,
                "digest": digest,
                "version": version,
            }
        )
        if behaviour is not UNSET:
            field_dict["behaviour"] = behaviour
        if budget_per_item is not UNSET:
            field_dict["budget_per_item"] = budget_per_item
        if fuel_per_call is not UNSET:
            field_dict["fuel_per_call"] = fuel_per_call
        if fuel_per_item is not UNSET:
            field_dict["fuel_per_item"] = fuel_per_item
        if levels is not UNSET:
            field_dict["levels"] = levels
        if misses is not UNSET:
            field_dict["misses"] = misses
        if signature is not UNSET:
            field_dict["signature"] = signature
        if signer is not UNSET:
            field_dict["signer"] = signer
        if uploaded_ms is not UNSET:
            field_dict["uploaded_ms"] = uploaded_ms

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.plugin_miss import PluginMiss  # noqa: PLC0415

        d = dict(src_dict)
        about = d.pop("about")

        bytes_ = d.pop("bytes")

        digest = d.pop("digest")

        version = d.pop("version")

        behaviour = d.pop("behaviour", UNSET)

        budget_per_item = d.pop("budget_per_item", UNSET)

        fuel_per_call = d.pop("fuel_per_call", UNSET)

        fuel_per_item = d.pop("fuel_per_item", UNSET)

        levels = cast(list[str], d.pop("levels", UNSET))

        _misses = d.pop("misses", UNSET)
        misses: list[PluginMiss] | Unset = UNSET
        if _misses is not UNSET:
            misses = []
            for misses_item_data in _misses:
                misses_item = PluginMiss.from_dict(misses_item_data)

                misses.append(misses_item)

        signature = d.pop("signature", UNSET)

        signer = d.pop("signer", UNSET)

        uploaded_ms = d.pop("uploaded_ms", UNSET)

        plugin_version = cls(
            about=about,
            bytes_=bytes_,
            digest=digest,
            version=version,
            behaviour=behaviour,
            budget_per_item=budget_per_item,
            fuel_per_call=fuel_per_call,
            fuel_per_item=fuel_per_item,
            levels=levels,
            misses=misses,
            signature=signature,
            signer=signer,
            uploaded_ms=uploaded_ms,
        )

        plugin_version.additional_properties = d
        return plugin_version

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
