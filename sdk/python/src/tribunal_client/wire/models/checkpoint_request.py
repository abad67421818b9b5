from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

T = TypeVar("T", bound="CheckpointRequest")


@_attrs_define
class CheckpointRequest:
    """How far a consumer is.

    Attributes:
        lsn (str): Last record that the consumer is done with; 0 is none. Example: 120.
        store (str): Whose log. Example: kv.
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

        checkpoint_request = cls(
            lsn=lsn,
            store=store,
        )

        return checkpoint_request
