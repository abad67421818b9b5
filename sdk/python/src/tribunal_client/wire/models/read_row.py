from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="ReadRow")


@_attrs_define
class ReadRow:
    """The result of reading a row. Without `version`, the row does not exist.

    Attributes:
        store (str): Store of the row. Example: kv.
        key (str | Unset): Key of the row, UTF-8. Example: acct/1.
        key_b64 (str | Unset): Key of the row in base64, if it is not UTF-8.
        unchanged (bool | Unset): True if the row still has the version in the request. Example: True.
        value (Any | Unset): Value of the row; absent if the row does not exist or is `unchanged`.
        value_b64 (str | Unset): Value of the row in base64, if it was written that way.
        version (str | Unset): Version of the row; absent if the row does not exist. Example: 17.
    """

    store: str
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    unchanged: bool | Unset = UNSET
    value: Any | Unset = UNSET
    value_b64: str | Unset = UNSET
    version: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        store = self.store

        key = self.key

        key_b64 = self.key_b64

        unchanged = self.unchanged

        value = self.value

        value_b64 = self.value_b64

        version = self.version

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "store": store,
            }
        )
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if unchanged is not UNSET:
            field_dict["unchanged"] = unchanged
        if value is not UNSET:
            field_dict["value"] = value
        if value_b64 is not UNSET:
            field_dict["value_b64"] = value_b64
        if version is not UNSET:
            field_dict["version"] = version

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        store = d.pop("store")

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        unchanged = d.pop("unchanged", UNSET)

        value = d.pop("value", UNSET)

        value_b64 = d.pop("value_b64", UNSET)

        version = d.pop("version", UNSET)

        read_row = cls(
            store=store,
            key=key,
            key_b64=key_b64,
            unchanged=unchanged,
            value=value,
            value_b64=value_b64,
            version=version,
        )

        read_row.additional_properties = d
        return read_row

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
