from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="KeyRequest")


@_attrs_define
class KeyRequest:
    """A key to be made.

    Attributes:
        name (str): What its owner calls it: letters, digits, `.`, `_`, `-`; at most 64. Example: shop-engine.
        roles (list[str]): What it may do: `engine`, `store`, `plugin-admin`, `operator`. Example: ['engine'].
        namespace (str | Unset): The tenant that it speaks for; the caller's if absent. Example: shop.
    """

    name: str
    roles: list[str]
    namespace: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        name = self.name

        roles = self.roles

        namespace = self.namespace

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "name": name,
                "roles": roles,
            }
        )
        if namespace is not UNSET:
            field_dict["namespace"] = namespace

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        name = d.pop("name")

        roles = cast(list[str], d.pop("roles"))

        namespace = d.pop("namespace", UNSET)

        key_request = cls(
            name=name,
            roles=roles,
            namespace=namespace,
        )

        key_request.additional_properties = d
        return key_request

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
