from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.conflict_op import ConflictOp, check_conflict_op
from ..models.conflict_stage import ConflictStage, check_conflict_stage
from ..types import UNSET, Unset

T = TypeVar("T", bound="Conflict")


@_attrs_define
class Conflict:
    """One reason for an abort, with everything needed to act on it.

    Attributes:
        op (ConflictOp): The kind of operation that lost a conflict.
        stage (ConflictStage): The stage of the pipeline that found a conflict.
        store (str): The store. Example: kv.
        by_txn (str | Unset): The transaction that won. Always present if it is in the same epoch; otherwise only while
            its epoch is in the
            server's memory, and not if it deleted the row. With reason `plugin`, only if what was read has changed since:
            the validator may blame an operation
            that no other transaction has to do with, and if it blames none, the transaction's first operation is named.
        current_version (str | Unset): The row's version now; absent if there is no such row, or if the winner is in the
            same epoch. Example: 19.
        end (str | Unset): The range's end, if it is UTF-8. A range with neither `end` nor `end_b64` extends to the end
            of the store.
        end_b64 (str | Unset): The same in base64, if it is not UTF-8.
        key (str | Unset): The row's key, or the range's start, if it is UTF-8.
        key_b64 (str | Unset): The same in base64, if it is not UTF-8.
        read_version (str | Unset): Version that the transaction read; absent if the row was absent or not read.
            Example: 17.
        row (str | Unset): Of a range: the first row in it that the winner wrote, if its key is UTF-8 and the winner is
            known.
        row_b64 (str | Unset): The same in base64, if it is not UTF-8.
    """

    op: ConflictOp
    stage: ConflictStage
    store: str
    by_txn: str | Unset = UNSET
    current_version: str | Unset = UNSET
    end: str | Unset = UNSET
    end_b64: str | Unset = UNSET
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    read_version: str | Unset = UNSET
    row: str | Unset = UNSET
    row_b64: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        op: str = self.op

        stage: str = self.stage

        store = self.store

        by_txn = self.by_txn

        current_version = self.current_version

        end = self.end

        end_b64 = self.end_b64

        key = self.key

        key_b64 = self.key_b64

        read_version = self.read_version

        row = self.row

        row_b64 = self.row_b64

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "op": op,
                "stage": stage,
                "store": store,
            }
        )
        if by_txn is not UNSET:
            field_dict["by_txn"] = by_txn
        if current_version is not UNSET:
            field_dict["current_version"] = current_version
        if end is not UNSET:
            field_dict["end"] = end
        if end_b64 is not UNSET:
            field_dict["end_b64"] = end_b64
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if read_version is not UNSET:
            field_dict["read_version"] = read_version
        if row is not UNSET:
            field_dict["row"] = row
        if row_b64 is not UNSET:
            field_dict["row_b64"] = row_b64

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        op = check_conflict_op(d.pop("op"))

        stage = check_conflict_stage(d.pop("stage"))

        store = d.pop("store")

        by_txn = d.pop("by_txn", UNSET)

        current_version = d.pop("current_version", UNSET)

        end = d.pop("end", UNSET)

        end_b64 = d.pop("end_b64", UNSET)

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        read_version = d.pop("read_version", UNSET)

        row = d.pop("row", UNSET)

        row_b64 = d.pop("row_b64", UNSET)

        conflict = cls(
            op=op,
            stage=stage,
            store=store,
            by_txn=by_txn,
            current_version=current_version,
            end=end,
            end_b64=end_b64,
            key=key,
            key_b64=key_b64,
            read_version=read_version,
            row=row,
            row_b64=row_b64,
        )

        conflict.additional_properties = d
        return conflict

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
