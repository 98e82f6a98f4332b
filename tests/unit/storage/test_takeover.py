"""What `kohort log import` takes for a directory of Apache Kafka's; the rest is tried on a real one (tests/interop)."""

from __future__ import annotations

import pytest

from kohort.errors import StorageError
from kohort.storage.offline.takeover import survey_directories
from kohort.storage.store import Store
from kohort.testing.memoryfs import MemoryFileSystem


def test_directory_of_our_own_is_no_source() -> None:
    """A copy without its configs and holes would not be the same."""
    fs = MemoryFileSystem()
    Store.open("/data", fs=fs).close()
    with pytest.raises(StorageError, match="is a data directory of kohort already"):
        survey_directories(fs, ["/data"])
