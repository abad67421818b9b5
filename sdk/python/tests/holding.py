"""A service that holds commit requests back until the test answers them, and records them."""

from __future__ import annotations

import json
import queue
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from .crowds import CrowdServer


@dataclass
class Held:
    """A commit request that waits for its answer."""

    batch: bool
    traceparent: str | None
    ids: list[str]
    answers: queue.Queue[tuple[int, bytes]] = field(default_factory=lambda: queue.Queue())

    def answer(self, status: int, *lines: dict[str, Any]) -> None:
        self.answers.put((status, b"\n".join(json.dumps(line).encode() for line in lines)))

    def commit(self) -> None:
        self.answer(200, *(committed(txn_id) for txn_id in self.ids))


class HoldingService:
    """Holds commit requests; answers a status request at once with `committed`."""

    def __init__(self) -> None:
        self.arrived: queue.Queue[Held] = queue.Queue()
        arrived = self.arrived

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                self._respond(200, json.dumps(committed(self.path.split("?")[0].split("/")[3])).encode())

            def do_POST(self) -> None:
                text = self.rfile.read(int(self.headers.get("content-length", 0)))
                name = (*self.path.split("/")[3:], "begin")[0]
                batch = name == "batch-commit"
                ids = [json.loads(line)["txn_id"] for line in text.splitlines()] if batch else [name]
                held = Held(batch, self.headers.get("traceparent"), ids)
                arrived.put(held)
                self._respond(*held.answers.get())

            def _respond(self, status: int, data: bytes) -> None:
                self.send_response(status)
                self.send_header("content-length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                pass

        self._server = CrowdServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()

    def request(self) -> Held:
        """Wait for the next request of commits."""
        return self.arrived.get(timeout=30)

    def stop(self) -> None:
        self._server.shutdown()
        self._server.server_close()


def committed(txn_id: str) -> dict[str, Any]:
    outcome = {"status": "committed", "txn_id": txn_id, "epoch": "9", "version": "1", "lsn": {"kv": "3"}}
    return {**outcome, "session": "s"}


def aborted(txn_id: str) -> dict[str, Any]:
    outcome = {"status": "aborted", "txn_id": txn_id, "epoch": "9", "reason": "read_conflict", "retryable": True}
    return {**outcome, "conflicts": []}


def problem(status: int, code: str) -> dict[str, Any]:
    what = {"type": "about:blank", "title": "x", "detail": "x", "status": status, "code": code}
    return {**what, "retryable": status in (429, 503)}


def refused(txn_id: str, status: int, code: str) -> dict[str, Any]:
    return {"status": "problem", "txn_id": txn_id, "problem": problem(status, code)}
