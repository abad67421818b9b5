from typing import Literal

Consistency = Literal["fresh", "session"]

CONSISTENCY_VALUES: set[Consistency] = {
    "fresh",
    "session",
}


def check_consistency(value: str) -> Consistency:
    if value in CONSISTENCY_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CONSISTENCY_VALUES!r}")
