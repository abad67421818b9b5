from typing import Literal

IsolationLevel = Literal["read-committed", "repeatable-read", "serializable", "snapshot"]

ISOLATION_LEVEL_VALUES: set[IsolationLevel] = {
    "read-committed",
    "repeatable-read",
    "serializable",
    "snapshot",
}


def check_isolation_level(value: str) -> IsolationLevel:
    if value in ISOLATION_LEVEL_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {ISOLATION_LEVEL_VALUES!r}")
