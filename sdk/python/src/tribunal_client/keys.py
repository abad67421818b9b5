"""Keys: UTF-8 text or any bytes, which have a wire field each."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from urllib.parse import quote

from .errors import Misuse, ServerMisbehaved
from .wire.types import UNSET, Unset

Key = str | bytes
"""A row's key. Bytes that are UTF-8 name the same row as the text."""


def normal(key: Key) -> bytes:
    """Normalize a key: convert it to bytes."""
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        raise Misuse(f"a key must be str or bytes, not {type(key).__name__}")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise Misuse(f"a key cannot be written as UTF-8: {error}") from error


def normals(keys: Iterable[Key]) -> list[bytes]:
    """Normalize several keys."""
    if isinstance(keys, str | bytes):
        raise Misuse(f"`{keys!r}` is one key where a list of keys was expected")
    if not isinstance(keys, Iterable):
        raise Misuse(f"a list of keys was expected, not {type(keys).__name__}")
    return [normal(key) for key in keys]


def readable(key: bytes) -> Key:
    """Convert a key to the form that callers see: text if it is UTF-8."""
    try:
        return key.decode()
    except UnicodeDecodeError:
        return key


def key_fields(key: bytes) -> tuple[str | Unset, str | Unset]:
    """Split a key into its wire fields."""
    try:
        return key.decode(), UNSET
    except UnicodeDecodeError:
        return UNSET, base64.b64encode(key).decode()


def key_of(text: str | Unset, in_base64: str | Unset) -> bytes | None:
    """Join the two wire fields of a key; `None` if both are absent."""
    if not isinstance(text, Unset):
        return text.encode()
    if isinstance(in_base64, Unset):
        return None
    try:
        return base64.b64decode(in_base64, validate=True)
    except binascii.Error as error:
        raise ServerMisbehaved(f"`{in_base64}` where base64 was expected") from error


def percent_encoded(key: bytes) -> str:
    """Percent-encode a key for a path segment or a query value."""
    return quote(key, safe="")
