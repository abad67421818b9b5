from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="AttachRequest")


@_attrs_define
class AttachRequest:
    """How to attach a detached store.

    Attributes:
        loaded_lsn (str | Unset): The storage was loaded from elsewhere with everything up to this record. If absent,
            its own watermark counts. Example: 120.
    """

    loaded_lsn: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        loaded_lsn = self.loaded_lsn

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if loaded_lsn is not UNSET:
            field_dict["loaded_lsn"] = loaded_lsn

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        loaded_lsn = d.pop("loaded_lsn", UNSET)

        attach_request = cls(
            loaded_lsn=loaded_lsn,
        )

        attach_request.additional_properties = d
        return attach_request

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
