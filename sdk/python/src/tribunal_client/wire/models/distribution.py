from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from attrs import define as _attrs_define
from attrs import field as _attrs_field

T = TypeVar("T", bound="Distribution")


@_attrs_define
class Distribution:
    """Values of one kind; percentiles are right within an eighth, all are 0 if there is no value.

    Attributes:
        count (str): How many values. Example: 1000.
        max_ (float): None is above.
        mean (float): Their mean.
        p50 (float): Half of them are not above.
        p90 (float): Nine of ten are not above.
        p99 (float): All but one of a hundred are not above.
    """

    count: str
    max_: float
    mean: float
    p50: float
    p90: float
    p99: float
    additional_properties: dict[str, Any] = _attrs_field(init=False, factory=dict)

    def to_dict(self) -> dict[str, Any]:
        count = self.count

        max_ = self.max_

        mean = self.mean

        p50 = self.p50

        p90 = self.p90

        p99 = self.p99

        field_dict: dict[str, Any] = {}
        field_dict.update(self.additional_properties)
        field_dict.update(
            {
                "count": count,
                "max": max_,
                "mean": mean,
                "p50": p50,
                "p90": p90,
                "p99": p99,
            }
        )

        return field_dict

    @classmethod
    def from_dict(cls: type[T], src_dict: Mapping[str, Any]) -> T:
        d = dict(src_dict)
        count = d.pop("count")

        max_ = d.pop("max")

        mean = d.pop("mean")

        p50 = d.pop("p50")

        p90 = d.pop("p90")

        p99 = d.pop("p99")

        distribution = cls(
            count=count,
            max_=max_,
            mean=mean,
            p50=p50,
            p90=p90,
            p99=p99,
        )

        distribution.additional_properties = d
        return distribution

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
