from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.problem import Problem
from ...models.store_declaration import StoreDeclaration
from ...models.store_info import StoreInfo
from ...types import Response


def _get_kwargs(
    store: str,
    *,
    body: StoreDeclaration,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "put",
        "url": "/v1/stores/{store}".format(
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

    if response.status_code == 201:
        response_201 = StoreInfo.from_dict(response.json())

        return response_201

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

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
    body: StoreDeclaration,
) -> Response[Problem | StoreInfo]:
    """Declares a store, or changes one of the same name.

     The same declaration again changes nothing. Another one replaces the one before: what it leaves out
    has its default. Only what
    would be lost that way is not taken away by leaving it out: a store that has an adaptor needs
    `adaptor` or `log_only`, one with
    `multi_version` needs that field, `true` or `false`, and one whose `existence` is `declared` needs
    that field. Everything can be
    changed, except `existence` once the store has records or rows.

    A store cannot be deleted: its name, its log positions and its row versions are part of the
    replicated state. Delete the
    rows of a store that is no longer needed. A declaration with `log_only` takes the adaptor away from
    a store that has one: it
    ends the push to its storage and no longer retains the log for it, and the rows of an embedded store
    can no longer be read.

    Args:
        store (str):
        body (StoreDeclaration): Declaration of a store.

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
    body: StoreDeclaration,
) -> Problem | StoreInfo | None:
    """Declares a store, or changes one of the same name.

     The same declaration again changes nothing. Another one replaces the one before: what it leaves out
    has its default. Only what
    would be lost that way is not taken away by leaving it out: a store that has an adaptor needs
    `adaptor` or `log_only`, one with
    `multi_version` needs that field, `true` or `false`, and one whose `existence` is `declared` needs
    that field. Everything can be
    changed, except `existence` once the store has records or rows.

    A store cannot be deleted: its name, its log positions and its row versions are part of the
    replicated state. Delete the
    rows of a store that is no longer needed. A declaration with `log_only` takes the adaptor away from
    a store that has one: it
    ends the push to its storage and no longer retains the log for it, and the rows of an embedded store
    can no longer be read.

    Args:
        store (str):
        body (StoreDeclaration): Declaration of a store.

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
    body: StoreDeclaration,
) -> Response[Problem | StoreInfo]:
    """Declares a store, or changes one of the same name.

     The same declaration again changes nothing. Another one replaces the one before: what it leaves out
    has its default. Only what
    would be lost that way is not taken away by leaving it out: a store that has an adaptor needs
    `adaptor` or `log_only`, one with
    `multi_version` needs that field, `true` or `false`, and one whose `existence` is `declared` needs
    that field. Everything can be
    changed, except `existence` once the store has records or rows.

    A store cannot be deleted: its name, its log positions and its row versions are part of the
    replicated state. Delete the
    rows of a store that is no longer needed. A declaration with `log_only` takes the adaptor away from
    a store that has one: it
    ends the push to its storage and no longer retains the log for it, and the rows of an embedded store
    can no longer be read.

    Args:
        store (str):
        body (StoreDeclaration): Declaration of a store.

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
    body: StoreDeclaration,
) -> Problem | StoreInfo | None:
    """Declares a store, or changes one of the same name.

     The same declaration again changes nothing. Another one replaces the one before: what it leaves out
    has its default. Only what
    would be lost that way is not taken away by leaving it out: a store that has an adaptor needs
    `adaptor` or `log_only`, one with
    `multi_version` needs that field, `true` or `false`, and one whose `existence` is `declared` needs
    that field. Everything can be
    changed, except `existence` once the store has records or rows.

    A store cannot be deleted: its name, its log positions and its row versions are part of the
    replicated state. Delete the
    rows of a store that is no longer needed. A declaration with `log_only` takes the adaptor away from
    a store that has one: it
    ends the push to its storage and no longer retains the log for it, and the rows of an embedded store
    can no longer be read.

    Args:
        store (str):
        body (StoreDeclaration): Declaration of a store.

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
