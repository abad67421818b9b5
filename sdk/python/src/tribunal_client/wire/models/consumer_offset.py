from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="ConsumerOffset")


@_attrs_define
class ConsumerOffset:
    """A consumer's offset in one store's log.

    Attributes:
        head_lsn (str): Last position of the log. Example: 150.
        lag_ms (str): Age of the oldest unprocessed record, milliseconds; 0 if there is none. Example: 250.
        lag_records (str): Records that the consumer has not processed. Example: 30.
        log (str): The log that `lsn` is a position of. If it is not the `log` of the consumer, `lsn` no longer names
            the same record. Example: 8f14e45fceea167a5a36dedd4bea2543.
        lsn (str): Last record that the consumer has processed; pull the log after it. Example: 120.
        store (str): The store. Example: kv.
        updated_at_ms (str): When this offset was stored, milliseconds since 1970. In a cluster, storing the same offset
            again does not change it. Example: 1795268000000.
        truncated_below (str | Unset): Present if the node has truncated records after `lsn`: its log begins at this
            position, and `lag_ms` is a lower bound. The
            consumer pulls them from another node of the cluster that has them, or restarts from the store's state (`GET
            /v1/stores/{store}/state`) and stores the state's position. Example: 131.
    """

    head_lsn: str
    lag_ms: str
    lag_records: str
    log: str
    lsn: str
    store: str
    updated_at_ms: str
    truncated_below: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        head_lsn = self.head_lsn

        lag_ms = self.lag_ms

        lag_records = self.lag_records

        log = self.log

        lsn = self.lsn

        store = self.store

        updated_at_ms = self.updated_at_ms

        truncated_below = self.truncated_below

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "head_lsn": head_lsn,
                "lag_ms": lag_ms,
                "lag_records": lag_records,
                "log": log,
                "lsn": lsn,
                "store": store,
                "updated_at_ms": updated_at_ms,
            }
        )
        if truncated_below is not UNSET:
            field_dict["truncated_below"] = truncated_below

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        head_lsn = d.pop("head_lsn")

        lag_ms = d.pop("lag_ms")

        lag_records = d.pop("lag_records")

        log = d.pop("log")

        lsn = d.pop("lsn")

        store = d.pop("store")

        updated_at_ms = d.pop("updated_at_ms")

        truncated_below = d.pop("truncated_below", UNSET)

        consumer_offset = cls(
            head_lsn=head_lsn,
            lag_ms=lag_ms,
            lag_records=lag_records,
            log=log,
            lsn=lsn,
            store=store,
            updated_at_ms=updated_at_ms,
            truncated_below=truncated_below,
        )

        consumer_offset.additional_properties = d
        return consumer_offset

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
