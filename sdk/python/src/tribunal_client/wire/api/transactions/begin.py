from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.begin_request import BeginRequest
from ...models.begin_response import BeginResponse
from ...models.problem import Problem
from ...types import Response


def _get_kwargs(
    *,
    body: BeginRequest,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/txns",
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> BeginResponse | Problem:
    if response.status_code == 201:
        response_201 = BeginResponse.from_dict(response.json())

        return response_201

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())

        return response_503

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[BeginResponse | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient,
    body: BeginRequest,
) -> Response[BeginResponse | Problem]:
    """Begin: returns an id and snapshots to read at. Optional: a client may generate the id (UUIDv7)
    itself.

     One response may serve several transactions that begin at the same time: each needs its own id,
    which the client
    generates with the time in `txn_id`.

    Args:
        body (BeginRequest): A request to begin a transaction.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BeginResponse | Problem]
    """

    kwargs = _get_kwargs(
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient,
    body: BeginRequest,
) -> BeginResponse | Problem | None:
    """Begin: returns an id and snapshots to read at. Optional: a client may generate the id (UUIDv7)
    itself.

     One response may serve several transactions that begin at the same time: each needs its own id,
    which the client
    generates with the time in `txn_id`.

    Args:
        body (BeginRequest): A request to begin a transaction.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BeginResponse | Problem
    """

    return sync_detailed(
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient,
    body: BeginRequest,
) -> Response[BeginResponse | Problem]:
    """Begin: returns an id and snapshots to read at. Optional: a client may generate the id (UUIDv7)
    itself.

     One response may serve several transactions that begin at the same time: each needs its own id,
    which the client
    generates with the time in `txn_id`.

    Args:
        body (BeginRequest): A request to begin a transaction.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BeginResponse | Problem]
    """

    kwargs = _get_kwargs(
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient,
    body: BeginRequest,
) -> BeginResponse | Problem | None:
    """Begin: returns an id and snapshots to read at. Optional: a client may generate the id (UUIDv7)
    itself.

     One response may serve several transactions that begin at the same time: each needs its own id,
    which the client
    generates with the time in `txn_id`.

    Args:
        body (BeginRequest): A request to begin a transaction.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BeginResponse | Problem
    """

    return (
        await asyncio_detailed(
            client=client,
            body=body,
        )
    ).parsed
