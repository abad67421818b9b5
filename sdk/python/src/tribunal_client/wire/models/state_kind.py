from typing import Literal

StateKind = Literal["log", "rows", "storage"]

STATE_KIND_VALUES: set[StateKind] = {
    "log",
    "rows",
    "storage",
}


def check_state_kind(value: str) -> StateKind:
    if value in STATE_KIND_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {STATE_KIND_VALUES!r}")
