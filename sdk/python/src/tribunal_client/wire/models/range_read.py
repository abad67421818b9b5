from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="RangeRead")


@_attrs_define
class RangeRead:
    """A range to read, in the bytewise order of keys.

    Attributes:
        end (str | Unset): End of the range, exclusive; the end of the store if absent or empty. Example: acct0.
        end_b64 (str | Unset): `end` in base64.
        limit (int | Unset): Maximum number of rows; 100 if absent. Example: 100.
        start (str | Unset): First key; the beginning of the store if absent. Example: acct/.
        start_b64 (str | Unset): `start` in base64.
        store (str | Unset): Store of the range. May be absent if the path names the store. Example: kv.
    """

    end: str | Unset = UNSET
    end_b64: str | Unset = UNSET
    limit: int | Unset = UNSET
    start: str | Unset = UNSET
    start_b64: str | Unset = UNSET
    store: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        end = self.end

        end_b64 = self.end_b64

        limit = self.limit

        start = self.start

        start_b64 = self.start_b64

        store = self.store

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if end is not UNSET:
            field_dict["end"] = end
        if end_b64 is not UNSET:
            field_dict["end_b64"] = end_b64
        if limit is not UNSET:
            field_dict["limit"] = limit
        if start is not UNSET:
            field_dict["start"] = start
        if start_b64 is not UNSET:
            field_dict["start_b64"] = start_b64
        if store is not UNSET:
            field_dict["store"] = store

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        end = d.pop("end", UNSET)

        end_b64 = d.pop("end_b64", UNSET)

        limit = d.pop("limit", UNSET)

        start = d.pop("start", UNSET)

        start_b64 = d.pop("start_b64", UNSET)

        store = d.pop("store", UNSET)

        range_read = cls(
            end=end,
            end_b64=end_b64,
            limit=limit,
            start=start,
            start_b64=start_b64,
            store=store,
        )

        range_read.additional_properties = d
        return range_read

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
