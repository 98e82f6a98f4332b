"""The measurement of one client against its quota: a rate over sampled windows, or a token bucket.

Laws: nothing here reads a clock, and times never decrease. The throttle times are those of Apache Kafka: a client that
sends the same requests at the same times is throttled for the same milliseconds.
Source: Apache Kafka's Rate, SampledStat, TokenBucket and QuotaUtils; KIP-13 (rates), KIP-599 (tokens).
"""

from __future__ import annotations

import math
from typing import Final

#: The longest throttle time of the protocol, ms.
LONGEST_MS: Final = (1 << 31) - 1


class _Sample:
    """The sum of one window."""

    __slots__ = ("last_ms", "start_ms", "value")

    def __init__(self, now_ms: int) -> None:
        self.reset(now_ms)

    def reset(self, now_ms: int) -> None:
        """Start a new window at `now_ms` with the sum 0."""
        self.start_ms = self.last_ms = now_ms
        self.value = 0.0


class RateWindow:
    """The rate of a quantity over the latest windows."""

    __slots__ = ("_current", "_most", "_samples", "_window_ms")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        self._most: Final = windows
        self._window_ms: Final = window_ms
        #: One more than `windows` at most: the oldest may overlap the measured time.
        self._samples: list[_Sample] = []
        self._current = 0

    def record(self, value: float, now_ms: int) -> None:
        """Add `value` at `now_ms`; a negative `value` takes back an amount that was added at the same time."""
        samples = self._samples
        if not samples:
            samples.append(_Sample(now_ms))
        sample = samples[self._current]
        if now_ms - sample.start_ms >= self._window_ms:
            sample = self._advance(now_ms)
        sample.value += value
        sample.last_ms = now_ms

    def total(self, now_ms: int) -> float:
        """Return the sum over the latest windows."""
        return self._measure(now_ms)[0]

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the pause after which the rate has fallen to `limit` a second, ms; 0: it is within `limit`.

        >>> window = RateWindow(windows=11, window_ms=1000)
        >>> window.record(15_000, now_ms=0)
        >>> window.throttle_ms(1000.0, now_ms=0)
        5000
        """
        total, first_ms = self._measure(now_ms)
        span_ms = now_ms - first_ms
        # A rate over the first moments would be far too high, so at least all windows but the present one count.
        whole, least = span_ms // self._window_ms, self._most - 1
        if whole < least:
            span_ms += (least - whole) * self._window_ms
        span_ms = max(span_ms, 1)
        rate = total / (span_ms / 1000)
        if rate <= limit:
            return 0
        # Kafka's formula: with the rate O over the time W, a pause of X lowers the rate to O * W / (W + X), the limit.
        return _whole_ms((rate - limit) / limit * span_ms)

    def _advance(self, now_ms: int) -> _Sample:
        self._current = (self._current + 1) % (self._most + 1)
        if self._current >= len(self._samples):
            self._samples.append(_Sample(now_ms))
        else:
            self._samples[self._current].reset(now_ms)
        return self._samples[self._current]

    def _measure(self, now_ms: int) -> tuple[float, int]:
        """Reset outdated samples; return the sum of the others, and the start of the first of them, ms."""
        total, first_ms = 0.0, now_ms
        oldest_ms = now_ms - self._most * self._window_ms
        for sample in self._samples:
            # A sample that overlaps the measured time is kept, although it has begun before.
            if sample.last_ms <= oldest_ms:
                sample.reset(now_ms)
            else:
                total += sample.value
                first_ms = min(first_ms, sample.start_ms)
        return total, first_ms


class TokenBucket:
    """A token bucket that holds the tokens of all windows; one request may take more and leave a debt."""

    __slots__ = ("_at_ms", "_burst_s", "_tokens")

    def __init__(self, *, windows: int, window_ms: int) -> None:
        #: The time in which an empty bucket fills.
        self._burst_s: Final = windows * window_ms / 1000
        #: Tokens in the bucket; `None` before the first use, when the bucket is full.
        self._tokens: float | None = None
        self._at_ms = 0

    def take(self, count: float, limit: float, now_ms: int) -> None:
        """Take tokens, and go into debt if too few are left; `limit` tokens are added each second."""
        tokens = self._refill(limit, now_ms)
        self._tokens = min(self._burst_s * limit, tokens - count)

    def has_all_but(self, count: float, limit: float, now_ms: int) -> bool:
        """Return whether the bucket would be full with `count` tokens more."""
        return self._refill(limit, now_ms) + count >= self._burst_s * limit

    def throttle_ms(self, limit: float, now_ms: int) -> int:
        """Return the time until the bucket's debt is paid, ms; 0 without a debt.

        >>> bucket = TokenBucket(windows=100, window_ms=1000)
        >>> bucket.take(560, 5.0, now_ms=0)
        >>> bucket.throttle_ms(5.0, now_ms=0)
        12000
        """
        tokens = self._refill(limit, now_ms)
        if tokens >= 0:
            return 0
        return _whole_ms(-tokens / limit * 1000)

    def _refill(self, limit: float, now_ms: int) -> float:
        burst = self._burst_s * limit
        if self._tokens is None:
            self._tokens = burst
        else:
            self._tokens = min(burst, self._tokens + limit * (now_ms - self._at_ms) / 1000)
        self._at_ms = now_ms
        return self._tokens


def _whole_ms(wait_ms: float) -> int:
    """Round as Java's `Math.round` does, and cap at `LONGEST_MS`: tiny limits give longer times."""
    return math.floor(min(wait_ms + 0.5, LONGEST_MS))
