"""How far each compacted log is compacted: Apache Kafka's `cleaner-offset-checkpoint`.

Laws: losing the file costs one compaction more, never a record; so a damaged one counts as none.
Source: Apache Kafka's OffsetCheckpointFile (version 0, number of entries, then topic, partition and offset each).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kohort.errors import StorageError
from kohort.storage.fs import FileSystem, read_bounded, replace_file

CLEANED_NAME: Final = "cleaner-offset-checkpoint"
_LIMIT_BYTES: Final = 16 << 20


def load_cleaned(fs: FileSystem, directory: str) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset before which its log is compacted."""
    path = f"{directory}/{CLEANED_NAME}"
    if not fs.exists(path):
        return {}
    try:
        version, count, *lines = read_bounded(fs, path, limit_bytes=_LIMIT_BYTES).decode("ascii").splitlines()
        rows = [line.split() for line in lines]
        cleaned = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except (ValueError, StorageError):
        return {}
    return cleaned if version == "0" and count == str(len(cleaned)) else {}


def save_cleaned(fs: FileSystem, directory: str, cleaned: Mapping[tuple[str, int], int]) -> None:
    """Put them in force, whole; blocking."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in cleaned.items()]
    replace_file(fs, directory, CLEANED_NAME, "\n".join(["0", str(len(lines)), *lines, ""]).encode())
