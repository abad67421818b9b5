"""LogPull: a store's committed log, record by record, from a checkpoint of the reader's."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .errors import ServerMisbehaved, Unavailable
from .keys import Key, key_of, readable
from .verdict import given, number
from .wire.types import Unset

if TYPE_CHECKING:
    from collections.abc import Iterator

    from .client import Client
    from .wire.models import LogRecord as WireRecord
    from .wire.models import LogWrite as WireWrite
    from .wire.models.write_op import WriteOp


@dataclass(frozen=True, slots=True)
class LogWrite:
    """One row of a record."""

    op: WriteOp
    key: Key
    value: Any
    """The value; the delta of an `add`; `None` for a `delete`."""


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One committed transaction's rows in one store."""

    lsn: int
    """Dense position."""
    epoch: int
    """Epoch that committed it."""
    csn: int
    """Arrival stamp."""
    version: int
    """Version of every row in it."""
    txn_id: str
    store: str
    traceparent: str | None
    """W3C trace context of the commit request."""
    writes: tuple[LogWrite, ...]


class LogReader:
    """Reads a store's log in order, by `for` or by `next`.

    Keep `checkpoint` with what you made of the records, and pass it as `after` next time.
    """

    def __init__(self, client: Client, store: str, after: int, *, follow: bool, wait_s: float, page_max: int) -> None:
        self._client = client
        self._store = store
        self._follow = follow
        self._wait_s = wait_s
        self._page_max = page_max
        self._page: deque[LogRecord] = deque()
        self.checkpoint = after
        """Position of the last record returned."""
        self.head = 0
        """Last position of the log, as of the last question."""

    def next(self, wait_s: float | None = None) -> LogRecord | None:
        """Return the next record; `None` if there was none in time. Waits out a service that is unavailable."""
        if not self._page:
            self._fetch(self._wait_s if wait_s is None else wait_s)
        if not self._page:
            return None
        record = self._page.popleft()
        self.checkpoint = record.lsn
        return record

    def __iter__(self) -> Iterator[LogRecord]:
        """Yield records for ever, or with `follow=False` up to the end of the log."""
        while True:
            record = self.next(None if self._follow else 0)
            if record is not None:
                yield record
            elif not self._follow:
                return

    def _fetch(self, wait_s: float) -> None:
        failed = 0
        while True:
            try:
                page = self._client._log_page(self._store, self.checkpoint, self._page_max, wait_s)
                break
            except Unavailable as error:
                failed += 1
                pause = self._client.retry.wait_s(failed, error.retry_after_s)
                if pause is None:
                    raise
                time.sleep(pause)
        self.head = number(page.head_lsn)
        self._page = _dense(page.records, self.checkpoint)


def _dense(records: list[WireRecord], after: int) -> deque[LogRecord]:
    """Read records, which must follow each other without a gap."""
    page: deque[LogRecord] = deque()
    for due, record in enumerate(records, after + 1):
        if (number(record.prev_lsn), number(record.lsn)) != (due - 1, due):
            raise ServerMisbehaved(f"log record {record.lsn} (behind {record.prev_lsn}) where {due} was due")
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
    """Join the two wire fields of a value; a binary one keeps the form in which it is stored."""
    return given(value) if isinstance(in_base64, Unset) else {"$b64": in_base64}
