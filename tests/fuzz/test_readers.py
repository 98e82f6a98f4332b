"""What reads one kind of file, by itself: a million inputs take minutes where opening the whole directory takes hours.

Laws: a reader gives what was written, or says that there is nothing, or a sentence (`StorageError`); nothing else. What
passes has the form that those rely on who go on with it: numbers, offsets that ascend, positions within the segment.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import pairwise
from random import Random

import pytest

from kohort.errors import StorageError
from kohort.records.checksum import crc32c
from kohort.storage.catalog import CATALOG_NAME, load_catalog
from kohort.storage.data_directory import (
    EPOCHS_NAME,
    LOG_START_NAME,
    MARKER_NAME,
    RECOVERY_POINT_NAME,
    load_epochs,
    load_marker,
    load_offsets,
)
from kohort.storage.log_state import (
    LAST_STOP_NAME,
    SNAPSHOT_SUFFIX,
    STATE_NAME,
    load_last_stop,
    load_snapshot,
    load_state,
)
from kohort.storage.recovery import load_log_start
from kohort.storage.segments.indexes import FACTS_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX, load_facts, load_index, sum_of
from kohort.storage.topicconfig import LogConfig
from kohort.testing.disks import MemoryFileSystem
from support.builders.fuzz import INPUTS, Bounds, Mutator
from support.builders.left_directory import FOLDER, files_in, left
from support.builders.storage_logs import TOPIC_ID
from support.depth import SEED

#: The facts and indexes that are read are those of the first segment.
FIRST = f"{FOLDER}/{0:020d}"


def read_facts(fs: MemoryFileSystem, path: str) -> bool:
    del path
    facts = load_facts(fs, FOLDER, 0)
    return facts is not None


def read_index(fs: MemoryFileSystem, path: str) -> bool:
    """With facts by which its checksum is right, whatever stands in it."""
    facts = load_facts(fs, FOLDER, 0)
    assert facts is not None, "they are as they were written"
    fact = "offset_index" if path.endswith(INDEX_SUFFIX) else "time_index"
    facts = facts._replace(**{fact: sum_of(bytes(fs.open(path).read(0, 1 << 20)))})
    index = load_index(fs, FOLDER, 0, facts, interval_bytes=100)
    if index is None:
        return False
    for number in (0, 3, 1 << 40):
        assert index.position_before(number) <= number, "where to begin is not behind what is looked for"
        assert index.position_before_offset(number) >= 0
        assert index.position_before_timestamp(number) >= 0
    return True


def read_state(fs: MemoryFileSystem, path: str) -> bool:
    return load_state(fs, FOLDER, [path.rpartition("/")[2]]) is not None


def read_snapshot(fs: MemoryFileSystem, path: str) -> bool:
    return bool(load_snapshot(fs, FOLDER, [path.rpartition("/")[2]]))


def read_epochs(fs: MemoryFileSystem, path: str) -> bool:
    del path
    starts = load_epochs(fs, FOLDER)
    assert all(one[0] < after[0] and one[1] <= after[1] for one, after in pairwise(starts))
    return bool(starts)


def read_points(fs: MemoryFileSystem, path: str) -> bool:
    points = load_offsets(fs, "/data", path.rpartition("/")[2])
    assert min(points.values(), default=0) >= 0
    return bool(points)


def read_log_start(fs: MemoryFileSystem, path: str) -> bool:
    del path
    offset = load_log_start(fs, FOLDER)
    assert offset >= 0
    return offset > 0


def read_marker(fs: MemoryFileSystem, path: str) -> bool:
    del path
    return load_marker(fs, "/data") is not None


def read_last_stop(fs: MemoryFileSystem, path: str) -> bool:
    """Also where the marker says that it is to be believed."""
    raw = fs.open(path).read(0, 1 << 20).removesuffix(b"\n").partition(b" ")[2]
    found = load_last_stop(fs, "/data", crc32c(raw))
    log = found.open(fs, FOLDER, topic="orders", topic_id=TOPIC_ID, partition=0, config=LogConfig())
    state = found.state_of(FOLDER.rpartition("/")[2], TOPIC_ID)
    assert log is None or log.log_start_offset <= log.log_end_offset
    return state is not None


def read_catalog(fs: MemoryFileSystem, path: str) -> bool:
    del path
    return bool(load_catalog(fs, "/data").topics)


#: How a file's path ends -> what reads it: whether something stood there.
READERS: dict[str, Callable[[MemoryFileSystem, str], bool]] = {
    f"{FIRST}{FACTS_SUFFIX}": read_facts,
    f"{FIRST}{INDEX_SUFFIX}": read_index,
    f"{FIRST}{TIME_SUFFIX}": read_index,
    STATE_NAME: read_state,
    SNAPSHOT_SUFFIX: read_snapshot,
    EPOCHS_NAME: read_epochs,
    RECOVERY_POINT_NAME: read_points,
    f"orders-0/{LOG_START_NAME}": read_log_start,
    MARKER_NAME: read_marker,
    LAST_STOP_NAME: read_last_stop,
    CATALOG_NAME: read_catalog,
}


def sealed(path: str, content: bytes) -> bytes:
    """The same with a checksum that fits, where a file has one of its own."""
    if path.endswith((FACTS_SUFFIX, STATE_NAME, LAST_STOP_NAME)):
        text = content.partition(b" ")[2].rstrip(b"\n")
        return b"%08x %s\n" % (crc32c(text), text)
    if path.endswith(SNAPSHOT_SUFFIX):
        return content[:2] + crc32c(content[6:]).to_bytes(4) + content[6:]
    if path.endswith(LOG_START_NAME):
        number = content.partition(b" ")[0]
        return b"%s %08x\n" % (number, crc32c(number))
    if path.endswith(MARKER_NAME):
        try:
            document = json.loads(content)
            document.pop("checksum", None)
        except (ValueError, AttributeError):
            return content
        return json.dumps(document).encode()
    return content


@pytest.mark.parametrize("ending", READERS)
def test_a_reader_gives_what_was_written_or_nothing(ending: str) -> None:
    random = Random(f"{ending} {SEED}")
    mutator, bounds, read = Mutator(random), Bounds(), READERS[ending]
    fs = left(is_clean=True)
    (path,) = (each for each in files_in(fs) if each.endswith(ending))
    valid = [bytes(fs.open(each).read(0, 1 << 20)) for each in files_in(fs)]
    content = bytes(fs.open(path).read(0, 1 << 20))
    assert read(fs, path), "as it was written, it says something"
    there = refused = 0

    def look() -> None:
        nonlocal there, refused
        try:
            there += read(fs, path)
        except StorageError:
            refused += 1

    file = fs.open(path)
    for number in range(INPUTS):
        changed = mutator.changed(content, valid)
        if random.random() < 0.5:
            changed = sealed(path, changed)
        file.truncate(0)
        file.write(0, changed)
        try:
            bounds.hold(look)
        except Exception as why:
            pytest.fail(f"input {number}: {type(why).__name__}: {why}\n{changed!r}")
    assert there < INPUTS, "some of them are damaged"
    print(f"{INPUTS} of {path}: {there} said something, {refused} refused, {bounds}")
