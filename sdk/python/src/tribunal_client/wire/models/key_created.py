from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="KeyCreated")


@_attrs_define
class KeyCreated:
    """A key that was made. Its secret is not kept and not shown again.

    Attributes:
        created_ms (str): When it was made, milliseconds since 1970. Example: 1808217543843.
        id (str): Its public part.
        key (str): What to send as `authorization: Bearer`.
        name (str): What its owner calls it.
        namespace (str): The tenant that it speaks for.
        roles (list[str]): What it may do.
    """

    created_ms: str
    id: str
    key: str
    name: str
    namespace: str
    roles: list[str]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        created_ms = self.created_ms

        id = self.id

        key = self.key

        name = self.name

        namespace = self.namespace

        roles = self.roles

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "created_ms": created_ms,
                "id": id,
                "key": key,
                "name": name,
                "namespace": namespace,
                "roles": roles,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        created_ms = d.pop("created_ms")

        id = d.pop("id")

        key = d.pop("key")

        name = d.pop("name")

        namespace = d.pop("namespace")

        roles = cast(list[str], d.pop("roles"))

        key_created = cls(
            created_ms=created_ms,
            id=id,
            key=key,
            name=name,
            namespace=namespace,
            roles=roles,
        )

        key_created.additional_properties = d
        return key_created

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
