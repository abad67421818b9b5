from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="Snapshot")


@_attrs_define
class Snapshot:
    """Watermarks of a store: committed, then durable, then applied.

    Attributes:
        applied (str): Last epoch whose records in this store are all acknowledged: the snapshot that a Begin returns.
            Example: 8841.
        committed (str): Last epoch that has been decided. Example: 8842.
        durable (str): Last epoch that is durable. Example: 8842.
        store (str): The store. Example: kv.
    """

    applied: str
    committed: str
    durable: str
    store: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        applied = self.applied

        committed = self.committed

        durable = self.durable

        store = self.store

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "applied": applied,
                "committed": committed,
                "durable": durable,
                "store": store,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        applied = d.pop("applied")

        committed = d.pop("committed")

        durable = d.pop("durable")

        store = d.pop("store")

        snapshot = cls(
            applied=applied,
            committed=committed,
            durable=durable,
            store=store,
        )

        snapshot.additional_properties = d
        return snapshot

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
