from http import HTTPStatus
from typing import Any
from urllib.parse import quote

import httpx

from ...client import AuthenticatedClient, Client
from ...models.plugin_upload import PluginUpload
from ...models.problem import Problem
from ...types import UNSET, File, Response, Unset


def _get_kwargs(
    name: str,
    *,
    body: File,
    world: str | Unset = UNSET,
    config: str | Unset = UNSET,
    signature: str | Unset = UNSET,
) -> dict[str, Any]:
    headers: dict[str, Any] = {}

    params: dict[str, Any] = {}

    params["world"] = world

    params["config"] = config

    params["signature"] = signature

    params = {k: v for k, v in params.items() if v is not UNSET and v is not None}

    _kwargs: dict[str, Any] = {
        "method": "put",
        "url": "/v1/admin/plugins/{name}".format(
            name=quote(str(name), safe=""),
        ),
        "params": params,
    }

    _kwargs["content"] = body.payload
    headers["Content-Type"] = "application/octet-stream"

    _kwargs["headers"] = headers
    return _kwargs


def _parse_response(*, client: AuthenticatedClient | Client, response: httpx.Response) -> PluginUpload | Problem:
    if response.status_code == 200:
        response_200 = PluginUpload.from_dict(response.json())

        return response_200

    if response.status_code == 201:
        response_201 = PluginUpload.from_dict(response.json())

        return response_201

    if response.status_code == 400:
        response_400 = Problem.from_dict(response.json())

        return response_400

    if response.status_code == 413:
        response_413 = Problem.from_dict(response.json())

        return response_413

    if response.status_code == 415:
        response_415 = Problem.from_dict(response.json())

        return response_415

    if response.status_code == 422:
        response_422 = Problem.from_dict(response.json())

        return response_422

    response_default = Problem.from_dict(response.json())

    return response_default


def _build_response(
    *, client: AuthenticatedClient | Client, response: httpx.Response
) -> Response[PluginUpload | Problem]:
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
    body: File,
    world: str | Unset = UNSET,
    config: str | Unset = UNSET,
    signature: str | Unset = UNSET,
) -> Response[PluginUpload | Problem]:
    """Uploads a version of a plugin: a component, which is checked and kept, not activated.

     It must be of one of the worlds of `tribunal:plugin@1.0.0`, import nothing, keep the limits and pass
    the conformance
    kit. The same bytes again change nothing.

    Args:
        name (str):
        world (str | Unset):
        config (str | Unset):
        signature (str | Unset):
        body (File): A component of WebAssembly.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PluginUpload | Problem]
    """

    kwargs = _get_kwargs(
        name=name,
        body=body,
        world=world,
        config=config,
        signature=signature,
    )

    response = client.get_httpx_client().request(
        **kwargs,
    )

    return _build_response(client=client, response=response)


def sync(
    name: str,
    *,
    client: AuthenticatedClient,
    body: File,
    world: str | Unset = UNSET,
    config: str | Unset = UNSET,
    signature: str | Unset = UNSET,
) -> PluginUpload | Problem | None:
    """Uploads a version of a plugin: a component, which is checked and kept, not activated.

     It must be of one of the worlds of `tribunal:plugin@1.0.0`, import nothing, keep the limits and pass
    the conformance
    kit. The same bytes again change nothing.

    Args:
        name (str):
        world (str | Unset):
        config (str | Unset):
        signature (str | Unset):
        body (File): A component of WebAssembly.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PluginUpload | Problem
    """

    return sync_detailed(
        name=name,
        client=client,
        body=body,
        world=world,
        config=config,
        signature=signature,
    ).parsed


async def asyncio_detailed(
    name: str,
    *,
    client: AuthenticatedClient,
    body: File,
    world: str | Unset = UNSET,
    config: str | Unset = UNSET,
    signature: str | Unset = UNSET,
) -> Response[PluginUpload | Problem]:
    """Uploads a version of a plugin: a component, which is checked and kept, not activated.

     It must be of one of the worlds of `tribunal:plugin@1.0.0`, import nothing, keep the limits and pass
    the conformance
    kit. The same bytes again change nothing.

    Args:
        name (str):
        world (str | Unset):
        config (str | Unset):
        signature (str | Unset):
        body (File): A component of WebAssembly.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        Response[PluginUpload | Problem]
    """

    kwargs = _get_kwargs(
        name=name,
        body=body,
        world=world,
        config=config,
        signature=signature,
    )

    response = await client.get_async_httpx_client().request(**kwargs)

    return _build_response(client=client, response=response)


async def asyncio(
    name: str,
    *,
    client: AuthenticatedClient,
    body: File,
    world: str | Unset = UNSET,
    config: str | Unset = UNSET,
    signature: str | Unset = UNSET,
) -> PluginUpload | Problem | None:
    """Uploads a version of a plugin: a component, which is checked and kept, not activated.

     It must be of one of the worlds of `tribunal:plugin@1.0.0`, import nothing, keep the limits and pass
    the conformance
    kit. The same bytes again change nothing.

    Args:
        name (str):
        world (str | Unset):
        config (str | Unset):
        signature (str | Unset):
        body (File): A component of WebAssembly.

    Raises:
        errors.UnexpectedStatus: If the server returns an undocumented status code and Client.raise_on_unexpected_status is True.
        httpx.TimeoutException: If the request takes longer than Client.timeout.

    Returns:
        PluginUpload | Problem
    """

    return (
        await asyncio_detailed(
            name=name,
            client=client,
            body=body,
            world=world,
            config=config,
            signature=signature,
        )
    ).parsed
