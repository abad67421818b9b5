"""The blocking client: one method per request, and `run` for work that may be repeated."""

from __future__ import annotations

import inspect
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar
from weakref import WeakSet

import httpx

from . import commit_batch, read_batch
from .arguments import isolation_level, whole
from .begin import BeginOptions
from .coalescer import Bounds, Coalescer, Unanswered
from .deadline import DEADLINE, Connection, Deadline
from .endpoints import Endpoints
from .errors import FORKED, Misuse
from .exchange import NoReply, connection_options, foreign_type, http_options, no_reply
from .flow import TOGETHER_MAX, TOO_LATE, UNANSWERED, Close, Coalesce, Flow, Open, Pull, Send, Sleep, Together
from .ids import uuid7
from .log import RECONNECT_S, WAIT_S, Cursor, LogRecord
from .pool import Pool
from .reads import ReadOptions
from .response_stream import ResponseStream, may_be_silent
from .service import Ran, Result, Service
from .state import Head, Image
from .stops import Stop, Stopped
from .transaction import Draft, PreparedCommit, Row, RowPage

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType

    from .attempts import Attempt
    from .consumers import ConsumerInfo, Offset
    from .keys import Key
    from .log_stream import LogStream
    from .reads import KeyRange, KnownVersions, RangeReads, RangesToRead, RowReads, RowsToRead
    from .retry import RetryPolicy
    from .stores import StoreInfo
    from .transaction import Begun
    from .verdict import DryRun, Undecided, Verdict
    from .wire.models import StoreDeclaration
    from .wire.models.consistency import Consistency
    from .wire.models.isolation_level import IsolationLevel

T = TypeVar("T")


