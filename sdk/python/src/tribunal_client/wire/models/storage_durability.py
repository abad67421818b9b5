from typing import Literal

StorageDurability = Literal["always", "everysec", "none", "unknown"]

STORAGE_DURABILITY_VALUES: set[StorageDurability] = {
    "always",
    "everysec",
    "none",
    "unknown",
}


def check_storage_durability(value: str) -> StorageDurability:
    if value in STORAGE_DURABILITY_VALUES:
        return value
    raise TypeError(f"Unexpected value {value!r}. Expected one of {STORAGE_DURABILITY_VALUES!r}")
