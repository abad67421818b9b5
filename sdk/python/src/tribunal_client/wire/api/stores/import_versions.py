from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.import_result import ImportResult
from ...models.problem import Problem
from ...types import File, Response


def _get_kwargs(
    store: str,
    *,
    body: File,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/stores/{store}/versions".format(
            store=quote(str(store), safe=""),
        ),
    }

    _kwargs["content"] = body.payload
    headers["Content-Type"] = "application/octet-stream"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> ImportResult | Problem:
    if response.status_code == 200:
        response_200 = ImportResult.from_dict(response.json())

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

    if response.status_code == 429:
        response_429 = Problem.from_dict(response.json())

        return response_429

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[ImportResult | Problem]:
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
    body: File,
) -> Response[ImportResult | Problem]:
    """Imports versions of existing rows, one `ImportLine` a line: all or none. Known rows are never
    overwritten, and a row
    may occur at most once in a request. The JSON pointer of an error begins with the number of the
    line, from 0. Embedded
    stores are refused, because they have no rows but those of their log, and so are stores with
    `existence` `declared`, whose
    engines tell which rows exist.

    Args:
        store (str):
        body (File): An import as bytes: one [`ImportLine`] a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[ImportResult | Problem]
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
    body: File,
) -> ImportResult | Problem | None:
    """Imports versions of existing rows, one `ImportLine` a line: all or none. Known rows are never
    overwritten, and a row
    may occur at most once in a request. The JSON pointer of an error begins with the number of the
    line, from 0. Embedded
    stores are refused, because they have no rows but those of their log, and so are stores with
    `existence` `declared`, whose
    engines tell which rows exist.

    Args:
        store (str):
        body (File): An import as bytes: one [`ImportLine`] a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        ImportResult | Problem
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
    body: File,
) -> Response[ImportResult | Problem]:
    """Imports versions of existing rows, one `ImportLine` a line: all or none. Known rows are never
    overwritten, and a row
    may occur at most once in a request. The JSON pointer of an error begins with the number of the
    line, from 0. Embedded
    stores are refused, because they have no rows but those of their log, and so are stores with
    `existence` `declared`, whose
    engines tell which rows exist.

    Args:
        store (str):
        body (File): An import as bytes: one [`ImportLine`] a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[ImportResult | Problem]
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
    body: File,
) -> ImportResult | Problem | None:
    """Imports versions of existing rows, one `ImportLine` a line: all or none. Known rows are never
    overwritten, and a row
    may occur at most once in a request. The JSON pointer of an error begins with the number of the
    line, from 0. Embedded
    stores are refused, because they have no rows but those of their log, and so are stores with
    `existence` `declared`, whose
    engines tell which rows exist.

    Args:
        store (str):
        body (File): An import as bytes: one [`ImportLine`] a line.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        ImportResult | Problem
    """

    return (
        await asyncio_detailed(
            store=store,
            client=client,
            body=body,
        )
    ).parsed
