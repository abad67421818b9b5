from typing import Literal

ConflictOp = Literal["range", "read", "write"]

CONFLICT_OP_VALUES: set[ConflictOp] = {
    "range",
    "read",
    "write",
}


def check_conflict_op(value: str) -> ConflictOp:
    if value in CONFLICT_OP_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CONFLICT_OP_VALUES!r}")
