"""The pauses between two attempts.

Laws: no clock and no chance in here; jitter comes from a seed that the caller passes in, so a run can be repeated.
Source: Kafka's `retry.backoff.ms` and `retry.backoff.max.ms` (KIP-580): doubled per attempt, spread by a fifth.
"""

from __future__ import annotations

from kohort.base.values import value

_MULTIPLIER = 6364136223846793005
_INCREMENT = 1442695040888963407
_MASK = (1 << 64) - 1


@value
class Backoff:
    """A schedule of pauses in milliseconds.

    >>> Backoff(base_ms=100, max_ms=1000, seed=7).delay_ms(0)
    116
    >>> Backoff(base_ms=100, max_ms=1000, seed=7).delay_ms(20) <= 1200
    True
    """

    base_ms: int
    max_ms: int
    seed: int = 0

    def delay_ms(self, attempt: int) -> int:
        """Return the pause after `attempt` failures in a row, from 0; at least 1 ms unless the base is 0."""
        assert attempt >= 0
        if self.base_ms == 0:
            return 0
        plain = min(self.max_ms, self.base_ms << min(attempt, 20))
        # One step of a linear congruential generator per attempt: spread enough to part clients of different seeds.
        mixed = ((self.seed + attempt) * _MULTIPLIER + _INCREMENT) & _MASK
        spread = ((mixed >> 33) % 401) - 200
        return max(1, plain + plain * spread // 1000)
