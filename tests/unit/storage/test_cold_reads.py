"""Who does not wait for the disk is told what is not in memory."""

from __future__ import annotations

from pathlib import Path
from weakref import ref

import pytest

from kohort.broker.scheduling import warm
from kohort.storage.files.descriptors import HeldBytes, NotResidentError
from kohort.storage.files.fs import DiskFile, DiskFileSystem
from support.builders.coldness import make_cold
from support.builders.storage_logs import batch, empty_log, offsets

PAGE = 4096


def test_cold_bytes_are_not_waited_for_until_somebody_has_read_them(tmp_path: Path) -> None:
    disk = DiskFileSystem()
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, bytes(100 * PAGE))
    assert len(file.read(0, 100 * PAGE, wait=False)) == 100 * PAGE
    make_cold(file.path)

    with pytest.raises(NotResidentError) as met:
        file.view(PAGE, 50 * PAGE, wait=False)
    assert (met.value.position, met.value.size) == (PAGE, 50 * PAGE)
    warm(met.value)
    assert len(file.view(PAGE, 50 * PAGE, wait=False)) == 50 * PAGE


def test_the_end_of_a_file_is_not_cold(tmp_path: Path) -> None:
    """There is nothing to wait for."""
    file = DiskFileSystem().open(f"{tmp_path}/a", create=True)
    file.write(0, bytes(10))
    assert len(file.read(0, 100, wait=False)) == 10
    assert file.read(10, 100, wait=False) == b""


def test_a_file_that_was_cut_is_not_warmed_forever(tmp_path: Path) -> None:
    file = DiskFileSystem().open(f"{tmp_path}/a", create=True)
    file.write(0, bytes(10))
    warm(NotResidentError(file, 5, 1 << 30))


def test_a_cold_log_is_read_once_it_is_warm(tmp_path: Path) -> None:
    """Each look may find the next cold place: where the batch is, then the batch."""
    log = empty_log(DiskFileSystem(), f"{tmp_path}/orders-0")
    for _ in range(300):
        log.append(batch(value=bytes(1000)), now_ms=5)
    file = log.segments[0].file
    assert isinstance(file, DiskFile)
    make_cold(file.path)

    for _ in range(5):
        try:
            found = log.read(250, 30_000, wait=False)
            break
        except NotResidentError as cold:
            warm(cold)
    assert offsets(found)[0] == 250


def test_what_readers_hold_is_counted(tmp_path: Path) -> None:
    """Until the last of them lets go; then the same memory is used again, and what was read before stays as it was."""
    disk = DiskFileSystem()
    log = empty_log(disk, f"{tmp_path}/orders-0")
    for value in (b"a", b"b"):
        log.append(batch(value=value * 100_000), now_ms=5)
    (first,) = log.read(0, 1)
    assert len(first) <= disk.held.used <= len(first) * 9 // 8
    (second,) = log.read(1, 1)
    assert disk.held.used >= len(first) + len(second)
    part, kept = first[-10:-5], bytes(second)
    address = id(first.obj)
    del first
    assert disk.held.used >= len(kept) * 2, "a part is enough"
    del part
    assert disk.held.used <= len(kept) * 9 // 8
    assert id(log.read(0, 1)[0].obj) == address
    assert bytes(second) == kept
    del second
    assert disk.held.used == 0


def test_memory_of_what_was_read_goes_back_to_the_system_once_nobody_has_it() -> None:
    """What goes back to the allocator may stay with the process for ever."""
    held = HeldBytes()
    views = [memoryview(held.block(size)) for size in (20_000, 1_000_000)]
    mapped = ref(views[1].obj)
    views.pop(0)
    assert held.settle() and held.used >= 1_000_000, "it is in use"

    memoryview(held.block(20_000)).release()
    views.clear()
    assert held.settle() and held.used == 0, "something was read: another read may use it again"
    assert mapped() is not None
    assert not held.settle()
    assert mapped() is None
