"""Reads a store's committed log, record by record, from an offset that the caller keeps."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ServerMisbehaved
from .flow import Flow
from .keys import Key, key_of, readable
from .verdict import given, number
from .wire.types import Unset

if TYPE_CHECKING:
    from .service import Service
    from .wire.models import LogRecord as WireRecord
    from .wire.models import LogWrite as WireWrite
    from .wire.models.write_op import WriteOp


@dataclass(frozen=True, slots=True)
class LogWrite:
    """The write of one row."""

    op: WriteOp
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
    """A position in a store's log, and the records fetched from there."""

    def __init__(
        self,
        service: Service,
        store: str,
        after: int,
        *,
        log: str | None,
        follow: bool,
        wait_s: float,
        page_max: int,
    ) -> None:
        self._service = service
        self._store = store
        self._follow = follow
        self._wait_s = wait_s
        self._page_max = page_max
        self._page: deque[LogRecord] = deque()
        self.offset = after
        """Position of the last record returned."""
        self.log_id = log
        """The log that `offset` belongs to; `None` until the first response, unless it was set."""
        self.head = 0
        """Last position of the log, as of the last request."""

    def _next(self, wait_s: float | None) -> Flow[LogRecord | None]:
        if not self._page:
            wait_s = self._wait_s if wait_s is None else wait_s
            page = yield from self._service.log_page(self._store, self.offset, self._page_max, wait_s, log=self.log_id)
            self.log_id = page.log
            self.head = number(page.head_lsn)
            self._page = _dense(page.records, self.offset)
        if not self._page:
            return None
        record = self._page.popleft()
        self.offset = record.lsn
        return record


def _dense(records: list[WireRecord], after: int) -> deque[LogRecord]:
    """Convert the records of a page and check that they follow each other without a gap."""
    page: deque[LogRecord] = deque()
    for due, record in enumerate(records, after + 1):
        if (number(record.prev_lsn), number(record.lsn)) != (due - 1, due):
            raise ServerMisbehaved(f"log record {record.lsn} (after {record.prev_lsn}) where {due} was expected")
        page.append(
            LogRecord(
                lsn=due,
                epoch=number(record.epoch),
                csn=number(record.csn),
                version=number(record.version),
                txn_id=record.txn_id,
                store=record.store,
                traceparent=given(record.traceparent),
                writes=tuple(_write_of(write) for write in record.writes),
            )
        )
    return page


def _write_of(write: WireWrite) -> LogWrite:
    key = key_of(write.key, write.key_b64)
    if key is None:
        raise ServerMisbehaved("a log record has a row without a key")
    return LogWrite(write.op, readable(key), value_of(write.value, write.value_b64))


def value_of(value: Any | Unset, in_base64: str | Unset) -> Any:  # noqa: ANN401
    """Merge the two wire fields of a value. A binary value keeps the form in which it is stored."""
    return given(value) if isinstance(in_base64, Unset) else {"$b64": in_base64}
