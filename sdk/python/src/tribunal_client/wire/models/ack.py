from typing import Literal

Ack = Literal["applied", "durable"]

ACK_VALUES: set[Ack] = {
    "applied",
    "durable",
}


def check_ack(value: str) -> Ack:
    if value in ACK_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {ACK_VALUES!r}")
