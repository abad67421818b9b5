from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="Row")


@_attrs_define
class Row:
    """A row of an embedded store. Without `version` there is no such row.

    Attributes:
        applied (str | Unset): The epoch that this reflects: all of its commits, and none of later epochs. Absent in
            lists, which contain it once. Example: 8841.
        key (str | Unset): The row's key, if it is UTF-8. Example: acct/1.
        key_b64 (str | Unset): The row's key in base64, if it is not UTF-8.
        session (str | Unset): Session token: pass it to a later read or Begin that must reflect this epoch or a later
            one, also on another node. Absent
            in lists, which contain it once. Example: v1-8841.
        value (Any | Unset): The value.
        value_b64 (str | Unset): The value in base64, if it was posted as `value_b64`.
        version (str | Unset): The row's version, for the read set. Example: 17.
    """

    applied: str | Unset = UNSET
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    session: str | Unset = UNSET
    value: Any | Unset = UNSET
    value_b64: str | Unset = UNSET
    version: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        applied = self.applied

        key = self.key

        key_b64 = self.key_b64

        session = self.session

        value = self.value

        value_b64 = self.value_b64

        version = self.version

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if applied is not UNSET:
            field_dict["applied"] = applied
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if session is not UNSET:
            field_dict["session"] = session
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
        applied = d.pop("applied", UNSET)

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        session = d.pop("session", UNSET)

        value = d.pop("value", UNSET)

        value_b64 = d.pop("value_b64", UNSET)

        version = d.pop("version", UNSET)

        row = cls(
            applied=applied,
            key=key,
            key_b64=key_b64,
            session=session,
            value=value,
            value_b64=value_b64,
            version=version,
        )

        row.additional_properties = d
        return row

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
