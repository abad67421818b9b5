"""Reads a store's committed log, record by record, from an offset that the caller keeps."""

from __future__ import annotations

import json
import math
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from .arguments import page_limit, seconds, store_name, text, whole
from .checksum import checksum_of
from .errors import ServerMisbehaved, TribunalError, Unavailable, error_of
from .flow import Flow, Sleep
from .keys import Key, key_of, normal, readable
from .log_stream import LogStream
from .retry import RetryPolicy
from .verdict import given, number
from .wire.models import LogRecord as WireRecord
from .wire.models import Problem
from .wire.types import Unset

if TYPE_CHECKING:
    from .service import Service
    from .wire.models import LogWrite as WireWrite


RECONNECT_S = 300.0
"""Default time that an iteration tries to reach an endpoint."""

WAIT_S = 10.0
"""Default time that a reader waits for a record."""

_RECONNECTING = RetryPolicy(attempts_max=sys.maxsize, wait_min_s=0.02, wait_max_s=2.0)

_STREAM_WAIT_MAX_S = 60.0
"""Longest time that the service waits for a record."""


@dataclass(frozen=True, slots=True)
class LogWrite:
    """The write of one row."""

    op: str
    """`insert`, `update`, `put`, `delete` or `add`.

    A newer service may have others, which this client passes on.
    """
    key: Key
    value: Any
    """New value of the row; the delta of an `add`; `None` for a `delete`."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """The writes of one committed transaction in one store."""

    lsn: int
    """Position in the log; positions have no gaps."""
    epoch: int
    """Epoch that committed the transaction."""
    csn: int
    """Arrival stamp."""
    version: int
    """Version of every row that the transaction wrote."""
    txn_id: str
    store: str
    traceparent: str | None
    """W3C trace context of the commit request."""
    writes: tuple[LogWrite, ...]


class Cursor:
    """A position in a store's log, and the stream that continues after it."""

    def __init__(
        self,
        service: Service,
        store: str,
        after: int,
        *,
        log: str | None,
        follow: bool,
        wait_s: float,
        page_max: int | None,
        reconnect_s: float,
    ) -> None:
        self._service = service
        self._store = store_name(store)
        self._follow = follow
        self._wait_s = seconds("wait_s", wait_s)
        self._page_max = page_limit(page_max)
        self._reconnect_s = seconds("reconnect_s", reconnect_s)
        self._lost_at: float | None = None
        """Since when no line has arrived, because no endpoint has a stream."""
        self._reached = False
        """Whether the service has ever answered: until then, the address may be wrong."""
        self._stream: LogStream | None = None
        self._endpoint = 0
        # An offset stored as text is a likely mistake.
        self.offset = whole("after", after)
        """Position of the last record returned."""
        self.log_id = None if log is None else text("`log`", log)
        """The log that `offset` belongs to; `None` until the first response, unless it was set."""
        self.head = 0
        """Last position of the log, as of the last response: a few seconds old at most while records arrive."""
        self.epoch = 0
        """Epoch up to which every commit was returned; 0 if nothing is known.

        A copy that has applied all records returned has everything that a snapshot of this epoch includes. It advances
        with records, and with heartbeats, which a call receives while it waits.
        """

    def _next(self, wait_s: float | None, *, follows: bool = False) -> Flow[LogRecord | None]:
        """Return the next record. Unlike a single call, an iteration that follows the log outlives a restart."""
        wait_s = self._wait_s if wait_s is None else seconds("wait_s", wait_s)
        if follows and wait_s == 0:
            # Without a wait it would request the log continuously.
            wait_s = WAIT_S
        asked, opened, capped, failed = time.monotonic(), False, False, 0
        until = math.inf if follows else asked + wait_s + self._service.timeout_s
        while True:
            try:
                if self._stream is None:
                    left_s = max(0.0, wait_s - (time.monotonic() - asked))
                    opened, capped = True, left_s > _STREAM_WAIT_MAX_S
                    yield from self._open(min(left_s, _STREAM_WAIT_MAX_S), until)
                # The service enforces the wait that a stream was opened with; a shorter one is enforced here.
                shorter = not opened and self._stream is not None and wait_s < self._stream.wait_s
                step = yield from self._step(wait_s - (time.monotonic() - asked) if shorter else None, until)
            except Unavailable as error:
                # The next stream continues after the same record elsewhere: all endpoints have the same log. A quota is
                # this caller's, and no fault of its endpoint.
                if self._stream is not None and error.code != "quota_exceeded":
                    self._service.endpoint_failed(self._endpoint)
                yield from self._close()
                failed += 1
                self._reached |= error.problem is not None
                pause = (
                    self._pause_s(failed, error) if follows else self._service.retry.wait_s(failed, error.retry_after_s)
                )
                if pause is None or error.no_connection or time.monotonic() + pause >= until:
                    raise
                yield Sleep(pause)
                continue
            except TribunalError:
                yield from self._close()
                raise
            if isinstance(step, LogRecord):
                return step
            if step == "late":
                return None
            if step == "further":
                continue
            yield from self._close()
            # If the stream had ended before this call, there may be newer records.
            if step == "idle" and opened and not capped:
                return None

    def _pause_s(self, failed: int, error: Unavailable) -> float | None:
        """Draw the wait of an iteration before it connects again; `None` if it gives up."""
        now = time.monotonic()
        if self._lost_at is None:
            self._lost_at = now
        policy = _RECONNECTING if self._reached else self._service.retry
        pause = policy.wait_s(failed, error.retry_after_s)
        if pause is None:
            return None
        pause = min(pause, _RECONNECTING.wait_max_s)
        return None if now + pause - self._lost_at >= self._reconnect_s else pause

    def _close(self) -> Flow[None]:
        """End the stream, if there is one."""
        stream, self._stream = self._stream, None
        if stream is not None:
            yield from stream.close()

    def _open(self, wait_s: float, until: float) -> Flow[None]:
        stream, self._endpoint = yield from self._service.open_log(
            self._store, self.offset, self.log_id, self._page_max, wait_s, until
        )
        self._stream = LogStream(stream, wait_s)

    def _step(
        self, wait_s: float | None, until: float
    ) -> Flow[LogRecord | Literal["further", "late", "idle", "limit"]]:
        """Take a line: a record, another line, or the end of the stream; or none in time."""
        assert self._stream is not None  # noqa: S101
        line = yield from self._stream.line(wait_s, until)
        if line is None:
            return "late"
        self._lost_at, self._reached = None, True
        try:
            document = json.loads(line)
            if "event" in document:
                return self._follow_event(document)
            record = _record_of(_wire_record(document), line, self.offset + 1)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ServerMisbehaved(f"a line of the log cannot be parsed: {error!r}") from error
        self.offset = record.lsn
        self.head = max(self.head, record.lsn)
        # Further records of its own epoch may follow.
        self.epoch = max(self.epoch, record.epoch - 1)
        return record

    def _follow_event(self, event: dict[str, Any]) -> Literal["further", "idle", "limit"]:
        self.log_id = event.get("log", self.log_id)
        if "head_lsn" in event:
            self.head = number(event["head_lsn"])
        if "epoch" in event:
            self.epoch = max(self.epoch, number(event["epoch"]))
        if event["event"] != "end":
            return "further"
        if "problem" in event:
            if event["problem"]["code"] == "log_truncated" and self._service.endpoints_count > 1:
                # Another endpoint may have the records, so the next stream is requested from all of them.
                return "limit"
            raise error_of(Problem.from_dict(event["problem"]))
        reason = event.get("reason")
        if reason == "idle":
            return "idle"
        if reason == "limit":
            return "limit"
        raise Unavailable(f"the log stream has ended: {reason}")


