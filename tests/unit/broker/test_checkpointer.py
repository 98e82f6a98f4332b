"""What a start needs to know is written while the broker runs, so that a kill costs little."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kohort.broker.schedules import Checkpointer
from kohort.ids import TopicId
from kohort.records.batch import build_batch
from kohort.storage.data_directory import RECOVERY_POINT_NAME, load_offsets
from kohort.storage.log_state import capture, is_outdated, write
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch

MANY = 1_000_000
CONFIGS = {"segment.bytes": "1000", "flush.messages": "9223372036854775807"}


def run(store: Store, is_done: Callable[[], bool]) -> None:
    async def until_done() -> None:
        checkpointer = Checkpointer(asyncio.get_running_loop(), store, interval_ms=20)
        checkpointer.start()
        async with asyncio.timeout(30):
            while not is_done():  # noqa: ASYNC110
                await asyncio.sleep(0)
        checkpointer.stop()

    asyncio.run(until_done())


def test_after_a_kill_only_what_came_later_is_checked(tmp_path: Path) -> None:
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=CONFIGS).partitions[0]
    for _ in range(100):
        log.append(batch(), now_ms=5)

    def is_written() -> bool:
        points = load_offsets(store.fs, str(tmp_path), RECOVERY_POINT_NAME)
        return points.get(("orders", 0)) == 100 and not is_outdated(log)

    run(store, is_written)
    assert all(segment.index is None for segment in log.segments[:-1]), "their indexes take no memory any more"
    log.append(batch(), now_ms=5)
    store.close(clean=False)

    store = Store.open(str(tmp_path))
    log = store.topics["orders"].partitions[0]
    assert (log.log_end_offset, store.recovery.bytes_checked) == (101, len(batch()))
    store.close()


def test_what_is_closed_may_be_compacted_though_nobody_asks_for_a_sync_any_more() -> None:
    """An idle topic that syncs every so many records, and so many do not come."""
    store = Store.open("/data", fs=MemoryFileSystem())
    configs = {"cleanup.policy": "compact", "segment.bytes": "1000", "flush.messages": "100000"}
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions[0]
    for _ in range(50):
        log.append(build_batch([(b"k", b"v", 1_000, ())]), now_ms=5)
    assert not log.closed_segments

    run(store, lambda: len(log.closed_segments) == len(log.segments) - 1)
    assert log.durable_offset == 50


def test_record_that_consumers_may_not_see_yet_is_left_to_who_syncs_for_them() -> None:
    store = Store.open("/data", fs=MemoryFileSystem())
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"segment.bytes": "1000"}).partitions[0]
    for _ in range(50):
        log.append(batch(), now_ms=5)
    run(store, lambda: not is_outdated(log))
    assert log.high_watermark == 0, "whoever waits for it is told by the one that raises it"


def test_a_topic_that_is_deleted_meanwhile_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    store = Store.open("/data", fs=MemoryFileSystem())
    for number in range(3):
        topic = store.create_topic(f"t{number}", 1, topic_id=TOPIC_ID[:-1] + bytes([number]), configs=CONFIGS)  # type: ignore[arg-type]
        topic.partitions[0].append(batch(), now_ms=5)

    def is_done() -> bool:
        if "t0" in store.topics:
            store.delete_topic("t0")
        return not any(is_outdated(topic.partitions[0]) for topic in store.topics.values())

    with caplog.at_level(logging.WARNING, logger="kohort.broker"):
        run(store, is_done)
    assert not caplog.messages


@pytest.mark.parametrize("captured_before", [True, False])
def test_nothing_of_a_deleted_topic_is_written_for_the_next_of_its_name(captured_before: bool) -> None:
    """What was known of the old one would promise records at the next start that the new one never had."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    for name in ("early", "orders", "late"):
        topic = store.create_topic(name, 1, topic_id=TopicId(name[:1].encode() * 16), configs=CONFIGS)
        for _ in range(30):
            topic.partitions[0].append(batch(), now_ms=5)
    (log,) = store.topics["orders"].partitions
    captured = capture(log)

    def again() -> None:
        store.delete_topic("orders")
        new = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=CONFIGS).partitions[0]
        new.append(batch(), now_ms=5)

    if captured_before:
        again()
        assert log.filing.do(partial(write, fs, captured)) is None
    else:

        def is_over() -> bool:
            # The first has been looked at, and the second is next.
            if not is_outdated(store.topics["early"].partitions[0]) and store.has(log):
                again()
            return not is_outdated(store.topics["late"].partitions[0])

        run(store, is_over)
    store.close(clean=False)
    (log,) = Store.open("/data", fs=fs).topics["orders"].partitions
    assert (log.log_end_offset, log.holes) == (1, ())


def test_what_a_full_disk_does_not_take_is_written_later(caplog: pytest.LogCaptureFixture) -> None:
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=CONFIGS).partitions[0]
    for _ in range(30):
        log.append(batch(), now_ms=5)
    fs.space_left = 10

    def is_done() -> bool:
        if "event=checkpoint_failed partition=orders-0" in caplog.text:
            fs.space_left = None
        return not is_outdated(log)

    with caplog.at_level(logging.WARNING, logger="kohort.broker"):
        run(store, is_done)
    assert caplog.messages


@pytest.mark.large
def test_full_disk_is_told_once_however_many_logs_it_does_not_take(caplog: pytest.LogCaptureFixture) -> None:
    """A thousand logs would be a thousand lines with each round."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    logs = []
    for number in range(3):
        topic_id = TopicId(TOPIC_ID[:-1] + bytes([number]))
        logs.append(store.create_topic(f"t{number}", 1, topic_id=topic_id, configs=CONFIGS).partitions[0])
    for outage in range(2):
        for log in logs:
            log.append(batch(), now_ms=5)
        fs.space_left, fs.steps_left = 10, MANY
        caplog.clear()
        with caplog.at_level(logging.WARNING, logger="kohort.broker"):
            # Each refused file was begun, and that is a step.
            run(store, lambda: (fs.steps_left or 0) < MANY - 50)
        assert len(caplog.messages) == 1, f"outage {outage}: {caplog.messages}"
        fs.space_left = None
        run(store, lambda: not any(map(is_outdated, logs)))
