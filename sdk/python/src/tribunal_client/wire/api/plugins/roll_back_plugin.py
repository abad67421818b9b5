from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.plugin_activation import PluginActivation
from ...models.plugin_rollback import PluginRollback
from ...models.problem import Problem
from ...types import Response


def _get_kwargs(
    name: str,
    *,
    body: PluginRollback,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    _kwargs: dict[str, Any] = {
        "method": "post",
        "url": "/v1/admin/plugins/{name}/rollback".format(
            name=quote(str(name), safe=""),
        ),
    }

    _kwargs["json"] = body.to_dict()

    headers["Content-Type"] = "application/json"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> PluginActivation | Problem:
    if response.status_code == 200:
        response_200 = PluginActivation.from_dict(response.json())

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

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[PluginActivation | Problem]:
    return Response(
        status_code=HTTPStatus(response.status_code),
        content=response.content,
        headers=response.headers,
        parsed=_parse_response(client=client, response=response),
    )


def sync_detailed(
    name: str,
    *,
    client: AuthenticatedClient,
    body: PluginRollback,
) -> Response[PluginActivation | Problem]:
    """Takes the last activation of a slot back.

     One that still waits for its epoch is dropped; otherwise the slot goes back to what filled it
    before.

    Args:
        name (str):
        body (PluginRollback): Which slot to roll back.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PluginActivation | Problem]
    """

    kwargs = _get_kwargs(
        name=name,
        body=body,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    name: str,
    *,
    client: AuthenticatedClient,
    body: PluginRollback,
) -> PluginActivation | Problem | None:
    """Takes the last activation of a slot back.

     One that still waits for its epoch is dropped; otherwise the slot goes back to what filled it
    before.

    Args:
        name (str):
        body (PluginRollback): Which slot to roll back.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PluginActivation | Problem
    """

    return sync_detailed(
        name=name,
        client=client,
        body=body,
    ).parsed


async def asyncio_detailed(
    name: str,
    *,
    client: AuthenticatedClient,
    body: PluginRollback,
) -> Response[PluginActivation | Problem]:
    """Takes the last activation of a slot back.

     One that still waits for its epoch is dropped; otherwise the slot goes back to what filled it
    before.

    Args:
        name (str):
        body (PluginRollback): Which slot to roll back.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PluginActivation | Problem]
    """

    kwargs = _get_kwargs(
        name=name,
        body=body,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    name: str,
    *,
    client: AuthenticatedClient,
    body: PluginRollback,
) -> PluginActivation | Problem | None:
    """Takes the last activation of a slot back.

     One that still waits for its epoch is dropped; otherwise the slot goes back to what filled it
    before.

    Args:
        name (str):
        body (PluginRollback): Which slot to roll back.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PluginActivation | Problem
    """

    return (
        await asyncio_detailed(
            name=name,
            client=client,
            body=body,
        )
    ).parsed
