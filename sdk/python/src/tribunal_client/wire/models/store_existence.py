from typing import Literal

StoreExistence = Literal["declared", "tracked"]

STORE_EXISTENCE_VALUES: set[StoreExistence] = {
    "declared",
    "tracked",
}


def check_store_existence(value: str) -> StoreExistence:
    if value in STORE_EXISTENCE_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {STORE_EXISTENCE_VALUES!r}")