class Client:
    """A client of the service at `http://host:port` or `https://host:port`.

    It connects on first use, and may be shared between threads, but not between processes: after a fork, the child
    creates a client of its own.

    Arguments:
        url: address of the service; pass several endpoints of one service, such as the nodes of a cluster, as a list or
            separated by commas. One is in use at a time, initially the first. After a failure the client switches to
            the next one and stays there; it resends unanswered requests, commits with the same ids.
        api_key: API key or token, sent as a bearer token.
        ca_file: PEM file with the certificate authorities to trust over https, instead of those of this machine.
        client_name: name of this client, for rules that are fair between clients.
        timeout_s: timeout of one request, in addition to the time that the request itself may wait. Several endpoints
            share it, and so do the retries of a read.
        resolve_timeout_s: how long to query the outcome of a lost commit, or of all lost commits of a `batch`, before
            raising `OutcomeUnknown`.
        endpoint_timeout_s: how long an endpoint may take to answer a request, beyond the request's own wait, before the
            client tries an endpoint that it has not tried yet. The last one gets all the remaining time.
        endpoint_cool_down_s: how long an endpoint that failed is skipped, if there are others.
        retry: bounds of the retries of `run`, of reads and of log readers.
        read_own_writes: whether a transaction sees what this client committed before to the stores that it names.
        coalesce: whether concurrent commits, Begins and reads of rows are sent as batches; see `commit`.
        on_attempt: called at the end of each attempt of `run`; must not raise.
        connections_max: maximum number of open connections. A log reader and a state image have one each while they
            are open.

    """

    def __init__(
        self,
        url: str | Iterable[str],
        *,
        api_key: str | None = None,
        ca_file: str | Path | None = None,
        client_name: str | None = None,
        timeout_s: float = 30.0,
        resolve_timeout_s: float = 30.0,
        endpoint_timeout_s: float = 2.0,
        endpoint_cool_down_s: float = 10.0,
        retry: RetryPolicy | None = None,
        read_own_writes: bool = True,
        coalesce: bool = True,
        on_attempt: Callable[[Attempt], object] | None = None,
        connections_max: int = 100,
    ) -> None:
        endpoints = Endpoints(url, endpoint_timeout_s, endpoint_cool_down_s)
        one = connection_options(endpoints.urls, ca_file)
        pool = Pool(whole("connections_max", connections_max, at_least=1), lambda: Connection(**one))
        self._pool = pool
        self._http = httpx.Client(transport=pool, **http_options(endpoints.urls[0], api_key))
        self._process: int | None = None
        self._readers: WeakSet[LogReader | StateImage] = WeakSet()
        """Readers that may have an open stream, to be closed with the client."""
        self._readers_lock = threading.Lock()
        self._service = Service(
            endpoints,
            client_name=client_name,
            timeout_s=timeout_s,
            resolve_timeout_s=resolve_timeout_s,
            retry=retry,
            read_own_writes=read_own_writes,
            coalesce=coalesce,
            on_attempt=on_attempt,
        )
        kinds: dict[str, tuple[Bounds, Callable[[list[Any]], Flow[Sequence[Any]]]]] = {
            "commits": (commit_batch.BOUNDS, self._service.send_batch),
            "begins": (read_batch.BOUNDS, self._service.send_begins),
            "reads": (read_batch.BOUNDS, self._service.send_reads),
        }
        self._coalescers: dict[str, Coalescer[Any, Any]] = {
            kind: Coalescer(bounds, partial(self._send_items, send), _interrupted)
            for kind, (bounds, send) in kinds.items()
        }

    @property
    def endpoint(self) -> str:
        """The URL of the endpoint in use."""
        return self._service.endpoint

    def close(self) -> None:
        """Close the connections, log readers and state images. Iterations over a log end."""
        with self._readers_lock:
            readers = list(self._readers)
        # In this order no reader reconnects, and none finds the client closed while it waits.
        for reader in readers:
            reader._end_wait()
        self._http.close()
        for reader in readers:
            reader.close()
        # The connections that the readers returned to the pool.
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(
        self,
        stores: Iterable[str] | None = None,
        *,
        isolation: IsolationLevel = "serializable",
        session: str | None = None,
        consistency: Consistency = "session",
        wait_s: float | None = None,
        traceparent: str | None = None,
        read: RowsToRead | None = None,
        ranges: RangesToRead | None = None,
    ) -> Transaction:
        """Begin a transaction at the service, which chooses the snapshots.

        While other Begin requests are in flight, it may be queued and share a request; see `coalesce`.

        Arguments:
            stores: stores that it will use; all of the namespace if absent.
            isolation: isolation level.
            session: token of a commit that the snapshots must include, instead of this client's own latest one.
            consistency: with `fresh`, the snapshots include everything that any node of the cluster acknowledged to any
                client before the call.
            wait_s: how long to wait until the snapshots include that, seconds; 5 by default.
            traceparent: W3C trace context of the caller: sent with the commit, and kept in the log.
            read: keys of rows of embedded stores, by store, to read in the same request: `get` returns them without
                another request. Rows that are never fetched with `get` do not count as read.
            ranges: ranges of embedded stores, by store, to read in the same request: `scan` with the same bounds and
                limit returns the rows without another request. Ranges that are never scanned do not count as read.

        """
        options = BeginOptions(stores, isolation, session, wait_s, traceparent, read, ranges, consistency)
        return self._open(options, self._perform(self._service.begin(options)))

    def begin_local(self, isolation: IsolationLevel = "serializable") -> Transaction:
        """Begin a transaction without a request: with an id created here and without snapshots.

        Such a transaction is limited to `tracked` stores, to reads of single rows, and to levels other than `snapshot`
        if it reads.
        """
        return Transaction(self, uuid7(), isolation_level(isolation), None, None)

    def run(
        self,
        work: Callable[[Transaction], T],
        stores: Iterable[str] | None = None,
        *,
        isolation: IsolationLevel = "serializable",
        session: str | None = None,
        consistency: Consistency = "session",
        wait_s: float | None = None,
        traceparent: str | None = None,
        read: RowsToRead | None = None,
        ranges: RangesToRead | None = None,
        timeout_s: float | None = None,
    ) -> Ran[T]:
        """Run `work` in a transaction and commit it. The other arguments are those of `begin`.

        After a retryable abort the work runs again, on fresh reads, with growing waits, so it must have no effects
        except on its transaction. It also runs again if the service was unavailable for so long that it no longer
        decides the transaction. `row_exists` and `row_missing` are final if the work read nothing, or if a fresh read
        returned the same as before.

        With `timeout_s`, no attempt begins later than that many seconds after the call; the error of the last attempt
        is raised then. An attempt whose transaction has begun by then is not cut short.

        Raises:
            TransactionAborted: after a final abort, or after the last attempt.

        """
        options = BeginOptions(stores, isolation, session, wait_s, traceparent, read, ranges, consistency)
        return self._perform(self._service.run(work, options, partial(self._open, options), timeout_s))

    def commit(self, prepared: PreparedCommit) -> Verdict:
        """Request the verdict of a prepared commit. May be repeated: the same id gets the same verdict.

        While other commit requests are in flight, it may be queued and sent in a batch; see `coalesce`.
        """
        return self._perform(self._service.commit(prepared))

    def batch(self, commits: Iterable[PreparedCommit]) -> list[Result]:
        """Submit many commits in one request.

        The results have the order of the commits; an error of one commit takes its place. A `traceparent` is sent if
        all commits have the same one.
        """
        return self._perform(self._service.batch(commits))

    def status(self, txn_id: str, *, fence: bool = False, wait_s: float = 0) -> Verdict | Undecided:
        """Return the state of a transaction, after waiting at most `wait_s` for its verdict.

        With `fence`, a transaction that has not arrived can no longer commit.
        """
        return self._perform(self._service.status(txn_id, fence=fence, wait_s=wait_s))

    def abort(self, txn_id: str) -> Verdict:
        """Abort a transaction unless it has its verdict already, and return the verdict.

        While a commit with this id is being decided, this raises `Unavailable`: `status` with `fence` waits for the
        verdict.
        """
        return self._perform(self._service.abort(txn_id))

    def validate(self, prepared: PreparedCommit) -> DryRun:
        """Return whether a commit would pass now if it were alone: `WouldCommit` or `WouldAbort`.

        If the id has a verdict, that is returned. Changes nothing.
        """
        return self._perform(self._service.validate(prepared))

    def row(self, store: str, key: Key, *, timeout_s: float | None = None) -> Row | None:
        """Read a row of an embedded store as it is now, outside any transaction.

        Retries while the service is unavailable, for at most `timeout_s`, by default the client's.
        """
        return self._perform(self._service.row(store, key, timeout_s))

    def rows(
        self, store: str, start: Key = "", end: Key = "", *, limit: int = 1000, timeout_s: float | None = None
    ) -> RowPage:
        """Read at most `limit` rows of `start..end` of an embedded store as they are now, outside any transaction.

        Retries while the service is unavailable, for at most `timeout_s`, by default the client's.
        """
        return self._perform(self._service.rows(store, start, end, limit, timeout_s=timeout_s))

    def read_rows(
        self,
        store: str,
        keys: Iterable[Key],
        *,
        known: KnownVersions | None = None,
        session: str | None = None,
        consistency: Consistency = "session",
        wait_s: float | None = None,
        timeout_s: float | None = None,
    ) -> RowReads:
        """Read rows of an embedded store outside any transaction: at most 10,000, with at most 8 MiB of values.

        All rows are read at the same epoch, and include every commit that its node acknowledged before the call. While
        other read requests are in flight, the read may be queued and share a request; see `coalesce`.

        Arguments:
            store: the store.
            keys: keys of the rows.
            known: cached versions by key: the result of a row that still has its version is `Unchanged`.
            session: token of a commit that the rows must include.
            consistency: with `fresh`, the rows include everything that any node of the cluster acknowledged to any
                client before the call.
            wait_s: how long to wait until the rows include that, seconds; 5 by default.
            timeout_s: bound of the whole read, in addition to `wait_s`, seconds; by default the client's.

        """
        options = ReadOptions(session, consistency, wait_s, timeout_s)
        return self._perform(self._service.read_rows(store, keys, known or {}, options))

    def read_ranges(
        self,
        store: str,
        ranges: Iterable[KeyRange],
        *,
        session: str | None = None,
        consistency: Consistency = "session",
        wait_s: float | None = None,
        timeout_s: float | None = None,
    ) -> RangeReads:
        """Read ranges of an embedded store outside any transaction: at most 256, with at most 8 MiB of values.

        All are read at the same epoch, and include every commit that its node acknowledged before the call.

        Arguments:
            store: the store.
            ranges: the ranges.
            session: token of a commit that the rows must include.
            consistency: with `fresh`, the rows include everything that any node of the cluster acknowledged to any
                client before the call.
            wait_s: how long to wait until the rows include that, seconds; 5 by default.
            timeout_s: bound of the whole read, in addition to `wait_s`, seconds; by default the client's.

        """
        options = ReadOptions(session, consistency, wait_s, timeout_s)
        return self._perform(self._service.read_ranges(store, ranges, options))

    def log(
        self,
        store: str,
        after: int = 0,
        *,
        log: str | None = None,
        follow: bool = True,
        wait_s: float = WAIT_S,
        page_max: int | None = None,
        reconnect_s: float = RECONNECT_S,
    ) -> LogReader:
        """Return a reader of a store's log.

        Arguments:
            store: the store.
            after: offset, the position of the last processed record; 0 is before the first record.
            log: the log that `after` belongs to: `log_id` of the reader that returned it. Reading fails with code
                `log_replaced` if the service's log was salvaged or replaced since.
            follow: whether an iteration waits for further records, or stops at the end of the log.
            wait_s: how long `next` waits for a record, seconds. With 0, an iteration that follows the log waits 10 s.
            page_max: maximum number of records of one response, at most 10,000; none by default.
            reconnect_s: how long an iteration that follows the log tries to reach an endpoint, seconds, before it
                raises the last error.

        """
        options: dict[str, Any] = {"log": log, "follow": follow, "wait_s": wait_s, "page_max": page_max}
        reader = LogReader(self, store, after, **options, reconnect_s=reconnect_s)
        with self._readers_lock:
            self._readers.add(reader)
        return reader

    def state(self, store: str, *, timeout_s: float | None = None) -> StateImage:
        """Read the state of a store at a position of its log, to start or restart a copy.

        Continue with `log(store, after=image.lsn, log=image.log)`. The rows are read as they are iterated over.

        Arguments:
            store: the store.
            timeout_s: how long to try to begin, and how long the service may be silent, seconds; by default the
                client's.

        """
        image = StateImage(self, *self._perform(self._service.open_state(store, timeout_s)))
        with self._readers_lock:
            self._readers.add(image)
        return image

    def declare_store(self, store: str, declaration: StoreDeclaration | Mapping[str, Any]) -> StoreInfo:
        """Declare a store, or change one: `{"adaptor": "kv"}` is an embedded one, `{}` has a log only."""
        return self._perform(self._service.declare_store(store, declaration))

    def store(self, store: str) -> StoreInfo:
        """Return the state of a store."""
        return self._perform(self._service.store(store))

    def stores(self) -> list[StoreInfo]:
        """Return the state of all stores of the namespace."""
        return self._perform(self._service.stores())

    def consumers(self) -> list[ConsumerInfo]:
        """Return all consumers of the namespace's logs, with their offsets and lag."""
        return self._perform(self._service.consumers())

    def offset(self, consumer: str, store: str) -> Offset | None:
        """Return a consumer's offset in a store's log; `None` if it has none there."""
        return self._perform(self._service.offset(consumer, store))

    def set_offset(self, consumer: str, store: str, lsn: int, log: str | None = None) -> ConsumerInfo:
        """Set a consumer's offset: it has processed every record up to and including `lsn`. Durable on return.

        `log` is the log that `lsn` belongs to, if known: `LogReader.log_id`. `ClientMistake` if `lsn` is past the end
        of the log, or `log` is not the service's log (`log_replaced`). After `Unavailable` it is unknown whether the
        offset was set, because no other endpoint gets what one may still take: set it again.
        """
        return self._perform(self._service.set_offset(consumer, store, lsn, log))

    def forget_consumer(self, consumer: str) -> None:
        """Remove a consumer, so that the log is no longer retained for it.

        `ClientMistake` with code `unknown_consumer` if there is none; with several endpoints, also if a first reply was
        lost.
        """
        self._perform(self._service.forget_consumer(consumer))

    def _open(self, options: BeginOptions, begun: Begun) -> Transaction:
        return Transaction(self, begun.response.txn_id, options.isolation, begun, options.traceparent)

    def _send_items(self, send: Callable[[list[Any]], Flow[Sequence[Any]]], items: list[Any]) -> Sequence[Any]:
        return self._perform(send(items))

    def _opened(
        self, request: dict[str, Any], timeout: httpx.Timeout, deadline: Deadline, silence_s: float
    ) -> ResponseStream | httpx.Response | NoReply:
        """Open a stream."""
        try:
            sent = self._http.build_request(**request, timeout=timeout, extensions={DEADLINE: deadline})
            response = self._http.send(sent, stream=True)
            if response.is_success and foreign_type(response) is None:
                deadline.lift()
                may_be_silent(sent, silence_s)
                return ResponseStream(response, deadline)
            with closing(response):
                response.read()
        except httpx.TransportError as lost:
            return no_reply(lost)
        return response

    @property
    def _is_inherited(self) -> bool:
        """Whether another process used the client, and thus owns its connections and its locks."""
        process = os.getpid()
        if self._process is None:
            self._process = process
        return self._process != process

    def _closed(self, raised: RuntimeError) -> Misuse:
        """Convert the error that httpx raises before sending if another thread has just closed the client."""
        if not self._http.is_closed:
            raise raised
        return Misuse("the client is closed")

    def _perform(self, flow: Flow[T], stop: Stop | None = None) -> T:
        """Perform the steps of a flow and return its result, or raise `Stopped`."""
        # However the flow ends, even by a KeyboardInterrupt, it undoes its counts.
        with closing(flow):
            # Before the flow takes a lock that a thread of the parent may have held at the fork.
            if self._process not in (None, os.getpid()):
                raise Misuse(FORKED)
            return self._steps(flow, stop)

    def _steps(self, flow: Flow[T], stop: Stop | None) -> T:
        result: Any = None
        error: Exception | None = None
        while True:
            try:
                step = flow.send(result) if error is None else flow.throw(error)
            except StopIteration as end:
                value: T = end.value
                return value
            result, error = None, None
            match step:
                case Send() | Open() | Coalesce() | Pull() if self._is_inherited:
                    error = Misuse(FORKED)
                case Open() | Pull() | Sleep() if stop is not None and stop.is_set:
                    error = Stopped()
                case Send() | Open() if self._http.is_closed:
                    ended = stop is not None and stop.is_set
                    error = Stopped() if ended else Misuse("the client is closed")
                case Send(request, timeout_s, connection_s, until):
                    try:
                        timeout = httpx.Timeout(timeout_s, pool=connection_s)
                        bounds = {DEADLINE: Deadline(timeout_s, until)}
                        result = self._http.request(**request, timeout=timeout, extensions=bounds)
                    except httpx.TransportError as lost:
                        result = no_reply(lost)
                    except RuntimeError as raised:
                        error = self._closed(raised)
                case Coalesce(kind, item):
                    try:
                        result = self._coalescers[kind].submit(item)
                    except Unanswered:
                        result = NoReply(UNANSWERED, never_sent=False)
                    except TimeoutError:
                        result = NoReply(TOO_LATE, never_sent=True)
                case Open(request, timeout_s, connection_s, silence_s, until):
                    try:
                        timeout = httpx.Timeout(timeout_s, pool=connection_s)
                        opening = partial(self._opened, request, timeout, Deadline(timeout_s, until), silence_s)
                        result = opening() if stop is None else stop.outcome_of(opening)
                    except Stopped as stopped:
                        error = stopped
                    except RuntimeError as raised:
                        error = self._closed(raised)
                case Pull(stream, wait_s, until):
                    result = stream.pull(wait_s, until)
                    if stop is not None and stop.is_set:
                        error = Stopped()
                case Close(stream):
                    stream.close()
                case Sleep(seconds):
                    if stop is None:
                        time.sleep(seconds)
                    else:
                        stop.sleep(seconds)
                case Together(flows):
                    threads = ThreadPoolExecutor(TOGETHER_MAX)
                    try:
                        result = list(threads.map(self._perform, flows))
                    finally:
                        # An interrupted caller does not wait for the threads.
                        threads.shutdown(wait=False, cancel_futures=True)
                case _:
                    try:
                        if inspect.isgeneratorfunction(step.work):
                            raise Misuse("the work has a `yield`, so a call of it does nothing: return a value instead")  # noqa: TRY301
                        result = step.work(step.txn)
                        if inspect.iscoroutine(result):
                            result.close()
                            raise Misuse("the work is an `async def`, which has not run: use `AsyncClient`")  # noqa: TRY301
                    except Exception as raised:
                        error = raised


