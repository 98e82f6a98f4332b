"""The broker finds damage by itself, refuses readers what is damaged, and says so."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from kohort.broker.schedules import Scrubber
from kohort.errors import Refused, StorageError
from kohort.records.batch import build_batch
from kohort.storage.compaction import compact, plan_compaction
from kohort.storage.log_state import capture, settle, write
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.scrubbing import scrub, scrub_newest
from kohort.storage.segments.indexes import load_facts
from kohort.storage.store import Store
from support.builders.storage_logs import TOPIC_ID, batch, offsets


def scrub_once(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    """A round through all of it."""
    caplog.clear()

    async def scrub() -> None:
        scrubber = Scrubber(asyncio.get_running_loop(), store, bytes_per_second=1 << 30, pause=0.0)
        scrubber.start()
        async with asyncio.timeout(30):
            while "event=scrubbed" not in caplog.text:  # noqa: ASYNC110
                await asyncio.sleep(0)
        scrubber.stop()

    with caplog.at_level(logging.INFO, logger="kohort.broker"):
        asyncio.run(scrub())


def test_damage_is_found_while_the_broker_runs(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"segment.bytes": "300"}).partitions[0]
    for _ in range(20):
        log.append(batch(), now_ms=5)
    store.close()
    store = Store.open(str(tmp_path))
    (log,) = store.topics["orders"].partitions
    path = Path(log.segments[1].path)
    content = bytearray(path.read_bytes())
    content[65] ^= 1
    path.write_bytes(content)

    scrub_once(store, caplog)
    first = log.segments[1].base_offset
    assert f"event=segment_damaged partition=orders-0 segment={first} reason='a batch is damaged'" in caplog.text
    assert f"event=records_missing partition=orders-0 offsets={first}-{first}" in caplog.text
    with pytest.raises(Refused):
        log.read(first, 1)
    assert log.read(first + 1, 1)
    store.close(clean=False)


def test_what_is_found_of_a_file_whose_place_was_taken_is_dropped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Its bytes are held against what was known of the one before it: that is no damage."""
    store = Store.open(str(tmp_path))
    configs = {"segment.bytes": "300", "cleanup.policy": "compact", "flush.messages": str(2**63 - 1)}
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions[0]
    for _ in range(20):
        log.append(build_batch([(b"k", b"v", 1, ())]), now_ms=5)
    captured = capture(log)
    settle(captured, write(store.fs, captured))
    scrub_once(store, caplog)
    old = log.segments[0]

    def take_its_place(_: int) -> None:
        planned = plan_compaction(log, 0, now_ms=10, dedupe_buffer_bytes=1 << 20)
        assert planned is not None
        for part in compact(store.fs, planned[0], now_ms=10).segments:
            log.replace(part.segment(store.fs, log.directory), part.cleaned_path)

    result = scrub(store.fs, log.directory, old.base_offset, pause=take_its_place)
    assert result is not None

    async def hand_over() -> None:
        scrubber = Scrubber(asyncio.get_running_loop(), store, bytes_per_second=1 << 30)
        scrubber._on_scrubbed(log, old, replace(result, reason="its checksum is another one"))
        scrubber.stop()

    caplog.clear()
    asyncio.run(hand_over())
    assert (caplog.text, log.holes, log.filing.is_awaited) == ("", (), False)
    assert load_facts(store.fs, log.directory, old.base_offset) is None, "nothing is known of the new one yet"
    store.close()


def filed(store: Store) -> PartitionLog:
    """A new topic `orders` of several files, whose indexes are written."""
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"segment.bytes": "300"}).partitions[0]
    for _ in range(20):
        log.append(batch(), now_ms=5)
    captured = capture(log)
    settle(captured, write(store.fs, captured))
    return log


def test_file_that_expires_while_it_is_read_is_not_made_again(tmp_path: Path) -> None:
    """An empty one in its place is where the log would begin at the next start, with a hole behind it."""
    store = Store.open(str(tmp_path))
    log = filed(store)
    log.mark_durable(log.sync())
    oldest = log.segments[0].base_offset

    def expire(_: int) -> None:
        for path in log.drop_segments(1):
            store.fs.remove(path)

    with pytest.raises(StorageError, match="No such file"):
        scrub(store.fs, log.directory, oldest, pause=expire)
    store.close(clean=False)
    store = Store.open(str(tmp_path))
    (log,) = store.topics["orders"].partitions
    assert (log.log_start_offset > oldest, log.holes) == (True, ())
    store.close()


