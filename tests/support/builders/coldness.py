"""Files of which the system has nothing in memory."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kohort.storage.files.descriptors import NotResidentError
from kohort.storage.files.fs import DiskFileSystem


def make_cold(path: str | Path) -> None:
    """Have the system forget what it has in memory of a file; skips the test where nobody can tell what it has.

    To ask about a file may bring it back, so it is asked about another one in the same folder.
    """
    disk = DiskFileSystem()
    other = disk.open(f"{path}.other", create=True)
    other.write(0, bytes(4096))
    for file in (disk.open(str(path)), other):
        file.sync()
        os.posix_fadvise(file.descriptor().number, 0, 0, os.POSIX_FADV_DONTNEED)
    disk.remove(other.path)
    try:
        other.read(0, 1, wait=False)
    except NotResidentError:
        return
    pytest.skip("this file system does not tell what is in memory")
