"""A closed segment is read again and held against its checksum: any bit that changed since is found."""

from __future__ import annotations

import pytest

from kohort.errors import Refused
from kohort.records.batch import iterate_records
from kohort.storage import scrubbing
from kohort.storage.log_state import capture, settle, write
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import open_partition
from kohort.storage.scrubbing import Scrubbed, ScrubStoppedError, keep, scrub, scrub_newest
from kohort.storage.segments.indexes import FACTS_SUFFIX, index_path, load_facts
from kohort.storage.segments.segment import segment_name
from kohort.storage.topicconfig import LONG_MAX, LogConfig
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch

DIRECTORY = "/orders-0"
FILE = f"{DIRECTORY}/{segment_name(0)}"
CONFIG = LogConfig(flush_messages=LONG_MAX, segment_bytes=300)


def recover(fs: MemoryFileSystem) -> PartitionLog:
    return open_partition(fs, DIRECTORY, topic="orders", partition=0, config=CONFIG)[0]


def closed() -> tuple[MemoryFileSystem, PartitionLog]:
    """A log whose first segment has four batches of one record, and is closed."""
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    log = recover(fs)
    for number in range(10):
        log.append(batch(value=b"%d" % number), now_ms=5)
    captured = capture(log)
    settle(captured, write(fs, captured))
    return fs, log


def look(fs: MemoryFileSystem) -> Scrubbed | None:
    found = scrub(fs, DIRECTORY, 0, pause=lambda _: None)
    if found is not None:
        keep(fs, DIRECTORY, 0, found)
    return found


def test_segment_gets_a_checksum_and_is_held_against_it() -> None:
    fs, log = closed()
    first = look(fs)
    facts = load_facts(fs, DIRECTORY, 0)
    assert facts is not None and facts.checksum is not None
    assert first == Scrubbed(size_bytes=log.segments[0].size, facts=facts)
    assert look(fs) == Scrubbed(size_bytes=log.segments[0].size), "nothing new"
    assert load_facts(fs, DIRECTORY, 0) == facts


@pytest.mark.parametrize("is_known", [True, False])
def test_every_bit_that_changes_is_found_and_the_rest_is_served(is_known: bool) -> None:
    """Of a leader epoch only the checksum of the whole file knows; whatever else changes, its batch is a hole."""
    fs, log = closed()
    if is_known:
        look(fs)
    content = fs.open(FILE).read(0, 1000)
    facts = fs.open(index_path(DIRECTORY, 0, FACTS_SUFFIX)).read(0, 1000)
    width = len(content) // 4
    for position in range(len(content)):
        fs.open(FILE).write(position, bytes([content[position] ^ 1 << position % 8]))
        found = look(fs)
        assert found is not None
        hurt = position // width
        is_epoch = 12 <= position % width < 16
        if is_epoch:
            assert found.damages == () and bool(found.reason) == is_known
        else:
            assert [(hole.first_offset, hole.next_offset) for hole in found.damages] == [(hurt, hurt + 1)], position
            log.holes = ()
            log.refuse(found.damages)
            with pytest.raises(Refused):
                log.read(hurt, 1)
        fs.open(FILE).write(0, content)
        file = fs.open(index_path(DIRECTORY, 0, FACTS_SUFFIX), create=True)
        file.truncate(0)
        file.write(0, facts)


def test_what_was_found_is_kept_by_the_next_start() -> None:
    fs, _ = closed()
    look(fs)
    file = fs.open(FILE)
    file.write(168, bytes([file.read(168, 1)[0] ^ 1]))
    assert recover(fs).holes == (), "a start relies on what was right"
    look(fs)
    log = recover(fs)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(2, 3)]
    assert next(iterate_records(log.read(3, 1 << 20)[0])).value == b"3"


def test_segment_that_is_unknown_or_gone_is_passed_over() -> None:
    fs, _ = closed()
    assert scrub(fs, DIRECTORY, 77, pause=lambda _: None) is None
    fs.remove(FILE)
    assert look(fs) is None


def test_whoever_scrubs_can_be_stopped() -> None:
    fs, _ = closed()

    def stop(count: int) -> None:
        assert count > 0
        raise ScrubStoppedError

    with pytest.raises(ScrubStoppedError):
        scrub(fs, DIRECTORY, 0, pause=stop)


def test_growing_segment_is_read_with_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a closed one: other readers have the disk meanwhile."""
    monkeypatch.setattr(scrubbing, "READ_BYTES", 100)
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    log = recover(fs)
    sizes = [log.append(batch(value=b"x"), now_ms=5) and log.segments[0].size for _ in range(4)]
    pauses: list[int] = []
    found = scrub_newest(fs, DIRECTORY, 0, end_offset=4, size_bytes=sizes[-1], has_gaps=False, pause=pauses.append)
    assert not found.damages
    assert sum(pauses) == sizes[-1] and all(size < 100 + sizes[0] for size in pauses) and len(pauses) > 1


def test_state_of_a_log_that_grows_no_more_makes_it_durable() -> None:
    """No request waits for a sync of it, and compaction does."""
    _, log = closed()
    assert log.durable_offset == log.high_watermark == log.log_end_offset
