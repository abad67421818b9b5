from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.attach_request import AttachRequest
from ...models.problem import Problem
from ...models.store_info import StoreInfo
from ...types import Response


def _get_kwargs(
    store: str,
    *,
    body: AttachRequest,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/stores/{store}/push/attach".format(
            store=quote(str(store), safe=""),
        ),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
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

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())

        return response_503

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
    body: AttachRequest,
) -> Response[Problem | StoreInfo]:
    """Resumes the push to a store that is detached, or whose push has stopped because the log no longer
    has the records that the
    store needs. The storage must respond, and contain enough for the log to continue from there, by its
    own watermark or because
    it was loaded from elsewhere. An embedded store that has stopped on one of several nodes is resumed
    instead.

    Args:
        store (str):
        body (AttachRequest): How to attach a detached store.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | StoreInfo]
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
    body: AttachRequest,
) -> Problem | StoreInfo | None:
    """Resumes the push to a store that is detached, or whose push has stopped because the log no longer
    has the records that the
    store needs. The storage must respond, and contain enough for the log to continue from there, by its
    own watermark or because
    it was loaded from elsewhere. An embedded store that has stopped on one of several nodes is resumed
    instead.

    Args:
        store (str):
        body (AttachRequest): How to attach a detached store.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | StoreInfo
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
    body: AttachRequest,
) -> Response[Problem | StoreInfo]:
    """Resumes the push to a store that is detached, or whose push has stopped because the log no longer
    has the records that the
    store needs. The storage must respond, and contain enough for the log to continue from there, by its
    own watermark or because
    it was loaded from elsewhere. An embedded store that has stopped on one of several nodes is resumed
    instead.

    Args:
        store (str):
        body (AttachRequest): How to attach a detached store.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | StoreInfo]
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
    body: AttachRequest,
) -> Problem | StoreInfo | None:
    """Resumes the push to a store that is detached, or whose push has stopped because the log no longer
    has the records that the
    store needs. The storage must respond, and contain enough for the log to continue from there, by its
    own watermark or because
    it was loaded from elsewhere. An embedded store that has stopped on one of several nodes is resumed
    instead.

    Args:
        store (str):
        body (AttachRequest): How to attach a detached store.

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
            body=body,
        )
    ).parsed
