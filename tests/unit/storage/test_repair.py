"""What `kohort log repair` does about each damage, and that nothing is lost by it."""

from __future__ import annotations

import pytest

from kohort.errors import Refused, StorageError
from kohort.ids import OFFSETS_TOPIC, TopicId
from kohort.storage.data_directory import CLEANED_NAME, save_offsets, write_partition_metadata
from kohort.storage.store import Store
from kohort.storage.tools.inspection import PartitionContent, inspect_directory
from kohort.storage.tools.repair import Remedy, make_catalog, plan_catalog, plan_repair, repair
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch, offsets, sequenced, take_producer_ids, values

SIZE = len(batch())
FILE = "/data/orders-0/00000000000000000000.log"
BATCHES = 6


def directory(*, is_clean: bool, per_file: int = BATCHES) -> MemoryFileSystem:
    """Six batches of one record."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    configs = {"segment.bytes": str(per_file * SIZE)}
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions[0]
    for number in range(BATCHES):
        log.append(batch(value=b"%d" % number), now_ms=1)
    store.close(clean=is_clean)
    return fs


def flip(fs: MemoryFileSystem, at: int) -> None:
    """A bit of that batch."""
    file = fs.open(FILE)
    position = at * SIZE + 40
    file.write(position, bytes([file.read(position, 1)[0] ^ 1]))


def inspected(fs: MemoryFileSystem) -> list[PartitionContent]:
    return list(inspect_directory(fs, "/data"))


def remedies(fs: MemoryFileSystem, *, drop: bool = False) -> list[Remedy]:
    return [step.remedy for step in plan_repair(inspected(fs), drop=drop)]


def mend(fs: MemoryFileSystem, *, drop: bool = False) -> None:
    repair(fs, "/data", inspected(fs), drop=drop)


def served(fs: MemoryFileSystem, start: int = 0) -> list[int]:
    """What a reader gets that begins there."""
    store = Store.open("/data", fs=fs)
    log = store.topics["orders"].partitions[0]
    found: list[int] = []
    while start < log.log_end_offset:
        found += [offset for offset in offsets(log.read(start, 1 << 20)) if offset >= start]
        start = found[-1] + 1
    store.close()
    return found


def test_sound_directory_needs_nothing() -> None:
    assert remedies(directory(is_clean=True)) == []


@pytest.mark.parametrize("per_file", [3, BATCHES])
@pytest.mark.parametrize("stop", ["killed", "clean", "killed behind a clean one"])
def test_damage_in_the_middle_is_kept_aside(stop: str, per_file: int) -> None:
    """Also where a start looks at nothing, since it was durable and known before."""
    fs = directory(is_clean=stop != "killed", per_file=per_file)
    if stop == "killed behind a clean one":
        Store.open("/data", fs=fs).close(clean=False)
    flip(fs, 2)
    assert remedies(fs) == [Remedy.KEEP]
    mend(fs)
    assert remedies(fs) == [Remedy.STAY]
    assert served(fs, 3) == [3, 4, 5]
    with pytest.raises(Refused, match="offsets 2 to 2 are missing"):
        served(fs)


def test_reader_goes_on_behind_a_hole_that_was_given_up() -> None:
    fs = directory(is_clean=True)
    flip(fs, 2)
    mend(fs)
    assert remedies(fs, drop=True) == [Remedy.DROP]
    mend(fs, drop=True)
    assert remedies(fs) == []
    assert served(fs) == [0, 1, 3, 4, 5]
    (hole,) = [name for name in fs.list_directory("/data/orders-0") if name.endswith(".quarantine")]
    kept = fs.open(f"/data/orders-0/{hole}")
    assert bytes(kept.read(0, kept.size())).endswith(b"2\0"), "the damaged batch is there to the end"


def test_damage_is_taken_out_and_given_up_at_once() -> None:
    fs = directory(is_clean=False)
    flip(fs, 1)
    flip(fs, 4)
    assert remedies(fs, drop=True) == [Remedy.DROP, Remedy.DROP]
    mend(fs, drop=True)
    assert served(fs) == [0, 2, 3, 5]


def test_torn_end_is_cut() -> None:
    fs = directory(is_clean=False)
    fs.open(FILE).truncate(5 * SIZE + 20)
    assert remedies(fs) == [Remedy.CUT]
    mend(fs)
    assert remedies(fs) == []
    assert served(fs) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("left_bytes", [0, 3 * SIZE, 3 * SIZE + 20])
@pytest.mark.parametrize("stop", ["clean", "killed behind a clean one"])
def test_end_that_a_stop_had_left_is_missed_wherever_it_is_cut(stop: str, left_bytes: int) -> None:
    """A start makes a hole of it, and so the check has to say that something is missing, and repair does the same."""
    fs = directory(is_clean=True)
    if stop == "killed behind a clean one":
        Store.open("/data", fs=fs).close(clean=False)
    fs.open(FILE).truncate(left_bytes)
    (content,) = inspected(fs)
    left = left_bytes // SIZE
    assert [(each.offset, each.next_offset) for each in content.damages if not each.is_rebuilt] == [(left, BATCHES)]
    assert (content.end, content.is_damaged) == (BATCHES, True)
    assert remedies(fs)[0] is Remedy.KEEP
    mend(fs, drop=True)
    assert remedies(fs) == []
    assert Store.open("/data", fs=fs).topics["orders"].partitions[0].log_end_offset == BATCHES


def test_file_that_is_gone_from_either_end_is_missed() -> None:
    fs = directory(is_clean=True, per_file=3)
    fs.remove(FILE.replace("0.log", "3.log"))
    (content,) = inspected(fs)
    assert str(content.concerned[0]) == (
        f"{FILE}: 0 bytes at byte {3 * SIZE}, offset 3; offset {BATCHES} follows: what was there is gone"
    )

    fs = directory(is_clean=True, per_file=3)
    fs.remove(FILE)
    (content,) = inspected(fs)
    assert [str(each) for each in content.damages] == [
        f"/data/orders-0: {3 * SIZE} bytes before offset 3: a clean stop had left them, and their files are gone"
    ]
    assert remedies(fs) == [Remedy.GONE]
    mend(fs)
    assert (remedies(fs), served(fs, 3)) == ([], [3, 4, 5])


def test_what_only_a_backup_has_is_said() -> None:
    fs = directory(is_clean=True)
    fs.remove("/data/orders-0")
    assert remedies(fs, drop=True) == [Remedy.RESTORE]


def test_repaired_directory_is_as_after_a_clean_stop() -> None:
    fs = directory(is_clean=False)
    flip(fs, 2)
    mend(fs, drop=True)
    store = Store.open("/data", fs=fs)
    assert store.recovery.is_clean
    log = store.topics["orders"].partitions[0]
    log.append(batch(value=b"more"), now_ms=1)
    assert values(log) == [b"0", b"1", b"3", b"4", b"5", b"more"]
    store.close()


# ---- a catalog that is missing


def summary(store: Store) -> dict[str, tuple[TopicId, list[int]]]:
    return {
        name: (topic.topic_id, [log.log_end_offset for log in topic.partitions]) for name, topic in store.topics.items()
    }


def without_catalog() -> tuple[MemoryFileSystem, dict[str, tuple[TopicId, list[int]]]]:
    """Topics of several kinds, and what there was of them."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    ids = {name: TopicId(bytes([number]) * 16) for number, name in enumerate(("orders", "keyed", "a-1", OFFSETS_TOPIC))}
    for count, (name, topic_id) in enumerate(ids.items(), start=1):
        for log in store.create_topic(name, count, topic_id=topic_id).partitions:
            log.append(sequenced(0, 3, producer_id=4_321), now_ms=1)
    before = summary(store)
    save_offsets(fs, "/data", CLEANED_NAME, {("keyed", 0): 1})
    store.close()
    fs.remove("/data/kohort.catalog")
    return fs, before


