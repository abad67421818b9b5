ConflictStage = str


def check_conflict_stage(value: str) -> ConflictStage:
    return value
