"""The state of a store at a position of its log, from which a reader of the log can start."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import Misuse, ServerMisbehaved, error_of
from .flow import Close, Flow
from .log_stream import LogStream
from .reads import row_of
from .verdict import number
from .wire.models import Problem
from .wire.models import Row as WireRow

if TYPE_CHECKING:
    from .transaction import Row

_ROWS_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Head:
    """The first line of an image."""

    store: str
    kind: str
    lsn: int
    log: str


class Image:
    """A state image that is read as it arrives."""

    def __init__(self, stream: LogStream, head: Head) -> None:
        self._stream: LogStream | None = stream
        self._ended = False
        self._count = 0
        self.store = head.store
        self.kind = head.kind
        """`rows`: the rows follow. `storage`: the rows are in the store's own storage, at `lsn` or later. `log`: the
        store is only its log, which is complete. Only `rows` has rows."""
        self.lsn = head.lsn
        """Position of the log that the rows reflect: `after` of the log reader that continues."""
        self.log = head.log
        """The log that `lsn` belongs to: `log` of the log reader that continues."""

    def _rows(self) -> Flow[list[Row]]:
        """Return some rows; none at the end."""
        rows: list[Row] = []
        # `close` in another thread resets it.
        stream = self._stream
        if stream is None:
            raise Misuse("the state image is closed, or was read already: request another one")
        while not self._ended and len(rows) < _ROWS_AT_ONCE:
            if rows and not stream.has_line:
                break
            document = _document((yield from stream.line(None)))
            event = document.get("event")
            if event is None:
                rows.append(_row(document))
                self._count += 1
                continue
            # Unknown events of a newer service are skipped.
            if event == "failed":
                raise _failure(document)
            if event == "end":
                stated = document.get("rows")
                if not isinstance(stated, str) or number(stated) != self._count:
                    raise ServerMisbehaved(f"a state image with {self._count} rows, not {document.get('rows')}")
                self._ended = True
        return rows

    def _close(self) -> Flow[None]:
        stream, self._stream = self._stream, None
        if stream is not None:
            yield from stream.close()


def begun(response: Any, until: float) -> Flow[tuple[LogStream, Head]]:  # noqa: ANN401
    """Read the first line of an image, until a deadline."""
    stream = LogStream(response, 0, "state image")
    complete = False
    try:
        head = _head(_document((yield from stream.line(None, until))))
        complete = True
    finally:
        if not complete:
            yield Close(response)
    return stream, head


def _head(document: dict[str, Any]) -> Head:
    texts = [document.get(name) for name in ("store", "kind", "lsn", "log")]
    if document.get("event") != "state" or not all(isinstance(text, str) for text in texts):
        raise ServerMisbehaved(f"a state image that begins with {document}")
    store, kind, lsn, log = map(str, texts)
    return Head(store, kind, number(lsn), log)


def _document(line: str | None) -> dict[str, Any]:
    try:
        document = json.loads(line or "")
        if isinstance(document, dict):
            return document
    except ValueError as error:
        raise ServerMisbehaved(f"a line of the state image cannot be parsed: {error!r}") from error
    raise ServerMisbehaved("a line of the state image is no object")


def _failure(document: dict[str, Any]) -> Exception:
    try:
        return error_of(Problem.from_dict(document["problem"]))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServerMisbehaved(f"a state image has failed without a problem document: {error!r}") from error


def _row(document: dict[str, Any]) -> Row:
    try:
        return row_of(WireRow.from_dict(document))
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServerMisbehaved(f"a row of the state image cannot be parsed: {error!r}") from error
