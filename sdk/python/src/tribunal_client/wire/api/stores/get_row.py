from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.consistency import Consistency
from ...models.problem import Problem
from ...models.row import Row
from ...types import UNSET, Response, Unset


def _get_kwargs(
    store: str,
    key: str,
    *,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> dict[str, Any]:

    params: dict[str, Any] = {}

    params["session"] = session

    json_consistency: str | Unset = UNSET
    if not isinstance(consistency, Unset):
        json_consistency = consistency

    params["consistency"] = json_consistency

    params["wait_ms"] = wait_ms

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/stores/{store}/rows/{key}".format(
            store=quote(str(store), safe=""),
            key=quote(str(key), safe=""),
        ),
        "params": params,
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
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Response[Problem | Row]:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Row]
    """

    kwargs = _get_kwargs(
        store=store,
        key=key,
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
    key: str,
    *,
    client: AuthenticatedClient,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Problem | Row | None:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

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
        session=session,
        consistency=consistency,
        wait_ms=wait_ms,
    ).parsed


async def asyncio_detailed(
    store: str,
    key: str,
    *,
    client: AuthenticatedClient,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Response[Problem | Row]:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | Row]
    """

    kwargs = _get_kwargs(
        store=store,
        key=key,
        session=session,
        consistency=consistency,
        wait_ms=wait_ms,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    store: str,
    key: str,
    *,
    client: AuthenticatedClient,
    session: str | Unset = UNSET,
    consistency: Consistency | Unset = UNSET,
    wait_ms: int | Unset = UNSET,
) -> Problem | Row | None:
    """Reads one row of an embedded store.

     A key may have any bytes, percent-encoded. A `/` may be written as it is or as `%2F`: `acct/1` and
    `acct%2F1` are the
    same key.

    Args:
        store (str):
        key (str):
        session (str | Unset):
        consistency (Consistency | Unset): What the snapshots of a Begin, or the rows of a read,
            must include.
        wait_ms (int | Unset):

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
            session=session,
            consistency=consistency,
            wait_ms=wait_ms,
        )
    ).parsed
