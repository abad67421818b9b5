from typing import Literal

ConflictStage = Literal["admission", "identity", "join", "merge", "validate"]

CONFLICT_STAGE_VALUES: set[ConflictStage] = {
    "admission",
    "identity",
    "join",
    "merge",
    "validate",
}


def check_conflict_stage(value: str) -> ConflictStage:
    if value in CONFLICT_STAGE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {CONFLICT_STAGE_VALUES!r}")
