"""Each fault of the disk for tests is real: who does not look, or tries again, is caught by it."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kohort.errors import StorageError
from kohort.storage.files.fs import (
    DiskFailedError,
    DiskFileSystem,
    DiskFullError,
    DiskHealth,
    FileSystem,
    NoRoomError,
    SyncFailedError,
    UnreadableError,
    read_bounded,
    refusal_of,
    replace_file,
)
from kohort.testing import Fault, FaultyFileSystem
from kohort.testing.disks import Crashed


def use_everything(fs: FileSystem) -> None:
    """Every operation that there is, those of reading included."""
    fs.make_directory("/data")
    file = fs.open("/data/a", create=True)
    file.write(0, b"abcdef")
    file.truncate(4)
    file.sync()
    assert file.read(0, 10) == bytes(file.view(0, 4)) == b"abcd"
    fs.rename("/data/a", "/data/b")
    fs.sync_directory("/data")
    assert fs.list_directory("/data") == ["b"]
    assert fs.open("/data/b").size() == 4
    assert fs.lock("/data/.lock", "kohort") is not None
    fs.remove("/data/b")


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault is not Fault.POWER_LOSS])
def test_a_fault_strikes_each_operation_that_it_can_once(fault: Fault) -> None:
    """Whoever does not expect an error there is ended by it: none passes in silence."""
    healthy = FaultyFileSystem()
    names = []
    healthy.on_operation = lambda operation: names.append(operation.name)
    use_everything(healthy)
    assert fault.strikes <= set(names), "the scenario has what this fault can strike"

    for number, name in enumerate(names, start=1):
        disk = FaultyFileSystem()
        disk.inject(fault, at=number, times=1, where=lambda operation, number=number: operation.number == number)
        if name not in fault.strikes:
            use_everything(disk)
            assert disk.struck == []
            continue
        with pytest.raises(StorageError) as error:
            use_everything(disk)
        assert [operation.number for operation in disk.struck] == [number]
        assert error.value.fatal == (fault in (Fault.FAILING_WRITE, Fault.FAILING_SYNC))
        assert (disk.health.failure is not None) == error.value.fatal


def test_what_is_refused_changes_nothing() -> None:
    disk = FaultyFileSystem()
    file = disk.open("/a", create=True)
    file.write(0, b"abc")
    disk.inject(Fault.SHORT_WRITE)
    with pytest.raises(DiskFullError, match=r"no space left in /"):
        file.write(3, b"defghi")
    disk.inject(Fault.FAILING_RENAME)
    with pytest.raises(StorageError, match=r"cannot rename /a: Permission denied; choose a directory"):
        disk.rename("/a", "/b")
    assert (file.size(), disk.list_directory("/")) == (3, ["a"])

    disk.heal()
    file.write(3, b"def")
    assert file.read(0, 10) == b"abcdef"


def test_who_tries_a_failed_sync_again_is_told_the_same() -> None:
    """Linux reports an error once and has dropped the pages: the next sync of the same file would succeed."""
    disk = FaultyFileSystem()
    told: list[DiskFailedError] = []
    disk.health.on_failure = told.append
    file = disk.open("/a", create=True)
    disk.inject(Fault.FAILING_SYNC, times=1)
    for change in (file.sync, file.sync, lambda: file.write(0, b"x"), lambda: disk.sync_directory("/")):
        with pytest.raises(SyncFailedError, match=r"cannot make /a durable: Input/output error"):
            change()
    assert len(told) == 1

    disk.restart()
    file.sync()


def test_a_missing_descriptor_is_no_failed_sync() -> None:
    disk = FaultyFileSystem()
    disk.inject(Fault.NO_DESCRIPTOR, times=1)
    with pytest.raises(NoRoomError, match=r"cannot open directory /: Too many open files; raise the limit") as error:
        disk.sync_directory("/")
    assert (error.value.fatal, disk.health.failure) == (False, None)
    disk.sync_directory("/")


def test_the_power_goes_at_any_operation_and_takes_what_was_not_synced() -> None:
    kept = []
    for number in range(1, 7):
        disk = FaultyFileSystem()
        disk.inject(Fault.POWER_LOSS, at=number)
        try:
            replace_file(disk, "/", "a", b"whole")
            is_done = True
        except Crashed:
            is_done = False
            with pytest.raises(Crashed):
                disk.exists("/a")
        disk.crash()
        kept.append((is_done, disk.exists("/a")))
    assert kept == [(False, False)] * 6
    disk = FaultyFileSystem()
    replace_file(disk, "/", "a", b"whole")
    disk.crash()
    assert read_bounded(disk, "/a", limit_bytes=5) == b"whole"


@pytest.mark.parametrize("fault", [Fault.NO_SPACE, Fault.NO_DESCRIPTOR, Fault.FAILING_RENAME, Fault.READ_ONLY])
def test_a_file_that_cannot_be_replaced_is_the_old_one_in_memory_and_on_disk(fault: Fault) -> None:
    """The directory is opened before the file is renamed: what comes after the rename needs nothing any more."""
    for number in range(1, 20):
        disk = FaultyFileSystem()
        replace_file(disk, "/", "a", b"old")
        disk.inject(fault, at=disk.operations + number, times=1)
        try:
            replace_file(disk, "/", "a", b"new")
        except StorageError:
            assert read_bounded(disk, "/a", limit_bytes=3) == b"old"
            disk.crash(changes_kept=lambda _path, unsynced: unsynced)
            assert read_bounded(disk, "/a", limit_bytes=3) == b"old"
            replace_file(disk, "/", "a", b"new")
        disk.crash()
        assert read_bounded(disk, "/a", limit_bytes=3) == b"new"
        if not disk.struck:
            return
    raise AssertionError("it never ended")


@pytest.mark.parametrize(
    ("number", "kind", "is_fatal"),
    [
        (errno.ENOSPC, DiskFullError, False),
        (errno.EDQUOT, DiskFullError, False),
        (errno.EFBIG, NoRoomError, False),
        (errno.EMFILE, NoRoomError, False),
        (errno.ENFILE, NoRoomError, False),
        (errno.EROFS, StorageError, False),
        (errno.EACCES, StorageError, False),
        (errno.EIO, DiskFailedError, True),
        (errno.ENODEV, DiskFailedError, True),
    ],
)
def test_kinds_of_errors_of_a_change(number: int, kind: type[StorageError], is_fatal: bool) -> None:
    health = DiskHealth()
    error = health.judge(OSError(number, os.strerror(number)), "write to", "/data/a")
    assert type(error) is kind
    assert (error.fatal, health.failure) == (is_fatal, error if is_fatal else None)


def test_a_page_that_cannot_be_read_says_nothing_of_the_disk() -> None:
    error = refusal_of(OSError(errno.EIO, "Input/output error"), "read", "/data/a")
    assert (type(error), str(error)) == (UnreadableError, "cannot read /data/a: Input/output error")


@contextmanager
def descriptors_left(count: int) -> Iterator[None]:
    """This process may open so many files more."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    probe = os.open("/", os.O_RDONLY)
    os.close(probe)
    resource.setrlimit(resource.RLIMIT_NOFILE, (probe + count, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_the_real_disk_without_descriptors(tmp_path: Path) -> None:
    disk = DiskFileSystem()
    directory = disk.open_directory(str(tmp_path))
    with descriptors_left(0):
        for use in (
            lambda: disk.open(f"{tmp_path}/a", create=True),
            lambda: disk.sync_directory(str(tmp_path)),
            lambda: disk.list_directory(str(tmp_path)),
        ):
            with pytest.raises(NoRoomError, match=r"Too many open files; raise the limit of open files"):
                use()
        directory.sync()
    assert disk.health.failure is None
    disk.sync_directory(str(tmp_path))