def _interrupted() -> NoReply:
    return NoReply("the thread that sent the request was interrupted", never_sent=False)


class Transaction(Draft):
    """An open transaction. Created by `Client.begin`, `Client.begin_local` and `Client.run`; not shared by threads."""

    def __init__(
        self,
        client: Client,
        txn_id: str,
        isolation: IsolationLevel,
        begun: Begun | None,
        traceparent: str | None,
    ) -> None:
        super().__init__(client._service, txn_id, isolation, begun, traceparent)
        self._client = client

    def get(self, store: str, key: Key) -> Row | None:
        """Read a row of an embedded store, own writes included. Later reads of the row return the same."""
        return self._client._perform(self._get(store, key))

    def get_many(self, store: str, keys: Iterable[Key]) -> list[Row | None]:
        """Read rows of an embedded store as `get` does, with one request for all rows that are not known yet.

        At most 10,000, with values of at most 8 MiB. The results have the order of the keys.
        """
        return self._client._perform(self._get_many(store, keys))

    def scan(self, store: str, start: Key = "", end: Key = "", *, limit: int = 1000) -> list[Row]:
        """Read at most `limit` rows of `start..end` of an embedded store, own writes included.

        Fewer rows than `limit` mean that the range has no more. Observes the part of the range that was read. An empty
        `end` is the end of the store.
        """
        return self._client._perform(self._scan(store, start, end, limit))

    def commit(self) -> Verdict:
        """Request the verdict. If the reply is lost, the verdict is queried by the transaction's id.

        From the call on, further writes and reads of further rows are a `Misuse`, unless the commit ends with an error
        that means that nothing was decided.
        """
        return self._client._perform(self._commit())

    def validate(self) -> DryRun:
        """Return whether it would commit now if it were alone, or its verdict if it has one. Changes nothing."""
        return self._client.validate(self.prepare())

    def abort(self) -> Verdict:
        """Abort the transaction at the service, and return its verdict. Not needed before dropping the transaction."""
        return self._ended(self._client.abort(self.id))


