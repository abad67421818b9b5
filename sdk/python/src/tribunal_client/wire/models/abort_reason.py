from typing import Literal

AbortReason = Literal[
    "add_overflow",
    "client_abort",
    "deadlock",
    "fenced",
    "lock_lost",
    "not_a_number",
    "order_conflict",
    "plugin",
    "range_conflict",
    "read_conflict",
    "row_exists",
    "row_missing",
    "snapshot_from_the_future",
    "snapshot_too_old",
    "snapshots_differ",
    "write_conflict",
]

ABORT_REASON_VALUES: set[AbortReason] = {
    "add_overflow",
    "client_abort",
    "deadlock",
    "fenced",
    "lock_lost",
    "not_a_number",
    "order_conflict",
    "plugin",
    "range_conflict",
    "read_conflict",
    "row_exists",
    "row_missing",
    "snapshot_from_the_future",
    "snapshot_too_old",
    "snapshots_differ",
    "write_conflict",
}


def check_abort_reason(value: str) -> AbortReason:
    if value in ABORT_REASON_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {ABORT_REASON_VALUES!r}")
