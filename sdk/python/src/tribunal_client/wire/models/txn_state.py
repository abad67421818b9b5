from typing import Literal

TxnState = Literal[
    "aborted", "committed", "in_flight", "problem", "unknown", "unknown_expired", "would_abort", "would_commit"
]

TXN_STATE_VALUES: set[TxnState] = {
    "aborted",
    "committed",
    "in_flight",
    "problem",
    "unknown",
    "unknown_expired",
    "would_abort",
    "would_commit",
}


def check_txn_state(value: str) -> TxnState:
    if value in TXN_STATE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {TXN_STATE_VALUES!r}")
