"""Apache Kafka's small files of offsets and epochs: written as Kafka writes them, and missing when damaged."""

from __future__ import annotations

import pytest

from kohort.storage.data_directory import (
    CLEANED_NAME,
    EPOCHS_NAME,
    RECOVERY_POINT_NAME,
    load_epochs,
    load_offsets,
    save_epochs,
    save_offsets,
)
from kohort.testing.disks import MemoryFileSystem


@pytest.fixture
def fs() -> MemoryFileSystem:
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    return fs


def test_offsets_come_back(fs: MemoryFileSystem) -> None:
    offsets = {("__consumer_offsets", 0): 5, ("orders", 3): 2**40}
    save_offsets(fs, "/data", RECOVERY_POINT_NAME, offsets)
    assert load_offsets(fs, "/data", RECOVERY_POINT_NAME) == offsets
    text = fs.open(f"/data/{RECOVERY_POINT_NAME}").read(0, 100)
    assert text == b"0\n2\n__consumer_offsets 0 5\norders 3 1099511627776\n"


@pytest.mark.parametrize(
    "text",
    ["", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na b c\n", "0\n2\na 0 1\na 0 2\n", "0\n1\na 0 -1\n", "\xff\n"],
)
def test_damaged_offsets_count_as_none(fs: MemoryFileSystem, text: str) -> None:
    fs.open(f"/data/{CLEANED_NAME}", create=True).write(0, text.encode("latin-1"))
    assert load_offsets(fs, "/data", CLEANED_NAME) == {}


def test_epochs_come_back(fs: MemoryFileSystem) -> None:
    save_epochs(fs, "/data", [(0, 0), (3, 120)])
    assert load_epochs(fs, "/data") == [(0, 0), (3, 120)]
    assert fs.open(f"/data/{EPOCHS_NAME}").read(0, 100) == b"0\n2\n0 0\n3 120\n"


@pytest.mark.parametrize(
    "text", ["", "0\n1\n0 0 0\n", "0\n2\n1 0\n1 5\n", "0\n2\n1 9\n2 5\n", "0\n1\n-1 0\n", "0\n1\na 0\n"]
)
def test_damaged_epochs_count_as_none(fs: MemoryFileSystem, text: str) -> None:
    fs.open(f"/data/{EPOCHS_NAME}", create=True).write(0, text.encode())
    assert load_epochs(fs, "/data") == []
