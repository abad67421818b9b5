"""The checksum of a log record: CRC-32C over its texts, as the API describes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from .wire.types import Unset

if TYPE_CHECKING:
    from .wire.models import LogRecord

_DECODER = json.JSONDecoder()


def _shifted(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_TABLE = [_shifted(byte) for byte in range(256)]


def crc32c(data: bytes) -> int:
    """Compute a CRC-32C."""
    table, crc = _TABLE, 0xFFFFFFFF
    for byte in data:
        crc = table[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def checksum_of(record: LogRecord, line: str, keys: list[bytes]) -> str:
    """Compute the checksum of a record, of the text that it was read from, and the keys of its writes."""
    pieces = [text.encode() for text in (record.lsn, record.epoch, record.csn, record.version, record.txn_id)]
    for write, key, text in zip(record.writes, keys, value_texts(line), strict=True):
        value = text if isinstance(write.value_b64, Unset) else f'{{"$b64":"{write.value_b64}"}}'
        pieces += [write.op.encode(), key, value.encode()]
    return f"{crc32c(b''.join(len(piece).to_bytes(4, 'little') + piece for piece in pieces)):08x}"


def value_texts(line: str) -> list[str]:
    """Return the texts of the values of a record's writes, as they were posted. The line must be JSON."""
    texts: list[str] = []
    for name, start, _ in _members(line, 0):
        if name != "writes":
            continue
        at = _blank(line, start + 1)
        while line[at] != "]":
            end, text = at, ""
            for field, first, last in _members(line, at):
                end = last
                if field == "value":
                    text = line[first:last]
            texts.append(text)
            # The brace that ends the object.
            at = _following(line, line.index("}", end) + 1)
    return texts


def _members(text: str, start: int) -> Iterator[tuple[str, int, int]]:
    """Yield the members of the object at a position: name, start and end of the value."""
    at = _blank(text, start + 1)
    while text[at] != "}":
        name, end = _DECODER.raw_decode(text, at)
        first = _blank(text, _blank(text, end) + 1)
        _, last = _DECODER.raw_decode(text, first)
        yield name, first, last
        at = _following(text, last)


def _following(text: str, end: int) -> int:
    """Return where the next item begins, or the bracket that ends the list."""
    at = _blank(text, end)
    return _blank(text, at + 1) if text[at : at + 1] == "," else at


def _blank(text: str, at: int) -> int:
    """Skip white space."""
    while text[at : at + 1] in (" ", "\t", "\r", "\n"):
        at += 1
    return at
