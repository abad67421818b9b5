"""The client: one method per question, and `run` for work that may be repeated."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from . import wire
from .errors import (
    ClientMistake,
    Misuse,
    OutcomeUnknown,
    ServerMisbehaved,
    TransactionAborted,
    TribunalError,
    Unavailable,
    error_of,
)
from .ids import uuid7
from .keys import Key, key_of, normal, percent_encoded, readable
from .log import LogReader, value_of
from .retry import RetryPolicy
from .transaction import PreparedCommit, Row, Transaction
from .verdict import Aborted, Committed, Undecided, Verdict, maybe_number, number, verdict_of
from .wire.api.log import log_pull
from .wire.api.stores import get_row, get_store, list_rows, list_stores, put_store
from .wire.api.transactions import batch_commit, begin, txn_abort, txn_commit, txn_status, txn_validate
from .wire.models import BatchCommitRequest, BatchTxn, BeginRequest, LogPage, Problem, StoreDeclaration, StoreInfo
from .wire.types import UNSET

if TYPE_CHECKING:
    from types import TracebackType

    from .wire.models import Row as WireRow
    from .wire.models import TxnOutcome
    from .wire.models.isolation_level import IsolationLevel

T = TypeVar("T")
R = TypeVar("R")

EXISTENCE = ("row_exists", "row_missing")
"""Reasons that work which reads nothing would meet again."""


class Ran(NamedTuple, Generic[T]):
    """What `Client.run` brought: the value of the work that committed, and its verdict."""

    value: T
    committed: Committed


@dataclass(frozen=True, slots=True)
class RowPage:
    """Rows in key order."""

    applied: int
    """Snapshot that they reflect."""
    rows: list[Row]
    more: bool
    """There are further rows in the range."""


@dataclass(frozen=True, slots=True)
class _Answer(Generic[T]):
    """An answer of 2xx."""

    data: T
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class _Refusal:
    """Any other answer."""

    status: int
    problem: Problem | None


@dataclass(frozen=True, slots=True)
class _NoAnswer:
    text: str
    never_sent: bool


class Client:
    """A client of one service at `http://host:port`. Connects when it is used; safe to share between threads.

    Arguments:
        url: where the service is.
        api_key: sent as a bearer token, if the server asks for one.
        client_name: name of this client, for rules that are fair between clients.
        timeout_s: bound of each wait for the network, beyond what a request itself asks to wait.
        resolve_timeout_s: how long a lost reply is asked for before it becomes `OutcomeUnknown`.
        retry: bounds of `run` and of log readers.
        connections_max: connections kept at the same time.

    """

    def __init__(
        self,
        url: str,
        *,
        api_key: str | None = None,
        client_name: str | None = None,
        timeout_s: float = 30.0,
        resolve_timeout_s: float = 30.0,
        retry: RetryPolicy | None = None,
        connections_max: int = 100,
    ) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise Misuse(f"`{url}` is not of the form http://host:port")
        self.retry = retry or RetryPolicy()
        self._client_name = UNSET if client_name is None else client_name
        self._timeout_s = timeout_s
        self._resolve_timeout_s = resolve_timeout_s
        self._wire = wire.Client(base_url=url)
        self._http = httpx.Client(
            base_url=url,
            headers={} if api_key is None else {"authorization": f"Bearer {api_key}"},
            limits=httpx.Limits(max_connections=connections_max, max_keepalive_connections=connections_max),
            trust_env=False,
        )

    def close(self) -> None:
        """Close the connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def begin(
        self,
        stores: Sequence[str] | None = None,
        *,
        isolation: IsolationLevel = "serializable",
        session: str | None = None,
        wait_s: float | None = None,
    ) -> Transaction:
        """Begin a transaction at the service, which gives the snapshots.

        Arguments:
            stores: stores that it will use; all of the namespace if absent.
            isolation: isolation level.
            session: token of an earlier commit whose writes must be visible.
            wait_s: how long to wait for that, seconds.

        """
        body = BeginRequest(
            isolation=isolation,
            session=UNSET if session is None else session,
            stores=UNSET if stores is None else list(stores),
            wait_ms=UNSET if wait_s is None else _ms(wait_s),
        )
        answer = self._ask(begin._get_kwargs(body=body), begin._parse_response, wait_s or 0)
        begun = _settled(answer)
        return Transaction(self, begun.txn_id, isolation, begun)

    def begin_local(self, isolation: IsolationLevel = "serializable") -> Transaction:
        """Begin a transaction without asking: under an id minted here and without snapshots.

        Such a transaction may use `tracked` stores only, no ranges, and read nothing at level `snapshot`.
        """
        return Transaction(self, uuid7(), isolation, None)

    def run(
        self,
        work: Callable[[Transaction], T],
        stores: Sequence[str] | None = None,
        *,
        isolation: IsolationLevel = "serializable",
        session: str | None = None,
        wait_s: float | None = None,
    ) -> Ran[T]:
        """Run `work` in a transaction and commit it; on a retryable abort again, on fresh reads, with growing waits.

        `work` may run several times, and must have no other effect than on its transaction. An existing or missing
        row is final for work that read nothing: it would write the same again.

        Raises:
            TransactionAborted: for a final abort, or the last attempt's.

        """
        failed = 0

        def pause(asked_s: float, error: TribunalError) -> None:
            nonlocal failed
            failed += 1
            wait = self.retry.wait_s(failed, asked_s)
            if wait is None:
                raise error
            time.sleep(wait)

        def patiently(ask: Callable[[], R]) -> R:
            while True:
                try:
                    return ask()
                except Unavailable as error:
                    pause(error.retry_after_s, error)

        while True:
            txn = patiently(lambda: self.begin(stores, isolation=isolation, session=session, wait_s=wait_s))
            value = work(txn)
            prepared = txn.prepare()
            # Nothing was decided while it is unavailable, so the same may be sent again: the id makes that safe.
            verdict = patiently(lambda: self.commit(prepared))  # noqa: B023
            if isinstance(verdict, Committed):
                return Ran(value, verdict)
            # A fence of ours means that the request was lost on its way: the work itself was not refused.
            again = verdict.reason == "fenced"
            if verdict.retryable:
                again = not (txn.blind and verdict.reason in EXISTENCE)
            if not again:
                raise TransactionAborted(verdict)
            pause(verdict.retry_after_s, TransactionAborted(verdict))

    def commit(self, prepared: PreparedCommit) -> Verdict:
        """Ask for the verdict of a prepared commit. May be repeated: the same id gets the same answer."""
        request = txn_commit._get_kwargs(prepared.txn_id, body=prepared.request, tribunal_client=self._client_name)
        answer = self._ask(request, txn_commit._parse_response)
        lost = _lost_by(answer)
        return _verdict(answer) if lost is None else self._resolve(prepared.txn_id, lost)

    def batch(self, commits: Sequence[PreparedCommit]) -> list[Verdict | ClientMistake | Unavailable | OutcomeUnknown]:
        """Ask for many verdicts in one request; answers in the same order, a problem of one commit in its place."""
        body = BatchCommitRequest(txns=[_batch_txn(prepared) for prepared in commits])
        answer = self._ask(batch_commit._get_kwargs(body=body), batch_commit._parse_response)
        lost = _lost_by(answer)
        if lost is not None:
            return [_in_place(lambda commit=commit: self._resolve(commit.txn_id, lost)) for commit in commits]  # type: ignore[misc]
        results = _settled(answer).results
        if len(results) != len(commits):
            raise ServerMisbehaved(f"{len(results)} results for {len(commits)} commits")
        return [_in_place(lambda result=result: verdict_of(result, replayed=False)) for result in results]  # type: ignore[misc]

    def status(self, txn_id: str, *, fence: bool = False, wait_s: float = 0) -> Verdict | Undecided:
        """Ask what became of a transaction, waiting at most `wait_s` for a verdict.

        With `fence`, one that never arrived never will.
        """
        request = txn_status._get_kwargs(txn_id, wait_ms=_ms(wait_s), fence=fence)
        outcome = _settled(self._ask(request, txn_status._parse_response, wait_s))
        if outcome.status in ("in_flight", "unknown", "unknown_expired"):
            return Undecided(txn_id, outcome.status)
        return verdict_of(outcome, replayed=True)

    def abort(self, txn_id: str) -> Verdict:
        """Record that a transaction will never commit, and return what stands."""
        return _verdict(self._ask(txn_abort._get_kwargs(txn_id), txn_abort._parse_response))

    def validate(self, prepared: PreparedCommit) -> TxnOutcome:
        """Ask whether a commit would pass now, alone: `would_commit` or `would_abort`. Changes nothing."""
        request = txn_validate._get_kwargs(prepared.txn_id, body=prepared.request)
        return _settled(self._ask(request, txn_validate._parse_response))

    def row(self, store: str, key: Key) -> Row | None:
        """Read a row of an embedded store, outside any transaction."""
        name = normal(key)
        if name in (b"", b".", b".."):
            # No path has such a last segment: dots are resolved before it is sent.
            found = self.rows(store, name, name + b"\0", limit=1).rows
            return found[0] if found else None
        request = get_row._get_kwargs(store, "") | {"url": f"/v1/stores/{_segment(store)}/rows/{percent_encoded(name)}"}
        answer = self._ask(request, get_row._parse_response)
        # Absence of the row is an answer; absence of the store is a mistake, and comes with a code of its own.
        if isinstance(answer, _Refusal) and answer.problem is not None and answer.problem.code == "row_missing":
            return None
        row = _settled(answer)
        return _row_of(row) if row.version else None

    def rows(self, store: str, start: Key = "", end: Key = "", *, limit: int = 1000) -> RowPage:
        """Read at most `limit` rows of `start..end` of an embedded store, outside any transaction."""
        request = list_rows._get_kwargs(store, limit=limit)
        # Keys are any bytes, which parameters as text are not.
        bounds = {"start": normal(start), "end": normal(end)}
        query = [f"limit={limit}", *(f"{name}={percent_encoded(key)}" for name, key in bounds.items() if key)]
        request = {**request, "url": f"{request['url']}?{'&'.join(query)}", "params": None}
        page = _settled(self._ask(request, list_rows._parse_response))
        return RowPage(number(page.applied), [_row_of(row) for row in page.rows], page.more)

    def log(
        self, store: str, after: int = 0, *, follow: bool = True, wait_s: float = 10.0, page_max: int = 1000
    ) -> LogReader:
        """Return a reader of a store's log behind the checkpoint `after`.

        Arguments:
            store: the store.
            after: position of the last record that was dealt with; 0 is before the first.
            follow: whether an iteration waits for records to come, or ends at the end of the log.
            wait_s: how long one question waits for a record, seconds.
            page_max: most records of one answer.

        """
        return LogReader(self, store, after, follow=follow, wait_s=wait_s, page_max=page_max)

    def declare_store(self, store: str, declaration: StoreDeclaration) -> StoreInfo:
        """Declare a store, or change one."""
        return _settled(self._ask(put_store._get_kwargs(store, body=declaration), put_store._parse_response))

    def store(self, store: str) -> StoreInfo:
        """Return where a store stands."""
        return _settled(self._ask(get_store._get_kwargs(store), get_store._parse_response))

    def stores(self) -> list[StoreInfo]:
        """Return all stores of the namespace."""
        return _settled(self._ask(list_stores._get_kwargs(), list_stores._parse_response)).stores

    def _log_page(self, store: str, after: int, limit: int, wait_s: float) -> LogPage:
        request = log_pull._get_kwargs(store=store, after=str(after), limit=limit, wait_ms=_ms(wait_s))
        return _settled(self._ask(request, log_pull._parse_response, wait_s))

    def _resolve(self, txn_id: str, lost: str) -> Verdict:
        """Settle a transaction whose reply was lost: it committed, or a fence makes sure that it never does."""
        deadline = time.monotonic() + self._resolve_timeout_s
        failed = 0
        while time.monotonic() < deadline:
            try:
                found = self.status(txn_id, fence=True, wait_s=1)
                if isinstance(found, Committed | Aborted):
                    return found
                lost = f"its status is {found.status}"
                if found.status == "unknown_expired":
                    break
            except Unavailable as error:
                lost = str(error)
            failed += 1
            time.sleep(self.retry.step_s(failed))
        raise OutcomeUnknown(txn_id, lost)

    def _ask(
        self, request: dict[str, Any], parse: Callable[..., T | Problem], wait_s: float = 0
    ) -> _Answer[T] | _Refusal | _NoAnswer:
        """Ask, within the time-out. Never repeats."""
        try:
            response = self._http.request(**request, timeout=self._timeout_s + wait_s)
        except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as error:
            return _NoAnswer(str(error) or type(error).__name__, never_sent=True)
        except httpx.TransportError as error:
            return _NoAnswer(str(error) or type(error).__name__, never_sent=False)
        if not response.is_success:
            return _Refusal(response.status_code, _problem(response))
        try:
            data = parse(client=self._wire, response=response)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ServerMisbehaved(f"an answer that does not fit the API: {error!r}") from error
        if isinstance(data, Problem):
            raise ServerMisbehaved(f"status {response.status_code} with a problem")
        return _Answer(data, response.headers)


