from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.commit_request import CommitRequest
from ...models.problem import Problem
from ...models.txn_outcome import TxnOutcome
from ...types import Response


def _get_kwargs(
    txn_id: str,
    *,
    body: CommitRequest,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/txns/{txn_id}/validate".format(
            txn_id=quote(str(txn_id), safe=""),
        ),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
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

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

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
    body: CommitRequest,
) -> Response[Problem | TxnOutcome]:
    """Dry run: returns whether the transaction would commit now, alone. Changes nothing.

     A known id gets the response that a commit would get: its stored verdict (`committed`, or `aborted`
    with its
    reason, also if it was fenced), 409 while it is being decided, and 422 if it was used with another
    body or has expired.
    The id of a read-only transaction is not stored, so such a transaction is always judged.

    Args:
        txn_id (str):
        body (CommitRequest): A commit: the rows and ranges that the transaction has read, and its
            writes.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    body: CommitRequest,
) -> Problem | TxnOutcome | None:
    """Dry run: returns whether the transaction would commit now, alone. Changes nothing.

     A known id gets the response that a commit would get: its stored verdict (`committed`, or `aborted`
    with its
    reason, also if it was fenced), 409 while it is being decided, and 422 if it was used with another
    body or has expired.
    The id of a read-only transaction is not stored, so such a transaction is always judged.

    Args:
        txn_id (str):
        body (CommitRequest): A commit: the rows and ranges that the transaction has read, and its
            writes.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Problem | TxnOutcome
    """

    return sync_detailed(
        txn_id=txn_id,
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    body: CommitRequest,
) -> Response[Problem | TxnOutcome]:
    """Dry run: returns whether the transaction would commit now, alone. Changes nothing.

     A known id gets the response that a commit would get: its stored verdict (`committed`, or `aborted`
    with its
    reason, also if it was fenced), 409 while it is being decided, and 422 if it was used with another
    body or has expired.
    The id of a read-only transaction is not stored, so such a transaction is always judged.

    Args:
        txn_id (str):
        body (CommitRequest): A commit: the rows and ranges that the transaction has read, and its
            writes.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    body: CommitRequest,
) -> Problem | TxnOutcome | None:
    """Dry run: returns whether the transaction would commit now, alone. Changes nothing.

     A known id gets the response that a commit would get: its stored verdict (`committed`, or `aborted`
    with its
    reason, also if it was fenced), 409 while it is being decided, and 422 if it was used with another
    body or has expired.
    The id of a read-only transaction is not stored, so such a transaction is always judged.

    Args:
        txn_id (str):
        body (CommitRequest): A commit: the rows and ranges that the transaction has read, and its
            writes.

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
            body=body,
        )
    ).parsed