def _wire_record(document: dict[str, Any]) -> WireRecord:
    """Read the wire form of a record, whatever the operations of its writes.

    The generated reader refuses an unknown `op`, because requests use the same type.
    """
    writes = document["writes"]
    record = WireRecord.from_dict({**document, "writes": [{**write, "op": "put"} for write in writes]})
    for write, given_write in zip(record.writes, writes, strict=True):
        write.op = given_write["op"]
    return record


def _record_of(record: WireRecord, line: str, due: int) -> LogRecord:
    """Convert a record, which must be the one that is due."""
    if (number(record.prev_lsn), number(record.lsn)) != (due - 1, due):
        raise ServerMisbehaved(f"log record {record.lsn} (after {record.prev_lsn}) where {due} was expected")
    writes = tuple(_write_of(write) for write in record.writes)
    if not isinstance(record.checksum, Unset):
        found = checksum_of(record, line, [normal(write.key) for write in writes])
        if found != record.checksum:
            raise ServerMisbehaved(f"log record {record.lsn} has checksum {found}, not {record.checksum}")
    return LogRecord(
        lsn=due,
        epoch=number(record.epoch),
        csn=number(record.csn),
        version=number(record.version),
        txn_id=record.txn_id,
        store=record.store,
        traceparent=given(record.traceparent),
        writes=writes,
    )


def _write_of(write: WireWrite) -> LogWrite:
    key = key_of(write.key, write.key_b64)
    if key is None:
        raise ServerMisbehaved("a log record has a row without a key")
    return LogWrite(write.op, readable(key), value_of(write.value, write.value_b64))


def value_of(value: Any | Unset, in_base64: str | Unset) -> Any:  # noqa: ANN401
    """Merge the two wire fields of a value. A binary value keeps the form in which it is stored."""
    return given(value) if isinstance(in_base64, Unset) else {"$b64": in_base64}
