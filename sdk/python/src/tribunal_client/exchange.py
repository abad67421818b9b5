"""One request and its response: what counts as a reply, what as lost, and what as final. Never repeats a request."""

from __future__ import annotations

import json
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeVar
from urllib.parse import urlsplit

import httpx

from . import wire
from .arguments import header
from .deadline import deadline_of
from .errors import Misuse, ServerMisbehaved, Unavailable, error_of
from .flow import Flow, Send
from .verdict import Verdict, verdict_of
from .wire.models import Problem

if TYPE_CHECKING:
    from .wire.models import TxnOutcome

T = TypeVar("T")

# The generated parsers take a client and do not use it.
_WIRE = wire.Client(base_url="")

_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "RECORD_LAYER_FAILURE", "UNKNOWN_PROTOCOL")
"""TLS errors for a plain-text answer, which depend on the version of OpenSSL."""

_NO_HTTP = "illegal request line"
"""Error text of httpx for a response whose first byte is not text, such as a TLS alert."""


@dataclass(frozen=True, slots=True)
class Answer(Generic[T]):
    """A response with a status of 2xx."""

    data: T
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Refusal:
    """A response with any other status. Without a problem it came from something in place of the service."""

    status: int
    problem: Problem | None
    endpoint: str = ""

    @property
    def text(self) -> str:
        """Return the status and its origin."""
        return f"{self.endpoint}: status {self.status}" if self.endpoint else f"status {self.status}"


@dataclass(frozen=True, slots=True)
class NoReply:
    """No response."""

    text: str
    never_sent: bool
    mistake: str | None = None
    """What is wrong with the address or the trust, if that is known: a retry cannot help."""
    problem: Problem | None = None
    """The problem of one of the endpoints, if several were tried."""
    no_connection: bool = False
    """All connections of the client were in use, which another endpoint would not change."""
    waited_s: float | None = None
    """How long the endpoint had to answer, if it did not answer in time."""


Reply = Answer[T] | Refusal | NoReply


def ask(
    request: dict[str, Any], parse: Callable[..., T | Problem], timeout_s: float, connection_s: float, until: float
) -> Flow[Reply[T]]:
    """Send a request, after waiting for a free connection if necessary, and read its response."""
    response = yield Send(request, timeout_s, connection_s, until)
    if isinstance(response, NoReply):
        return response
    if not response.is_success:
        return refusal_of(response)
    foreign = foreign_type(response)
    if foreign is not None:
        raise ServerMisbehaved(f"{_endpoint(response.url)}: {foreign}")
    try:
        data = parse(client=_WIRE, response=response)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ServerMisbehaved(f"{_endpoint(response.url)}: a response that does not fit the API: {error!r}") from error
    if isinstance(data, Problem):
        raise ServerMisbehaved(f"status {response.status_code} with a problem document")
    return Answer(data, response.headers)


def foreign_type(response: httpx.Response) -> str | None:
    """Return what is wrong with the content type of a response that did not come from the service."""
    given = response.headers.get("content-type")
    # Text may still be JSON; parsing decides.
    if given is None or given.lower().startswith(("application/", "text/plain")):
        return None
    return f"status {response.status_code} with content type `{given}`, which no answer of Tribunal has"


def refusal_of(response: httpx.Response) -> Refusal:
    """Read a response that is not a success."""
    return Refusal(response.status_code, _problem(response), _endpoint(response.url))


def _endpoint(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}"


def no_reply(error: httpx.TransportError) -> NoReply:
    """Classify a failure of the network."""
    text = f"{_endpoint(error.request.url)}: {str(error) or type(error).__name__}"
    never_sent = isinstance(error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout)
    deadline = deadline_of(error.request) if isinstance(error, httpx.TimeoutException) else None
    # Even with a mistake, a commit may have been sent: an intermediary may have answered.
    return NoReply(
        text,
        never_sent,
        mistake=_mistake(error, text),
        no_connection=isinstance(error, httpx.PoolTimeout),
        waited_s=None if deadline is None else deadline.elapsed_s,
    )


