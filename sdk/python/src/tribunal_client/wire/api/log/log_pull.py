from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.log_page import LogPage
from ...models.problem import Problem
from ...types import UNSET, Response, Unset


def _get_kwargs(
    *,
    store: str,
    after: str | Unset = UNSET,
    log: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
    heartbeat_ms: int | Unset = UNSET,
    last_event_id: str | Unset = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(last_event_id, Unset):
        headers["last-event-id"] = last_event_id

    params: dict[str, Any] = {}

    params["store"] = store

    params["after"] = after

    params["log"] = log

    params["limit"] = limit

    params["wait_ms"] = wait_ms

    params["heartbeat_ms"] = heartbeat_ms

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/log",
        "params": params,
    }

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> LogPage | Problem:
    if response.status_code == 200:
        response_200 = LogPage.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 406:
        response_406 = Problem.from_dict(response.json())

        return response_406

    if response.status_code == 410:
        response_410 = Problem.from_dict(response.json())

        return response_410

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[LogPage | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient,
    store: str,
    after: str | Unset = UNSET,
    log: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
    heartbeat_ms: int | Unset = UNSET,
    last_event_id: str | Unset = UNSET,
) -> Response[LogPage | Problem]:
    """LogPull: reads a store's committed log, dense in `lsn`.

     `Accept` chooses the form. `application/json` is one page, with long poll. `application/x-ndjson` is
    a stream of one
    `LogRecord` per line, and `text/event-stream` one of server-sent events whose id is the LSN, so that
    `Last-Event-ID`
    resumes it. In a stream, lines and events with a field `event` are `LogEvent`s: heartbeats, one of
    which comes first, and
    the end with its reason. A page of a stream that its client has not read counts towards the tenant's
    quota; if there is no
    room for the next one, the stream ends with the problem `quota_exceeded`.

    Args:
        store (str):
        after (str | Unset):
        log (str | Unset):
        limit (int | Unset):
        wait_ms (int | Unset):
        heartbeat_ms (int | Unset):
        last_event_id (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[LogPage | Problem]
    """

    kwargs = _get_kwargs(
        store=store,
        after=after,
        log=log,
        limit=limit,
        wait_ms=wait_ms,
        heartbeat_ms=heartbeat_ms,
        last_event_id=last_event_id,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient,
    store: str,
    after: str | Unset = UNSET,
    log: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
    heartbeat_ms: int | Unset = UNSET,
    last_event_id: str | Unset = UNSET,
) -> LogPage | Problem | None:
    """LogPull: reads a store's committed log, dense in `lsn`.

     `Accept` chooses the form. `application/json` is one page, with long poll. `application/x-ndjson` is
    a stream of one
    `LogRecord` per line, and `text/event-stream` one of server-sent events whose id is the LSN, so that
    `Last-Event-ID`
    resumes it. In a stream, lines and events with a field `event` are `LogEvent`s: heartbeats, one of
    which comes first, and
    the end with its reason. A page of a stream that its client has not read counts towards the tenant's
    quota; if there is no
    room for the next one, the stream ends with the problem `quota_exceeded`.

    Args:
        store (str):
        after (str | Unset):
        log (str | Unset):
        limit (int | Unset):
        wait_ms (int | Unset):
        heartbeat_ms (int | Unset):
        last_event_id (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        LogPage | Problem
    """

    return sync_detailed(
        client=client,
        store=store,
        after=after,
        log=log,
        limit=limit,
        wait_ms=wait_ms,
        heartbeat_ms=heartbeat_ms,
        last_event_id=last_event_id,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient,
    store: str,
    after: str | Unset = UNSET,
    log: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
    heartbeat_ms: int | Unset = UNSET,
    last_event_id: str | Unset = UNSET,
) -> Response[LogPage | Problem]:
    """LogPull: reads a store's committed log, dense in `lsn`.

     `Accept` chooses the form. `application/json` is one page, with long poll. `application/x-ndjson` is
    a stream of one
    `LogRecord` per line, and `text/event-stream` one of server-sent events whose id is the LSN, so that
    `Last-Event-ID`
    resumes it. In a stream, lines and events with a field `event` are `LogEvent`s: heartbeats, one of
    which comes first, and
    the end with its reason. A page of a stream that its client has not read counts towards the tenant's
    quota; if there is no
    room for the next one, the stream ends with the problem `quota_exceeded`.

    Args:
        store (str):
        after (str | Unset):
        log (str | Unset):
        limit (int | Unset):
        wait_ms (int | Unset):
        heartbeat_ms (int | Unset):
        last_event_id (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[LogPage | Problem]
    """

    kwargs = _get_kwargs(
        store=store,
        after=after,
        log=log,
        limit=limit,
        wait_ms=wait_ms,
        heartbeat_ms=heartbeat_ms,
        last_event_id=last_event_id,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient,
    store: str,
    after: str | Unset = UNSET,
    log: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
    heartbeat_ms: int | Unset = UNSET,
    last_event_id: str | Unset = UNSET,
) -> LogPage | Problem | None:
    """LogPull: reads a store's committed log, dense in `lsn`.

     `Accept` chooses the form. `application/json` is one page, with long poll. `application/x-ndjson` is
    a stream of one
    `LogRecord` per line, and `text/event-stream` one of server-sent events whose id is the LSN, so that
    `Last-Event-ID`
    resumes it. In a stream, lines and events with a field `event` are `LogEvent`s: heartbeats, one of
    which comes first, and
    the end with its reason. A page of a stream that its client has not read counts towards the tenant's
    quota; if there is no
    room for the next one, the stream ends with the problem `quota_exceeded`.

    Args:
        store (str):
        after (str | Unset):
        log (str | Unset):
        limit (int | Unset):
        wait_ms (int | Unset):
        heartbeat_ms (int | Unset):
        last_event_id (str | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        LogPage | Problem
    """

    return (
        await asyncio_detailed(
            client=client,
            store=store,
            after=after,
            log=log,
            limit=limit,
            wait_ms=wait_ms,
            heartbeat_ms=heartbeat_ms,
            last_event_id=last_event_id,
        )
    ).parsed
