"""What the document cannot say: how lines are written, that an id holds the present time, and which store exists."""

import json
import re
import time

import schemathesis

UUID_V7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE)


@schemathesis.serializer("application/x-ndjson")
def ndjson(context, value):
    """Writes a list as one JSON value a line, and text and bytes as they are."""
    if isinstance(value, (bytes, str)):
        return value
    lines = value if isinstance(value, list) else [value]
    return "".join(json.dumps(line) + "\n" for line in lines).encode()


@schemathesis.serializer("application/wasm")
def wasm(context, value):
    """Writes bytes and text as they are, and whatever else is made as text."""
    return value if isinstance(value, (bytes, str)) else str(value)


@schemathesis.hook
def map_path_parameters(context, path_parameters):
    """Lets good ids be of now, since others are refused as expired, and two of three store names be one that exists."""
    if not path_parameters:
        return path_parameters
    txn_id = path_parameters.get("txn_id")
    if isinstance(txn_id, str) and UUID_V7.fullmatch(txn_id):
        now = f"{time.time_ns() // 1_000_000:012x}"
        path_parameters["txn_id"] = f"{now[:8]}-{now[8:]}{txn_id[13:]}"
    store = path_parameters.get("store")
    if isinstance(store, str) and len(store) % 3:
        path_parameters["store"] = "kv"
    return path_parameters
