from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.store_info import StoreInfo
from ...types import Response


def _get_kwargs(
    store: str,
) -> dict[str, Any]:

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/stores/{store}/push/resume".format(
            store=quote(str(store), safe=""),
        ),
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | StoreInfo:
    if response.status_code == 200:
        response_200 = StoreInfo.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())

        return response_413

    if response.status_code == 415:
        response_415 = Problem.from_dict(response.json())

        return response_415

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | StoreInfo]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    store: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | StoreInfo]:
    """Retries a push that stopped or waits, and likewise the delivery to the store's webhook. Changes
    nothing else: either may
    stop again for the same reason. The answer has the state of the push to the storage; `GET
    /v1/stores/{store}/push` has the
    webhook's.

     The request has no body, or an empty object.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | StoreInfo]
    """

    kwargs = _get_kwargs(
        store=store,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    store: str,
    *,
    client: AuthenticatedClient,
) -> Problem | StoreInfo | None:
    """Retries a push that stopped or waits, and likewise the delivery to the store's webhook. Changes
    nothing else: either may
    stop again for the same reason. The answer has the state of the push to the storage; `GET
    /v1/stores/{store}/push` has the
    webhook's.

     The request has no body, or an empty object.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | StoreInfo
    """

    return sync_detailed(
        store=store,
        client=client,
    ).parsed


async def asyncio_detailed(
    store: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | StoreInfo]:
    """Retries a push that stopped or waits, and likewise the delivery to the store's webhook. Changes
    nothing else: either may
    stop again for the same reason. The answer has the state of the push to the storage; `GET
    /v1/stores/{store}/push` has the
    webhook's.

     The request has no body, or an empty object.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | StoreInfo]
    """

    kwargs = _get_kwargs(
        store=store,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    store: str,
    *,
    client: AuthenticatedClient,
) -> Problem | StoreInfo | None:
    """Retries a push that stopped or waits, and likewise the delivery to the store's webhook. Changes
    nothing else: either may
    stop again for the same reason. The answer has the state of the push to the storage; `GET
    /v1/stores/{store}/push` has the
    webhook's.

     The request has no body, or an empty object.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | StoreInfo
    """

    return (
        await asyncio_detailed(
            store=store,
            client=client,
        )
    ).parsed
