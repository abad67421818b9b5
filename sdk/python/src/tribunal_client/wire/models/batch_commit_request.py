from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

if TYPE_CHECKING:
    from ..models.batch_txn import BatchTxn


T = TypeVar("T", bound="BatchCommitRequest")


@_attrs_define
class BatchCommitRequest:
    """Many commits in one request.

    Attributes:
        txns (list[BatchTxn]): The commits. Results keep their order.
    """

    txns: list[BatchTxn]
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        txns = []
        for txns_item_data in self.txns:
            txns_item = txns_item_data.to_dict()
            txns.append(txns_item)

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "txns": txns,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.batch_txn import BatchTxn  # noqa: PLC0415

        d = dict(src_dict)
        txns = []
        _txns = d.pop("txns")
        for txns_item_data in _txns:
            txns_item = BatchTxn.from_dict(txns_item_data)

            txns.append(txns_item)

        batch_commit_request = cls(
            txns=txns,
        )

        batch_commit_request.additional_properties = d
        return batch_commit_request

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
