"""The live server under test, and keys for a test's own rows."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from tribunal_client import Client

from .endpoints import Endpoint, Script, Start
from .proxy import Proxy


@pytest.fixture(scope="session")
def url() -> str:
    """The server that tests/clients.sh started."""
    return os.environ["TRIBUNAL_URL"]


@pytest.fixture
def client(url: str) -> Iterator[Client]:
    with Client(url) as client:
        yield client


@pytest.fixture
def proxy(url: str) -> Iterator[Proxy]:
    proxy = Proxy(url)
    yield proxy
    proxy.stop()


@pytest.fixture
def prefix() -> str:
    """A prefix of keys that no other test uses."""
    return f"py/{uuid.uuid4()}/"


@pytest.fixture
def start() -> Iterator[Start]:
    """Starts endpoints that reply by a script."""
    endpoints: list[Endpoint] = []

    def start(script: Script) -> Endpoint:
        endpoints.append(Endpoint(script))
        return endpoints[-1]

    yield start
    for endpoint in endpoints:
        endpoint.stop()
