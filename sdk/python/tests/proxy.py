"""A TCP proxy that loses requests or replies on demand."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Literal
from urllib.parse import urlsplit

Loss = Literal["reply", "request", "silence"]
"""The lost part of a request.

`reply`: the request arrives and the service answers, but the connection breaks before the client gets the answer.
`request`: the connection breaks before the request arrives. `silence`: the request arrives, but the answer never does;
the connection stays open.
"""


class Proxy:
    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (str(parts.hostname), int(parts.port or 80))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._next: tuple[Loss, bytes] | None = None
        self._sockets: list[socket.socket] = [self._listener]
        self.lost = threading.Semaphore(0)
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def lose(self, loss: Loss, line: str) -> None:
        """Lose the next request whose first line has `line`."""
        self._next = (loss, line.encode())

    def stop(self) -> None:
        for one in self._sockets:
            _end(one)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
            except OSError:
                return
            self._sockets += [client, server]
            threading.Thread(target=self._pair, args=(client, server), daemon=True).start()

    def _pair(self, client: socket.socket, server: socket.socket) -> None:
        loss: list[Loss] = []

        def answers() -> None:
            try:
                while data := server.recv(65536):
                    if not loss:
                        client.sendall(data)
                    elif loss[0] == "reply":
                        break
            except OSError:
                pass
            _end(client)
            _end(server)

        threading.Thread(target=answers, daemon=True).start()
        try:
            while data := client.recv(65536):
                if self._next is not None and self._next[1] in data.split(b"\r\n", 1)[0]:
                    loss.append(self._next[0])
                    self._next = None
                    self.lost.release()
                    if loss[0] == "request":
                        break
                server.sendall(data)
        except OSError:
            pass
        _end(client)
        _end(server)


def _end(one: socket.socket) -> None:
    with contextlib.suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()