def _lost_by(answer: _Answer[T] | _Refusal | _NoAnswer) -> str | None:
    """Tell why nobody knows what became of a commit; `None` if the answer says it."""
    match answer:
        case _NoAnswer(text, never_sent):
            return None if never_sent else text
        case _Refusal(status, _):
            # 409: the same id waits for its verdict. The others: taken in or not, nobody can tell.
            return f"status {status}" if status in (409, 500, 502, 504) else None
        case _:
            return None


def _settled(answer: _Answer[T] | _Refusal | _NoAnswer) -> T:
    match answer:
        case _NoAnswer(text, _):
            raise Unavailable(f"tribunal cannot be reached: {text}")
        case _Refusal(_, Problem() as problem):
            raise error_of(problem)
        case _Refusal(status, _):
            if status >= 500:
                raise Unavailable(f"status {status}")
            raise ServerMisbehaved(f"status {status} without a problem")
        case _Answer(data, _):
            return data


def _verdict(answer: _Answer[TxnOutcome] | _Refusal | _NoAnswer) -> Verdict:
    replayed = isinstance(answer, _Answer) and answer.headers.get("idempotency-replayed") == "true"
    return verdict_of(_settled(answer), replayed=replayed)


def _in_place(find: Callable[[], Verdict]) -> Verdict | ClientMistake | Unavailable | OutcomeUnknown:
    """Put the failure of one commit in its place."""
    try:
        return find()
    except (ClientMistake, Unavailable, OutcomeUnknown) as error:
        return error


def _problem(response: httpx.Response) -> Problem | None:
    """Read a problem document; `None` if somebody between us and the service answered something else."""
    try:
        return Problem.from_dict(json.loads(response.content))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def _row_of(row: WireRow) -> Row:
    key = key_of(row.key, row.key_b64)
    if key is None:
        raise ServerMisbehaved("a row without a key")
    return Row(readable(key), value_of(row.value, row.value_b64), maybe_number(row.version))


def _batch_txn(prepared: PreparedCommit) -> BatchTxn:
    return BatchTxn.from_dict({"txn_id": prepared.txn_id, **prepared.request.to_dict()})


def _segment(text: str) -> str:
    return percent_encoded(normal(text))


def _ms(seconds: float) -> int:
    return max(0, round(seconds * 1000))
