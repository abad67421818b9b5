ConflictOp = str


def check_conflict_op(value: str) -> ConflictOp:
    return value
