from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

T = TypeVar("T", bound="StorePush")


@_attrs_define
class StorePush:
    """How a store's push does.

    Attributes:
        lag_ms (str): Age of the oldest record that is not acknowledged, milliseconds; 0 while nothing is pushed.
            Example: 0.
        state (str): `log_only`, `running`, `backing_off`, `stopped` or `detached`. Example: running.
        durability (str | Unset): What an acknowledgement of the storage is worth, as it says itself: `always` synced
            first, `everysec`, `none`, or
            `unknown`. Absent while there is no storage. Example: always.
        last_error (str | Unset): What the storage last complained about. Of a detached store: why, and the way out.
        stopped_at_lsn (str | Unset): The record that the storage can never take, if the push stopped at one. Example:
            120.
    """

    lag_ms: str
    state: str
    durability: str | Unset = UNSET
    last_error: str | Unset = UNSET
    stopped_at_lsn: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        lag_ms = self.lag_ms

        state = self.state

        durability = self.durability

        last_error = self.last_error

        stopped_at_lsn = self.stopped_at_lsn

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "lag_ms": lag_ms,
                "state": state,
            }
        )
        if durability is not UNSET:
            field_dict["durability"] = durability
        if last_error is not UNSET:
            field_dict["last_error"] = last_error
        if stopped_at_lsn is not UNSET:
            field_dict["stopped_at_lsn"] = stopped_at_lsn

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        lag_ms = d.pop("lag_ms")

        state = d.pop("state")

        durability = d.pop("durability", UNSET)

        last_error = d.pop("last_error", UNSET)

        stopped_at_lsn = d.pop("stopped_at_lsn", UNSET)

        store_push = cls(
            lag_ms=lag_ms,
            state=state,
            durability=durability,
            last_error=last_error,
            stopped_at_lsn=stopped_at_lsn,
        )

        store_push.additional_properties = d
        return store_push

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