def _end_stream(client: Client, owner: Cursor | Image, lock: threading.RLock) -> None:
    """Close the stream of a reader or an image, even while another thread waits for it."""
    if not lock.acquire(blocking=False):
        stream = owner._stream
        if stream is not None:
            stream.response.interrupt()
        lock.acquire()
    try:
        client._perform(owner._close())
    finally:
        lock.release()


class LogReader(Cursor):
    """Reads a store's log in order, by `for` or by `next`, from a stream that it opens on demand.

    Between two calls the stream stays open, until `close` or a wait without a record ends it. Keep `offset` and
    `log_id` together with the results of your processing, and pass them as `after` and `log` to resume.
    """

    def __init__(
        self,
        client: Client,
        store: str,
        after: int,
        *,
        log: str | None,
        follow: bool,
        wait_s: float,
        page_max: int | None,
        reconnect_s: float,
    ) -> None:
        options: dict[str, Any] = {"log": log, "follow": follow, "wait_s": wait_s, "page_max": page_max}
        super().__init__(client._service, store, after, **options, reconnect_s=reconnect_s)
        self._client = client
        self._stop = Stop()
        """Set when the reader is closed, then replaced for the next use."""
        self._lock = threading.RLock()

    def next(self, wait_s: float | None = None) -> LogRecord | None:
        """Return the next record; `None` if none arrives within `wait_s`, by default that of `log`.

        Retries while the service is unavailable, for at most `wait_s` and the client's `timeout_s`. Returns `None` if
        the reader or the client is closed meanwhile. A wait shorter than the one that the stream was opened with covers
        only records that arrive within it: 0 returns only those that have already arrived.
        """
        return self._read(wait_s, self._stop, follows=False)

    def _read(self, wait_s: float | None, stop: Stop, *, follows: bool) -> LogRecord | None:
        if self._client._process not in (None, os.getpid()):
            raise Misuse(FORKED)
        with self._lock:
            try:
                return self._client._perform(self._next(wait_s, follows=follows), stop)
            except Stopped:
                self._client._perform(self._close())
                return None

    def _end_wait(self) -> None:
        """End the wait of another thread, before the client is closed."""
        self._stop.set()

    def close(self) -> None:
        """End the stream, if one is open, and the iteration or `next` of another thread.

        The reader can be used again.
        """
        if self._client._process not in (None, os.getpid()):
            return
        stop, self._stop = self._stop, Stop()
        stop.set()
        _end_stream(self._client, self, self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[LogRecord]:
        """Yield records until the reader or the client is closed, or with `follow=False` up to the end of the log.

        Closes the stream at its end.
        """
        if not self._follow:
            # Only a stream that was opened without a wait reports the end of the log.
            self.close()
        self._lost_at = None
        stop = self._stop
        try:
            while not stop.is_set:
                record = self._read(None if self._follow else 0, stop, follows=self._follow)
                if record is not None:
                    yield record
                elif not self._follow:
                    return
        finally:
            if not stop.is_set:
                self.close()


class StateImage(Image):
    """The rows of a store at a position of its log, to be iterated over once.

    An iteration that cannot read all of them raises an error. Close the image if you do not iterate to its end.
    """

    def __init__(self, client: Client, stream: LogStream, head: Head) -> None:
        super().__init__(stream, head)
        self._client = client
        self._lock = threading.RLock()

    def _end_wait(self) -> None:
        """Do nothing: `close` ends the stream."""

    def close(self) -> None:
        """End the stream. An iteration that has not reached its end raises an error."""
        if self._client._process not in (None, os.getpid()):
            return
        _end_stream(self._client, self, self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __iter__(self) -> Iterator[Row]:
        """Yield the rows, in no particular order. Closes the stream at its end."""
        try:
            while rows := self._next():
                yield from rows
        finally:
            self.close()

    def _next(self) -> list[Row]:
        with self._lock:
            return self._client._perform(self._rows())
