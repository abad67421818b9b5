StorageDurability = str


def check_storage_durability(value: str) -> StorageDurability:
    return value