def test_missing_catalog_is_made_from_the_folders() -> None:
    fs, before = without_catalog()
    # What is no partition's folder is nobody's topic.
    fs.make_directory("/data/photos-7")
    fs.open("/data/photos-7/cat.jpg", create=True).write(0, b"x")
    with pytest.raises(StorageError, match=r"kohort\.catalog is missing .*: kohort log repair /data"):
        Store.open("/data", fs=fs)
    with pytest.raises(StorageError, match=r"kohort\.catalog is missing; .*: kohort log repair /data"):
        inspected(fs)

    make_catalog(fs, "/data", plan_catalog(fs, "/data"))
    assert remedies(fs) == []
    store = Store.open("/data", fs=fs)
    assert summary(store) == before
    keeps = {"retention.ms": "-1", "retention.bytes": "-1"}
    compacts = {"cleanup.policy": "compact"}
    assert {name: topic.configs for name, topic in store.topics.items()} == {
        "orders": keeps,
        "keyed": compacts,
        "a-1": keeps,
        OFFSETS_TOPIC: compacts,
    }
    # None that an earlier run may have given out.
    assert take_producer_ids(store).start == 1_005_000
    store.close()


@pytest.mark.parametrize("missing", [0, 1])
def test_catalog_is_not_made_of_topics_with_a_partition_missing(missing: int) -> None:
    """A number in a folder's name is no reason to count so far."""
    fs, _ = without_catalog()
    fs.remove(f"/data/keyed-{missing}")
    fs.make_directory("/data/keyed-4000000000")
    with pytest.raises(StorageError, match=rf"/data/keyed-{missing} is missing though there is keyed-4000000000"):
        plan_catalog(fs, "/data")


def test_catalog_is_not_made_of_folders_of_different_topics() -> None:
    fs, _ = without_catalog()
    fs.remove("/data/keyed-1/partition.metadata")
    plan_catalog(fs, "/data")
    write_partition_metadata(fs, "/data/keyed-1", TOPIC_ID)
    with pytest.raises(StorageError, match=r"/data/keyed-0 and /data/keyed-1 belong to different topics of the name"):
        plan_catalog(fs, "/data")
