"""Endpoints that reply by a script, and clients of several of them."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler
from typing import Any, Literal

from tribunal_client import AsyncClient, Client, Committed, PreparedCommit, RetryPolicy

from .crowds import CrowdServer

Prompt = tuple[int, Any] | tuple[int, str, str] | list[Any] | Literal["lost", "silent"]
"""Status and body, or with a content type a text, or the lines of a response; or none: it is lost, or stays silent."""


@dataclass
class Late:
    """A delayed reply."""

    after_s: float
    reply: Prompt


Reply = Prompt | Late


Script = Callable[[str, list[str], int], Reply]
"""Gets the kind of a request, the ids in it, and how many requests came before."""


class Endpoint:
    """An endpoint on a free port."""

    def __init__(self, script: Script) -> None:
        self.asked: list[tuple[str, bytes]] = []
        """Path and body of each request."""
        asked, lock, stopped = self.asked, threading.Lock(), threading.Event()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                with lock:
                    asked.append((self.path, body))
                    before = len(asked) - 1
                given = script(kind_of(self.path), ids_of(self.path, body), before)
                if isinstance(given, Late):
                    time.sleep(given.after_s)
                reply = given.reply if isinstance(given, Late) else given
                if reply == "silent":
                    stopped.wait()
                if isinstance(reply, str):
                    self.close_connection = True
                    return
                status, text = 200, b"".join(json.dumps(line).encode() + b"\n" for line in reply)
                if isinstance(reply, tuple):
                    status, text = reply[0], (reply[1] if len(reply) == 3 else json.dumps(reply[1])).encode()
                self.send_response(status)
                if isinstance(reply, tuple) and len(reply) == 3:
                    self.send_header("content-type", reply[2])
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            do_GET = do_POST = do_PUT = respond  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._stopped = stopped
        self._server = CrowdServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()
        self._server.shutdown()
        self._server.server_close()


Start = Callable[[Script], Endpoint]
"""Starts an endpoint, which ends with the test."""


def kind_of(path: str) -> str:
    if path == "/v1/txns":
        return "begin"
    for end in ("batch-commit", "commit"):
        if path.endswith(f"/{end}"):
            return end
    return "status" if path.startswith("/v1/txns/") else "other"


def ids_of(path: str, body: bytes) -> list[str]:
    if kind_of(path) == "batch-commit":
        return [json.loads(line).get("txn_id", "") for line in body.splitlines()]
    return [re.split("[/?]", path)[3]] if path.startswith("/v1/txns/") else []


def committed(txn_id: str) -> dict[str, Any]:
    outcome = {"status": "committed", "txn_id": txn_id, "epoch": "9", "csn": "7", "version": "5", "lsn": {"kv": "3"}}
    return {**outcome, "session": "s"}


def problem(status: int, code: str) -> dict[str, Any]:
    problem = {"type": "about:blank", "title": "x", "status": status, "detail": "says so", "code": code, "errors": []}
    return {**problem, "retryable": status >= 500}


def refused(status: int, code: str) -> Prompt:
    return status, problem(status, code)


def works(kind: str, ids: list[str], _: int = 0) -> Prompt:
    if kind == "begin":
        begun = {"txn_id": "0193a5b0-7a3e-7c11-8a52-3f0e1d2c4b5a", "snapshots": {"kv": "7"}, "epoch": "8"}
        return 201, {**begun, "expires_at": "2026-01-01T00:00:00Z", "session": "s"}
    if kind == "batch-commit":
        return [committed(txn_id) for txn_id in ids]
    return 200, committed(ids[0]) if ids else {"stores": []}


def client_of(
    urls: Sequence[str],
    *,
    timeout_s: float = 60,
    resolve_timeout_s: float = 60,
    endpoint_timeout_s: float = 30,
    cool_down_s: float = 10,
) -> Client:
    """The times suit a busy machine: the expected events do not wait for them to elapse."""
    return Client(
        urls,
        timeout_s=timeout_s,
        resolve_timeout_s=resolve_timeout_s,
        endpoint_timeout_s=endpoint_timeout_s,
        endpoint_cool_down_s=cool_down_s,
        retry=RetryPolicy(attempts_max=4),
    )


def prepared(client: Client | AsyncClient) -> PreparedCommit:
    txn = client.begin_local()
    txn.add("kv", "n", 1)
    return txn.prepare()


def commits(client: Client) -> None:
    commit = prepared(client)
    verdict = client.commit(commit)
    assert isinstance(verdict, Committed)
    assert verdict.txn_id == commit.txn_id
