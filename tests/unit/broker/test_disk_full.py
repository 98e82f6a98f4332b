"""What is logged of a disk that takes nothing."""

from __future__ import annotations

import pytest

from kohort.broker.durability import DiskFull
from kohort.errors import StorageError

FULL = StorageError("no space left in /data")


class Clock:
    """Moves by hand."""

    now = 0

    def now_ms(self) -> int:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def outage(clock: Clock) -> DiskFull:
    return DiskFull(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


BEGUN = "event=disk_refuses what=a-0 reason='no space left in /data' action=answer_KAFKA_STORAGE_ERROR"


def test_outage_is_two_lines(outage: DiskFull, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for partition in ("a-0", "b-0", "a-0"):
        outage.refused(partition, FULL, size_bytes=1000)
        clock.now += 500
    assert outage.is_open
    outage.took(1000)
    assert not outage.is_open
    assert lines(caplog) == [BEGUN, "event=disk_takes_again after_seconds=1.5"]


def test_disk_that_takes_less_than_it_refused_is_still_full(outage: DiskFull, caplog: pytest.LogCaptureFixture) -> None:
    outage.refused("a-0", FULL, size_bytes=1000)
    outage.refused("topic-b", FULL)
    outage.took(999)
    assert lines(caplog) == [BEGUN]

    outage.refused("a-0", FULL, size_bytes=500)
    outage.took(999)
    assert not outage.is_open


def test_disk_that_refuses_nothing_for_a_minute_is_full_no_more(
    outage: DiskFull, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody may ever send as much at once again; those who were refused have tried again long before."""
    outage.refused("a-0", FULL, size_bytes=1000)
    clock.now += 30_000
    outage.refused("a-0", FULL, size_bytes=1000)
    clock.now += 59_999
    outage.took(1)
    assert outage.is_open
    clock.now += 1
    outage.took(1)
    assert lines(caplog) == [BEGUN, "event=disk_takes_again after_seconds=90.0"]


def test_outage_that_began_with_something_small_ends_with_anything(outage: DiskFull) -> None:
    outage.refused("producer-ids", FULL)
    outage.took(1)
    assert not outage.is_open


def test_every_outage_has_its_lines(outage: DiskFull, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        outage.refused("a-0", FULL, size_bytes=10)
        outage.took(10)
    assert len(lines(caplog)) == 4