def test_topic_that_is_deleted_in_the_middle_of_a_round_is_no_damage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Another one of its name has fewer bytes, and keeps what is known of them."""
    store = Store.open(str(tmp_path))
    old = filed(store)
    newest = old.segments[-1]
    work = partial(scrub_newest, store.fs, old.directory, newest.base_offset, end_offset=20, size_bytes=newest.size)
    store.delete_topic("orders")
    new = filed(store)
    new.segments[-1].file.truncate(10)

    async def hand_over() -> None:
        scrubber = Scrubber(asyncio.get_running_loop(), store, bytes_per_second=1 << 30)
        scrubber._on_scrubbed(old, newest, work(has_gaps=False, pause=lambda _: None))
        scrubber.stop()

    asyncio.run(hand_over())
    assert (caplog.text, old.holes) == ("", ())
    assert old.filing.do(lambda: True) is None and new.filing.do(lambda: True)
    store.close(clean=False)


@pytest.mark.parametrize("is_known", [True, False])
def test_epoch_of_a_batch_is_mended_while_the_broker_runs(
    is_known: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """No checksum of the batch covers it; `is_known`: the whole segment has had one already."""
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"segment.bytes": "300"}).partitions[0]
    for _ in range(20):
        log.append(batch(), now_ms=5)
    store.close()
    store = Store.open(str(tmp_path))
    (log,) = store.topics["orders"].partitions
    if is_known:
        scrub_once(store, caplog)
    path = Path(log.segments[1].path)
    right = path.read_bytes()
    wrong = bytearray(right)
    wrong[12] ^= 64
    path.write_bytes(wrong)
    scrub_once(store, caplog)
    first = log.segments[1].base_offset
    told = f"event=epochs_mended partition=orders-0 offsets {first} to {first} are of leader epoch 0; their batches"
    assert told in caplog.text
    assert path.read_bytes() == right
    scrub_once(store, caplog)
    assert "damaged=0" in caplog.text and "epochs_mended" not in caplog.text
    store.close(clean=False)


def test_newest_segment_is_looked_at_as_far_as_consumers_see_and_damage_there_outlives_a_clean_stop(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
    for _ in range(8):
        log.append(batch(), now_ms=5)
    log.mark_durable(log.sync())
    log.append(batch(), now_ms=5)
    path = Path(log.segments[0].path)
    width = path.stat().st_size // 9
    content = bytearray(path.read_bytes())
    for at in (3, 8):
        content[at * width + 65] ^= 1
    path.write_bytes(content)
    scrub_once(store, caplog)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(3, 4)], "the last is not there for good"
    assert "segment=0 reason='the batch at offset 3 is damaged" in caplog.text
    content[8 * width + 65] ^= 1
    path.write_bytes(content)
    with pytest.raises(Refused):
        log.read(3, 1)
    log.append(batch(), now_ms=5)
    assert log.read(4, 1) and log.read(9, 1)
    store.close()
    (log,) = Store.open(str(tmp_path)).topics["orders"].partitions
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(3, 4)]
    assert log.log_end_offset == 10


@pytest.mark.parametrize("bits", [1, 0x10, 0x40])
@pytest.mark.parametrize("byte", [8, 10, 11])
def test_length_that_is_damaged_in_the_newest_segment_after_a_clean_stop_is_a_hole_once_it_was_looked_at(
    byte: int, bits: int, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A start reads no batch then; a reader would be given what is no batch again and again."""
    store = Store.open(str(tmp_path))
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
    for _ in range(8):
        log.append(batch(), now_ms=5)
    store.close()
    path = Path(log.segments[0].path)
    content = bytearray(path.read_bytes())
    content[3 * len(content) // 8 + byte] ^= bits
    path.write_bytes(content)
    store = Store.open(str(tmp_path))
    assert store.recovery.is_clean
    (log,) = store.topics["orders"].partitions
    scrub_once(store, caplog)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(3, 4)]
    before, behind = offsets(log.read(0, 1 << 20)), offsets(log.read(4, 1 << 20))
    assert (before, behind) == ([0, 1, 2], [4, 5, 6, 7])
    with pytest.raises(Refused):
        log.read(3, 1 << 20)
    assert offsets(log.read(2, 60)) == [2], "whoever asks for little gets a whole batch"
    store.close()
    (log,) = Store.open(str(tmp_path)).topics["orders"].partitions
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(3, 4)]
