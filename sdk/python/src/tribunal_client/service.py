"""The requests of a client as flows, which the blocking and the asyncio client share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, Protocol, TypeVar

import attrs
import httpx

from . import state
from .arguments import (
    header,
    items_of,
    seconds,
    segment,
    store_name,
    store_segment,
    text,
    txn_segment,
    wait_ms,
    whole,
)
from .attempts import Attempt, Attempts
from .begin import BeginItem, BeginOptions, begin_item, responses, union_of
from .coalescer import Batchable
from .commit_batch import CommitItem, body_of, commit_item, lost, outcomes, part_size, single, split_reply
from .consumers import consumer_of, offset_of
from .errors import (
    FORGOTTEN,
    SESSION_UNKNOWN,
    ClientMistake,
    Misuse,
    OutcomeUnknown,
    ServerMisbehaved,
    TribunalError,
    Unavailable,
)
from .exchange import Answer, NoReply, Refusal, Reply, ask, lost_by, refusal_of, settled, verdict
from .failover import ATTEMPT_MAX_S, Failover, Failure, failure_of, in_doubt
from .flow import Coalesce, Flow, Open, Sleep, Together
from .ids import time_of
from .keys import Key, normal, normals
from .log_stream import HEARTBEAT_S, LogStream
from .read_batch import Alone, Shared, Union, bytes_of, parts
from .reads import (
    NO_OPTIONS,
    WAIT_DEFAULT_S,
    KeyRange,
    KnownVersions,
    RangeReads,
    ReadItem,
    ReadOptions,
    RowReads,
    asked,
    freshness_wait_s,
    range_asked,
    range_rows,
    ranges_only,
    states,
)
from .retry import RetryPolicy
from .session import Session
from .stores import parse_store, parse_stores
from .transaction import Begun, Draft, PreparedCommit, Row, RowPage
from .verdict import Aborted, Committed, DryRun, Undecided, Verdict, dry_run_of, given, number, verdict_of
from .wire.api.log import delete_consumer, get_state, list_consumers, log_pull, put_consumer
from .wire.api.stores import get_store, list_stores, put_store, read_rows
from .wire.api.transactions import batch_commit, begin, txn_abort, txn_commit, txn_status, txn_validate
from .wire.models import BatchCommitRequest, BatchTxn, CommitRequest, OffsetRequest, StoreDeclaration
from .wire.types import UNSET, Unset

if TYPE_CHECKING:
    from .consumers import ConsumerInfo, Offset
    from .endpoints import Endpoints
    from .stores import StoreInfo
    from .wire.models import BeginResponse, Problem, ReadResponse, TxnOutcome

_APPLY_WAIT_S = 30.0
"""How long the service waits for the stores of a commit that is acknowledged once they have applied it."""

T = TypeVar("T")
Read = TypeVar("Read", RowPage, RowReads, RangeReads)
Result = Verdict | ClientMistake | Unavailable | OutcomeUnknown | ServerMisbehaved
"""The result of one commit of a batch."""


class MaybeBatchable(Batchable, Protocol):
    """An item that may be too large to share a request."""

    @property
    def is_batchable(self) -> bool:
        """Whether the item may share a request."""


class Ran(NamedTuple, Generic[T]):
    """The result of `Client.run`: what the committed attempt of the work returned, and its verdict."""

    value: T
    committed: Committed


class Service:
    """Everything of a client except its connections and clocks."""

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        client_name: str | None,
        timeout_s: float,
        resolve_timeout_s: float,
        retry: RetryPolicy | None,
        read_own_writes: bool,
        coalesce: bool,
        on_attempt: Callable[[Attempt], object] | None,
    ) -> None:
        if not isinstance(retry, RetryPolicy | None):
            raise Misuse(f"`retry` must be a RetryPolicy, not {type(retry).__name__}")
        if on_attempt is not None and not callable(on_attempt):
            raise Misuse(f"`on_attempt` must be a function of the attempt, not {type(on_attempt).__name__}")
        self.retry = retry or RetryPolicy()
        self._endpoints = endpoints
        self._client_name = UNSET if client_name is None else header("`client_name`", client_name)
        self._timeout_s = seconds("timeout_s", timeout_s, above_0=True)
        self._resolve_timeout_s = seconds("resolve_timeout_s", resolve_timeout_s)
        self._session = Session() if read_own_writes else None
        self._coalesce = coalesce
        self._on_attempt = on_attempt or (lambda _: None)

    @property
    def endpoint(self) -> str:
        """The URL of the endpoint in use."""
        return self._endpoints.urls[self._endpoints.in_use]

    @property
    def endpoints_count(self) -> int:
        """The number of endpoints."""
        return len(self._endpoints.urls)

    def endpoint_failed(self, endpoint: int) -> None:
        """Record that an endpoint failed while it was answering."""
        self._endpoints.failed(endpoint)

    def begin(self, options: BeginOptions) -> Flow[Begun]:
        """Begin a transaction at the service, which chooses the snapshots."""
        return (yield from self._begin(begin_item(options)))

    def _begin(self, asked: BeginItem, until: float = math.inf) -> Flow[Begun]:
        wait_s = freshness_wait_s(UNSET, asked.body.consistency, asked.wait_s)
        if asked.wait_s is None and (self._session is not None or asked.body.session):
            wait_s = WAIT_DEFAULT_S
        due = replace(asked, deadline=min(time.monotonic() + wait_s + self._timeout_s, until))
        response = settled((yield from self._shared("begins", due, self.send_begins)))
        rows = states(response.rows or [], [key for _, key in asked.names])
        found = (row if isinstance(row, Row) else None for row in rows)
        ranges = range_rows(response.ranges, len(asked.ranges))
        names = ((store, keys.identity) for store, keys in asked.ranges)
        rows_found = dict(zip(asked.names, found, strict=True))
        return Begun(response, rows_found, dict(zip(names, ranges, strict=True)), asked.stores)

    def send_begins(self, items: Sequence[BeginItem]) -> Flow[Sequence[Shared[BeginResponse]]]:
        """Send Begins of one group as one request, which ends when its last caller gives up.

        The session is read now: it covers every commit that a caller made before its call.
        """
        [first, *_], union = items, union_of(items)
        until = max(item.deadline for item in items)
        try:
            while True:
                own = None
                if isinstance(first.body.session, Unset) and self._session is not None:
                    own = self._session.token(first.stores)
                body = attrs.evolve(first.body, session=own or first.body.session, read=union.rows or UNSET)
                wait_s = freshness_wait_s(body.session, body.consistency, first.wait_s)
                reply = yield from self._ask(begin._get_kwargs(body=body), begin._parse_response, wait_s, until)
                if own is None or self._session is None or not _is_session_unknown(reply):
                    return parts(reply, len(items), lambda begun: responses(begun, union))
                # The log that contained this client's commits was replaced.
                self._session.forget(own)
        except ServerMisbehaved as error:
            return [error] * len(items)

    def _shared(
        self,
        kind: Literal["begins", "reads"],
        item: MaybeBatchable,
        send: Callable[[list[Any]], Flow[Sequence[Shared[T]]]],
    ) -> Flow[Reply[T]]:
        """Send an item in a batch, or as a request of its own if necessary."""
        shared: Shared[T] = Alone()
        if self._coalesce and item.is_batchable:
            shared = yield Coalesce(kind, item)
        if isinstance(shared, Alone):
            [shared] = yield from send([item])
        if isinstance(shared, ServerMisbehaved):
            # Other callers get the same error.
            raise ServerMisbehaved(*shared.args)
        if isinstance(shared, Alone):
            raise ServerMisbehaved("no response")
        return shared

    def run(
        self,
        work: Callable[[Any], Any],
        options: BeginOptions,
        open_txn: Callable[[Begun], Draft],
        timeout_s: float | None = None,
    ) -> Flow[Ran[Any]]:
        """Run work until its transaction commits."""
        if not callable(work):
            raise Misuse(f"`run` takes the work, a function of the transaction, not {type(work).__name__}")
        if timeout_s is not None:
            seconds("timeout_s", timeout_s, above_0=True)
        attempts = Attempts(self.retry, self._on_attempt, timeout_s)
        # Converted once for all attempts: the stores or rows may come from a generator.
        asked = begin_item(options)
        first_attempt_ms: int | None = None
        while True:
            txn = open_txn((yield from attempts.available(lambda: self._begin(asked, attempts.until))))
            # Conflict rules that let the oldest work win need the time of the first attempt.
            txn.first_attempt_ms = first_attempt_ms
            if first_attempt_ms is None:
                first_attempt_ms = time_of(txn.id)
            value, prepared = yield from attempts.work(txn, work)
            # `Unavailable` means that nothing was decided. The id makes it safe to resend the same request.
            verdict = yield from attempts.decided(lambda: self.commit(prepared), txn.id)  # noqa: B023
            if verdict is None:
                continue
            decided = txn._ended(verdict)
            if isinstance(decided, Committed):
                attempts.committed(decided)
                return Ran(value, decided)
            yield from attempts.aborted(txn, decided)

    def commit(self, prepared: PreparedCommit) -> Flow[Verdict]:
        """Request the verdict of a prepared commit."""
        [prepared] = _prepared([prepared])
        item = commit_item(prepared)
        reply: Reply[TxnOutcome]
        if self._coalesce and item.is_batchable:
            reply = yield Coalesce("commits", item)
        else:
            reply = yield from self._send_commit(item)
        return (yield from self._decided(prepared.txn_id, reply))

    def _decided(self, txn_id: str, reply: Reply[TxnOutcome], deadline: float | None = None) -> Flow[Verdict]:
        """Return the verdict of a commit; if the reply does not contain it, it is queried by the id."""
        why = lost_by(reply)
        if why is not None:
            return self._recorded((yield from self._resolve(txn_id, why, deadline)))
        try:
            return self._recorded(verdict(reply))
        except ClientMistake as error:
            if error.code not in FORGOTTEN:
                raise
            raise OutcomeUnknown(txn_id, str(error)) from error
        except ServerMisbehaved as error:
            if not isinstance(reply, Answer):
                raise
            # The commit was accepted. A status request would get the same answer.
            raise OutcomeUnknown(txn_id, str(error)) from error

    def _send_commit(self, item: CommitItem, timeout_s: float | None = None) -> Flow[Reply[TxnOutcome]]:
        """Send a commit as a request of its own."""
        prepared = item.prepared
        request = txn_commit._get_kwargs(
            prepared.txn_id,
            body=CommitRequest(),
            tribunal_client=self._client_name,
            traceparent=UNSET if prepared.traceparent is None else prepared.traceparent,
        )
        del request["json"]
        call = self._failover(_APPLY_WAIT_S if prepared.request.ack == "applied" else 0, timeout_s)
        try:
            reply = yield from self._ask_on(call, {**request, "content": item.body}, txn_commit._parse_response)
        except ServerMisbehaved as error:
            # The commit may have taken effect: it is resolved by its id.
            return NoReply(str(error), never_sent=False)
        return in_doubt(reply, maybe_taken=call.maybe_taken)

    def send_batch(self, items: Sequence[CommitItem]) -> Flow[list[Reply[TxnOutcome]]]:
        """Send commits as one batch. Return a reply to each, as if each had been a request of its own.

        A batch that is too large, for example for a proxy, is sent as two halves; a batch whose form is refused, as
        single commits.
        """
        if len(items) == 1:
            return [(yield from self._send_commit(items[0]))]
        sent = yield from self._send_lines(items)
        if not isinstance(sent, int):
            return sent
        replies: list[Reply[TxnOutcome]] = []
        for at in range(0, len(items), sent):
            part = items[at : at + sent]
            try:
                replies.extend((yield from self.send_batch(part)))
            except Misuse as closed:
                if not replies:
                    raise
                # Only this part was not sent.
                replies.extend([NoReply(str(closed), never_sent=True)] * len(part))
        return replies

    def _send_lines(self, items: Sequence[CommitItem]) -> Flow[list[Reply[TxnOutcome]] | int]:
        """Send commits as one batch; commits that an endpoint could not decide move to the next one.

        Return how many commits to send together if the batch is refused as such.
        """
        call = self._failover()
        replies: dict[int, Reply[TxnOutcome]] = {}
        maybe_taken = [False] * len(items)
        pending = list(range(len(items)))
        while pending:
            lines: list[Reply[TxnOutcome]]
            try:
                whole = yield from self._ask_on(call, self._batch_request([items[at] for at in pending]), outcomes)
                reply = in_doubt(whole, maybe_taken=call.maybe_taken)
                size = part_size(reply, len(items))
                # What an endpoint may have taken keeps that mark.
                if size is not None and len(pending) == len(items) and not any(maybe_taken):
                    return size
                lines = split_reply(reply, len(pending))
                is_whole = not isinstance(reply, Answer)
            except Misuse:
                if not replies:
                    raise
                # The client was closed meanwhile: only the replies of the previous endpoints exist.
                break
            except ServerMisbehaved as error:
                lines, is_whole = lost(str(error), len(pending)), True
            again: list[int] = []
            failed: Failure | None = None
            for at, line in zip(pending, lines, strict=True):
                maybe_taken[at] |= call.maybe_taken
                replies[at] = in_doubt(line, maybe_taken=maybe_taken[at])
                failure = None if is_whole or call.is_single else failure_of(line)
                if failure is not None:
                    maybe_taken[at] |= failure.maybe_taken
                    again.append(at)
                    failed = failure
            if failed is not None:
                call.is_over(failed)
            pending = again
        return [replies[at] for at in range(len(items))]

    def _batch_request(self, items: Sequence[CommitItem]) -> dict[str, Any]:
        headers: dict[str, Any] = {"Content-Type": "application/x-ndjson"}
        if not isinstance(self._client_name, type(UNSET)):
            headers["tribunal-client"] = self._client_name
        request = batch_commit._get_kwargs(body=BatchCommitRequest(txns=[]))
        del request["json"]
        return {**request, "headers": headers, "content": b"".join(item.line for item in items)}

    def batch(self, commits: Iterable[PreparedCommit]) -> Flow[list[Result]]:
        """Submit many commits in one request."""
        commits = _prepared(commits)
        if not commits:
            return []
        request = batch_commit._get_kwargs(body=BatchCommitRequest(txns=[_batch_txn(commit) for commit in commits]))
        if not isinstance(self._client_name, type(UNSET)):
            request["headers"]["tribunal-client"] = self._client_name
        traceparents = {commit.traceparent for commit in commits}
        if len(traceparents) == 1 and None not in traceparents:
            request["headers"]["traceparent"] = traceparents.pop()
        request["content"] = body_of(request.pop("json"))
        call = self._failover(_APPLY_WAIT_S if any(commit.request.ack == "applied" for commit in commits) else 0)
        reply: Reply[Any]
        try:
            whole = yield from self._ask_on(call, request, batch_commit._parse_response)
            reply = in_doubt(whole, maybe_taken=call.maybe_taken)
            if isinstance(reply, Answer) and len(reply.data.results) != len(commits):
                reply = NoReply(f"{len(reply.data.results)} results for {len(commits)} commits", never_sent=False)
        except ServerMisbehaved as error:
            # The commits may have taken effect: each is resolved by its id.
            reply = NoReply(str(error), never_sent=False)
        why = lost_by(reply)
        deadline = time.monotonic() + self._resolve_timeout_s
        if why is not None:
            resolving = [self._result(self._resolve(commit.txn_id, why, deadline)) for commit in commits]
            all_lost: list[Result] = yield Together(resolving)
            return all_lost
        answers = settled(reply).results
        resend_by = time.monotonic() + self._timeout_s
        headers = reply.headers if isinstance(reply, Answer) else {}
        results: dict[int, Result] = {}
        asking: dict[int, Flow[Result]] = {}
        for at, (commit, answer) in enumerate(zip(commits, answers, strict=True)):
            one = in_doubt(single(answer, headers), maybe_taken=call.maybe_taken)
            # A commit that the endpoint could not decide is sent to the others, if there are any, within one timeout
            # for all.
            failure = None if call.is_single else failure_of(one)
            flow = self._result(self._settled_line(commit, one, failure, resend_by, deadline))
            if failure is None and lost_by(one) is None:
                results[at] = yield from flow
            else:
                asking[at] = flow
        if asking:
            results.update(zip(asking, (yield Together(list(asking.values()))), strict=True))
        return [results[at] for at in range(len(commits))]

    def _result(self, verdict: Flow[Verdict]) -> Flow[Result]:
        """Return the result of one commit of a batch."""
        try:
            return self._recorded((yield from verdict))
        except (ClientMistake, Unavailable, OutcomeUnknown, ServerMisbehaved) as error:
            return error

    def _settled_line(
        self,
        commit: PreparedCommit,
        reply: Reply[TxnOutcome],
        failure: Failure | None,
        resend_by: float,
        deadline: float,
    ) -> Flow[Verdict]:
        """Return the verdict of a commit of a batch, until the deadline of the batch."""
        left_s = resend_by - time.monotonic()
        if failure is not None and left_s > 0:
            try:
                again = yield from self._send_commit(commit_item(commit), left_s)
                is_misuse = isinstance(again, NoReply) and again.never_sent and again.mistake is not None
                reply = in_doubt(reply if is_misuse else again, maybe_taken=failure.maybe_taken)
            except Misuse:
                # The client was closed meanwhile. The other commits of the batch have their results.
                pass
        return (yield from self._decided(commit.txn_id, reply, deadline))

    def status(self, txn_id: str, *, fence: bool, wait_s: float) -> Flow[Verdict | Undecided]:
        """Return the state of a transaction."""
        request = txn_status._get_kwargs(txn_segment(txn_id), wait_ms=wait_ms(wait_s), fence=fence)
        outcome = settled((yield from self._ask(request, txn_status._parse_response, wait_s)))
        match outcome.status:
            case "in_flight" | "unknown" | "unknown_expired" as status:
                return Undecided(txn_id, status)
            case _:
                return self._recorded(verdict_of(outcome, replayed=True))

    def abort(self, txn_id: str) -> Flow[Verdict]:
        """Abort a transaction unless it has its verdict already."""
        request = txn_abort._get_kwargs(txn_segment(txn_id))
        return self._recorded(verdict((yield from self._ask(request, txn_abort._parse_response))))

    def validate(self, prepared: PreparedCommit) -> Flow[DryRun]:
        """Return whether a commit would pass now if it were alone."""
        [prepared] = _prepared([prepared])
        request = txn_validate._get_kwargs(prepared.txn_id, body=prepared.request)
        return dry_run_of(settled((yield from self._ask(request, txn_validate._parse_response))))

    def row(self, store: str, key: Key, timeout_s: float | None = None) -> Flow[Row | None]:
        """Read a row of an embedded store."""
        [row] = (yield from self.read_rows(store, [key], {}, replace(NO_OPTIONS, timeout_s=timeout_s))).rows
        return row if isinstance(row, Row) else None

    def rows(
        self,
        store: str,
        start: Key,
        end: Key,
        limit: int,
        *,
        session: str | None = None,
        snapshot: int | None = None,
        timeout_s: float | None = None,
    ) -> Flow[RowPage]:
        """Read rows of a range of an embedded store, as many as the service returns at once.

        A transaction names its session and its snapshot of the store: the commit compares the range with later writes
        only, so rows older than the snapshot must not be returned.
        """
        options = replace(NO_OPTIONS, session=session, timeout_s=timeout_s)
        found = yield from self.read_ranges(store, [KeyRange(start, end, limit)], options, snapshot)
        [page] = found.ranges
        return RowPage(found.applied, page.rows, page.more)

    def read_rows(
        self, store: str, keys: Iterable[Key], known: KnownVersions, options: ReadOptions = NO_OPTIONS
    ) -> Flow[RowReads]:
        """Read rows of an embedded store as of one epoch."""
        names, versions = normals(keys), {normal(key): version for key, version in known.items()}
        rows = [asked(name, known=versions.get(name)) for name in names]
        path, until = store_segment(store), self._until(options)
        if not rows:
            options.request()
            return RowReads(0, [])

        def read(options: ReadOptions) -> Flow[RowReads]:
            item = ReadItem(path, rows, bytes_of(rows), options, until)
            found = settled((yield from self._shared("reads", item, self.send_reads)))
            return RowReads(number(found.applied), states(found.rows or [], names), given(found.session))

        return (yield from self._current(store, options, None, until, read))

    def send_reads(self, items: Sequence[ReadItem]) -> Flow[Sequence[Shared[ReadResponse]]]:
        """Send reads of one group as one request, which ends when its last caller gives up."""
        [first, *_], union = items, Union([item.rows for item in items])
        request = read_rows._get_kwargs(first.store, body=attrs.evolve(first.options.request(), read=union.rows))
        try:
            until = max(item.deadline for item in items)
            reply = yield from self._ask(request, read_rows._parse_response, first.options.own_wait_s, until)
            return parts(
                reply, len(items), lambda found: [attrs.evolve(found, rows=r) for r in union.apart(found.rows)]
            )
        except ServerMisbehaved as error:
            return [error] * len(items)

    def read_ranges(
        self, store: str, ranges: Iterable[KeyRange], options: ReadOptions, least: int | None = None
    ) -> Flow[RangeReads]:
        """Read ranges of an embedded store as of one epoch, which must be at least this one."""
        ranges = ranges_only(ranges)
        wanted, path, until = [range_asked(keys) for keys in ranges], store_segment(store), self._until(options)
        if not ranges:
            options.request()
            return RangeReads(0, [])

        def read(options: ReadOptions) -> Flow[RangeReads]:
            request = read_rows._get_kwargs(path, body=attrs.evolve(options.request(), ranges=wanted))
            found = settled((yield from self._ask(request, read_rows._parse_response, options.own_wait_s, until)))
            return RangeReads(number(found.applied), range_rows(found.ranges, len(ranges)), given(found.session))

        return (yield from self._current(store, options, least, until, read))

    def declare_store(self, store: str, declaration: StoreDeclaration | Mapping[str, Any]) -> Flow[StoreInfo]:
        """Declare a store, or change one."""
        if not isinstance(declaration, StoreDeclaration):
            expected = f'a declaration is a dict such as {{"adaptor": "kv"}}, not {declaration!r}'
            # `dict` would accept a list of two-character strings.
            if not isinstance(declaration, Mapping):
                raise Misuse(expected)
            try:
                declaration = StoreDeclaration.from_dict(declaration)
            except (AttributeError, TypeError, ValueError) as error:
                raise Misuse(f"{expected}: {error}") from error
        request = put_store._get_kwargs(store_segment(store), body=declaration)
        return settled((yield from self._ask(request, parse_store)))

    def store(self, store: str) -> Flow[StoreInfo]:
        """Return the state of a store."""
        request = get_store._get_kwargs(store_segment(store))
        return settled((yield from self._ask(request, parse_store, until=self._until(NO_OPTIONS))))

    def stores(self) -> Flow[list[StoreInfo]]:
        """Return the state of all stores of the namespace."""
        request = list_stores._get_kwargs()
        return settled((yield from self._ask(request, parse_stores, until=self._until(NO_OPTIONS))))

    def consumers(self) -> Flow[list[ConsumerInfo]]:
        """Return all consumers, with their offsets and lag."""
        request = list_consumers._get_kwargs()
        parse, until = list_consumers._parse_response, self._until(NO_OPTIONS)
        listed = settled((yield from self._ask(request, parse, until=until)))
        return [consumer_of(info) for info in listed.consumers]

    def offset(self, consumer: str, store: str) -> Flow[Offset | None]:
        """Return a consumer's offset in a store's log; `None` if it has none there."""
        consumer, store = text("the name of a consumer", consumer), store_name(store)
        return offset_of((yield from self.consumers()), consumer, store)

    def set_offset(self, consumer: str, store: str, lsn: int, log: str | None) -> Flow[ConsumerInfo]:
        """Set a consumer's offset."""
        known = UNSET if log is None else text("`log`", log)
        body = OffsetRequest(store=store_name(store), lsn=str(whole("lsn", lsn)), log=known)
        request = put_consumer._get_kwargs(segment("the name of a consumer", consumer), body=body)
        call = self._failover()
        call.if_not_taken = True
        reply = yield from self._ask_on(call, request, put_consumer._parse_response)
        if isinstance(reply, NoReply) and not reply.never_sent:
            reply = replace(reply, text=f"{reply.text}; the offset may have been set")
        return consumer_of(settled(reply))

    def forget_consumer(self, consumer: str) -> Flow[None]:
        """Remove a consumer."""
        call = self._failover()
        call.if_not_taken = True
        request = delete_consumer._get_kwargs(segment("the name of a consumer", consumer))
        settled((yield from self._ask_on(call, request, delete_consumer._parse_response)))

    @property
    def timeout_s(self) -> float:
        """The timeout of a request."""
        return self._timeout_s

    def open_log(
        self, store: str, after: int, log: str | None, limit: int | None, wait_s: float, until: float
    ) -> Flow[tuple[Any, int]]:
        """Open a stream of a log, until a deadline. Return it and the endpoint that sends it."""
        request = log_pull._get_kwargs(
            store=store,
            after=str(after),
            log=UNSET if log is None else log,
            limit=UNSET if limit is None else limit,
            wait_ms=_ms(wait_s),
            heartbeat_ms=_ms(HEARTBEAT_S),
        )
        request["headers"]["accept"] = "application/x-ndjson"
        silence_s = HEARTBEAT_S + min(self._timeout_s / self.endpoints_count, 1.5 * HEARTBEAT_S)
        return (yield from self._opened(request, silence_s, until))

    def open_state(self, store: str, timeout_s: float | None) -> Flow[tuple[LogStream, state.Head]]:
        """Open a stream of a store's state. Return it and its first line."""
        request = get_state._get_kwargs(store_segment(store))
        request["headers"] = {"accept": "application/x-ndjson"}
        until = self._until(replace(NO_OPTIONS, timeout_s=timeout_s))

        def opened() -> Flow[tuple[LogStream, state.Head]]:
            response, _ = yield from self._opened(request, timeout_s or self._timeout_s, until)
            return (yield from state.begun(response, until))

        return (yield from self._repeated(until, opened))

    def _pause(self, failed: int, error: Unavailable, until: float) -> Sleep:
        """Return the wait before a read is repeated, or raise the error if it is not."""
        wait = self.retry.wait_s(failed, error.retry_after_s)
        if wait is None or error.no_connection or time.monotonic() + wait >= until:
            raise error
        return Sleep(wait)

    def _repeated(self, until: float, ask: Callable[[], Flow[T]]) -> Flow[T]:
        """Repeat a request that changes nothing while the service is unavailable, until a deadline."""
        failed = 0
        while True:
            try:
                return (yield from ask())
            except Unavailable as error:
                failed += 1
                yield self._pause(failed, error, until)

    def _opened(self, request: dict[str, Any], silence_s: float, until: float) -> Flow[tuple[Any, int]]:
        """Open a stream. Return it and the endpoint that sends it."""
        call = self._failover(until=until)
        silence_s = min(silence_s, ATTEMPT_MAX_S)
        reply: Reply[Any] | None
        while (timeout_s := (yield from call.next())) is not None:
            opened = yield Open(call.addressed(request), timeout_s, call.left_s, silence_s, until)
            if isinstance(opened, NoReply):
                reply = opened
            else:
                reply = refusal_of(opened) if isinstance(opened, httpx.Response) else None
            if call.is_truncated(reply):
                continue
            if call.is_over(None) if reply is None else call.ends_with(reply):
                if reply is not None:
                    settled(reply)
                return opened, call.endpoint
        return settled(call.nowhere())

    def _until(self, options: ReadOptions) -> float:
        """Return the deadline of a read that begins now, on the monotonic clock."""
        timeout_s = self._timeout_s
        if options.timeout_s is not None:
            timeout_s = seconds("timeout_s", options.timeout_s, above_0=True)
        return time.monotonic() + options.own_wait_s + timeout_s

    def _current(
        self,
        store: str,
        options: ReadOptions,
        least: int | None,
        until: float,
        read: Callable[[ReadOptions], Flow[Read]],
    ) -> Flow[Read]:
        """Repeat a read while the service is unavailable, or has not applied the epoch that it must include.

        No repetition begins at `until` or later.

        By default, that epoch is the one of this client's latest commit to the store. A lagging node gets the commit's
        token and waits for it, unless the caller named one.
        """
        own: str | None = None
        failed = 0
        while True:
            try:
                found = yield from read(options if own is None else replace(options, session=own))
                wanted = self._own_epoch(store) if least is None else least
                if found.applied >= wanted:
                    return found
                if options.session is None and self._session is not None:
                    own = self._session.token([store])
                raise Unavailable(  # noqa: TRY301
                    f"{self.endpoint} has applied epoch {found.applied} of store {store}, not yet {wanted}"
                )
            except ClientMistake as error:
                if own is None or self._session is None or error.code != SESSION_UNKNOWN:
                    raise
                # The log that contained this client's commits was replaced.
                self._session.forget(own)
                own = None
            except Unavailable as error:
                failed += 1
                yield self._pause(failed, error, until)

    def _own_epoch(self, store: str) -> int:
        """Return the epoch of this client's latest commit to a store, if reads have to be compared with it; 0 if not.

        With several endpoints, the one that serves the read may not have applied it yet.
        """
        return 0 if self._session is None or len(self._endpoints.urls) == 1 else self._session.epoch(store)

    def _resolve(self, txn_id: str, lost: str, deadline: float | None = None) -> Flow[Verdict]:
        """Settle a transaction whose reply was lost: it has committed, or the fence makes sure that it never does."""
        if deadline is None:
            deadline = time.monotonic() + self._resolve_timeout_s
        failed = 0
        while time.monotonic() < deadline:
            try:
                found = yield from self.status(txn_id, fence=True, wait_s=1)
                if isinstance(found, Committed | Aborted):
                    return found
                lost = f"its status is {found.status}"
                if found.status == "unknown_expired":
                    break
            except Unavailable as error:
                lost = str(error)
            except TribunalError as error:
                # Another request would fail the same way, and the commit may have arrived.
                lost = str(error)
                break
            failed += 1
            yield Sleep(self.retry.step_s(failed))
        raise OutcomeUnknown(txn_id, lost)

    def _ask(
        self, request: dict[str, Any], parse: Callable[..., T | Problem], wait_s: float = 0, until: float = math.inf
    ) -> Flow[Reply[T]]:
        return self._ask_on(self._failover(wait_s, until=until), request, parse)

    def _ask_on(self, call: Failover, request: dict[str, Any], parse: Callable[..., T | Problem]) -> Flow[Reply[T]]:
        """Send a request to one endpoint after another, until one answers or no attempt is left."""
        if "json" in request:
            request = {**request, "content": body_of(request["json"])}
            del request["json"]
        while (timeout_s := (yield from call.next())) is not None:
            try:
                reply = yield from ask(call.addressed(request), parse, timeout_s, call.left_s, call.until)
            except Misuse:
                # The client was closed, possibly after an attempt that took effect.
                if call.maybe_taken:
                    break
                raise
            except ServerMisbehaved as error:
                # Something else is in the endpoint's place, such as the login page of a proxy.
                if call.is_over(Failure(str(error), maybe_taken=True)):
                    raise
                continue
            if call.ends_with(reply):
                return reply
        return call.exhausted()

    def _failover(self, wait_s: float = 0, timeout_s: float | None = None, until: float = math.inf) -> Failover:
        timeout_s = self._timeout_s if timeout_s is None else timeout_s
        return Failover(self._endpoints, self.retry, wait_s, timeout_s, until)

    def _recorded(self, decided: Verdict) -> Verdict:
        """Record a commit in the session."""
        if isinstance(decided, Committed) and self._session is not None:
            self._session.record(decided)
        return decided


def _prepared(commits: Iterable[PreparedCommit]) -> list[PreparedCommit]:
    prepared = items_of(commits, PreparedCommit, "pass what `prepare()` of a transaction returns")
    for commit in prepared:
        txn_segment(commit.txn_id)
        if commit.traceparent is not None:
            header("`traceparent`", commit.traceparent)
    return prepared


def _is_session_unknown(reply: Reply[Any]) -> bool:
    """Return whether a request was refused because of its session token."""
    return isinstance(reply, Refusal) and reply.problem is not None and reply.problem.code == SESSION_UNKNOWN


def _batch_txn(prepared: PreparedCommit) -> BatchTxn:
    try:
        return BatchTxn.from_dict({"txn_id": prepared.txn_id, **prepared.request.to_dict()})
    except TypeError as error:
        raise Misuse(f"the commit of transaction {prepared.txn_id} cannot be sent: {error}") from error


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
