from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.row import Row
from ...types import Response


def _get_kwargs(
    store: str,
    key: str,
) -> dict[str, Any]:

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/stores/{store}/rows/{key}".format(
            store=quote(str(store), safe=""),
            key=quote(str(key), safe=""),
        ),
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | Row:
    if response.status_code == 200:
        response_200 = Row.from_dict(response.json())

        return response_200

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 414:
        response_414 = Problem.from_dict(response.json())

        return response_414

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | Row]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    store: str,
    key: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | Row]:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Row]
    """

    kwargs = _get_kwargs(
        store=store,
        key=key,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    store: str,
    key: str,
    *,
    client: AuthenticatedClient,
) -> Problem | Row | None:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Row
    """

    return sync_detailed(
        store=store,
        key=key,
        client=client,
    ).parsed


async def asyncio_detailed(
    store: str,
    key: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | Row]:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Row]
    """

    kwargs = _get_kwargs(
        store=store,
        key=key,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    store: str,
    key: str,
    *,
    client: AuthenticatedClient,
) -> Problem | Row | None:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | Row
    """

    return (
        await asyncio_detailed(
            store=store,
            key=key,
            client=client,
        )
    ).parsed
