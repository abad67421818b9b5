"""An open transaction: it collects reads and writes in memory until the commit.

To give up, drop it: it exists nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, SupportsIndex, TypeVar

from .arguments import ROWS_MAX, limit_of, store_name, whole
from .errors import ClientMistake, Misuse, Unavailable
from .flow import Flow
from .keys import Key, key_fields, normal, normals, readable
from .verdict import given, number
from .wire.models import CommitRequest, CommitRequestSnapshots, Range, Read, Write
from .wire.types import UNSET, Unset
from .writes import NOTHING, JsonValue, Known, Nothing, PendingWrite, copied, fresh, merge, total

if TYPE_CHECKING:
    from .reads import RangeRows
    from .service import Service
    from .verdict import Verdict
    from .wire.models import BeginResponse
    from .wire.models.isolation_level import IsolationLevel
    from .wire.models.write_op import WriteOp

T = TypeVar("T")

RowName = tuple[str, bytes]
RangeName = tuple[str, tuple[bytes, bytes, int]]
"""Store; start, end and limit."""

_BEING_COMMITTED = (
    "the commit of the transaction is under way, or its outcome is unknown: no verdict would cover this read or write, "
    "so await reads and writes before"
)


@dataclass(frozen=True, slots=True)
class Row:
    """A row as it was read."""

    key: Key
    value: Any
    """Any JSON."""
    version: int | None
    """`None` for a row that the transaction itself wrote and had not read."""


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows in key order."""

    applied: int
    """Snapshot that the rows reflect."""
    rows: list[Row]
    more: bool
    """Whether the range has more rows. There can be fewer than `limit` nevertheless, if their values are large."""


@dataclass(frozen=True, slots=True)
class PreparedCommit:
    """A commit that can be repeated, or sent in a batch: the same id and body get the same verdict."""

    txn_id: str
    """The transaction, and the idempotency key."""
    request: CommitRequest
    """The request's body."""
    traceparent: str | None = None
    """W3C trace context of the caller."""


@dataclass(frozen=True, slots=True)
class _Seen:
    version: int | None
    value: JsonValue | Nothing = NOTHING
    """Known only for rows that were read through this transaction."""
    in_range: bool = False
    """Whether a scan read the row: it has observed its range as well."""


@dataclass(frozen=True, slots=True)
class Begun:
    """The service's choices, and the rows and ranges that were read with the Begin."""

    response: BeginResponse
    rows: dict[RowName, Row | None]
    ranges: dict[RangeName, RangeRows]
    stores: Sequence[str] | None = None
    """The stores that the Begin named; `None` for all stores of the namespace."""


