"""Group commit as a dialogue: who is synced now, who waits."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kohort.broker.durability import SyncScheduler


def test_a_log_is_synced_when_it_asks() -> None:
    scheduler: SyncScheduler[str] = SyncScheduler()
    assert scheduler.start() == []
    scheduler.request("a", 3)
    assert scheduler.start() == ["a"]
    scheduler.finish("a", 3)
    assert scheduler.start() == []
    assert scheduler.is_idle


def test_appends_during_a_sync_ride_with_the_next() -> None:
    """Group commit: many appends, one fdatasync."""
    scheduler: SyncScheduler[str] = SyncScheduler()
    scheduler.request("a", 1)
    assert scheduler.start() == ["a"]
    for end in range(2, 50):
        scheduler.request("a", end)
        assert scheduler.start() == []

    scheduler.finish("a", 1)
    assert scheduler.start() == ["a"]
    scheduler.finish("a", 49)
    assert scheduler.is_idle


def test_what_a_sync_covered_by_luck_is_not_synced_again() -> None:
    scheduler: SyncScheduler[str] = SyncScheduler()
    scheduler.request("a", 1)
    scheduler.start()
    scheduler.request("a", 2)
    scheduler.finish("a", 2)
    assert scheduler.start() == []
    assert scheduler.is_idle


def test_only_so_many_syncs_at_once_and_in_the_order_of_asking() -> None:
    scheduler: SyncScheduler[str] = SyncScheduler(limit=2)
    for name in "cab":
        scheduler.request(name, 1)
    scheduler.request("c", 2)
    assert scheduler.start() == ["c", "a"]

    scheduler.request("a", 2)
    scheduler.finish("a", 1)
    assert scheduler.start() == ["b"]
    scheduler.finish("b", 1)
    assert scheduler.start() == ["a"]


def test_a_deleted_log_is_not_synced() -> None:
    scheduler: SyncScheduler[str] = SyncScheduler()
    scheduler.request("a", 1)
    scheduler.start()
    scheduler.request("a", 2)
    scheduler.forget("a")
    scheduler.finish("a", 1)
    assert scheduler.start() == []
    assert scheduler.is_idle


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=50), st.integers(1, 3))
def test_everything_asked_for_becomes_durable(script: list[tuple[str, bool]], limit: int) -> None:
    scheduler: SyncScheduler[str] = SyncScheduler(limit=limit)
    ends = dict.fromkeys("abc", 0)
    durable = dict.fromkeys("abc", 0)
    running: dict[str, int] = {}

    def start() -> None:
        for name in scheduler.start():
            assert name not in running, "one sync per log"
            running[name] = ends[name]
        assert len(running) <= limit

    def finish() -> None:
        name = next(iter(running))
        durable[name] = running.pop(name)
        scheduler.finish(name, durable[name])

    for name, ends_one in script:
        ends[name] += 1
        scheduler.request(name, ends[name])
        start()
        if ends_one and running:
            finish()
            start()
    while running:
        finish()
        start()
    assert durable == ends
    assert scheduler.is_idle
