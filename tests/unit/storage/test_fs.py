"""Both file systems keep the same promises; the one in memory can lose power."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from kohort.errors import StorageError
from kohort.storage.files.fs import (
    DiskFileSystem,
    FileSystem,
    SyncFailedError,
    is_locked_by_record,
    read_bounded,
    replace_file,
)
from kohort.testing.disks import Crashed, MemoryFileSystem


@pytest.fixture(params=["disk", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[FileSystem, str]:
    """A file system and an empty directory in it."""
    if request.param == "disk":
        return DiskFileSystem(), str(tmp_path)
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    return fs, "/data"


def test_what_is_written_is_read(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    file = fs.open(f"{directory}/a", create=True)
    file.write(0, b"abc")
    file.write(3, memoryview(bytearray(b"def")))

    assert file.size() == 6
    assert file.read(1, 3) == b"bcd"
    assert file.read(4, 100) == b"ef"
    assert bytes(file.view(0, 5)) == b"abcde"
    assert bytes(fs.open(f"{directory}/a").view(0, 6)) == b"abcdef"


def test_a_view_outlives_growth_and_removal(place: tuple[FileSystem, str]) -> None:
    """Readers send views long after the log has moved on."""
    fs, directory = place
    file = fs.open(f"{directory}/a", create=True)
    file.write(0, b"first")
    view = file.view(0, 5)
    for step in range(200):
        file.write(5 + step * 10_000, bytes(10_000))
    fs.remove(f"{directory}/a")
    del file

    assert bytes(view) == b"first"
    assert view.readonly


def test_truncate_cuts(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    file = fs.open(f"{directory}/a", create=True)
    file.write(0, b"abcdef")
    file.truncate(2)
    file.write(2, b"X")

    assert file.read(0, 10) == b"abX"


def test_directories_are_made_listed_renamed_and_removed(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    fs.make_directory(f"{directory}/b/c")
    fs.make_directory(f"{directory}/b/c")
    fs.open(f"{directory}/b/c/file", create=True)
    fs.open(f"{directory}/a", create=True)
    assert fs.list_directory(directory) == ["a", "b"]

    fs.rename(f"{directory}/b", f"{directory}/d")
    assert fs.list_directory(f"{directory}/d/c") == ["file"]
    assert not fs.exists(f"{directory}/b")

    fs.make_directory(f"{directory}/e")
    with pytest.raises(StorageError, match="Directory not empty"):
        fs.rename(f"{directory}/e", f"{directory}/d")
    fs.remove(f"{directory}/e")

    fs.remove(f"{directory}/d")
    fs.remove(f"{directory}/d")
    assert fs.list_directory(directory) == ["a"]
    assert fs.list_directory(f"{directory}/nowhere") == []


def test_a_missing_file_is_named(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    with pytest.raises(StorageError, match=r"cannot open .*/nothing: No such file or directory"):
        fs.open(f"{directory}/nothing")


def test_a_directory_below_a_file_is_refused(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    fs.open(f"{directory}/a", create=True)
    with pytest.raises(StorageError, match=r"cannot create directory .*/a/b"):
        fs.make_directory(f"{directory}/a/b")


def test_a_file_is_replaced_as_a_whole(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    replace_file(fs, directory, "a", b"a long first version")
    replace_file(fs, directory, "a", b"second")

    assert read_bounded(fs, f"{directory}/a", limit_bytes=6) == b"second"
    assert fs.list_directory(directory) == ["a"]
    with pytest.raises(StorageError, match=r"has 6 bytes, more than the 5"):
        read_bounded(fs, f"{directory}/a", limit_bytes=5)


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="/proc has no descriptors here")
def test_look_at_a_record_lock_leaves_no_descriptor(tmp_path: Path) -> None:
    lock = tmp_path / ".lock"
    lock.touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    assert not any(is_locked_by_record(str(lock)) for _ in range(20))
    assert len(list(Path("/proc/self/fd").iterdir())) < before + 20


def test_a_lock_is_held_once(place: tuple[FileSystem, str]) -> None:
    fs, directory = place
    lock = fs.lock(f"{directory}/.lock", "kohort")
    assert lock is not None
    assert fs.lock(f"{directory}/.lock", "kohort") is None

    lock.release()
    lock.release()
    again = fs.lock(f"{directory}/.lock", "kohort")
    assert again is not None
    again.release()


@pytest.mark.parametrize("gone", ["the lock", "the directory", "both, and they are there again"])
def test_a_lock_knows_that_its_place_has_gone_and_keeps_others_away_all_the_same(tmp_path: Path, gone: str) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    path = directory / ".lock"
    lock = DiskFileSystem().lock(str(path), "kohort")
    assert lock is not None
    assert lock.find_loss() == ""
    if gone == "the lock":
        path.unlink()
        assert DiskFileSystem().lock(str(path), "kohort") is None
        assert lock.find_loss() == f"{path} was removed or moved away while it was in use"
        path.write_text("kohort 1")
        assert lock.find_loss() == f"{path} was replaced by another one while it was in use"
        assert DiskFileSystem().lock(str(path), "kohort") is None
    else:
        directory.rename(tmp_path / "away")
        if gone == "the directory":
            assert lock.find_loss() == f"{directory} was removed or moved away while it was in use"
        else:
            directory.mkdir()
            path.write_text("kohort 1")
            assert lock.find_loss() == f"{directory} was replaced by another one while it was in use"
    lock.release()
    assert lock.find_loss() == ""


def test_random_bytes_differ(place: tuple[FileSystem, str]) -> None:
    fs, _ = place
    assert len({fs.random_bytes(16) for _ in range(100)}) == 100


_SHORT_WRITES = """
import resource, sys
from kohort.errors import StorageError
from kohort.storage.files.fs import DiskFileSystem

