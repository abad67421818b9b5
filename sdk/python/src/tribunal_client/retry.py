"""When to retry, and how long to wait before: bounded, exponential, with full jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass

from .arguments import seconds, whole

ASKED_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of retries."""

    attempts_max: int = 50
    """Maximum number of attempts; 1 disables retries."""
    wait_min_s: float = 0.001
    """Bound of the first wait, seconds. It doubles with each further one."""
    wait_max_s: float = 0.2
    """Bound of the longest wait, seconds."""

    def __post_init__(self) -> None:
        whole("attempts_max", self.attempts_max, at_least=1)
        seconds("wait_min_s", self.wait_min_s)
        seconds("wait_max_s", self.wait_max_s)

    def step_s(self, failed: int) -> float:
        """Draw the wait after the `failed`-th failed attempt, seconds."""
        # The whole step is random, so that the losers of one conflict do not collide again.
        return random.uniform(0, min(self.wait_min_s * 2 ** min(failed - 1, 16), self.wait_max_s))  # noqa: S311

    def wait_s(self, failed: int, asked_s: float) -> float | None:
        """Draw that wait in addition to the one that the service requested; `None` if that attempt was the last."""
        if failed >= self.attempts_max:
            return None
        return min(asked_s, ASKED_MAX_S) + self.step_s(failed)
