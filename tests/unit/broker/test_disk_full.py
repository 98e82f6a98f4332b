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
def disk_full(clock: Clock) -> DiskFull:
    return DiskFull(clock)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


BEGUN = "event=disk_refuses what=a-0 reason='no space left in /data' action=answer_KAFKA_STORAGE_ERROR"


def test_outage_is_two_lines(disk_full: DiskFull, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    for partition in ("a-0", "b-0", "a-0"):
        disk_full.refused(partition, FULL, size_bytes=1000)
        clock.now += 500
    assert disk_full.is_open
    disk_full.took(1000)
    assert not disk_full.is_open
    assert lines(caplog) == [BEGUN, "event=disk_takes_again after_seconds=1.5"]


def test_disk_that_takes_less_than_it_refused_is_still_full(
    disk_full: DiskFull, caplog: pytest.LogCaptureFixture
) -> None:
    disk_full.refused("a-0", FULL, size_bytes=1000)
    disk_full.refused("topic-b", FULL)
    disk_full.took(999)
    assert lines(caplog) == [BEGUN]

    disk_full.refused("a-0", FULL, size_bytes=500)
    disk_full.took(999)
    assert not disk_full.is_open


def test_disk_that_refuses_nothing_for_a_minute_is_full_no_more(
    disk_full: DiskFull, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody may ever send as much at once again; those who were refused have tried again long before."""
    disk_full.refused("a-0", FULL, size_bytes=1000)
    clock.now += 30_000
    disk_full.refused("a-0", FULL, size_bytes=1000)
    clock.now += 59_999
    disk_full.took(1)
    assert disk_full.is_open
    clock.now += 1
    disk_full.took(1)
    assert lines(caplog) == [BEGUN, "event=disk_takes_again after_seconds=90.0"]


def test_outage_that_began_with_something_small_ends_with_anything(disk_full: DiskFull) -> None:
    disk_full.refused("producer-ids", FULL)
    disk_full.took(1)
    assert not disk_full.is_open


def test_every_outage_has_its_lines(disk_full: DiskFull, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):
        disk_full.refused("a-0", FULL, size_bytes=10)
        disk_full.took(10)
    assert len(lines(caplog)) == 4