class Draft:
    """The part of a transaction without I/O of its own: reads are flows."""

    def __init__(
        self,
        service: Service,
        txn_id: str,
        isolation: IsolationLevel,
        begun: Begun | None,
        traceparent: str | None,
    ) -> None:
        self._service = service
        self.id = txn_id
        """The transaction's id, by which its status can be requested."""
        self.isolation = isolation
        self.priority: int | None = None
        """Weight for conflict rules that use it, 0 to 255."""
        self.ack: Literal["durable", "applied"] | None = None
        """When the commit returns: once it is durable, or once every store has applied it."""
        self.traceparent = traceparent
        """W3C trace context of the caller: sent with the commit, and kept in the log."""
        self.first_attempt_ms: int | None = None
        """When this work was first attempted, Unix milliseconds, for conflict rules that let the oldest work win."""
        self._epoch = UNSET if begun is None else begun.response.epoch
        self._snapshots: dict[str, str] = {} if begun is None else begun.response.snapshots.additional_properties
        self._lsns = None if begun is None else given(begun.response.lsn)
        self.log_id = None if begun is None else given(begun.response.log)
        """The log that the positions in `lsns` belong to; `None` if it is not known.

        If a copy has its rows from another log, the service's log was salvaged, restored or replaced: start the copy
        again from the store's state.
        """
        self._stores = None if begun is None else begun.stores
        self._session = None if begun is None else begun.response.session
        """Token of the commits that the snapshots include."""
        # First reads; later reads of a row return the same.
        self._reads: dict[RowName, _Seen] = {}
        # Prefetched rows, which do not count as read until `get` returns them.
        self._fetched: dict[RowName, _Seen] = {}
        self._ranges: dict[tuple[str, bytes, bytes], None] = {}
        self._writes: dict[RowName, PendingWrite] = {}
        # Prefetched ranges, which do not count as read until `scan` returns them.
        self._fetched_ranges: dict[RangeName, RangeRows] = {} if begun is None else begun.ranges
        for name, row in ({} if begun is None else begun.rows).items():
            self._fetched[name] = _seen_of(row)
        self._reading = 0
        """Reads whose response has not arrived."""
        self._committing = 0
        """Calls of `commit` that have not ended."""
        self._closed: str | None = None
        """Why further reads and writes are refused: no verdict would cover them."""
        self._in_doubt = False
        """Whether a commit may have been decided although there is no verdict. No later commit changes that."""

    @property
    def snapshots(self) -> dict[str, int]:
        """Snapshot of each store named at Begin."""
        return {store: number(text) for store, text in self._snapshots.items()}

    @property
    def lsns(self) -> dict[str, int]:
        """For each store named at Begin, a position of its log: every commit up to its snapshot is there or before.

        An engine that keeps the rows itself applies the log up to here before it reads them. Empty if the service is of
        an earlier release.
        """
        found = {} if self._lsns is None else self._lsns.additional_properties
        return {store: number(text) for store, text in found.items()}

    @property
    def read_only(self) -> bool:
        """Whether the transaction writes nothing."""
        return not self._writes

    @property
    def blind(self) -> bool:
        """Whether the transaction has read nothing."""
        return not self._reads and not self._ranges

    @property
    def versions_read(self) -> dict[RowName, int | None]:
        """Versions of the rows that the transaction has read; `None` for rows that were missing."""
        return {name: seen.version for name, seen in self._reads.items()}

    def _get(self, store: str, key: Key) -> Flow[Row | None]:
        self._must_be_named(store)
        name = (store, normal(key))
        own, seen = self._writes.get(name), self._reads.get(name)
        if own is not None and own.op != "add":
            return _row(name[1], None if seen is None else seen.version, own.value)
        if seen is None or (seen.version is not None and seen.value is NOTHING):
            self._must_be_open()
            found = self._fetched.pop(name, None)
            if found is None:
                found = _seen_of((yield from self._awaited(self._service.row(store, key))))
            self._must_be_open()
            # A concurrent read of the row may have finished first, and an observed version is kept: if the row has
            # changed since, the commit must detect it.
            known = self._reads.get(name)
            if known is not None and known.value is not NOTHING:
                seen = known
            else:
                seen = found if known is None else _Seen(known.version, found.value)
                self._reads[name] = seen
        value = seen.value if own is None else own.added_to(seen.value)
        return _row(name[1], seen.version, value)

    def _get_many(self, store: str, keys: Iterable[Key]) -> Flow[list[Row | None]]:
        self._must_be_named(store)
        names = [(store, key) for key in normals(keys)]
        missing = [name for name in dict.fromkeys(names) if not self._knows(name)]
        if missing:
            self._must_be_open()
            reads = yield from self._awaited(self._service.read_rows(store, [key for _, key in missing], {}))
            for name, found in zip(missing, reads.rows, strict=True):
                self._fetched[name] = _seen_of(found if isinstance(found, Row) else None)
        rows = []
        for _, key in names:
            rows.append((yield from self._get(store, key)))
        return rows

    def _knows(self, name: RowName) -> bool:
        """Return whether `get` needs no request."""
        own, seen = self._writes.get(name), self._reads.get(name)
        if own is not None and own.op != "add":
            return True
        return name in self._fetched or (seen is not None and (seen.version is None or seen.value is not NOTHING))

    def _scan(self, store: str, start: Key, end: Key, limit: int) -> Flow[list[Row]]:
        self._must_be_open()
        self._must_be_named(store)
        at, beyond, limit = normal(start), normal(end), limit_of(limit)
        first = at
        page: RangeRows | RowPage | None = self._fetched_ranges.pop((store, (first, beyond, limit)), None)
        found: dict[bytes, Row] = {}
        while True:
            if page is None:
                # Rows that this transaction has deleted do not count, so as many more are read.
                deleted = sum(write.op == "delete" for _, write in self._written_in(store, at, beyond))
                missing = limit - self._count(store, found, first, at) if found else limit
                count, snapshot = min(missing + deleted, ROWS_MAX), self.snapshots.get(store)
                session = None if snapshot is None else self._session
                rest = self._service.rows(store, at, end, count, session=session, snapshot=snapshot)
                page = yield from self._awaited(rest)
                self._must_be_open()
            found.update((normal(row.key), row) for row in page.rows)
            at = normal(page.rows[-1].key) + b"\0" if page.more and page.rows else beyond
            # A page ends before its limit if its values are large.
            if self._count(store, found, first, at) >= limit or at == beyond:
                break
            page = None
        rows = self._merged(store, found, first, at)
        if len(rows) > limit:
            rows = rows[:limit]
            at = normal(rows[-1].key) + b"\0"
        self.observe_range(store, first, at)
        for key, row in found.items():
            if not at or key < at:
                self._reads.setdefault((store, key), _Seen(row.version, row.value, in_range=True))
        return rows

    def _count(self, store: str, found: Mapping[bytes, Row], start: bytes, end: bytes) -> int:
        """Count the rows of a range, own writes included."""
        keys = set(found)
        for key, write in self._written_in(store, start, end):
            if write.op == "delete":
                keys.discard(key)
            else:
                keys.add(key)
        return len(keys)

    def _merged(self, store: str, found: Mapping[bytes, Row], start: bytes, end: bytes) -> list[Row]:
        """Return the rows of a range in order, own writes included."""
        rows = {key: replace(row, value=fresh(row.value)) for key, row in found.items()}
        for key, write in self._written_in(store, start, end):
            before = rows.pop(key, None)
            value = write.value
            if write.op == "add":
                value = write.added_to(NOTHING if before is None else before.value)
            row = _row(key, None if before is None else before.version, value)
            if row is not None:
                rows[key] = row
        return [rows[key] for key in sorted(rows)]

    def _written_in(self, store: str, start: bytes, end: bytes) -> Iterator[tuple[bytes, PendingWrite]]:
        """List the transaction's own writes in a range."""
        for (written, key), write in self._writes.items():
            if written == store and start <= key and (not end or key < end):
                yield key, write

    def observe(self, store: str, key: Key, version: SupportsIndex | None) -> None:
        """Record that the engine has read a row in its own storage: its version, or that it is absent (`None`).

        The first observation of a row counts.
        """
        # The service refuses 0, which engines use for an absent row.
        number = None if version is None else whole("version", version)
        if number == 0:
            raise Misuse("`version` must be at least 1, not 0: pass None for a row that is missing")
        self._must_be_open()
        self._must_be_named(store)
        self._reads.setdefault((store_name(store), normal(key)), _Seen(number))

    def observe_range(self, store: str, start: Key = "", end: Key = "") -> None:
        """Record that the engine has read the keys `start..end` in its own storage; empty bounds are the store's."""
        self._must_be_open()
        self._must_be_named(store)
        self._ranges[(store_name(store), normal(start), normal(end))] = None

    def insert(self, store: str, key: Key, value: object) -> None:
        """Create a row; the transaction aborts if it exists."""
        self._write(store, key, "insert", copied(value))

    def update(self, store: str, key: Key, value: object) -> None:
        """Replace a row's value; the transaction aborts if it is missing."""
        self._write(store, key, "update", copied(value))

    def put(self, store: str, key: Key, value: object) -> None:
        """Create or replace a row."""
        self._write(store, key, "put", copied(value))

    def delete(self, store: str, key: Key) -> None:
        """Remove a row; the transaction aborts if it is missing."""
        self._write(store, key, "delete", NOTHING)

    def add(self, store: str, key: Key, delta: SupportsIndex, *, or_: SupportsIndex | None = None) -> None:
        """Add to an integer row; adds do not conflict with each other.

        If the row is missing, it is created with the sum of `or_` and `delta`; without `or_` the transaction aborts.
        """
        self._write(store, key, "add", total(0, delta), None if or_ is None else total(0, or_))

    def prepare(self) -> PreparedCommit:
        """Create the commit request, for example for `Client.batch`. All reads must have finished."""
        # The commit would not name the read, so its result would be unprotected.
        if self._reading > 0:
            raise Misuse("a read of the transaction has not finished: await it before the commit")
        snapshots: CommitRequestSnapshots | Unset = UNSET
        if self._snapshots:
            snapshots = CommitRequestSnapshots()
            snapshots.additional_properties = dict(self._snapshots)
        request = CommitRequest(
            isolation=self.isolation,
            snapshots=snapshots,
            priority=UNSET if self.priority is None else self.priority,
            ack=UNSET if self.ack is None else self.ack,
            epoch=self._epoch,
            first_attempt_ms=UNSET if self.first_attempt_ms is None else str(self.first_attempt_ms),
            reads=[_read(*name, seen) for name, seen in self._reads.items() if self._must_be_sent(name, seen)],
            ranges=[_range(*seen) for seen in self._ranges],
            writes=[_written(store, key, write) for (store, key), write in self._writes.items()],
        )
        return PreparedCommit(self.id, request, self.traceparent)

    def _commit(self) -> Flow[Verdict]:
        """Request the verdict. Further reads and writes are refused, unless certainly nothing was decided."""
        prepared = self._final()
        self._committing += 1
        # A commit that ends in any way not listed below, such as by cancellation, stays in doubt.
        in_doubt = True
        try:
            verdict = self._ended((yield from self._service.commit(prepared)))
            in_doubt = False
        except (Unavailable, ClientMistake, Misuse) as error:
            # This code means that another commit with the same id has arrived.
            in_doubt = isinstance(error, ClientMistake) and error.code == "body_mismatch"
            raise
        finally:
            self._committing -= 1
            self._in_doubt |= in_doubt
            if self._committing == 0 and not self._in_doubt and self._closed is _BEING_COMMITTED:
                self._closed = None
        return verdict

    def _final(self) -> PreparedCommit:
        """Create the last commit request: further reads and writes are refused."""
        prepared = self.prepare()
        self._closed = self._closed or _BEING_COMMITTED
        return prepared

    def _ended(self, verdict: Verdict) -> Verdict:
        """Record the verdict, which covers nothing that the transaction does from now on."""
        self._closed = f"the transaction has {verdict.status} already: begin another one for this read or write"
        return verdict

    def _must_be_open(self) -> None:
        if self._closed is not None:
            raise Misuse(self._closed)

    def _must_be_named(self, store: str) -> None:
        """Refuse a store that Begin did not name: the commit would be refused for it."""
        if self._stores is not None and store_name(store) not in self._stores:
            named = ", ".join(f"`{name}`" for name in self._stores)
            raise Misuse(f"store_not_named: Begin did not name store `{store}`, only {named}: name all that are used")

    def _awaited(self, read: Flow[T]) -> Flow[T]:
        """Await a response, during which the transaction cannot be committed."""
        self._reading += 1
        try:
            return (yield from read)
        finally:
            self._reading -= 1

    def _must_be_sent(self, name: RowName, seen: _Seen) -> bool:
        """Return whether the commit has to name a row that was read.

        At `serializable`, a range is compared with all writes since the snapshot, those of the commit's own epoch
        included, so the rows of a scan would be checked twice. The other levels need them: `repeatable-read` compares
        no ranges, and at `snapshot`, an `add` to a row that was read is an update of it. A written row is always named:
        in a store of declared existence, the read is evidence that the row exists.
        """
        return name in self._writes or not seen.in_range or self.isolation != "serializable"

    def _write(self, store: str, key: Key, op: WriteOp, value: JsonValue | Nothing, or_: int | None = None) -> None:
        self._must_be_open()
        self._must_be_named(store)
        name = (store_name(store), normal(key))
        seen = self._reads.get(name)
        known: Known = "unread" if seen is None else "absent" if seen.version is None else "present"
        write = merge(self._writes.get(name), PendingWrite(op, value, or_), known)
        if write is None:
            del self._writes[name]
        else:
            self._writes[name] = write


def _seen_of(row: Row | None) -> _Seen:
    return _Seen(None) if row is None else _Seen(row.version, row.value)


def _row(key: bytes, version: int | None, value: JsonValue | Nothing) -> Row | None:
    # The caller may change its copy of the value; the transaction keeps its own for later reads and the commit.
    return None if isinstance(value, Nothing) else Row(readable(key), fresh(value), version)


def _read(store: str, key: bytes, seen: _Seen) -> Read:
    text, in_base64 = key_fields(key)
    version = UNSET if seen.version is None else str(seen.version)
    return Read(store=store, key=text, key_b64=in_base64, version=version)


def _range(store: str, start: bytes, end: bytes) -> Range:
    seen = Range(store=store)
    if start:
        seen.start, seen.start_b64 = key_fields(start)
    if end:
        seen.end, seen.end_b64 = key_fields(end)
    return seen


def _written(store: str, key: bytes, write: PendingWrite) -> Write:
    text, in_base64 = key_fields(key)
    value = UNSET if isinstance(write.value, Nothing) else write.value
    or_ = UNSET if write.or_ is None else write.or_
    return Write(op=write.op, store=store, key=text, key_b64=in_base64, value=value, or_=or_)
