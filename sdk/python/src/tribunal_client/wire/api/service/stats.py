from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.stats import Stats
from ...types import UNSET, Response, Unset


def _get_kwargs(
    *,
    interval_ms: int | Unset = UNSET,
) -> dict[str, Any]:

    params: dict[str, Any] = {}

    params["interval_ms"] = interval_ms

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/stats",
        "params": params,
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | Stats:
    if response.status_code == 200:
        response_200 = Stats.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 406:
        response_406 = Problem.from_dict(response.json())

        return response_406

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | Stats]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient,
    interval_ms: int | Unset = UNSET,
) -> Response[Problem | Stats]:
    """What the service is doing: rates, percentiles by phase, aborts by reason, lag of stores and
    consumers.

     With `Accept: text/event-stream`, again and again.

    Args:
        interval_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Stats]
    """

    kwargs = _get_kwargs(
        interval_ms=interval_ms,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient,
    interval_ms: int | Unset = UNSET,
) -> Problem | Stats | None:
    """What the service is doing: rates, percentiles by phase, aborts by reason, lag of stores and
    consumers.

     With `Accept: text/event-stream`, again and again.

    Args:
        interval_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Stats
    """

    return sync_detailed(
        client=client,
        interval_ms=interval_ms,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient,
    interval_ms: int | Unset = UNSET,
) -> Response[Problem | Stats]:
    """What the service is doing: rates, percentiles by phase, aborts by reason, lag of stores and
    consumers.

     With `Accept: text/event-stream`, again and again.

    Args:
        interval_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Stats]
    """

    kwargs = _get_kwargs(
        interval_ms=interval_ms,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient,
    interval_ms: int | Unset = UNSET,
) -> Problem | Stats | None:
    """What the service is doing: rates, percentiles by phase, aborts by reason, lag of stores and
    consumers.

     With `Accept: text/event-stream`, again and again.

    Args:
        interval_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Stats
    """

    return (
        await asyncio_detailed(
            client=client,
            interval_ms=interval_ms,
        )
    ).parsed
