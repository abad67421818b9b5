from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.push_info import PushInfo
from ...models.push_request import PushRequest
from ...types import Response


def _get_kwargs(
    store: str,
    *,
    body: PushRequest,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "put",
        "url": "/v1/stores/{store}/push".format(
            store=quote(str(store), safe=""),
        ),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | PushInfo:
    if response.status_code == 200:
        response_200 = PushInfo.from_dict(response.json())

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


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | PushInfo]:
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
    body: PushRequest,
) -> Response[Problem | PushInfo]:
    """LogPush: registers a receiver of the store's log, or changes the one that is registered.

     Records are posted in order, as `PushBody`, at least once; a 2xx acknowledges them, and its header
    `tribunal-watermark` may name another LSN that the receiver holds. Each request carries `tribunal-
    signature:
    t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 with the secret over `SECONDS`, a full stop, and the
    body.

    Args:
        store (str):
        body (PushRequest): A receiver to register.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | PushInfo]
    """

    kwargs = _get_kwargs(
        store=store,
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    store: str,
    *,
    client: AuthenticatedClient,
    body: PushRequest,
) -> Problem | PushInfo | None:
    """LogPush: registers a receiver of the store's log, or changes the one that is registered.

     Records are posted in order, as `PushBody`, at least once; a 2xx acknowledges them, and its header
    `tribunal-watermark` may name another LSN that the receiver holds. Each request carries `tribunal-
    signature:
    t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 with the secret over `SECONDS`, a full stop, and the
    body.

    Args:
        store (str):
        body (PushRequest): A receiver to register.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | PushInfo
    """

    return sync_detailed(
        store=store,
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    store: str,
    *,
    client: AuthenticatedClient,
    body: PushRequest,
) -> Response[Problem | PushInfo]:
    """LogPush: registers a receiver of the store's log, or changes the one that is registered.

     Records are posted in order, as `PushBody`, at least once; a 2xx acknowledges them, and its header
    `tribunal-watermark` may name another LSN that the receiver holds. Each request carries `tribunal-
    signature:
    t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 with the secret over `SECONDS`, a full stop, and the
    body.

    Args:
        store (str):
        body (PushRequest): A receiver to register.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | PushInfo]
    """

    kwargs = _get_kwargs(
        store=store,
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    store: str,
    *,
    client: AuthenticatedClient,
    body: PushRequest,
) -> Problem | PushInfo | None:
    """LogPush: registers a receiver of the store's log, or changes the one that is registered.

     Records are posted in order, as `PushBody`, at least once; a 2xx acknowledges them, and its header
    `tribunal-watermark` may name another LSN that the receiver holds. Each request carries `tribunal-
    signature:
    t=SECONDS,v1=HEX`, where HEX is HMAC-SHA256 with the secret over `SECONDS`, a full stop, and the
    body.

    Args:
        store (str):
        body (PushRequest): A receiver to register.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | PushInfo
    """

    return (
        await asyncio_detailed(
            store=store,
            client=client,
            body=body,
        )
    ).parsed
