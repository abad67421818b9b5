from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.log_record import LogRecord


T = TypeVar("T", bound="LogPage")


@_attrs_define
class LogPage:
    """A page of a store's committed log.

    Attributes:
        durable_upto (str): Last position that is durable. Example: 120.
        head_lsn (str): Last position of the log. Example: 120.
        log (str): The log that all positions refer to. A salvage or a restored backup may replace it; pass it as `log`
            to detect that. Example: 8f14e45fceea167a5a36dedd4bea2543.
        next_ (str): What to pass as `after` for the following page. Example: 120.
        oldest (str): Oldest position that is retained. Example: 1.
        records (list[LogRecord]): The records, dense in `lsn`; empty if there is none after `after` yet.
        epoch (str | Unset): Every commit of this epoch and of earlier ones is at `next` or before: a copy that has
            applied the log up to `next` has
            everything that a snapshot of this epoch, or of an earlier one, includes. A lower bound, which may be less than
            in an earlier
            response. Earlier releases do not return it. Example: 8842.
    """

    durable_upto: str
    head_lsn: str
    log: str
    next_: str
    oldest: str
    records: list[LogRecord]
    epoch: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        durable_upto = self.durable_upto

        head_lsn = self.head_lsn

        log = self.log

        next_ = self.next_

        oldest = self.oldest

        records = []
        for records_item_data in self.records:
            records_item = records_item_data.to_dict()
            records.append(records_item)

        epoch = self.epoch

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "durable_upto": durable_upto,
                "head_lsn": head_lsn,
                "log": log,
                "next": next_,
                "oldest": oldest,
                "records": records,
            }
        )
        if epoch is not UNSET:
            field_dict["epoch"] = epoch

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.log_record import LogRecord  # noqa: PLC0415

        d = dict(src_dict)
        durable_upto = d.pop("durable_upto")

        head_lsn = d.pop("head_lsn")

        log = d.pop("log")

        next_ = d.pop("next")

        oldest = d.pop("oldest")

        records = []
        _records = d.pop("records")
        for records_item_data in _records:
            records_item = LogRecord.from_dict(records_item_data)

            records.append(records_item)

        epoch = d.pop("epoch", UNSET)

        log_page = cls(
            durable_upto=durable_upto,
            head_lsn=head_lsn,
            log=log,
            next_=next_,
            oldest=oldest,
            records=records,
            epoch=epoch,
        )

        log_page.additional_properties = d
        return log_page

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
