from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="ImportLine")


@_attrs_define
class ImportLine:
    """One line of an import: the version of an existing row.

    Attributes:
        version (str): The row's version; below the current epoch's. Example: 17.
        integer (bool | Unset): The value is an integer, so that `add` may follow.
        key (str | Unset): The row's key, UTF-8.
        key_b64 (str | Unset): The row's key in base64, instead of `key`.
    """

    version: str
    integer: bool | Unset = UNSET
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        version = self.version

        integer = self.integer

        key = self.key

        key_b64 = self.key_b64

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "version": version,
            }
        )
        if integer is not UNSET:
            field_dict["integer"] = integer
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        version = d.pop("version")

        integer = d.pop("integer", UNSET)

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        import_line = cls(
            version=version,
            integer=integer,
            key=key,
            key_b64=key_b64,
        )

        import_line.additional_properties = d
        return import_line

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
