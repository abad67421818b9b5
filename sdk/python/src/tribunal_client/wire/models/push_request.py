from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define

from ..models.push_kind import PushKind, check_push_kind
from ..types import UNSET, Unset

T = TypeVar("T", bound="PushRequest")


@_attrs_define
class PushRequest:
    """A receiver to register.

    Attributes:
        kind (PushKind): How records are delivered.
        secret (str): Key of the signatures, 16 to 256 characters. It is never returned. Example: at least 16
            characters.
        url (str): Receiver of the POST requests: `https://` or `http://`, without user information. The operator must
            allow private
            addresses. Example: https://receiver.example/hook.
        after (str | Unset): Start after this position. If absent: the position of the last registration of this store,
            or 0. To leave out a record
            that the receiver rejects, register it again with the LSN of that record. Example: 0.
        bytes_max (int | Unset): Bytes of keys and values after which no further record is added to a request; 1 MiB if
            absent.
        records_max (int | Unset): Maximum number of records in one request; 500 if absent.
        timeout_ms (int | Unset): Timeout of one request, milliseconds; 10000 if absent.
    """

    kind: PushKind
    secret: str
    url: str
    after: str | Unset = UNSET
    bytes_max: int | Unset = UNSET
    records_max: int | Unset = UNSET
    timeout_ms: int | Unset = UNSET

    def to_dict(self) -> dict[str, Any]:
        kind: str = self.kind

        secret = self.secret

        url = self.url

        after = self.after

        bytes_max = self.bytes_max

        records_max = self.records_max

        timeout_ms = self.timeout_ms

        field_dict: dict[str, Any] = {}

        field_dict.update(
            {
                "kind": kind,
                "secret": secret,
                "url": url,
            }
        )
        if after is not UNSET:
            field_dict["after"] = after
        if bytes_max is not UNSET:
            field_dict["bytes_max"] = bytes_max
        if records_max is not UNSET:
            field_dict["records_max"] = records_max
        if timeout_ms is not UNSET:
            field_dict["timeout_ms"] = timeout_ms

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        kind = check_push_kind(d.pop("kind"))

        secret = d.pop("secret")

        url = d.pop("url")

        after = d.pop("after", UNSET)

        bytes_max = d.pop("bytes_max", UNSET)

        records_max = d.pop("records_max", UNSET)

        timeout_ms = d.pop("timeout_ms", UNSET)

        push_request = cls(
            kind=kind,
            secret=secret,
            url=url,
            after=after,
            bytes_max=bytes_max,
            records_max=records_max,
            timeout_ms=timeout_ms,
        )

        return push_request
