from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.txn_outcome import TxnOutcome
from ...types import UNSET, Response, Unset


def _get_kwargs(
    txn_id: str,
    *,
    wait_ms: int | Unset = UNSET,
    fence: bool | Unset = UNSET,
) -> dict[str, Any]:

    params: dict[str, Any] = {}

    params["wait_ms"] = wait_ms

    params["fence"] = fence

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "get",
        "url": "/v1/txns/{txn_id}".format(
            txn_id=quote(str(txn_id), safe=""),
        ),
        "params": params,
    }

    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> Problem | TxnOutcome:
    if response.status_code == 200:
        response_200 = TxnOutcome.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

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
    wait_ms: int | Unset = UNSET,
    fence: bool | Unset = UNSET,
) -> Response[Problem | TxnOutcome]:
    """Returns the outcome of a transaction. With `fence`, an id that has not arrived can never commit
    later.

     Neither applies to transactions without writes: their verdicts are not stored, so their ids are
    `unknown`, and a fence does not
    stop them.

    Args:
        txn_id (str):
        wait_ms (int | Unset):
        fence (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
        wait_ms=wait_ms,
        fence=fence,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    wait_ms: int | Unset = UNSET,
    fence: bool | Unset = UNSET,
) -> Problem | TxnOutcome | None:
    """Returns the outcome of a transaction. With `fence`, an id that has not arrived can never commit
    later.

     Neither applies to transactions without writes: their verdicts are not stored, so their ids are
    `unknown`, and a fence does not
    stop them.

    Args:
        txn_id (str):
        wait_ms (int | Unset):
        fence (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | TxnOutcome
    """

    return sync_detailed(
        txn_id=txn_id,
        client=client,
        wait_ms=wait_ms,
        fence=fence,
    ).parsed


async def asyncio_detailed(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    wait_ms: int | Unset = UNSET,
    fence: bool | Unset = UNSET,
) -> Response[Problem | TxnOutcome]:
    """Returns the outcome of a transaction. With `fence`, an id that has not arrived can never commit
    later.

     Neither applies to transactions without writes: their verdicts are not stored, so their ids are
    `unknown`, and a fence does not
    stop them.

    Args:
        txn_id (str):
        wait_ms (int | Unset):
        fence (bool | Unset):

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
        wait_ms=wait_ms,
        fence=fence,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    wait_ms: int | Unset = UNSET,
    fence: bool | Unset = UNSET,
) -> Problem | TxnOutcome | None:
    """Returns the outcome of a transaction. With `fence`, an id that has not arrived can never commit
    later.

     Neither applies to transactions without writes: their verdicts are not stored, so their ids are
    `unknown`, and a fence does not
    stop them.

    Args:
        txn_id (str):
        wait_ms (int | Unset):
        fence (bool | Unset):

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
            wait_ms=wait_ms,
            fence=fence,
        )
    ).parsed
