"""Files that left their logs are removed later, and nothing else is."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from kohort.broker.schedules import FileRemovals
from kohort.ids import TopicId
from kohort.storage.store import Store
from support.builders.storage_logs import batch


@pytest.mark.parametrize("is_deleted", [True, False])
def test_files_of_the_next_topic_of_the_name_stay(is_deleted: bool, tmp_path: Path) -> None:
    """It may have segments of the same offsets, with indexes and promises of their own."""
    store = Store.open(str(tmp_path))
    configs = {"segment.bytes": str(len(batch())), "file.delete.delay.ms": "1"}
    old = store.create_topic("orders", 1, topic_id=TopicId(b"1" * 16), configs=configs).partitions[0]
    for _ in range(3):
        old.append(batch(), now_ms=5)
    old.mark_durable(old.sync())
    gone = old.drop_segments(2)
    if is_deleted:
        store.delete_topic("orders")
        log = store.create_topic("orders", 1, topic_id=TopicId(b"2" * 16), configs=configs).partitions[0]
        for _ in range(3):
            log.append(batch(), now_ms=5)
        log.sync()
    marks = [Path(path) for path in gone if path.endswith(".synced") and Path(path).exists()]
    assert len(marks) == 2

    async def main() -> None:
        removals = FileRemovals(asyncio.get_running_loop(), store.fs)
        removals.later(old, gone)
        over = asyncio.Event()
        # Timers of the same length come in the order in which they were set.
        asyncio.get_running_loop().call_later(0.001, lambda: removals.do(lambda: None, lambda _: over.set()))
        await over.wait()
        removals.stop()

    asyncio.run(main())
    assert [mark.exists() for mark in marks] == [is_deleted, is_deleted]
    store.close()
