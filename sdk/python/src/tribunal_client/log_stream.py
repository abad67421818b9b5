"""The NDJSON stream of a store's log.

Reads from the connection only when a line is requested, so a slow reader slows down the stream, and memory stays
bounded.
"""

from __future__ import annotations

import math
import time
from typing import Any

from .errors import ServerMisbehaved, Unavailable
from .exchange import NoReply
from .flow import Close, Flow, Pull

HEARTBEAT_S = 5.0
"""Heartbeat interval requested from the service, which may choose a shorter one."""

_LINE_BYTES_MAX = 32 * 1024 * 1024
"""Maximum length of a line. A record is at most as long as a request, 10 MiB, plus its frame."""


class LogStream:
    """A stream of a log. Nothing can be read after an error."""

    def __init__(self, stream: Any, wait_s: float, what: str = "log") -> None:  # noqa: ANN401
        self._what = what
        self.wait_s = wait_s
        """How long the service waits for a record before it ends the stream."""
        self._stream = stream
        self._buffer = bytearray()
        self._seen = 0
        """How many bytes have been searched for the end of a line."""

    @property
    def response(self) -> Any:  # noqa: ANN401
        """The response that is read."""
        return self._stream

    @property
    def has_line(self) -> bool:
        """Whether a whole line has arrived."""
        return self._buffer.find(b"\n", self._seen) >= 0

    def line(self, wait_s: float | None, until: float = math.inf) -> Flow[str | None]:
        """Return the next line; `None` if it does not arrive in time, after which the stream can be read on.

        If it has not arrived at `until`, the stream counts as interrupted.
        """
        deadline = None if wait_s is None else time.monotonic() + wait_s
        while (end := self._buffer.find(b"\n", self._seen)) < 0:
            self._seen = len(self._buffer)
            if self._seen > _LINE_BYTES_MAX:
                raise ServerMisbehaved(f"a line of the {self._what} has more than {_LINE_BYTES_MAX} bytes")
            left_s = None if deadline is None else max(0.0, deadline - time.monotonic())
            piece = yield Pull(self._stream, left_s, until)
            if piece is None:
                return None
            if isinstance(piece, NoReply) or not piece:
                why = f": {piece.text}" if isinstance(piece, NoReply) else ""
                raise Unavailable(f"the {self._what} stream was interrupted{why}")
            self._buffer += piece
        line = self._buffer[:end]
        del self._buffer[: end + 1]
        self._seen = 0
        try:
            return line.decode()
        except UnicodeDecodeError as error:
            raise ServerMisbehaved(f"a line of the {self._what} is not UTF-8: {error}") from error

    def close(self) -> Flow[None]:
        """End the stream."""
        yield Close(self._stream)
