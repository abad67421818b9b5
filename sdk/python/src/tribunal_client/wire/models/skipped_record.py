from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="SkippedRecord")


@_attrs_define
class SkippedRecord:
    """A record that was skipped, and who decided that.

    Attributes:
        at_ms (str): When, milliseconds since 1970. Example: 1808217543843.
        by (str): The caller that asked for it. Example: anonymous.
        lsn (str): The record. It stays in the log. Example: 120.
        reason (str): The storage's error for the record. Example: value too long for type character varying(40).
    """

    at_ms: str
    by: str
    lsn: str
    reason: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        at_ms = self.at_ms

        by = self.by

        lsn = self.lsn

        reason = self.reason

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "at_ms": at_ms,
                "by": by,
                "lsn": lsn,
                "reason": reason,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        at_ms = d.pop("at_ms")

        by = d.pop("by")

        lsn = d.pop("lsn")

        reason = d.pop("reason")

        skipped_record = cls(
            at_ms=at_ms,
            by=by,
            lsn=lsn,
            reason=reason,
        )

        skipped_record.additional_properties = d
        return skipped_record

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
