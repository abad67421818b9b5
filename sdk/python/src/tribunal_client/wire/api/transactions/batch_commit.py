from http import HTTPStatus
from typing import Any

import httpx

from ...client import AuthenticatedClient, Client
from ...models.batch_commit_request import BatchCommitRequest
from ...models.batch_commit_response import BatchCommitResponse
from ...models.problem import Problem
from ...types import Response


def _get_kwargs(
    *,
    body: BatchCommitRequest,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/txns/batch-commit",
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> BatchCommitResponse | Problem:
    if response.status_code == 200:
        response_200 = BatchCommitResponse.from_dict(response.json())

        return response_200

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())

        return response_413

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
) -> Response[BatchCommitResponse | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    *,
    client: AuthenticatedClient,
    body: BatchCommitRequest,
) -> Response[BatchCommitResponse | Problem]:
    """Commits many transactions in one request, each with its `txn_id`: as `{"txns": [...]}` or as NDJSON,
    with a response of
    the same form. A commit that cannot be read gets a problem of its own, in NDJSON with its line; the
    others are decided.

    Args:
        body (BatchCommitRequest): Many commits in one request.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BatchCommitResponse | Problem]
    """

    kwargs = _get_kwargs(
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    *,
    client: AuthenticatedClient,
    body: BatchCommitRequest,
) -> BatchCommitResponse | Problem | None:
    """Commits many transactions in one request, each with its `txn_id`: as `{"txns": [...]}` or as NDJSON,
    with a response of
    the same form. A commit that cannot be read gets a problem of its own, in NDJSON with its line; the
    others are decided.

    Args:
        body (BatchCommitRequest): Many commits in one request.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BatchCommitResponse | Problem
    """

    return sync_detailed(
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    *,
    client: AuthenticatedClient,
    body: BatchCommitRequest,
) -> Response[BatchCommitResponse | Problem]:
    """Commits many transactions in one request, each with its `txn_id`: as `{"txns": [...]}` or as NDJSON,
    with a response of
    the same form. A commit that cannot be read gets a problem of its own, in NDJSON with its line; the
    others are decided.

    Args:
        body (BatchCommitRequest): Many commits in one request.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[BatchCommitResponse | Problem]
    """

    kwargs = _get_kwargs(
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    *,
    client: AuthenticatedClient,
    body: BatchCommitRequest,
) -> BatchCommitResponse | Problem | None:
    """Commits many transactions in one request, each with its `txn_id`: as `{"txns": [...]}` or as NDJSON,
    with a response of
    the same form. A commit that cannot be read gets a problem of its own, in NDJSON with its line; the
    others are decided.

    Args:
        body (BatchCommitRequest): Many commits in one request.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        BatchCommitResponse | Problem
    """

    return (
        await asyncio_detailed(
            client=client,
            body=body,
        )
    ).parsed
