from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

from ..types import UNSET, Unset

if TYPE_CHECKING:
    from ..models.problem import Problem


T = TypeVar("T", bound="LogEvent")


@_attrs_define
class LogEvent:
    """What stands between the records of a stream: a heartbeat, or the reason of its end. Has a field `event`, records
    have
    none.

        Attributes:
            event (str): `heartbeat` or `end`. Example: heartbeat.
            next_ (str): What to pass as `after` to go on from here. Example: 120.
            durable_upto (str | Unset): Last position that is durable. Example: 120.
            head_lsn (str | Unset): Last position of the log. Example: 120.
            oldest (str | Unset): Oldest position that is still kept. Example: 1.
            problem (Problem | Unset): Why there is no decision (RFC 9457, `application/problem+json`).
            reason (str | Unset): Why it ends: `limit`, `idle`, `stopping`, or the problem's code. Example: stopping.
    """

    event: str
    next_: str
    durable_upto: str | Unset = UNSET
    head_lsn: str | Unset = UNSET
    oldest: str | Unset = UNSET
    problem: Problem | Unset = UNSET
    reason: str | Unset = UNSET
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        event = self.event

        next_ = self.next_

        durable_upto = self.durable_upto

        head_lsn = self.head_lsn

        oldest = self.oldest

        problem: dict[str, Any] | Unset = UNSET
        if not isinstance(self.problem, Unset):
            problem = self.problem.to_dict()

        reason = self.reason

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "event": event,
                "next": next_,
            }
        )
        if durable_upto is not UNSET:
            field_dict["durable_upto"] = durable_upto
        if head_lsn is not UNSET:
            field_dict["head_lsn"] = head_lsn
        if oldest is not UNSET:
            field_dict["oldest"] = oldest
        if problem is not UNSET:
            field_dict["problem"] = problem
        if reason is not UNSET:
            field_dict["reason"] = reason

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        from ..models.problem import Problem  # noqa: PLC0415

        d = dict(src_dict)
        event = d.pop("event")

        next_ = d.pop("next")

        durable_upto = d.pop("durable_upto", UNSET)

        head_lsn = d.pop("head_lsn", UNSET)

        oldest = d.pop("oldest", UNSET)

        _problem = d.pop("problem", UNSET)
        problem: Problem | Unset
        if isinstance(_problem, Unset):
            problem = UNSET
        else:
            problem = Problem.from_dict(_problem)

        reason = d.pop("reason", UNSET)

        log_event = cls(
            event=event,
            next_=next_,
            durable_upto=durable_upto,
            head_lsn=head_lsn,
            oldest=oldest,
            problem=problem,
            reason=reason,
        )

        log_event.additional_properties = d
        return log_event

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
