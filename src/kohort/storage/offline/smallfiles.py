"""The check of the files beside segments against the records, from which each can be rebuilt.

Laws: nothing is changed here. A file that is missing costs a longer start and is no damage; one that says something
else than it was given is told, though a start believes none of them.
Source: Apache Kafka's index files, producer snapshots and leader-epoch-checkpoint; `logstate` and `indexfiles`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kohort.storage.directory.checkpoints import EPOCHS_NAME, load_epochs
from kohort.storage.files.diskerrors import UnreadableError
from kohort.storage.files.fs import FileSystem
from kohort.storage.recovery.logstate import SNAPSHOT_SUFFIX, STATE_NAME, LogState, load_state, snapshot_of
from kohort.storage.segments.indexfiles import (
    FACTS_SUFFIX,
    INDEX_SUFFIX,
    TIME_SUFFIX,
    SegmentFacts,
    index_path,
    load_facts,
    sum_of,
)
from kohort.storage.segments.segment import segment_base, segment_name


def wrong_files(fs: FileSystem, folder: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (path, error) of each file that is not as it was written."""
    state = load_state(fs, folder, names)
    if state is None and STATE_NAME in names:
        yield f"{folder}/{STATE_NAME}", "it is damaged"
    if state is not None:
        yield from _wrong_checkpoints(fs, folder, names, state)
    bases = sorted(base for name in names if (base := segment_base(name)) is not None)
    for base in bases:
        if index_path("", base, FACTS_SUFFIX)[1:] not in names:
            continue
        facts = load_facts(fs, folder, base)
        if facts is None:
            yield index_path(folder, base, FACTS_SUFFIX), "it is damaged"
        # The newest segment may have been cut below its facts since.
        elif base != bases[-1] or facts.size <= fs.open(f"{folder}/{segment_name(base)}").size():
            yield from _wrong_indexes(fs, folder, base, facts)


def _wrong_checkpoints(fs: FileSystem, folder: str, names: Sequence[str], state: LogState) -> Iterator[tuple[str, str]]:
    starts = tuple(load_epochs(fs, folder)) if EPOCHS_NAME in names else state.epochs
    # It is written before the state: a broker that was killed between the two has left more.
    if starts[: len(state.epochs)] != state.epochs:
        yield f"{folder}/{EPOCHS_NAME}", "its leader epochs are not those of the log"
    name = f"{state.offset:020d}{SNAPSHOT_SUFFIX}"
    if state.producers and name in names:
        content = snapshot_of(state.producers)
        file = fs.open(f"{folder}/{name}")
        if file.size() != len(content) or file.read(0, len(content)) != content:
            yield f"{folder}/{name}", "its producers are not those of the log"


def _wrong_indexes(fs: FileSystem, folder: str, base: int, facts: SegmentFacts) -> Iterator[tuple[str, str]]:
    for suffix, expected in ((INDEX_SUFFIX, facts.index), (TIME_SUFFIX, facts.timeindex)):
        path = index_path(folder, base, suffix)
        if not fs.exists(path):
            continue
        try:
            if sum_of(fs.open(path).read(0, expected[0])) != expected:
                yield path, "its checksum is another one"
        except UnreadableError as why:
            yield path, str(why)