file = DiskFileSystem().open(sys.argv[1], create=True)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))

def refusal(offset, data):
    try:
        file.write(offset, data)
    except StorageError as why:
        return str(why)

file.write(0, bytes(900))
answers = [refusal(900, bytes(200)), file.size()]
file.write(900, bytes(100))
answers += [refusal(1000, b"x"), file.size()]
print(*answers, sep="\\n")
"""


@pytest.mark.process
def test_a_short_write_is_undone(tmp_path: Path) -> None:
    """pwrite(2) may write less than asked; half a batch must not stay.

    In a process of its own: no file of that process may grow beyond 1000 bytes, not even one that it prints into.
    """
    command = [sys.executable, "-c", _SHORT_WRITES, f"{tmp_path}/a"]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=60)
    too_long, size, too_large, size_after = run.stdout.splitlines()
    assert too_long == f"no space left in {tmp_path}"
    assert size == "900"
    assert re.search(r"cannot write to .*/a: File too large", too_large)
    assert size_after == "1000"


def test_a_failed_sync_is_an_error_of_its_own() -> None:
    """/dev/full cannot be synced."""
    file = DiskFileSystem().open("/dev/full")
    with pytest.raises(SyncFailedError, match=r"cannot make /dev/full durable") as failure:
        file.sync()
    assert failure.value.fatal


def test_a_crash_takes_what_was_not_synced() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", create=True)
    fs.sync_directory("/")
    file.write(0, b"abc")
    file.sync()
    file.write(3, b"def")

    fs.crash()
    assert fs.open("/a").read(0, 10) == b"abc"


@pytest.mark.parametrize(("zero_fill", "expected"), [(False, b"abcd"), (True, b"abcd\0\0")])
def test_a_crash_may_keep_part_of_what_was_not_synced(zero_fill: bool, expected: bytes) -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", create=True)
    fs.sync_directory("/")
    file.write(0, b"abc")
    file.sync()
    file.write(3, b"def")

    fs.crash(lambda _path, _durable, _written: 4, zero_fill=zero_fill)
    assert fs.open("/a").read(0, 10) == expected


@pytest.mark.parametrize(("kept", "expected"), [(0, ["old"]), (1, ["new", "old"]), (2, ["new", "newer"])])
def test_a_crash_takes_changes_of_a_directory_from_the_end(kept: int, expected: list[str]) -> None:
    fs = MemoryFileSystem()
    fs.open("/old", create=True)
    fs.sync_directory("/")
    fs.open("/new", create=True)
    fs.rename("/old", "/newer")

    fs.crash(changes_kept=lambda _path, _unsynced: kept)
    assert fs.list_directory("/") == expected


class SharedDisk(MemoryFileSystem):
    """Lets another thread do something inside the next operation."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], None] = lambda: None

    def step(self) -> None:
        meanwhile, self.meanwhile = self.meanwhile, lambda: None
        meanwhile()


def test_a_sync_takes_nothing_back_that_another_has_made_durable_meanwhile() -> None:
    fs = SharedDisk()
    file = fs.open("/a", create=True)
    fs.sync_directory("/")
    file.write(0, b"abc")

    def append_and_sync() -> None:
        file.write(3, b"def")
        file.sync()

    fs.meanwhile = append_and_sync
    file.sync()
    fs.crash()
    assert fs.open("/a").read(0, 10) == b"abcdef"


def test_a_sync_of_a_directory_covers_nothing_that_was_changed_after_it_began() -> None:
    fs = SharedDisk()
    fs.open("/before", create=True)
    fs.meanwhile = partial(fs.make_directory, "/meanwhile")
    fs.sync_directory("/")
    assert fs.list_directory("/") == ["before", "meanwhile"]
    fs.crash()
    assert fs.list_directory("/") == ["before"]


def test_the_machine_can_stop_at_any_step() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", create=True)
    fs.steps_left = 1
    file.write(0, b"a")
    with pytest.raises(Crashed):
        file.sync()
    assert file.durable_size == 0


def test_a_crash_frees_locks() -> None:
    fs = MemoryFileSystem()
    assert fs.lock("/.lock", "kohort")
    fs.crash()
    assert fs.lock("/.lock", "kohort")


def test_memory_that_is_full_refuses_a_write_as_a_whole() -> None:
    fs = MemoryFileSystem()
    file = fs.open("/a", create=True)
    fs.space_left = 5
    with pytest.raises(StorageError, match=r"5 of 6 bytes fit"):
        file.write(0, b"abcdef")
    assert file.size() == 0
    file.write(0, b"abcde")
