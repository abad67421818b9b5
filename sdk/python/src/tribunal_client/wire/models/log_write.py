from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.write_op import WriteOp, check_write_op
from ..types import UNSET, Unset

T = TypeVar("T", bound="LogWrite")


@_attrs_define
class LogWrite:
    """One row of a record.

    Attributes:
        op (WriteOp): What a write does to its row.
        key (str | Unset): The row's key, if it is UTF-8. Example: acct/1.
        key_b64 (str | Unset): The row's key in base64, if it is not UTF-8.
        value (Any | Unset): The value as posted; the delta of an `add`; absent for a `delete`.
        value_b64 (str | Unset): The value in base64, if it was posted as `value_b64`.
    """

    op: WriteOp
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    value: Any | Unset = UNSET
    value_b64: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        op: str = self.op

        key = self.key

        key_b64 = self.key_b64

        value = self.value

        value_b64 = self.value_b64

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "op": op,
            }
        )
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if value is not UNSET:
            field_dict["value"] = value
        if value_b64 is not UNSET:
            field_dict["value_b64"] = value_b64

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        op = check_write_op(d.pop("op"))

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        value = d.pop("value", UNSET)

        value_b64 = d.pop("value_b64", UNSET)

        log_write = cls(
            op=op,
            key=key,
            key_b64=key_b64,
            value=value,
            value_b64=value_b64,
        )

        log_write.additional_properties = d
        return log_write

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
