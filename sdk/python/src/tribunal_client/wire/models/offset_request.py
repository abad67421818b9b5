from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

T = TypeVar("T", bound="OffsetRequest")


@_attrs_define
class OffsetRequest:
    """A consumer's new offset in one store's log.

    Attributes:
        lsn (str): Last record that the consumer has processed; 0 if none. Example: 120.
        store (str): The store. Example: kv.
    """

    lsn: str
    store: str

    def to_dict(self) -> dict[str, Any]:
        lsn = self.lsn

        store = self.store

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "lsn": lsn,
                "store": store,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        lsn = d.pop("lsn")

        store = d.pop("store")

        offset_request = cls(
            lsn=lsn,
            store=store,
        )

        return offset_request
