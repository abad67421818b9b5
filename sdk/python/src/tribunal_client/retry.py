"""When to try again, and how long to wait before: bounded, exponential, with full jitter."""

from __future__ import annotations

import random
from dataclasses import dataclass

ASKED_MAX_S = 30.0


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """Bounds of repetition."""

    attempts_max: int = 50
    """Attempts in all; 1 tries once."""
    wait_min_s: float = 0.001
    """Bound of the first wait, seconds. Each further one doubles."""
    wait_max_s: float = 0.2
    """Bound of the longest wait, seconds."""

    def step_s(self, failed: int) -> float:
        """Draw the wait behind the `failed`-th failed attempt, seconds."""
        # All of the step is random, so that losers of one conflict do not meet again.
        return random.uniform(0, min(self.wait_min_s * 2 ** min(failed - 1, 16), self.wait_max_s))  # noqa: S311

    def wait_s(self, failed: int, asked_s: float) -> float | None:
        """Draw the same, never shorter than what the service asked for; `None` when that attempt was the last."""
        if failed >= self.attempts_max:
            return None
        return min(asked_s, ASKED_MAX_S) + self.step_s(failed)
