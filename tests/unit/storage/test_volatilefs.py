"""The memory of a broker without a directory is bounded, and what is let go is room again."""

from __future__ import annotations

import gc
import weakref

import pytest

from kohort.errors import StorageError
from kohort.ids import TopicId
from kohort.storage.files.fs import NoRoomError
from kohort.storage.files.volatilefs import MemoryFullError, VolatileFile, VolatileFileSystem
from kohort.storage.store import Store
from support.builders.storage_logs import batch

LIMIT = 1_000


@pytest.fixture
def fs() -> VolatileFileSystem:
    return VolatileFileSystem(limit_bytes=LIMIT)


def test_what_does_not_fit_is_refused_as_a_whole(fs: VolatileFileSystem) -> None:
    file = fs.open("/a", create=True)
    file.write(0, bytes(900))
    with pytest.raises(MemoryFullError, match=r"memory.limit.bytes=1000\); let retention keep less, raise") as error:
        file.write(900, bytes(101))
    assert isinstance(error.value, NoRoomError) and error.value.retriable and not error.value.fatal
    assert (file.size(), fs.used_bytes) == (900, 900)
    file.write(900, bytes(100))
    file.write(0, bytes(1_000))
    assert fs.used_bytes == LIMIT, "what was there already is not counted again"
    assert (fs.space("/"), VolatileFileSystem().space("/")) == ((LIMIT, 0), (-1, -1))


def test_what_is_removed_cut_or_replaced_is_room_again(fs: VolatileFileSystem) -> None:
    fs.make_directory("/d")
    for name, size in (("a", 400), ("b", 300), ("d/c", 300)):
        fs.open(f"/{name}", create=True).write(0, bytes(size))
    fs.open("/b").truncate(100)
    assert fs.used_bytes == 800
    fs.rename("/b", "/a")
    assert fs.used_bytes == 400
    fs.remove("/d")
    assert fs.used_bytes == 100
    fs.remove("/d")
    fs.rename("/a", "/a")
    assert fs.used_bytes == 100


def test_a_file_that_is_removed_while_it_is_written_counts_no_more(fs: VolatileFileSystem) -> None:
    file = fs.open("/a", create=True)
    file.write(0, bytes(900))
    fs.remove("/a")
    file.write(900, bytes(900))
    file.truncate(10)
    assert (file.size(), fs.used_bytes) == (10, 0)


def test_a_removed_file_is_gone_for_good(fs: VolatileFileSystem) -> None:
    """Nobody syncs a directory in memory, and nothing is remembered that a sync would forget."""
    ended = weakref.ref(_Watched(fs))
    assert ended() is None
    fs.make_directory("/d")
    parent = fs.open_directory("/d")
    file = _Watched(fs)
    parent.change(("a", file))
    ended = weakref.ref(file)
    del file
    fs.remove("/d/a")
    gc.collect()
    assert ended() is None


class _Watched(VolatileFile):
    """A file that can be waited for."""

    __slots__ = ("__weakref__",)


def test_a_full_broker_takes_records_again_once_old_ones_are_gone() -> None:
    store = Store.in_memory({"segment.bytes": "200", "retention.bytes": "0"}, limit_bytes=5_000)
    log = store.create_topic("orders", 1, topic_id=TopicId(bytes(16))).partitions[0]
    with pytest.raises(StorageError, match=r"memory for records is full"):
        for _ in range(1_000):
            log.append(batch(), now_ms=5)
    assert 10 < log.log_end_offset < 100
    for path in log.drop_expired(10**15):
        store.fs.remove(path)
    log.append(batch(), now_ms=5)
    store.close()
