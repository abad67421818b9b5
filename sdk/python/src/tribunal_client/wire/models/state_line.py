from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.state_kind import StateKind, check_state_kind
from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.problem import Problem


T = TypeVar("T", bound="StateLine")


@_attrs_define
class StateLine:
    """One line of a state image. The first one has `event: state`, the last one `event: end`; those between are rows.

    Attributes:
        detail (str | Unset): In the first line: what to do, for people.
        event (str | Unset): `state`, `end` or `failed`; absent in a row. Example: state.
        key (str | Unset): The row's key, if it is UTF-8.
        key_b64 (str | Unset): The row's key in base64, if it is not UTF-8.
        kind (StateKind | Unset): Where a store's state can be had.
        lsn (str | Unset): In the first line: the position whose state this is. Pull the log behind it. Example: 120.
        problem (Problem | Unset): Why there is no decision (RFC 9457, `application/problem+json`).
        rows (str | Unset): In the last line: how many rows there were. An image without a last line is not whole.
            Example: 1000.
        store (str | Unset): In the first line: the store. Example: kv.
        value (Any | Unset): The row's value.
        value_b64 (str | Unset): The row's value, if it was posted as `value_b64`.
        version (str | Unset): The row's version. Example: 9271508992.
    """

    detail: str | Unset = UNSET
    event: str | Unset = UNSET
    key: str | Unset = UNSET
    key_b64: str | Unset = UNSET
    kind: StateKind | Unset = UNSET
    lsn: str | Unset = UNSET
    problem: Problem | Unset = UNSET
    rows: str | Unset = UNSET
    store: str | Unset = UNSET
    value: Any | Unset = UNSET
    value_b64: str | Unset = UNSET
    version: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        detail = self.detail

        event = self.event

        key = self.key

        key_b64 = self.key_b64

        kind: str | Unset = UNSET
        if not isinstance(self.kind, Unset):
            kind = self.kind

        lsn = self.lsn

        problem: dict[str, Any] | Unset = UNSET
        if not isinstance(self.problem, Unset):
            problem = self.problem.to_dict()

        rows = self.rows

        store = self.store

        value = self.value

        value_b64 = self.value_b64

        version = self.version

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update({})
        if detail is not UNSET:
            field_dict["detail"] = detail
        if event is not UNSET:
            field_dict["event"] = event
        if key is not UNSET:
            field_dict["key"] = key
        if key_b64 is not UNSET:
            field_dict["key_b64"] = key_b64
        if kind is not UNSET:
            field_dict["kind"] = kind
        if lsn is not UNSET:
            field_dict["lsn"] = lsn
        if problem is not UNSET:
            field_dict["problem"] = problem
        if rows is not UNSET:
            field_dict["rows"] = rows
        if store is not UNSET:
            field_dict["store"] = store
        if value is not UNSET:
            field_dict["value"] = value
        if value_b64 is not UNSET:
            field_dict["value_b64"] = value_b64
        if version is not UNSET:
            field_dict["version"] = version

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.problem import Problem  # noqa: PLC0415

        d = dict(src_dict)
        detail = d.pop("detail", UNSET)

        event = d.pop("event", UNSET)

        key = d.pop("key", UNSET)

        key_b64 = d.pop("key_b64", UNSET)

        _kind = d.pop("kind", UNSET)
        kind: StateKind | Unset
        if isinstance(_kind, Unset):
            kind = UNSET
        else:
            kind = check_state_kind(_kind)

        lsn = d.pop("lsn", UNSET)

        _problem = d.pop("problem", UNSET)
        problem: Problem | Unset
        if isinstance(_problem, Unset):
            problem = UNSET
        else:
            problem = Problem.from_dict(_problem)

        rows = d.pop("rows", UNSET)

        store = d.pop("store", UNSET)

        value = d.pop("value", UNSET)

        value_b64 = d.pop("value_b64", UNSET)

        version = d.pop("version", UNSET)

        state_line = cls(
            detail=detail,
            event=event,
            key=key,
            key_b64=key_b64,
            kind=kind,
            lsn=lsn,
            problem=problem,
            rows=rows,
            store=store,
            value=value,
            value_b64=value_b64,
            version=version,
        )

        state_line.additional_properties = d
        return state_line

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
