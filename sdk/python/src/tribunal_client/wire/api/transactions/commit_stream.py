from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...types import UNSET, File, Response, Unset


def _get_kwargs(
    *,
    body: File,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(tribunal_client, Unset):
        headers["tribunal-client"] = tribunal_client

    if not isinstance(traceparent, Unset):
        headers["traceparent"] = traceparent

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/txns/stream",
    }

    _kwargs["content"] = body.payload
    headers["Content-Type"] = "application/octet-stream"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | str:
    if response.status_code == 200:
        response_200 = response.text
        return response_200

    if response.status_code == 401:
        response_401 = Problem.from_dict(response.json())

        return response_401

    if response.status_code == 403:
        response_403 = Problem.from_dict(response.json())

        return response_403

    if response.status_code == 415:
        response_415 = Problem.from_dict(response.json())

        return response_415

    if response.status_code == 429:
        response_429 = Problem.from_dict(response.json())

        return response_429

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | str]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient,
    body: File,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Response[Problem | str]:
    """Commits as a stream: the client sends one `BatchTxn` per line, for as long as it likes, and receives
    each outcome on the
    same connection as soon as it is decided; outcomes of lines that arrived together may come together.

     The response begins at once. It has one line for every request line that is not blank: a
    `TxnOutcome` with the
    `txn_id`, as in `batchCommit`. A line that is not a commit gets a `TxnOutcome` with `status:
    problem` whose problem names
    the line, counted from 1; the stream continues. Outcomes arrive in the order of the decisions, not
    of the requests: tell
    them apart by `txn_id`. Lines in flight together may be decided in any order; if a commit must
    follow another one, send it
    after the other's verdict. A verdict with `ack: applied` arrives once the commit is applied, and
    delays no other.

    The client must be able to read the response while it still sends the request. `java.net.http` and
    `fetch` in browsers
    cannot; use `batchCommit` there. Cleartext HTTP/2 is by prior knowledge only.

    The window: while 1024 commits, or 1 MiB of them, wait for their verdicts, the server reads no
    further line, and it reads
    none while the client does not read the outcomes. A commit may be as long as in a separate request,
    and then waits alone.

    A connection may have 3 commit streams at a time. A stream counts as one request and 1 MiB in the
    tenant's quota. A
    commit above 1 MiB counts as another request and 10 MiB until it is decided; if the quota has no
    room for it, the
    stream ends with the problem `quota_exceeded`.

    Lines with a field `event` are `CommitEvent`s: heartbeats while nothing else is written, and the end
    with its reason. The
    client ends the stream by ending the request. The server ends it when it stops, when the credential
    is revoked or
    expires, when a line is longer than a commit may be, or when the rest of a line does not arrive in
    time; commits accepted before get
    their outcomes first. A stream whose client does not read for as long as a connection may idle is
    closed. When the
    connection is lost, accepted commits are still decided: get the status of each by its id.

    Args:
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (File): The request of a commit stream as bytes: one `BatchTxn` a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | str]
    """

    kwargs = _get_kwargs(
        body=body,
        tribunal_client=tribunal_client,
        traceparent=traceparent,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient,
    body: File,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Problem | str | None:
    """Commits as a stream: the client sends one `BatchTxn` per line, for as long as it likes, and receives
    each outcome on the
    same connection as soon as it is decided; outcomes of lines that arrived together may come together.

     The response begins at once. It has one line for every request line that is not blank: a
    `TxnOutcome` with the
    `txn_id`, as in `batchCommit`. A line that is not a commit gets a `TxnOutcome` with `status:
    problem` whose problem names
    the line, counted from 1; the stream continues. Outcomes arrive in the order of the decisions, not
    of the requests: tell
    them apart by `txn_id`. Lines in flight together may be decided in any order; if a commit must
    follow another one, send it
    after the other's verdict. A verdict with `ack: applied` arrives once the commit is applied, and
    delays no other.

    The client must be able to read the response while it still sends the request. `java.net.http` and
    `fetch` in browsers
    cannot; use `batchCommit` there. Cleartext HTTP/2 is by prior knowledge only.

    The window: while 1024 commits, or 1 MiB of them, wait for their verdicts, the server reads no
    further line, and it reads
    none while the client does not read the outcomes. A commit may be as long as in a separate request,
    and then waits alone.

    A connection may have 3 commit streams at a time. A stream counts as one request and 1 MiB in the
    tenant's quota. A
    commit above 1 MiB counts as another request and 10 MiB until it is decided; if the quota has no
    room for it, the
    stream ends with the problem `quota_exceeded`.

    Lines with a field `event` are `CommitEvent`s: heartbeats while nothing else is written, and the end
    with its reason. The
    client ends the stream by ending the request. The server ends it when it stops, when the credential
    is revoked or
    expires, when a line is longer than a commit may be, or when the rest of a line does not arrive in
    time; commits accepted before get
    their outcomes first. A stream whose client does not read for as long as a connection may idle is
    closed. When the
    connection is lost, accepted commits are still decided: get the status of each by its id.

    Args:
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (File): The request of a commit stream as bytes: one `BatchTxn` a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | str
    """

    return sync_detailed(
        client=client,
        body=body,
        tribunal_client=tribunal_client,
        traceparent=traceparent,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient,
    body: File,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Response[Problem | str]:
    """Commits as a stream: the client sends one `BatchTxn` per line, for as long as it likes, and receives
    each outcome on the
    same connection as soon as it is decided; outcomes of lines that arrived together may come together.

     The response begins at once. It has one line for every request line that is not blank: a
    `TxnOutcome` with the
    `txn_id`, as in `batchCommit`. A line that is not a commit gets a `TxnOutcome` with `status:
    problem` whose problem names
    the line, counted from 1; the stream continues. Outcomes arrive in the order of the decisions, not
    of the requests: tell
    them apart by `txn_id`. Lines in flight together may be decided in any order; if a commit must
    follow another one, send it
    after the other's verdict. A verdict with `ack: applied` arrives once the commit is applied, and
    delays no other.

    The client must be able to read the response while it still sends the request. `java.net.http` and
    `fetch` in browsers
    cannot; use `batchCommit` there. Cleartext HTTP/2 is by prior knowledge only.

    The window: while 1024 commits, or 1 MiB of them, wait for their verdicts, the server reads no
    further line, and it reads
    none while the client does not read the outcomes. A commit may be as long as in a separate request,
    and then waits alone.

    A connection may have 3 commit streams at a time. A stream counts as one request and 1 MiB in the
    tenant's quota. A
    commit above 1 MiB counts as another request and 10 MiB until it is decided; if the quota has no
    room for it, the
    stream ends with the problem `quota_exceeded`.

    Lines with a field `event` are `CommitEvent`s: heartbeats while nothing else is written, and the end
    with its reason. The
    client ends the stream by ending the request. The server ends it when it stops, when the credential
    is revoked or
    expires, when a line is longer than a commit may be, or when the rest of a line does not arrive in
    time; commits accepted before get
    their outcomes first. A stream whose client does not read for as long as a connection may idle is
    closed. When the
    connection is lost, accepted commits are still decided: get the status of each by its id.

    Args:
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (File): The request of a commit stream as bytes: one `BatchTxn` a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | str]
    """

    kwargs = _get_kwargs(
        body=body,
        tribunal_client=tribunal_client,
        traceparent=traceparent,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient,
    body: File,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Problem | str | None:
    """Commits as a stream: the client sends one `BatchTxn` per line, for as long as it likes, and receives
    each outcome on the
    same connection as soon as it is decided; outcomes of lines that arrived together may come together.

     The response begins at once. It has one line for every request line that is not blank: a
    `TxnOutcome` with the
    `txn_id`, as in `batchCommit`. A line that is not a commit gets a `TxnOutcome` with `status:
    problem` whose problem names
    the line, counted from 1; the stream continues. Outcomes arrive in the order of the decisions, not
    of the requests: tell
    them apart by `txn_id`. Lines in flight together may be decided in any order; if a commit must
    follow another one, send it
    after the other's verdict. A verdict with `ack: applied` arrives once the commit is applied, and
    delays no other.

    The client must be able to read the response while it still sends the request. `java.net.http` and
    `fetch` in browsers
    cannot; use `batchCommit` there. Cleartext HTTP/2 is by prior knowledge only.

    The window: while 1024 commits, or 1 MiB of them, wait for their verdicts, the server reads no
    further line, and it reads
    none while the client does not read the outcomes. A commit may be as long as in a separate request,
    and then waits alone.

    A connection may have 3 commit streams at a time. A stream counts as one request and 1 MiB in the
    tenant's quota. A
    commit above 1 MiB counts as another request and 10 MiB until it is decided; if the quota has no
    room for it, the
    stream ends with the problem `quota_exceeded`.

    Lines with a field `event` are `CommitEvent`s: heartbeats while nothing else is written, and the end
    with its reason. The
    client ends the stream by ending the request. The server ends it when it stops, when the credential
    is revoked or
    expires, when a line is longer than a commit may be, or when the rest of a line does not arrive in
    time; commits accepted before get
    their outcomes first. A stream whose client does not read for as long as a connection may idle is
    closed. When the
    connection is lost, accepted commits are still decided: get the status of each by its id.

    Args:
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (File): The request of a commit stream as bytes: one `BatchTxn` a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | str
    """

    return (
        await asyncio_detailed(
            client=client,
            body=body,
            tribunal_client=tribunal_client,
            traceparent=traceparent,
        )
    ).parsed
