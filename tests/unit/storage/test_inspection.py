"""Every batch of a directory is found, and every place where none is, without a byte being changed."""

from __future__ import annotations

import pytest

from kohort.errors import StorageError
from kohort.storage.data_directory import META_NAME
from kohort.storage.log_state import capture, write
from kohort.storage.log_state import settle as use_files
from kohort.storage.partitions.quarantine import settle
from kohort.storage.recovery import mark_sparse
from kohort.storage.store import Store
from kohort.storage.tools.inspection import Damage, PartitionContent, hold_offline, inspect_directory, inspect_partition
from kohort.storage.tools.repair import repair
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import TOPIC_ID, batch, empty_log, open_log, sequenced

SIZE = len(batch())


def filled(fs: MemoryFileSystem, count: int = 6, *, per_file: int = 3) -> list[str]:
    """One record a batch; the paths of the segments."""
    log = empty_log(fs, segment_bytes=per_file * SIZE)
    for number in range(count):
        log.append(batch(value=b"%d" % number), now_ms=1)
    log.close()
    return [segment.path for segment in log.segments]


def inspected(fs: MemoryFileSystem) -> PartitionContent:
    return inspect_partition(fs, "/orders-0", "orders", 0)


def flip(fs: MemoryFileSystem, path: str, position: int) -> None:
    file = fs.open(path)
    file.write(position, bytes([file.read(position, 1)[0] ^ 1]))


def places(content: PartitionContent) -> list[tuple[int, int, int, int | None]]:
    return [(each.position, each.bytes, each.offset, each.next_offset) for each in content.damages]


def test_sound_partition_is_counted() -> None:
    fs = MemoryFileSystem()
    filled(fs)
    content = inspected(fs)
    assert (content.files, content.batches, content.records) == (2, 6, 6)
    assert (content.begin, content.end, content.bytes, content.damages) == (0, 6, 6 * SIZE, [])


@pytest.mark.parametrize("position", range(SIZE))
def test_one_flipped_bit_is_found_and_hides_nothing_else(position: int) -> None:
    """The epoch of the leader is a field that no checksum covers; it changes no record, and its neighbours tell."""
    fs = MemoryFileSystem()
    first, _ = filled(fs)
    flip(fs, first, SIZE + position)
    content = inspected(fs)
    if 12 <= position < 16:
        assert [str(damage) for damage in content.damages] == [
            "/orders-0: offsets 1 to 1 are of leader epoch 0, and their batches say something else; "
            "it is made anew from the records"
        ]
        assert (content.is_damaged, content.records) == (False, 6)
    else:
        assert places(content) == [(SIZE, SIZE, 1, 2)]
        assert (content.records, content.end, content.bytes) == (5, 6, 6 * SIZE)


def test_last_batch_of_a_file_is_missed_by_the_next_one() -> None:
    fs = MemoryFileSystem()
    first, _ = filled(fs)
    flip(fs, first, 3 * SIZE - 1)
    assert places(inspected(fs)) == [(2 * SIZE, SIZE, 2, 3)]


def test_torn_tail_is_followed_by_nothing() -> None:
    fs = MemoryFileSystem()
    _, second = filled(fs)
    fs.open(second).truncate(2 * SIZE + 10)
    assert places(inspected(fs)) == [(2 * SIZE, 10, 5, None)]


def test_file_of_another_log_is_told_in_a_compacted_one_too() -> None:
    fs = MemoryFileSystem()
    first, _ = filled(fs)
    foreign = f"/orders-0/{1:020d}.log"
    fs.open(foreign, create=True).write(0, fs.open(first).read(0, 1 << 20))
    for is_compacted in (False, True):
        (damage,) = inspect_partition(fs, "/orders-0", "orders", 0, is_compacted=is_compacted).damages
        assert f"{foreign} begins at offset 1, but the file before it ends at 3" in damage.reason


def test_missing_file_is_a_hole_unless_kafka_compacted_there() -> None:
    fs = MemoryFileSystem()
    _, second, _ = filled(fs, 9)
    fs.remove(second)
    assert places(inspected(fs)) == [(0, 0, 3, 6)]
    mark_sparse(fs, "/orders-0", 7)
    assert inspected(fs).damages == []


def test_hole_is_damage_until_it_is_settled() -> None:
    fs = MemoryFileSystem()
    first, _ = filled(fs)
    flip(fs, first, SIZE + 30)
    log = open_log(fs, segment_bytes=3 * SIZE)
    log.close()
    content = inspected(fs)
    assert [(each.offset, each.next_offset, each.bytes) for each in content.damages] == [(1, 2, SIZE)]
    assert content.damages[0].path.endswith(".quarantine")
    (hole,) = content.holes
    settle(fs, "/orders-0", hole)
    assert inspected(fs).damages == []
    assert inspected(fs).records == 5


