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
        lag_ms (str): Age of the oldest record that is not acknowledged, milliseconds. Example: 0.
        state (str): `log_only`, `running`, `backing_off` or `stopped`. Example: running.
        last_error (str | Unset): What the storage last complained about.
    """

    lag_ms: str
    state: str
    last_error: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        lag_ms = self.lag_ms

        state = self.state

        last_error = self.last_error

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "lag_ms": lag_ms,
                "state": state,
            }
        )
        if last_error is not UNSET:
            field_dict["last_error"] = last_error

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        lag_ms = d.pop("lag_ms")

        state = d.pop("state")

        last_error = d.pop("last_error", UNSET)

        store_push = cls(
            lag_ms=lag_ms,
            state=state,
            last_error=last_error,
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
