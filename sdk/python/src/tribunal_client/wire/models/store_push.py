from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.storage_durability import StorageDurability, check_storage_durability
from ..models.store_push_state import StorePushState, check_store_push_state
from ..types import UNSET, Unset

T = TypeVar("T", bound="StorePush")


@_attrs_define
class StorePush:
    """The push to a store's storage.

    Attributes:
        lag_ms (str): Age of the oldest record that is not acknowledged, milliseconds; 0 if there is none. If the
            storage was not reached since
            the start of the node, so that its position is unknown: the time since then. Example: 0.
        state (StorePushState): What the push to a storage is doing.
        durability (StorageDurability | Unset): What a storage guarantees when it acknowledges records.
        last_error (str | Unset): The storage's last error. For a detached store: why it was detached, and how to attach
            it.
        node (int | Unset): The node of a cluster that pushes. Absent if the store has no storage outside of the nodes,
            is detached, no node is
            named yet, or the node runs alone. Example: 2.
        stopped_at_lsn (str | Unset): The record that the storage cannot apply, if the push stopped at one. Example:
            120.
    """

    lag_ms: str
    state: StorePushState
    durability: StorageDurability | Unset = UNSET
    last_error: str | Unset = UNSET
    node: int | Unset = UNSET
    stopped_at_lsn: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        lag_ms = self.lag_ms

        state: str = self.state

        durability: str | Unset = UNSET
        if not isinstance(self.durability, Unset):
            durability = self.durability

        last_error = self.last_error

        node = self.node

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
        if node is not UNSET:
            field_dict["node"] = node
        if stopped_at_lsn is not UNSET:
            field_dict["stopped_at_lsn"] = stopped_at_lsn

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        lag_ms = d.pop("lag_ms")

        state = check_store_push_state(d.pop("state"))

        _durability = d.pop("durability", UNSET)
        durability: StorageDurability | Unset
        if isinstance(_durability, Unset):
            durability = UNSET
        else:
            durability = check_storage_durability(_durability)

        last_error = d.pop("last_error", UNSET)

        node = d.pop("node", UNSET)

        stopped_at_lsn = d.pop("stopped_at_lsn", UNSET)

        store_push = cls(
            lag_ms=lag_ms,
            state=state,
            durability=durability,
            last_error=last_error,
            node=node,
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
