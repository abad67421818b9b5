from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.log_write import LogWrite


T = TypeVar("T", bound="LogRecord")


@_attrs_define
class LogRecord:
    """One committed transaction's rows in one store.

    Attributes:
        csn (str): Arrival stamp of the transaction; not the commit order. Example: 1808217543843841024.
        epoch (str): The epoch that committed it. Example: 8842.
        lsn (str): Dense position, from 1. Example: 120.
        prev_lsn (str): The previous position: a gap is visible, and a repeat is harmless. Example: 119.
        store (str): The store. Example: kv.
        txn_id (str): The transaction. Example: 0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a.
        version (str): Version of every row in the record. Example: 9271508992.
        writes (list[LogWrite]): The rows, in the order in which the transaction posted them.
        checksum (str | Unset): CRC-32C in hex over lsn, epoch, csn, version, txn_id, then op, key and value text of
            every write, each of them
            preceded by its length in bytes as 32 bits, little-endian. A `value_b64` counts as `{"$b64":"..."}`. Example:
            9be3e0a3.
        traceparent (str | Unset): W3C `traceparent` of the commit request.
    """

    csn: str
    epoch: str
    lsn: str
    prev_lsn: str
    store: str
    txn_id: str
    version: str
    writes: list[LogWrite]
    checksum: str | Unset = UNSET
    traceparent: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        csn = self.csn

        epoch = self.epoch

        lsn = self.lsn

        prev_lsn = self.prev_lsn

        store = self.store

        txn_id = self.txn_id

        version = self.version

        writes = []
        for writes_item_data in self.writes:
            writes_item = writes_item_data.to_dict()
            writes.append(writes_item)

        checksum = self.checksum

        traceparent = self.traceparent

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "csn": csn,
                "epoch": epoch,
                "lsn": lsn,
                "prev_lsn": prev_lsn,
                "store": store,
                "txn_id": txn_id,
                "version": version,
                "writes": writes,
            }
        )
        if checksum is not UNSET:
            field_dict["checksum"] = checksum
        if traceparent is not UNSET:
            field_dict["traceparent"] = traceparent

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.log_write import LogWrite  # noqa: PLC0415

        d = dict(src_dict)
        csn = d.pop("csn")

        epoch = d.pop("epoch")

        lsn = d.pop("lsn")

        prev_lsn = d.pop("prev_lsn")

        store = d.pop("store")

        txn_id = d.pop("txn_id")

        version = d.pop("version")

        writes = []
        _writes = d.pop("writes")
        for writes_item_data in _writes:
            writes_item = LogWrite.from_dict(writes_item_data)

            writes.append(writes_item)

        checksum = d.pop("checksum", UNSET)

        traceparent = d.pop("traceparent", UNSET)

        log_record = cls(
            csn=csn,
            epoch=epoch,
            lsn=lsn,
            prev_lsn=prev_lsn,
            store=store,
            txn_id=txn_id,
            version=version,
            writes=writes,
            checksum=checksum,
            traceparent=traceparent,
        )

        log_record.additional_properties = d
        return log_record

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
