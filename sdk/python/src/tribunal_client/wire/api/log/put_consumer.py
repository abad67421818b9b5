from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.consumer_info import ConsumerInfo
from ...models.offset_request import OffsetRequest
from ...models.problem import Problem
from ...types import Response


def _get_kwargs(
    name: str,
    *,
    body: OffsetRequest,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "put",
        "url": "/v1/consumers/{name}".format(
            name=quote(str(name), safe=""),
        ),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> ConsumerInfo | Problem:
    if response.status_code == 200:
        response_200 = ConsumerInfo.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 410:
        response_410 = Problem.from_dict(response.json())

        return response_410

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[ConsumerInfo | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    name: str,
    *,
    client: AuthenticatedClient,
    body: OffsetRequest,
) -> Response[ConsumerInfo | Problem]:
    """Stores a consumer's offset in one store's log, durably. The first one creates the consumer.

     An offset may also be moved back. While a consumer lags, the log is truncated only for its size, not
    for its age.

    An offset is a position in one log. If the node's log is salvaged or replaced, stored offsets keep
    the id of the old one
    (`log` of the offset differs from `log` of the consumer): start over from the state of the store,
    and store a new offset.

    Args:
        name (str):
        body (OffsetRequest): A consumer's new offset in one store's log.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[ConsumerInfo | Problem]
    """

    kwargs = _get_kwargs(
        name=name,
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    name: str,
    *,
    client: AuthenticatedClient,
    body: OffsetRequest,
) -> ConsumerInfo | Problem | None:
    """Stores a consumer's offset in one store's log, durably. The first one creates the consumer.

     An offset may also be moved back. While a consumer lags, the log is truncated only for its size, not
    for its age.

    An offset is a position in one log. If the node's log is salvaged or replaced, stored offsets keep
    the id of the old one
    (`log` of the offset differs from `log` of the consumer): start over from the state of the store,
    and store a new offset.

    Args:
        name (str):
        body (OffsetRequest): A consumer's new offset in one store's log.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        ConsumerInfo | Problem
    """

    return sync_detailed(
        name=name,
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    name: str,
    *,
    client: AuthenticatedClient,
    body: OffsetRequest,
) -> Response[ConsumerInfo | Problem]:
    """Stores a consumer's offset in one store's log, durably. The first one creates the consumer.

     An offset may also be moved back. While a consumer lags, the log is truncated only for its size, not
    for its age.

    An offset is a position in one log. If the node's log is salvaged or replaced, stored offsets keep
    the id of the old one
    (`log` of the offset differs from `log` of the consumer): start over from the state of the store,
    and store a new offset.

    Args:
        name (str):
        body (OffsetRequest): A consumer's new offset in one store's log.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[ConsumerInfo | Problem]
    """

    kwargs = _get_kwargs(
        name=name,
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    name: str,
    *,
    client: AuthenticatedClient,
    body: OffsetRequest,
) -> ConsumerInfo | Problem | None:
    """Stores a consumer's offset in one store's log, durably. The first one creates the consumer.

     An offset may also be moved back. While a consumer lags, the log is truncated only for its size, not
    for its age.

    An offset is a position in one log. If the node's log is salvaged or replaced, stored offsets keep
    the id of the old one
    (`log` of the offset differs from `log` of the consumer): start over from the state of the store,
    and store a new offset.

    Args:
        name (str):
        body (OffsetRequest): A consumer's new offset in one store's log.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        ConsumerInfo | Problem
    """

    return (
        await asyncio_detailed(
            name=name,
            client=client,
            body=body,
        )
    ).parsed
