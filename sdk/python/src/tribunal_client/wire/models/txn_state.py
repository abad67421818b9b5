TxnState = str


def check_txn_state(value: str) -> TxnState:
    return value
