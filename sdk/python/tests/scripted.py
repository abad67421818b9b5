"""A service that replies by a script, as a live server does not on demand: overload, aborts, a certificate."""

from __future__ import annotations

import json
import ssl
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

from .crowds import CrowdServer

Scripted = tuple[int, dict[str, Any]]
"""Status and body of a response."""

Script = Callable[[str, int], Scripted]
"""Gets the kind of a request and how many of the kind came before."""


@dataclass
class Arrived:
    """A request as it arrived."""

    kind: str
    traceparent: str | None
    body: dict[str, Any] = field(default_factory=dict)


class Service:
    """A scripted service on a free port; with a certificate, over https."""

    def __init__(self, script: Script, certificate: Path | None = None) -> None:
        self.requests: list[Arrived] = []
        requests, lock = self.requests, threading.Lock()

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def respond(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length", 0)))
                kind = _kind(self.command, self.path)
                with lock:
                    before = sum(one.kind == kind for one in requests)
                    body = json.loads(text) if text else {}
                    requests.append(Arrived(kind, self.headers.get("traceparent"), body))
                status, reply = script(kind, before)
                data = json.dumps(reply).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(data)))
                self.send_header("traceparent", "00-server")
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = respond  # noqa: N815

            def log_message(self, *_: object) -> None:
                pass

        self._server = CrowdServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{port}"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, certificate.with_suffix(".key"))
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
            self.url = f"https://localhost:{port}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def arrived(self, kind: str) -> list[Arrived]:
        return [one for one in self.requests if one.kind == kind]

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def make_certificate(folder: Path) -> Path:
    """Create a self-signed certificate for `localhost`; its key is stored next to it."""
    file = folder / "cert.pem"
    options = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    names = ["-addext", "subjectAltName=DNS:localhost"]
    files = ["-keyout", str(file.with_suffix(".key")), "-out", str(file)]
    subprocess.run(["openssl", "req", "-x509", *options, *names, *files], check=True, capture_output=True)  # noqa: S603, S607
    return file


def begun(number: int, snapshot: int = 7) -> Scripted:
    return 201, {
        "txn_id": f"019{number}163d-8694-7000-8000-000000000000",
        "snapshots": {"kv": str(snapshot)},
        "epoch": "8",
        "expires_at": "2026-01-01T00:00:00Z",
        "session": "s",
    }


def committed(epoch: int = 9) -> Scripted:
    outcome = {"status": "committed", "txn_id": "txn", "epoch": str(epoch), "version": "1", "lsn": {"kv": "3"}}
    return 200, {**outcome, "session": f"token-{epoch}"}


def aborted(reason: str, epoch: int = 9) -> Scripted:
    conflict = {"store": "kv", "key": "a", "op": "write", "stage": "join"}
    outcome = {"status": "aborted", "txn_id": "txn", "epoch": str(epoch), "reason": reason, "retryable": True}
    return 200, {**outcome, "conflicts": [conflict]}


OVERLOADED: Scripted = (
    503,
    {
        "type": "about:blank",
        "title": "x",
        "status": 503,
        "detail": "too busy",
        "code": "overloaded",
        "retryable": True,
        "errors": [],
    },
)


def _kind(method: str, path: str) -> str:
    if path.endswith("/rows/read"):
        return "rows"
    if method == "GET":
        return "status" if path.startswith("/v1/txns/") else "other"
    if path.endswith("/batch-commit"):
        return "batch"
    return "begin" if path == "/v1/txns" else "commit" if path.endswith("/commit") else "other"
