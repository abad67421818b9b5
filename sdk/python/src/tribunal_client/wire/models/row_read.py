from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="RowRead")


@_attrs_define
class RowRead:
    """A row to read.

    Attributes:
        key (str | Unset): Key of the row, UTF-8. Example: acct/1.
        key_b64 (str | Unset): Key of the row in base64, instead of `key`.
        store (str | Unset): Store of the row. May be absent if the path names the store. Example: kv.
        version (str | Unset): Version that the caller has cached. If it is still current, the response has `unchanged`
            instead of the value. Example: 17.
    """

    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    store: str | Unset = UNSET
    version: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        key = self.key

        key_b64 = self.key_b64

        store = self.store

        version = self.version

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if store is not UNSET:
            field_dict["store"] = store
        if version is not UNSET:
            field_dict["version"] = version

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        store = d.pop("store", UNSET)

        version = d.pop("version", UNSET)

        row_read = cls(
            key=key,
            key_b64=key_b64,
            store=store,
            version=version,
        )

        row_read.additional_properties = d
        return row_read

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
