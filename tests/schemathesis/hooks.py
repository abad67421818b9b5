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


# Bodies whose optional strings, numbers and flags may be null, which the schema cannot express: see schemathesis.toml.
NULL_IS_ABSENT = ("BeginRequest", "CommitRequest", "Read", "Range", "Write", "ReadRequest", "RowRead", "RangeRead")
NULL_PATHS = (
    "/v1/txns",
    "/v1/txns/{txn_id}/commit",
    "/v1/txns/{txn_id}/validate",
    "/v1/stores/{store}/rows/read",
)


def optional_scalars(document):
    """Names of the fields that may be null."""
    schemas = document["components"]["schemas"]
    names = set()
    for schema in (schemas[name] for name in NULL_IS_ABSENT):
        for name, field in schema["properties"].items():
            field = schemas[field["$ref"].rsplit("/", 1)[1]] if "$ref" in field else field
            if name not in schema.get("required", []) and field.get("type") in ("string", "integer", "number", "boolean"):
                names.add(name)
    return names


def without_nulls(value, names):
    """Leaves out the fields that are null and may be."""
    if isinstance(value, list):
        return [without_nulls(item, names) for item in value]
    if not isinstance(value, dict):
        return value
    # What is in `value` is the client's own.
    return {
        name: item if name == "value" else without_nulls(item, names)
        for name, item in value.items()
        if item is not None or name not in names
    }


@schemathesis.hook
def filter_case(context, case):
    """Drops a body with such a null: it is accepted if nothing else is wrong with it, whatever the schema says."""
    if case.path not in NULL_PATHS:
        return True
    names = optional_scalars(case.operation.schema.raw_schema)
    return without_nulls(case.body, names) == case.body


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
