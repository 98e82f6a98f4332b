"""Files of a data directory that no broker has written: they cost what they say, and never what is in the log.

Laws: whoever opens the directory gets a sentence or a store; what is served is what was written, at its offset. An
index, a snapshot, a marker or a checkpoint that does not hold costs no record. Where the checksums were made to fit,
as no damage does, the loss of records is possible, wrong ones and a broker that stands still are not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from random import Random

import pytest

from kohort.errors import CorruptRecordError, Refused, StorageError
from kohort.records.checksum import crc32c
from kohort.storage.catalog import CATALOG_NAME
from kohort.storage.data_directory import MARKER_NAME
from kohort.storage.log_state import SNAPSHOT_SUFFIX, STATE_NAME
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.indexes import FACTS_SUFFIX, INDEX_SUFFIX, TIME_SUFFIX
from kohort.storage.segments.segment import SUFFIX
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from support.builders.fuzz import INPUTS, Bounds, Mutator
from support.builders.left_directory import ACKNOWLEDGED, NEWEST, WRITTEN, files_in, left, scrub_all, served
from support.builders.storage_logs import find_latest, find_time
from support.depth import SEED

#: Kind -> how the names of its files end.
KINDS = {
    "indexes": (INDEX_SUFFIX, TIME_SUFFIX, FACTS_SUFFIX),
    "snapshots": (SNAPSHOT_SUFFIX, STATE_NAME),
    "segments": (SUFFIX,),
    "checkpoints": ("checkpoint", MARKER_NAME, ".kohort_leaderepoch"),
    "catalogue": (CATALOG_NAME, "meta.properties", "partition.metadata"),
}
#: Where damage may be answered by a sentence and nothing else.
MAY_BE_REFUSED = frozenset({"catalogue", "checkpoints"})
_CATALOG_RECORD = re.compile(rb"@[0-9a-f]{8} [0-9a-f]{8} ([^\n]*)\n")


def write_whole(fs: MemoryFileSystem, path: str, content: bytes) -> None:
    file = fs.open(path)
    file.truncate(0)
    file.write(0, content)


def sealed(fs: MemoryFileSystem, path: str, content: bytes) -> bytes:
    """The same with checksums that fit, in this file and in the one that has its checksum."""
    name = path.rpartition("/")[2]
    if name.endswith((FACTS_SUFFIX, STATE_NAME)):
        text = content.partition(b" ")[2].rstrip(b"\n")
        return b"%08x %s\n" % (crc32c(text), text)
    if name.endswith((INDEX_SUFFIX, TIME_SUFFIX)):
        facts = f"{path.rpartition('.')[0]}{FACTS_SUFFIX}"
        document = json.loads(fs.open(facts).read(0, 4096).partition(b" ")[2])
        document[name.rpartition(".")[2]] = [len(content), crc32c(content)]
        text = json.dumps(document).encode()
        write_whole(fs, facts, b"%08x %s\n" % (crc32c(text), text))
    if name == CATALOG_NAME:
        return _CATALOG_RECORD.sub(
            lambda found: b"@%08x %08x %s\n" % (len(found[1]), crc32c(found[1]), found[1]), content
        )
    return content


def changed(origin: MemoryFileSystem, path: str, content: bytes, *, is_sealed: bool) -> MemoryFileSystem:
    fs = origin.copy()
    write_whole(fs, path, sealed(fs, path, content) if is_sealed else content)
    return fs


class Opening:
    """Opens directories with one file that was changed, and looks at all that is served."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        self.refused = self.served = 0

    def look(self, fs: MemoryFileSystem, *, is_sealed: bool) -> None:
        try:
            store = Store.open("/data", fs=fs)
        except StorageError as why:
            assert is_sealed or self.kind in MAY_BE_REFUSED, f"refused: {why}"
            self.refused += 1
            return
        try:
            topic = store.topics.get("orders")
            if topic is None:
                assert self.kind in MAY_BE_REFUSED
                return
            self._look_at(fs, topic.partitions[0], is_sealed=is_sealed)
        finally:
            store.close(clean=False)

    def look_at(self, made: Callable[[], MemoryFileSystem], *, is_sealed: bool) -> None:
        self.look(made(), is_sealed=is_sealed)

    def _look_at(self, fs: MemoryFileSystem, log: PartitionLog, *, is_sealed: bool) -> None:
        scrub_all(fs, log)
        try:
            found = dict(served(log))
        except CorruptRecordError:
            # The reader finds it, by the checksum of the batch: in a segment, or where an index with a checksum that
            # fits has sent it.
            assert self.kind == "segments" or (is_sealed and self.kind == "indexes")
            return
        except StorageError:
            assert is_sealed and self.kind == "indexes"
            return
        if self.kind == "segments":
            # Offsets stand outside the checksum: two changes may make another offset of a whole batch.
            assert set(found.values()) <= set(WRITTEN.values()), "served wrong"
        else:
            assert found.items() <= WRITTEN.items(), "served wrong"
        missing = ACKNOWLEDGED.keys() - found.keys()
        if self.kind != "segments" and not is_sealed:
            assert not missing, f"{sorted(missing)} are gone"
        self.served += 1
        for find in (lambda: find_time(log, 1_000), lambda: find_time(log, 1_001), lambda: find_latest(log)):
            with suppress(Refused, StorageError, CorruptRecordError):
                find()


@pytest.mark.parametrize("kind", KINDS)
def test_no_file_does_harm(kind: str) -> None:
    random = Random(f"{kind} {SEED}")
    mutator, bounds, opening = Mutator(random), Bounds(), Opening(kind)
    places = [
        (fs, path)
        for fs, is_clean in ((left(is_clean=False), False), (left(is_clean=True), True))
        for path in files_in(fs)
        # After a clean stop nobody looks at the newest segment before it is closed; its readers have the CRCs.
        if path.endswith(KINDS[kind]) and not (is_clean and path.endswith(NEWEST))
    ]
    contents = {(id(fs), path): bytes(fs.open(path).read(0, 1 << 20)) for fs, path in places}
    assert len({path.rpartition("/")[2] for _, path in places}) >= len(KINDS[kind]) - 1, places
    valid = list(contents.values())
    for number in range(INPUTS):
        origin, path = random.choice(places)
        content = mutator.changed(contents[id(origin), path], valid)
        is_sealed = random.random() < 0.5
        fs = changed(origin, path, content, is_sealed=is_sealed)
        again = partial(changed, origin, path, content, is_sealed=is_sealed)
        try:
            bounds.hold(
                partial(opening.look, fs, is_sealed=is_sealed), partial(opening.look_at, again, is_sealed=is_sealed)
            )
        except Exception as why:
            pytest.fail(f"input {number}, {path}, {is_sealed=}: {type(why).__name__}: {why}\n{content!r}")
    assert opening.served
    print(f"{INPUTS} {kind}: {opening.served} served, {opening.refused} refused, {bounds}")
