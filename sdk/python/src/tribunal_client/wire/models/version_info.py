from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="VersionInfo")


@_attrs_define
class VersionInfo:
    """What runs here.

    Attributes:
        epoch (str): The epoch that is open now. Example: 8842.
        epoch_mode (str): How epochs are sealed. Example: adaptive.
        incarnation (int): Which life of the node this is.
        node (int): This node's number.
        version (str): Version of the binary. Example: 0.1.0.
    """

    epoch: str
    epoch_mode: str
    incarnation: int
    node: int
    version: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        epoch = self.epoch

        epoch_mode = self.epoch_mode

        incarnation = self.incarnation

        node = self.node

        version = self.version

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "epoch": epoch,
                "epoch_mode": epoch_mode,
                "incarnation": incarnation,
                "node": node,
                "version": version,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        epoch = d.pop("epoch")

        epoch_mode = d.pop("epoch_mode")

        incarnation = d.pop("incarnation")

        node = d.pop("node")

        version = d.pop("version")

        version_info = cls(
            epoch=epoch,
            epoch_mode=epoch_mode,
            incarnation=incarnation,
            node=node,
            version=version,
        )

        version_info.additional_properties = d
        return version_info

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