def _mistake(error: httpx.TransportError, text: str) -> str | None:
    """Return what is wrong with the address or the trust, if that is why there is no response."""
    # The loss of an established connection implies nothing about the address.
    cause: BaseException | None = error if isinstance(error, httpx.ConnectError) else None
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return f"the server's certificate is not trusted: {text}; name its authority in `ca_file`"
        if isinstance(cause, ssl.SSLError) and any(sign in str(cause) for sign in _NO_TLS):
            return f"{text}: does the service speak TLS there? Is its address http://?"
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, httpx.RemoteProtocolError) and str(error) == _NO_HTTP and error.request.url.scheme == "http":
        return f"{text}: does the service speak TLS there? Then use https://"
    return None


def lost_by(reply: Reply[T]) -> str | None:
    """Return why the outcome of a commit is not known; `None` if the reply contains it, or nothing was sent."""
    match reply:
        case NoReply(text, never_sent):
            return None if never_sent else text
        case Refusal(status, problem) as refusal:
            # 409: the same id is waiting for its verdict. The others do not reveal whether the commit was accepted. Nor
            # does an error of a server other than Tribunal, such as the 503 of a proxy whose connection broke.
            is_foreign = status >= 500 and problem is None
            return refusal.text if status in (409, 500, 502, 504) or is_foreign else None
        case _:
            return None


def settled(reply: Reply[T]) -> T:
    """Return the data of a reply, or raise the corresponding error."""
    match reply:
        case NoReply(_, _, str(mistake)):
            raise Misuse(mistake)
        case NoReply(text, _, _, problem, no_connection):
            raise Unavailable(f"tribunal cannot be reached: {text}", problem, no_connection=no_connection)
        case Refusal(_, Problem() as problem):
            raise error_of(problem)
        case Refusal(status) as refusal:
            if status >= 500:
                raise Unavailable(refusal.text)
            raise ServerMisbehaved(f"{refusal.text} without a problem document: is this the address of Tribunal?")
        case Answer(data, _):
            return data


def verdict(reply: Reply[TxnOutcome]) -> Verdict:
    """Read a verdict from a reply."""
    outcome = settled(reply)
    # An item of a batch has no header of its own.
    replayed = isinstance(reply, Answer) and reply.headers.get("idempotency-replayed") == "true"
    return verdict_of(outcome, replayed=replayed or outcome.replayed is True, traceparent=traceparent(reply))


def traceparent(reply: Reply[T]) -> str | None:
    """Return the trace context of the server's span."""
    return reply.headers.get("traceparent") if isinstance(reply, Answer) else None


def http_options(url: str, api_key: str | None) -> dict[str, Any]:
    """Return the options of `httpx.Client` and `httpx.AsyncClient`, except their transport."""
    # A key read from a file may end with a line break.
    stripped = api_key.strip() if isinstance(api_key, str) else api_key
    key = None if stripped is None else header("the API key", stripped)
    if key == "":
        raise Misuse("the API key is empty: pass None if the service requires none")
    return {
        "base_url": url,
        "headers": {} if key is None else {"authorization": f"Bearer {key}"},
        "trust_env": False,
    }


def connection_options(urls: Sequence[str], ca_file: str | Path | None) -> dict[str, Any]:
    """Return the options of the transport of one connection."""
    return {
        "limits": httpx.Limits(max_connections=1, max_keepalive_connections=1),
        "trust_env": False,
        "verify": _trust(ca_file) if any(urlsplit(url).scheme == "https" for url in urls) else False,
    }


def _trust(ca_file: str | Path | None) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=ca_file)
    except (OSError, ssl.SSLError) as error:
        raise Misuse(f"the CA file `{ca_file}` cannot be used: {error}") from error


def _problem(response: httpx.Response) -> Problem | None:
    """Read a problem document; `None` if an intermediary has sent something else."""
    try:
        return Problem.from_dict(json.loads(response.content))
    except (AttributeError, KeyError, TypeError, ValueError):
        return None
