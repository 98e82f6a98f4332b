"""How far each compacted log is compacted: Apache Kafka's `cleaner-offset-checkpoint`.

Laws: losing the file costs one compaction more, never a record; so a damaged one counts as none.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.storage.checkpoints import CLEANED_NAME, load_offsets, save_offsets
from kohort.storage.fs import FileSystem


def load_cleaned(fs: FileSystem, directory: str) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset before which its log is compacted."""
    return load_offsets(fs, directory, CLEANED_NAME)


def save_cleaned(fs: FileSystem, directory: str, cleaned: Mapping[tuple[str, int], int]) -> None:
    """Put them in force, whole; blocking."""
    save_offsets(fs, directory, CLEANED_NAME, cleaned)
