"""Apache Kafka's small text files about its logs: offsets of every partition, epochs of one.

Laws: a file is replaced whole; what is about the directory is durable when that returns. What is not exactly such a
file counts as missing: each of them can be made again from the logs, at the price of a longer start.
Source: Apache Kafka's OffsetCheckpointFile and LeaderEpochCheckpointFile (version 0, number of entries, one per line).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise
from typing import Final

from kohort.errors import StorageError
from kohort.storage.files.fs import FileSystem, place_file, read_bounded, replace_file

#: In the data directory: offsets before which logs need no check, are compacted, or have no records any more.
RECOVERY_POINT_NAME: Final = "recovery-point-offset-checkpoint"
CLEANED_NAME: Final = "cleaner-offset-checkpoint"
LOG_START_NAME: Final = "log-start-offset-checkpoint"
#: In a partition's folder: where each leader epoch began.
EPOCHS_NAME: Final = "leader-epoch-checkpoint"
_LIMIT_BYTES: Final = 16 << 20
_VERSION: Final = "0"


def load_offsets(fs: FileSystem, directory: str, name: str) -> dict[tuple[str, int], int]:
    """Read offsets by (topic, partition); empty if the file is missing or damaged."""
    rows = _load(fs, f"{directory}/{name}", width=3)
    try:
        offsets = {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
    except ValueError:
        return {}
    return offsets if len(offsets) == len(rows) and min(offsets.values(), default=0) >= 0 else {}


def save_offsets(fs: FileSystem, directory: str, name: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Write offsets durably; blocking."""
    lines = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    replace_file(fs, directory, name, _content(lines))


def load_epochs(fs: FileSystem, folder: str) -> list[tuple[int, int]]:
    """Read (leader epoch, first offset) pairs, ascending; empty if the file is missing or damaged."""
    rows = _load(fs, f"{folder}/{EPOCHS_NAME}", width=2)
    try:
        starts = [(int(epoch), int(offset)) for epoch, offset in rows]
    except ValueError:
        return []
    is_ascending = all(one[0] < after[0] and one[1] <= after[1] for one, after in pairwise(starts))
    return starts if is_ascending and (not starts or min(starts[0]) >= 0) else []


def save_epochs(fs: FileSystem, folder: str, starts: Iterable[tuple[int, int]]) -> None:
    """Write (leader epoch, first offset) pairs, without a sync."""
    # A start reads epochs from `log.state` or the batches, and other tools do without them.
    place_file(fs, f"{folder}/{EPOCHS_NAME}", _content([f"{epoch} {offset}" for epoch, offset in starts]))


def _load(fs: FileSystem, path: str, *, width: int) -> list[list[str]]:
    if not fs.exists(path):
        return []
    try:
        version, count, *lines = read_bounded(fs, path, limit_bytes=_LIMIT_BYTES).decode("ascii").splitlines()
    except (ValueError, StorageError):
        return []
    rows = [line.split() for line in lines]
    # A file without its checksum is believed only if its shape is exactly right.
    is_whole = version == _VERSION and count == str(len(rows)) and all(len(row) == width for row in rows)
    return rows if is_whole else []


def _content(lines: list[str]) -> bytes:
    return "\n".join([_VERSION, str(len(lines)), *lines, ""]).encode()
