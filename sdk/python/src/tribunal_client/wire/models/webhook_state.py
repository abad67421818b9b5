from typing import Literal

WebhookState = Literal["backing_off", "connecting", "idle", "pushing", "stopped"]

WEBHOOK_STATE_VALUES: set[WebhookState] = {
    "backing_off",
    "connecting",
    "idle",
    "pushing",
    "stopped",
}


def check_webhook_state(value: str) -> WebhookState:
    if value in WEBHOOK_STATE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {WEBHOOK_STATE_VALUES!r}")
