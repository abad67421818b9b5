from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..models.push_kind import PushKind, check_push_kind
from ..models.webhook_state import WebhookState, check_webhook_state
from ..types import UNSET, Unset

T = TypeVar("T", bound="PushInfo")


@_attrs_define
class PushInfo:
    """A registered receiver and its progress. Its secret is not returned.

    Attributes:
        acked_lsn (str): Last record that the receiver acknowledged. Example: 120.
        attempts (int): Failed attempts since the last progress. Example: 0.
        bytes_max (int): Bytes of keys and values after which no further record is added to a request. Example: 1048576.
        head_lsn (str): Last position of the log. Example: 150.
        kind (PushKind): How records are delivered.
        lag_ms (str): Age of the oldest record that the receiver has not acknowledged, milliseconds; 0 if there is none.
            Example: 250.
        lag_records (str): Records that are not acknowledged. Example: 30.
        records_max (int): Maximum number of records in one request. Example: 500.
        state (WebhookState): What the push to a webhook is doing.
        store (str): The store. Example: kv.
        timeout_ms (int): Timeout of one request, milliseconds. Example: 10000.
        url (str): The receiver. Example: https://receiver.example/hook.
        last_error (str | Unset): The last error; absent once a request has succeeded.
        node (int | Unset): The node of a cluster that delivers; absent until one is named, and on a node that runs
            alone. Example: 2.
    """

    acked_lsn: str
    attempts: int
    bytes_max: int
    head_lsn: str
    kind: PushKind
    lag_ms: str
    lag_records: str
    records_max: int
    state: WebhookState
    store: str
    timeout_ms: int
    url: str
    last_error: str | Unset = UNSET
    node: int | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        acked_lsn = self.acked_lsn

        attempts = self.attempts

        bytes_max = self.bytes_max

        head_lsn = self.head_lsn

        kind: str = self.kind

        lag_ms = self.lag_ms

        lag_records = self.lag_records

        records_max = self.records_max

        state: str = self.state

        store = self.store

        timeout_ms = self.timeout_ms

        url = self.url

        last_error = self.last_error

        node = self.node

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "acked_lsn": acked_lsn,
                "attempts": attempts,
                "bytes_max": bytes_max,
                "head_lsn": head_lsn,
                "kind": kind,
                "lag_ms": lag_ms,
                "lag_records": lag_records,
                "records_max": records_max,
                "state": state,
                "store": store,
                "timeout_ms": timeout_ms,
                "url": url,
            }
        )
        if last_error is not UNSET:
            field_dict["last_error"] = last_error
        if node is not UNSET:
            field_dict["node"] = node

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        acked_lsn = d.pop("acked_lsn")

        attempts = d.pop("attempts")

        bytes_max = d.pop("bytes_max")

        head_lsn = d.pop("head_lsn")

        kind = check_push_kind(d.pop("kind"))

        lag_ms = d.pop("lag_ms")

        lag_records = d.pop("lag_records")

        records_max = d.pop("records_max")

        state = check_webhook_state(d.pop("state"))

        store = d.pop("store")

        timeout_ms = d.pop("timeout_ms")

        url = d.pop("url")

        last_error = d.pop("last_error", UNSET)

        node = d.pop("node", UNSET)

        push_info = cls(
            acked_lsn=acked_lsn,
            attempts=attempts,
            bytes_max=bytes_max,
            head_lsn=head_lsn,
            kind=kind,
            lag_ms=lag_ms,
            lag_records=lag_records,
            records_max=records_max,
            state=state,
            store=store,
            timeout_ms=timeout_ms,
            url=url,
            last_error=last_error,
            node=node,
        )

        push_info.additional_properties = d
        return push_info

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