@pytest.mark.large
@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_every_file_beside_the_batches_is_held_against_them_and_made_anew(is_clean: bool) -> None:
    """Indexes, facts, producers, epochs and what a start knows: whatever byte changes, records are all there."""
    origin = MemoryFileSystem()
    store = Store.open("/data", fs=origin, settings={"index.interval.bytes": 100})
    configs = {"segment.bytes": "1024", "flush.messages": str(1 << 62)}
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions[0]
    for at in range(24):
        log.append(sequenced(at * 2, 2, value=b"value %d" % at), now_ms=5)
    captured = capture(log)
    use_files(captured, write(origin, captured))
    store.close(clean=is_clean)
    (sound,) = inspect_directory(origin, "/data")
    assert (sound.records, sound.damages) == (48, [])

    names = [
        name for name in origin.list_directory("/data/orders-0") if not name.endswith((".log", ".metadata", ".synced"))
    ]
    assert {name[name.index(".") :] if "." in name else name for name in names} == {
        *(".index", ".timeindex", ".facts", ".state", ".snapshot", "leader-epoch-checkpoint")
    }
    for name in names:
        for at in range(0, origin.open(f"/data/orders-0/{name}").size(), 5):
            fs = origin.copy()
            file = fs.open(f"/data/orders-0/{name}")
            file.write(at, bytes([file.read(at, 1)[0] ^ 2]))
            (content,) = contents = list(inspect_directory(fs, "/data"))
            assert not content.is_damaged and content.records == 48, (name, at)
            assert [damage.path for damage in content.damages] == [f"/data/orders-0/{name}"], (name, at)
            repair(fs, "/data", contents, drop=False)
            (content,) = inspect_directory(fs, "/data")
            assert (content.damages, content.records) == ([], 48), (name, at)
            store = Store.open("/data", fs=fs)
            (log,) = store.topics["orders"].partitions
            assert log.append(sequenced(44, 2, value=b"value 22"), now_ms=5).duplicate, (name, at)
            store.close()


def test_file_of_zeros_is_damage() -> None:
    fs = MemoryFileSystem()
    _, second = filled(fs)
    fs.open(second).write(0, bytes(3 * SIZE))
    assert places(inspected(fs)) == [(0, 3 * SIZE, 3, None)]


def directory_of(fs: MemoryFileSystem) -> str:
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 2, topic_id=TOPIC_ID).partitions[0].append(batch(2), now_ms=1)
    store.close()
    return "/data"


def reasons(fs: MemoryFileSystem) -> dict[tuple[str, int], list[str]]:
    return {(each.topic, each.partition): [d.reason for d in each.damages] for each in inspect_directory(fs, "/data")}


def test_directory_is_held_against_its_catalog() -> None:
    fs = MemoryFileSystem()
    directory_of(fs)
    assert reasons(fs) == {("orders", 0): [], ("orders", 1): []}
    fs.remove("/data/orders-1")
    fs.make_directory("/data/flights-0")
    fs.open("/data/flights-0/00000000000000000000.log", create=True).write(0, batch())
    assert reasons(fs) == {
        ("orders", 0): [],
        ("orders", 1): ["the folder is missing, though the catalog has the topic"],
        ("flights", 0): ["the catalog does not know this folder"],
    }


def test_folder_of_another_topic_of_the_name_is_damage() -> None:
    fs = MemoryFileSystem()
    directory_of(fs)
    file = fs.open("/data/orders-0/partition.metadata")
    file.truncate(0)
    file.write(0, b"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ")
    assert reasons(fs)["orders", 0] == ["the folder belongs to another topic of the same name"]


def test_directory_is_held_while_it_is_read() -> None:
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    with pytest.raises(StorageError, match="held by another broker"):
        hold_offline(fs, "/data")
    store.close()
    hold_offline(fs, "/data").release()
    with pytest.raises(StorageError, match=META_NAME):
        hold_offline(fs, "/elsewhere")
    assert not fs.exists("/elsewhere")


def test_damage_says_where_it_is() -> None:
    damage = Damage(path="/d/0.log", position=7, bytes=3, offset=2, next_offset=4, reason="why")
    assert str(damage) == "/d/0.log: 3 bytes at byte 7, offset 2; offset 4 follows: why"
