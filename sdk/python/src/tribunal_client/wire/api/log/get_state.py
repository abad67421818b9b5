from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...types import Response


def _get_kwargs(
    store: str,
) -> dict[str, Any]:

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/stores/{store}/state".format(
            store=quote(str(store), safe=""),
        ),
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | str:
    if response.status_code == 200:
        response_200 = response.text
        return response_200

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 406:
        response_406 = Problem.from_dict(response.json())

        return response_406

    if response.status_code == 410:
        response_410 = Problem.from_dict(response.json())

        return response_410

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())

        return response_503

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
    store: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | str]:
    """The state of a store at a position of its log, as NDJSON: one `StateLine` a line.

     The first line names the log and the position in it: what a reader's watermark needs. The rows of an
    embedded store are
    those at `lsn`; continue with the log after it. A store with an external storage returns
    only the position of that storage: read the rows there. A store that is only its log has no other
    state: `lsn` is 0 as
    long as the log is complete; afterwards the status is 410.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | str]
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
) -> Problem | str | None:
    """The state of a store at a position of its log, as NDJSON: one `StateLine` a line.

     The first line names the log and the position in it: what a reader's watermark needs. The rows of an
    embedded store are
    those at `lsn`; continue with the log after it. A store with an external storage returns
    only the position of that storage: read the rows there. A store that is only its log has no other
    state: `lsn` is 0 as
    long as the log is complete; afterwards the status is 410.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | str
    """

    return sync_detailed(
        store=store,
        client=client,
    ).parsed


async def asyncio_detailed(
    store: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | str]:
    """The state of a store at a position of its log, as NDJSON: one `StateLine` a line.

     The first line names the log and the position in it: what a reader's watermark needs. The rows of an
    embedded store are
    those at `lsn`; continue with the log after it. A store with an external storage returns
    only the position of that storage: read the rows there. A store that is only its log has no other
    state: `lsn` is 0 as
    long as the log is complete; afterwards the status is 410.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | str]
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
) -> Problem | str | None:
    """The state of a store at a position of its log, as NDJSON: one `StateLine` a line.

     The first line names the log and the position in it: what a reader's watermark needs. The rows of an
    embedded store are
    those at `lsn`; continue with the log after it. A store with an external storage returns
    only the position of that storage: read the rows there. A store that is only its log has no other
    state: `lsn` is 0 as
    long as the log is complete; afterwards the status is 410.

    Args:
        store (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | str
    """

    return (
        await asyncio_detailed(
            store=store,
            client=client,
        )
    ).parsed
