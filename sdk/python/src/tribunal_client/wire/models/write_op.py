from typing import Literal

WriteOp = Literal["add", "delete", "insert", "put", "update"]

WRITE_OP_VALUES: set[WriteOp] = {
    "add",
    "delete",
    "insert",
    "put",
    "update",
}


def check_write_op(value: str) -> WriteOp:
    if value in WRITE_OP_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {WRITE_OP_VALUES!r}")
