from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.write_op import WriteOp, check_write_op
from ..types import UNSET, Unset

T = TypeVar("T", bound="Write")


@_attrs_define
class Write:
    """A row that the transaction writes.

    Attributes:
        op (WriteOp): What a write does to its row.
        store (str): The row's store. Example: kv.
        key (str | Unset): The row's key, UTF-8. Example: acct/1.
        key_b64 (str | Unset): The row's key in base64, instead of `key`.
        or_ (int | Unset): For `add`: the integer to add to if the row is missing. The row is then created, and the log
            contains an insert of
            the sum. Several such adds to one row do not conflict: the first creates it. If absent, the row must exist.
            Example: 0.
        value (Any | Unset): The value: any JSON, stored as posted and not interpreted. The whole request may be nested
            64 deep, and no number may exceed the
            range of a double. If a name occurs twice in an object, both are stored, and readers choose. An integer for
            `add`;
            absent for `delete`.
        value_b64 (str | Unset): A binary value in base64, instead of `value`. Stored as the JSON object `{"$b64":
            ...}`.
    """

    op: WriteOp
    store: str
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    or_: int | Unset = UNSET
    value: Any | Unset = UNSET
    value_b64: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        op: str = self.op

        store = self.store

        key = self.key

        key_b64 = self.key_b64

        or_ = self.or_

        value = self.value

        value_b64 = self.value_b64

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "op": op,
                "store": store,
            }
        )
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if or_ is not UNSET:
            field_dict["or"] = or_
        if value is not UNSET:
            field_dict["value"] = value
        if value_b64 is not UNSET:
            field_dict["value_b64"] = value_b64

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        op = check_write_op(d.pop("op"))

        store = d.pop("store")

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        or_ = d.pop("or", UNSET)

        value = d.pop("value", UNSET)

        value_b64 = d.pop("value_b64", UNSET)

        write = cls(
            op=op,
            store=store,
            key=key,
            key_b64=key_b64,
            or_=or_,
            value=value,
            value_b64=value_b64,
        )

        write.additional_properties = d
        return write

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
