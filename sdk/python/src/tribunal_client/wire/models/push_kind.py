from typing import Literal

PushKind = Literal["webhook"]

PUSH_KIND_VALUES: set[PushKind] = {
    "webhook",
}


def check_push_kind(value: str) -> PushKind:
    if value in PUSH_KIND_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {PUSH_KIND_VALUES!r}")
