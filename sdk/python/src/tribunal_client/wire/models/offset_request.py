from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..types import UNSET, Unset

T = TypeVar("T", bound="OffsetRequest")


@_attrs_define
class OffsetRequest:
    """A consumer's new offset in one store's log.

    Attributes:
        lsn (str): Last record that the consumer has processed; 0 if none. Example: 120.
        store (str): The store. Example: kv.
        log (str | Unset): The log that `lsn` is a position of, as in the page it came with; if absent, the current log
            is assumed. Example: 8f14e45fceea167a5a36dedd4bea2543.
    """

    lsn: str
    store: str
    log: str | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        lsn = self.lsn

        store = self.store

        log = self.log

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "lsn": lsn,
                "store": store,
            }
        )
        if log is not UNSET:
            field_dict["log"] = log

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        lsn = d.pop("lsn")

        store = d.pop("store")

        log = d.pop("log", UNSET)

        offset_request = cls(
            lsn=lsn,
            store=store,
            log=log,
        )

        return offset_request
