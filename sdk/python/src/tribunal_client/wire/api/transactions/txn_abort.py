from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.txn_outcome import TxnOutcome
from ...types import Response


def _get_kwargs(
    txn_id: str,
) -> dict[str, Any]:

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/txns/{txn_id}/abort".format(
            txn_id=quote(str(txn_id), safe=""),
        ),
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | TxnOutcome:
    if response.status_code == 200:
        response_200 = TxnOutcome.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 409:
        response_409 = Problem.from_dict(response.json())

        return response_409

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())

        return response_413

    if response.status_code == 415:
        response_415 = Problem.from_dict(response.json())

        return response_415

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    if response.status_code == 429:
        response_429 = Problem.from_dict(response.json())

        return response_429

    if response.status_code == 503:
        response_503 = Problem.from_dict(response.json())

        return response_503

    if response.status_code == 504:
        response_504 = Problem.from_dict(response.json())

        return response_504

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[Problem | TxnOutcome]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    txn_id: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | TxnOutcome]:
    """Aborts a transaction. Returns its verdict: `client_abort`, or what was decided before, which may be
    `committed`. From then
    on, no commit with writes is executed under this id.

     The request has no body, or an empty object.

    Args:
        txn_id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    txn_id: str,
    *,
    client: AuthenticatedClient,
) -> Problem | TxnOutcome | None:
    """Aborts a transaction. Returns its verdict: `client_abort`, or what was decided before, which may be
    `committed`. From then
    on, no commit with writes is executed under this id.

     The request has no body, or an empty object.

    Args:
        txn_id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | TxnOutcome
    """

    return sync_detailed(
        txn_id=txn_id,
        client=client,
    ).parsed


async def asyncio_detailed(
    txn_id: str,
    *,
    client: AuthenticatedClient,
) -> Response[Problem | TxnOutcome]:
    """Aborts a transaction. Returns its verdict: `client_abort`, or what was decided before, which may be
    `committed`. From then
    on, no commit with writes is executed under this id.

     The request has no body, or an empty object.

    Args:
        txn_id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    txn_id: str,
    *,
    client: AuthenticatedClient,
) -> Problem | TxnOutcome | None:
    """Aborts a transaction. Returns its verdict: `client_abort`, or what was decided before, which may be
    `committed`. From then
    on, no commit with writes is executed under this id.

     The request has no body, or an empty object.

    Args:
        txn_id (str):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | TxnOutcome
    """

    return (
        await asyncio_detailed(
            txn_id=txn_id,
            client=client,
        )
    ).parsed
