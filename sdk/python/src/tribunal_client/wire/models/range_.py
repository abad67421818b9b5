from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="Range")


@_attrs_define
class Range:
    """A key range that the transaction scanned. A scan that stopped at a limit reports the range up to its last key and a
    zero byte (`end` is exclusive), so that only changes of what it has seen count.

        Attributes:
            store (str): The range's store. Example: kv.
            end (str | Unset): End of the range, exclusive; absent or empty for the end of the store. Example: acct0.
            end_b64 (str | Unset): End of the range in base64, instead of `end`.
            start (str | Unset): First key; absent for the beginning of the store. Example: acct/.
            start_b64 (str | Unset): First key in base64, instead of `start`.
    """

    store: str
    end: str | Unset = UNSET
    end_b64: str | Unset = UNSET
    start: str | Unset = UNSET
    start_b64: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        store = self.store

        end = self.end

        end_b64 = self.end_b64

        start = self.start

        start_b64 = self.start_b64

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "store": store,
            }
        )
        if end is not UNSET:
            field_dict["end"] = end
        if end_b64 is not UNSET:
            field_dict["end_b64"] = end_b64
        if start is not UNSET:
            field_dict["start"] = start
        if start_b64 is not UNSET:
            field_dict["start_b64"] = start_b64

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        store = d.pop("store")

        end = d.pop("end", UNSET)

        end_b64 = d.pop("end_b64", UNSET)

        start = d.pop("start", UNSET)

        start_b64 = d.pop("start_b64", UNSET)

        range_ = cls(
            store=store,
            end=end,
            end_b64=end_b64,
            start=start,
            start_b64=start_b64,
        )

        range_.additional_properties = d
        return range_

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
