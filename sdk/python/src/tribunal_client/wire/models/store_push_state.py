from typing import Literal

StorePushState = Literal["backing_off", "detached", "log_only", "running", "stopped"]

STORE_PUSH_STATE_VALUES: set[StorePushState] = {
    "backing_off",
    "detached",
    "log_only",
    "running",
    "stopped",
}


def check_store_push_state(value: str) -> StorePushState:
    if value in STORE_PUSH_STATE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {STORE_PUSH_STATE_VALUES!r}")
