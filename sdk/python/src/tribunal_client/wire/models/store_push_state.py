StorePushState = str


def check_store_push_state(value: str) -> StorePushState:
    return value
