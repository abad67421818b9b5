"""The latest commits of a client, so that its later transactions see them."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .verdict import Committed


class Session:
    """The latest commit of a client to each store. Safe to share between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[str, tuple[int, str]] = {}

    def record(self, committed: Committed) -> None:
        """Record a commit. Commits may be recorded in any order."""
        if committed.session is None:
            return
        with self._lock:
            for store in committed.lsn:
                known = self._latest.get(store)
                if known is None or known[0] < committed.epoch:
                    self._latest[store] = (committed.epoch, committed.session)

    def forget(self, token: str) -> None:
        """Forget a token that the service does not know, and those of the epochs after it.

        Its log was replaced by one that does not reach them.
        """
        with self._lock:
            refused = next((epoch for epoch, known in self._latest.values() if known == token), None)
            if refused is not None:
                self._latest = {store: latest for store, latest in self._latest.items() if latest[0] < refused}

    def epoch(self, store: str) -> int:
        """Return the epoch of the latest commit to a store; 0 if there is none."""
        with self._lock:
            return self._latest.get(store, (0, ""))[0]

    def token(self, stores: Sequence[str] | None) -> str | None:
        """Return the token of the latest commit to these stores, or to any store; `None` if there is none."""
        with self._lock:
            known = [latest for store, latest in self._latest.items() if stores is None or store in stores]
        return max(known)[1] if known else None
