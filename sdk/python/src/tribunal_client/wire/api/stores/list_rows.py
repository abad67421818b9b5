from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.consistency import Consistency
from ...models.problem import Problem
from ...models.row_page import RowPage
from ...types import UNSET, Response, Unset


def _get_kwargs(
    store: str,
    *,
    start: str | Unset = UNSET,
    end: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> dict[str, Any]:

    params: dict[str, Any] = {}

    params["start"] = start

    params["end"] = end

    params["limit"] = limit

    params["session"] = session

    json_consistency: str | Unset = UNSET
    if not isinstance(consistency, Unset):
        json_consistency = consistency

    params["consistency"] = json_consistency

    params["wait_ms"] = wait_ms

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/stores/{store}/rows".format(
            store=quote(str(store), safe=""),
        ),
        "params": params,
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | RowPage:
    if response.status_code == 200:
        response_200 = RowPage.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Response[Problem | RowPage]:
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
    start: str | Unset = UNSET,
    end: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Response[Problem | RowPage]:
    """Reads rows of an embedded store in key order (bytewise).

    Args:
        store (str):
        start (str | Unset):
        end (str | Unset):
        limit (int | Unset):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | RowPage]
    """

    kwargs = _get_kwargs(
        store=store,
        start=start,
        end=end,
        limit=limit,
        session=session,
        consistency=consistency,
        wait_ms=wait_ms,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    store: str,
    *,
    client: AuthenticatedClient,
    start: str | Unset = UNSET,
    end: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Problem | RowPage | None:
    """Reads rows of an embedded store in key order (bytewise).

    Args:
        store (str):
        start (str | Unset):
        end (str | Unset):
        limit (int | Unset):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | RowPage
    """

    return sync_detailed(
        store=store,
        client=client,
        start=start,
        end=end,
        limit=limit,
        session=session,
        consistency=consistency,
        wait_ms=wait_ms,
    ).parsed


async def asyncio_detailed(
    store: str,
    *,
    client: AuthenticatedClient,
    start: str | Unset = UNSET,
    end: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Response[Problem | RowPage]:
    """Reads rows of an embedded store in key order (bytewise).

    Args:
        store (str):
        start (str | Unset):
        end (str | Unset):
        limit (int | Unset):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | RowPage]
    """

    kwargs = _get_kwargs(
        store=store,
        start=start,
        end=end,
        limit=limit,
        session=session,
        consistency=consistency,
        wait_ms=wait_ms,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    store: str,
    *,
    client: AuthenticatedClient,
    start: str | Unset = UNSET,
    end: str | Unset = UNSET,
    limit: int | Unset = UNSET,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Problem | RowPage | None:
    """Reads rows of an embedded store in key order (bytewise).

    Args:
        store (str):
        start (str | Unset):
        end (str | Unset):
        limit (int | Unset):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | RowPage
    """

    return (
        await asyncio_detailed(
            store=store,
            client=client,
            start=start,
            end=end,
            limit=limit,
            session=session,
            consistency=consistency,
            wait_ms=wait_ms,
        )
    ).parsed
