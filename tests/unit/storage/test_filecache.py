"""Files give their descriptors back and nobody notices: not who reads, not who writes, not who syncs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kohort.errors import StorageError
from kohort.storage.files.fs import DiskFailedError, DiskFile, DiskFileSystem
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topicconfig import LONG_MAX
from support.builders.storage_logs import batch, empty_log, offsets


def make_files(disk: DiskFileSystem, directory: Path, count: int) -> list[DiskFile]:
    """Files that hold their number."""
    files = [disk.open(f"{directory}/{number}", create=True) for number in range(count)]
    for number, file in enumerate(files):
        file.write(0, b"%04d" % number)
    return files


def test_no_more_files_are_open_than_may_be(tmp_path: Path) -> None:
    disk = DiskFileSystem(most_open=8)
    files = make_files(disk, tmp_path, 50)
    assert len(disk.files) <= 8
    assert [file.read(0, 9) for file in files] == [b"%04d" % number for number in range(50)]
    assert len(disk.files) <= 8
    del files
    assert len(disk.files) == 0, "the cache keeps nobody alive"


def test_files_in_use_stay_open(tmp_path: Path) -> None:
    """A second chance: what is read again and again is not opened again and again."""
    disk = DiskFileSystem(most_open=8)
    files = make_files(disk, tmp_path, 50)
    for file in files:
        file.sync()
    busy = files[0]
    number = busy.descriptor().number
    for file in files[1:]:
        busy.read(0, 4)
        file.read(0, 4)
    assert busy.descriptor().number == number


def test_unsynced_files_go_last(tmp_path: Path) -> None:
    """Whoever has them open hears of what could not be written."""
    disk = DiskFileSystem(most_open=8)
    synced = make_files(disk, tmp_path, 7)
    for file in synced:
        file.sync()
    unsynced = disk.open(f"{tmp_path}/unsynced", create=True)
    unsynced.write(0, b"x")
    number = unsynced.descriptor().number
    for file in synced * 3:
        file.read(0, 4)
        unsynced.is_used = False
        disk.open(f"{tmp_path}/other", create=True)
    assert unsynced.descriptor().number == number


def test_a_file_that_lets_go_as_it_is_opened_is_read_all_the_same(tmp_path: Path) -> None:
    """There is room for one, and that one has bytes that no sync has covered."""
    disk = DiskFileSystem(most_open=1)
    (quiet,) = make_files(disk, tmp_path, 1)
    quiet.sync()
    busy = disk.open(f"{tmp_path}/busy", create=True)
    for _ in range(3):
        busy.write(0, b"x")
        busy.is_used = True
        assert (quiet.read(0, 9), quiet.size(), bytes(quiet.view(0, 9))) == (b"0000", 4, b"0000")


def test_a_file_that_gave_its_descriptor_back_is_synced_by_a_new_one(tmp_path: Path) -> None:
    disk = DiskFileSystem(most_open=8)
    file = disk.open(f"{tmp_path}/a", create=True)
    file.write(0, b"x")
    file.let_go()
    assert file.is_unsynced
    file.sync()
    assert not file.is_unsynced


def test_another_file_of_that_name_is_never_taken_for_it(tmp_path: Path) -> None:
    """A compacted segment has taken its place while somebody reads the old one."""
    disk = DiskFileSystem()
    old = disk.open(f"{tmp_path}/a", create=True)
    old.write(0, b"old")
    old.let_go()
    disk.open(f"{tmp_path}/b", create=True).write(0, b"new")
    disk.rename(f"{tmp_path}/b", f"{tmp_path}/a")

    with pytest.raises(StorageError, match="another file has its name now") as refused:
        old.read(0, 3)
    assert not isinstance(refused.value, DiskFailedError)
    with pytest.raises(StorageError, match="another file has its name now") as refused:
        old.write(0, b"x")
    assert disk.health.failure is None, "the disk has not failed"


@pytest.fixture
def log(tmp_path: Path) -> PartitionLog:
    """Three segments on a disk."""
    log = empty_log(DiskFileSystem(), f"{tmp_path}/orders-0", segment_bytes=1000, flush_messages=LONG_MAX)
    for _ in range(30):
        log.append(batch(value=bytes(30)), now_ms=5)
    assert len(log.segments) > 2
    return log


def test_a_segment_that_was_cut_is_an_error_and_the_others_are_read(log: PartitionLog) -> None:
    """From outside, while it is served: by a mapping that would be the end of the process."""
    second = log.segments[1]
    os.truncate(second.path, 150)

    with pytest.raises(StorageError, match=r"ends at byte 150 of \d+ that were written; was it cut from outside\?"):
        log.read(second.base_offset, 10_000)
    with pytest.raises(StorageError, match="was it cut from outside"):
        log.read(second.next_offset - 1, 10_000)
    assert offsets(log.read(0, log.segments[0].size)) == list(range(second.base_offset))
    third = log.segments[2].base_offset
    assert offsets(log.read(third, 500))[0] == third


def test_lengths_that_are_not_those_of_batches_are_an_error(log: PartitionLog) -> None:
    """Hopping from batch to batch ends, whatever stands there."""
    second = log.segments[1]
    second.file.write(0, bytes(second.size))
    with pytest.raises(StorageError, match="is damaged at byte 0: a batch of 0 bytes"):
        log.read(second.next_offset - 1, 10_000)


_MANY_PARTITIONS = """
import sys, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
from kohort.storage.files.fs import DiskFileSystem
from support.builders.storage_logs import batch, empty_log, offsets
disk = DiskFileSystem()
logs = [empty_log(disk, f"{sys.argv[1]}/orders-{number}", flush_messages=1) for number in range(100)]
for turn in range(3):
    for log in logs:
        log.append(batch(), now_ms=5)
        if turn == 1:
            log.mark_durable(log.sync())
spare = []
try:
    while True:
        spare.append(open("/dev/null"))
except OSError:
    pass
print(all(offsets(log.read(0, 10_000)) == [0, 1, 2] for log in logs), len(disk.files) <= 32)
for log in logs:
    log.mark_durable(log.sync())
print(all(log.durable_offset == 3 for log in logs))
"""


@pytest.mark.process
def test_many_partitions_need_few_descriptors(tmp_path: Path) -> None:
    """More of them than the process may open files, all written, read and synced; even when others take the rest."""
    command = [sys.executable, "-c", _MANY_PARTITIONS, str(tmp_path)]
    around = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60, env=around)
    assert run.stdout.split() == ["True", "True", "True"]
