from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.commit_request import CommitRequest
from ...models.problem import Problem
from ...models.txn_outcome import TxnOutcome
from ...types import UNSET, Response, Unset


def _get_kwargs(
    txn_id: str,
    *,
    body: CommitRequest,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}
    if not isinstance(tribunal_client, Unset):
        headers["tribunal-client"] = tribunal_client

    if not isinstance(traceparent, Unset):
        headers["traceparent"] = traceparent

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/txns/{txn_id}/commit".format(
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

    if response.status_code == 404:
        response_404 = Problem.from_dict(response.json())

        return response_404

    if response.status_code == 409:
        response_409 = Problem.from_dict(response.json())

        return response_409

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())

        return response_413

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
    body: CommitRequest,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Response[Problem | TxnOutcome]:
    """TxnCommit: decides a transaction, durably. An abort is a decision, too: 200 with `status: aborted`.

     The id comes from Begin, or is a UUIDv7 minted by the client; it is the idempotency key. The same id
    with the same
    body gets the stored answer.

    Args:
        txn_id (str):
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (CommitRequest): A commit: what the transaction read and what it wants to write.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
        body=body,
        tribunal_client=tribunal_client,
        traceparent=traceparent,
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
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Problem | TxnOutcome | None:
    """TxnCommit: decides a transaction, durably. An abort is a decision, too: 200 with `status: aborted`.

     The id comes from Begin, or is a UUIDv7 minted by the client; it is the idempotency key. The same id
    with the same
    body gets the stored answer.

    Args:
        txn_id (str):
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (CommitRequest): A commit: what the transaction read and what it wants to write.

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
        tribunal_client=tribunal_client,
        traceparent=traceparent,
    ).parsed


async def asyncio_detailed(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    body: CommitRequest,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Response[Problem | TxnOutcome]:
    """TxnCommit: decides a transaction, durably. An abort is a decision, too: 200 with `status: aborted`.

     The id comes from Begin, or is a UUIDv7 minted by the client; it is the idempotency key. The same id
    with the same
    body gets the stored answer.

    Args:
        txn_id (str):
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (CommitRequest): A commit: what the transaction read and what it wants to write.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[Problem | TxnOutcome]
    """

    kwargs = _get_kwargs(
        txn_id=txn_id,
        body=body,
        tribunal_client=tribunal_client,
        traceparent=traceparent,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    txn_id: str,
    *,
    client: AuthenticatedClient,
    body: CommitRequest,
    tribunal_client: str | Unset = UNSET,
    traceparent: str | Unset = UNSET,
) -> Problem | TxnOutcome | None:
    """TxnCommit: decides a transaction, durably. An abort is a decision, too: 200 with `status: aborted`.

     The id comes from Begin, or is a UUIDv7 minted by the client; it is the idempotency key. The same id
    with the same
    body gets the stored answer.

    Args:
        txn_id (str):
        tribunal_client (str | Unset):
        traceparent (str | Unset):
        body (CommitRequest): A commit: what the transaction read and what it wants to write.

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
            tribunal_client=tribunal_client,
            traceparent=traceparent,
        )
    ).parsed
