AbortReason = str


def check_abort_reason(value: str) -> AbortReason:
    return value
