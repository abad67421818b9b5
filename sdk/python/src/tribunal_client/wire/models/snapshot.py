from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

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
        head_lsn (str | Unset): Last position of its log: every commit up to the epoch `committed` is there or before.
            Example: 120.
        log (str | Unset): The log that `head_lsn` refers to. A salvage or a restored backup may replace it. Example:
            8f14e45fceea167a5a36dedd4bea2543.
    """

    applied: str
    committed: str
    durable: str
    store: str
    head_lsn: str | Unset = UNSET
    log: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        applied = self.applied

        committed = self.committed

        durable = self.durable

        store = self.store

        head_lsn = self.head_lsn

        log = self.log

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
        if head_lsn is not UNSET:
            field_dict["head_lsn"] = head_lsn
        if log is not UNSET:
            field_dict["log"] = log

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        applied = d.pop("applied")

        committed = d.pop("committed")

        durable = d.pop("durable")

        store = d.pop("store")

        head_lsn = d.pop("head_lsn", UNSET)

        log = d.pop("log", UNSET)

        snapshot = cls(
            applied=applied,
            committed=committed,
            durable=durable,
            store=store,
            head_lsn=head_lsn,
            log=log,
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
