"""The endpoints of a service: which one is in use, and which ones failed recently. Sends nothing.

One endpoint is in use until it fails. The next one in the list then replaces it; an endpoint that failed is skipped
until its cool-down has passed, unless all of them have failed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from urllib.parse import urlsplit

from .arguments import items_of, seconds
from .errors import Misuse


class Endpoints:
    """The endpoints of one service, all equal. Shared by threads."""

    def __init__(self, urls: str | Iterable[str], timeout_s: float, cool_down_s: float) -> None:
        """Split URLs at commas. A URL that occurs twice counts once."""
        each = items_of([urls] if isinstance(urls, str) else urls, str, 'pass a URL such as "http://127.0.0.1:7420"')
        stripped = (url.strip().rstrip("/") for one in each for url in one.split(","))
        self.urls = list(dict.fromkeys(stripped))
        if "" in self.urls and len(self.urls) > 1:
            raise Misuse(f"a URL of `{','.join(each)}` is empty: is there a comma too many?")
        for url in self.urls:
            if not _is_address(url):
                raise Misuse(f"`{url}` is not of the form http://host:port or https://host:port")
        if not self.urls:
            raise Misuse("a client needs the URL of at least one endpoint")
        self.timeout_s = seconds("endpoint_timeout_s", timeout_s, above_0=True)
        """How long an endpoint may take to answer while another one has not been tried."""
        self._cool_down_s = seconds("endpoint_cool_down_s", cool_down_s)
        self._failed_at: list[float | None] = [None] * len(self.urls)
        self._in_use = 0
        self._lock = threading.Lock()

    @property
    def in_use(self) -> int:
        """The endpoint in use."""
        return self._in_use

    def choose(self, is_allowed: Callable[[int], bool]) -> int | None:
        """Return the endpoint to try now among the allowed ones.

        It is the one in use or the first one after it, preferably one that has not failed recently.
        """
        with self._lock:
            return self._chosen(is_allowed)

    def has_rested(self, is_allowed: Callable[[int], bool]) -> bool:
        """Return whether an allowed endpoint has not failed recently."""
        with self._lock:
            return any(is_allowed(at) and not self._cools(at) for at in range(len(self.urls)))

    def failed(self, at: int) -> None:
        """Record that an endpoint failed: another one, if there is any, is in use from now on."""
        with self._lock:
            self._failed_at[at] = time.monotonic()
            if self._in_use == at:
                other = self._chosen(lambda other: other != at)
                self._in_use = at if other is None else other

    def works(self, at: int) -> None:
        """Record that an endpoint has answered. It is in use from now on if the one in use has failed."""
        with self._lock:
            self._failed_at[at] = None
            if self._cools(self._in_use):
                self._in_use = at

    def _chosen(self, is_allowed: Callable[[int], bool]) -> int | None:
        count = len(self.urls)
        in_turn = [at for n in range(count) if is_allowed(at := (self._in_use + n) % count)]
        rested = [at for at in in_turn if not self._cools(at)]
        return next(iter(rested or in_turn), None)

    def _cools(self, at: int) -> bool:
        failed_at = self._failed_at[at]
        return failed_at is not None and time.monotonic() - failed_at < self._cool_down_s


def _is_address(url: str) -> bool:
    """Return whether requests can be sent to a URL."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    is_plain = not parts.query and not parts.fragment
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and is_plain
