from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.log_record import LogRecord


T = TypeVar("T", bound="PushBody")


@_attrs_define
class PushBody:
    """Body of a request to a receiver.

    Attributes:
        first_lsn (str): First record.
        last_lsn (str): Last record.
        records (list[LogRecord]): The records, dense in `lsn`.
        store (str): The store.
    """

    first_lsn: str
    last_lsn: str
    records: list[LogRecord]
    store: str
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        first_lsn = self.first_lsn

        last_lsn = self.last_lsn

        records = []
        for records_item_data in self.records:
            records_item = records_item_data.to_dict()
            records.append(records_item)

        store = self.store

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "first_lsn": first_lsn,
                "last_lsn": last_lsn,
                "records": records,
                "store": store,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.log_record import LogRecord  # noqa: PLC0415

        d = dict(src_dict)
        first_lsn = d.pop("first_lsn")

        last_lsn = d.pop("last_lsn")

        records = []
        _records = d.pop("records")
        for records_item_data in _records:
            records_item = LogRecord.from_dict(records_item_data)

            records.append(records_item)

        store = d.pop("store")

        push_body = cls(
            first_lsn=first_lsn,
            last_lsn=last_lsn,
            records=records,
            store=store,
        )

        push_body.additional_properties = d
        return push_body

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
