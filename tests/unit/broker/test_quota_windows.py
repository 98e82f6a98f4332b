"""Rates and tokens of one client, and the times that follow from them, computed by hand with Kafka's formulas.

Source: Apache Kafka's Rate, SampledStat, QuotaUtils and TokenBucket.
"""

from __future__ import annotations

import pytest

from kohort.broker.limits.quota_windows import LONGEST_MS, RateWindow, TokenBucket


def rate(*amounts: tuple[int, float], windows: int = 11, window_ms: int = 1_000) -> RateWindow:
    """A rate that has seen these amounts at these times, ms."""
    window = RateWindow(windows=windows, window_ms=window_ms)
    for at_ms, amount in amounts:
        window.record(amount, at_ms)
    return window


@pytest.mark.parametrize(
    ("amounts", "now_ms", "expected_ms"),
    [
        # The first moments count as ten whole windows: 10,000 bytes in them are 1,000 a second, and no more.
        ([(0, 10_000)], 0, 0),
        # (1000.1 - 1000) / 1000 * 10,000 ms.
        ([(0, 10_001)], 0, 1),
        # (1500 - 1000) / 1000 * 10,000 ms.
        ([(0, 15_000)], 0, 5_000),
        # Half a window later the time is 10.5 s: 15,000 / 10.5 = 1428.57; 0.42857 * 10,500 = 4,500.
        ([(0, 15_000)], 500, 4_500),
        ([(0, 15_000)], 5_000, 5_000),
        # At 5.25 s: five whole windows are over, five count as over: 10.25 s; 15,000 - 10,250 = 4,750.
        ([(0, 15_000)], 5_250, 4_750),
        # After ten windows nothing is added any more.
        ([(0, 15_000)], 10_400, 4_600),
        # After eleven the sample is gone, whatever there was.
        ([(0, 15_000)], 11_000, 0),
        # At 11 s the first of two samples is gone: 100 ms of the second and ten windows; 10,500 - 10,100 = 400.
        ([(0, 15_000), (10_900, 10_500)], 10_999, 14_501),
        ([(0, 15_000), (10_900, 10_500)], 11_000, 400),
        # Within one window all goes into one sample, which is kept by the latest of its amounts.
        ([(0, 6_000), (900, 6_000)], 11_000, 1_000),
        ([(0, 6_000), (900, 6_000)], 11_900, 0),
    ],
)
def test_the_wait_brings_the_rate_down_to_the_limit(
    amounts: list[tuple[int, float]], now_ms: int, expected_ms: int
) -> None:
    assert rate(*amounts).throttle_ms(1_000, now_ms) == expected_ms


def test_a_wait_is_as_long_as_it_has_to_be() -> None:
    """O * W / (W + X) = T: after the wait the rate is the limit, if nothing is added and no sample goes."""
    window = rate((0, 12_345))
    wait_ms = window.throttle_ms(1_000, 0)
    assert wait_ms == 2_345
    # Whole windows that have passed are not added to those that are assumed: the rate is low a little later.
    assert window.throttle_ms(1_000, 999) == pytest.approx(wait_ms - 999)


def test_what_is_taken_back_was_never_there() -> None:
    window = rate((0, 9_000), (0, 5_000), (0, -5_000))
    assert window.total(0) == 9_000
    assert window.throttle_ms(1_000, 0) == 0


def test_samples_are_used_again() -> None:
    """One more than there are windows, however long a client is at work."""
    window = rate(*((second * 1_000, 1_000) for second in range(500)))
    assert len(window._samples) == 12
    assert window.throttle_ms(1_000, 499_000) == pytest.approx(0, abs=1_000)
    assert window.total(499_000) == 11_000


@pytest.mark.parametrize(("windows", "window_ms"), [(1, 1_000), (2, 500), (30, 60_000)])
def test_windows_are_as_many_and_as_long_as_asked(windows: int, window_ms: int) -> None:
    span_ms = max((windows - 1) * window_ms, 1)
    window = rate((0, 2 * span_ms), windows=windows, window_ms=window_ms)
    assert window.throttle_ms(1_000, 0) == span_ms


@pytest.mark.parametrize("limit", [5e-324, 1e-300, 1e-9])
def test_the_smallest_limits_end_at_the_longest_time_that_there_is(limit: float) -> None:
    assert rate((0, 1)).throttle_ms(limit, 0) == LONGEST_MS
    bucket = TokenBucket(windows=11, window_ms=1_000)
    bucket.take(1, limit, 0)
    assert bucket.throttle_ms(limit, 0) == LONGEST_MS


def test_a_bucket_gives_all_windows_at_once_and_one_taker_more() -> None:
    """KIP-599: 5 a second over 11 windows of a second: 55 tokens."""
    bucket = TokenBucket(windows=11, window_ms=1_000)
    bucket.take(55, 5, 1_000)
    assert bucket.throttle_ms(5, 1_000) == 0
    bucket.take(60, 5, 1_000)
    assert bucket.throttle_ms(5, 1_000) == 12_000
    assert bucket.throttle_ms(5, 7_000) == 6_000
    assert bucket.throttle_ms(5, 13_000) == 0


def test_tokens_come_back_up_to_the_limit_of_the_day() -> None:
    bucket = TokenBucket(windows=2, window_ms=1_000)
    bucket.take(20, 10, 0)
    bucket.take(0, 10, 60_000)
    bucket.take(30, 10, 60_000)
    assert bucket.throttle_ms(10, 60_000) == 1_000
    assert bucket.throttle_ms(100, 60_000) == 100, "the limit was raised"
