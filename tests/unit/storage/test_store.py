"""A broker's topics: made, changed, deleted, and there again after a stop, a kill, and a loss of power at any step."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

from kohort.errors import ConfigError, ErrorCode, Refused, StorageError, UnknownOptionError
from kohort.ids import OFFSETS_TOPIC, TopicId, format_topic_id
from kohort.storage.files.fs import DiskFailedError, DiskFileSystem, SyncFailedError
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory
from kohort.testing.disks import Crashed, MemoryFileSystem
from support.builders.storage_logs import PAGE_CACHE, TOPIC_ID, batch, offsets, sequenced, take_producer_ids, values

#: What `summary` says, and the configs of the topic "orders".
State: TypeAlias = tuple[dict[str, list[int]], dict[str, str]]

OTHER_ID = TopicId(bytes(range(16, 32)))


def summary(store: Store) -> dict[str, list[int]]:
    """Topic -> where each partition ends."""
    return {name: [log.log_end_offset for log in topic.partitions] for name, topic in store.topics.items()}


def refused(code: ErrorCode, call: Callable[[], object]) -> None:
    with pytest.raises(Refused) as refusal:
        call()
    assert refusal.value.code == code


@pytest.fixture
def directory(tmp_path: Path) -> str:
    return f"{tmp_path}/data"


def test_a_store_in_memory_has_topics() -> None:
    store = Store.in_memory()
    topic = store.create_topic("orders", 3, topic_id=TOPIC_ID, configs={"retention.ms": "1000"})
    topic.partitions[2].append(batch(2), now_ms=5)

    assert store.topics["orders"] is topic
    assert [log.partition for log in topic.partitions] == [0, 1, 2]
    assert summary(store) == {"orders": [0, 0, 2]}
    assert topic.partitions[2].high_watermark == 2
    assert (topic.topic_id, topic.configs, topic.is_internal) == (TOPIC_ID, {"retention.ms": "1000"}, False)
    assert len(store.cluster_id) == 22
    store.close()


def test_stores_in_memory_have_nothing_in_common() -> None:
    first, second = Store.in_memory(), Store.in_memory(cluster_id="mine")
    first.create_topic("orders", 1, topic_id=TOPIC_ID)
    assert second.topics == {}
    assert first.cluster_id != second.cluster_id == "mine"


def test_groups_commits_are_an_internal_topic() -> None:
    assert Store.in_memory().create_topic(OFFSETS_TOPIC, 1, topic_id=TOPIC_ID).is_internal


@pytest.mark.parametrize("clean", [True, False])
def test_everything_is_there_again(directory: str, clean: bool) -> None:
    store = Store.open(directory, settings=PAGE_CACHE, node_id=5)
    store.create_topic("orders", 2, topic_id=TOPIC_ID, configs={"retention.ms": "1000"})
    store.create_topic("flights.v1-2", 1, topic_id=OTHER_ID)
    store.topics["orders"].partitions[1].append(batch(3, value=b"kept"), now_ms=5)
    cluster_id = store.cluster_id
    store.close(clean=clean)

    store = Store.open(directory)
    assert summary(store) == {"orders": [0, 3], "flights.v1-2": [0]}
    assert values(store.topics["orders"].partitions[1]) == [b"kept"] * 3
    assert store.topics["orders"].configs == {"retention.ms": "1000"}
    assert store.topics["flights.v1-2"].topic_id == OTHER_ID
    assert (store.cluster_id, store.node_id) == (cluster_id, 5)
    assert (store.recovery.is_clean, store.recovery.partitions, store.recovery.cuts) == (clean, 3, ())
    store.close()


def test_the_directory_looks_like_kafkas(directory: str) -> None:
    """meta.properties, a folder per partition, partition.metadata, segments named by their first offset."""
    store = Store.open(directory, cluster_id="3Db5QLSqSZieL3rJBUUegA", node_id=3)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.close()

    root = Path(directory)
    properties = dict(line.split("=") for line in (root / "meta.properties").read_text().splitlines())
    assert properties.pop("directory.id")
    assert properties == {
        "version": "1",
        "cluster.id": "3Db5QLSqSZieL3rJBUUegA",
        "node.id": "3",
        "kohort.format.version": "1",
    }
    assert sorted(path.name for path in (root / "orders-0").iterdir()) == [
        "00000000000000000000.log",
        "partition.metadata",
    ]
    metadata = (root / "orders-0" / "partition.metadata").read_text()
    assert metadata == f"version: 0\ntopic_id: {format_topic_id(TOPIC_ID)}"


def test_the_marker_of_a_clean_stop_is_used_once(directory: str) -> None:
    Store.open(directory).close()
    store = Store.open(directory)
    assert store.recovery.is_clean
    store.close(clean=False)
    store = Store.open(directory)
    assert not store.recovery.is_clean
    store.close()


def test_a_cut_is_in_the_report(directory: str) -> None:
    store = Store.open(directory, settings=PAGE_CACHE)
    log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
    log.append(batch(), now_ms=5)
    log.append(batch(4), now_ms=5)
    store.close(clean=False)
    path = Path(directory, "orders-0", "00000000000000000000.log")
    path.write_bytes(path.read_bytes()[:-1])

    store = Store.open(directory)
    (cut,) = store.recovery.cuts
    assert (cut.path, cut.next_offset, cut.records_cut) == (str(path), 1, 4)
    store.close()


def test_a_damaged_marker_means_a_full_check(directory: str) -> None:
    Store.open(directory).close()
    Path(directory, ".kohort_cleanshutdown").write_bytes(b"{]")
    store = Store.open(directory)
    assert not store.recovery.is_clean
    store.close()


def test_a_full_disk_at_the_end_costs_the_marker_only() -> None:
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0].append(batch(2), now_ms=5)
    fs.space_left = 0
    store.close()

    fs.space_left = None
    store = Store.open("/data", fs=fs)
    assert summary(store) == {"orders": [2]}
    assert not store.recovery.is_clean
    store.close()


@pytest.mark.process
def test_kill_9_loses_nothing_that_was_appended(directory: str) -> None:
    """The page cache outlives the process; producers' sequences too."""
    script = f"""
import os, signal
from support.builders.storage_logs import TOPIC_ID, sequenced, take_producer_ids
from kohort.storage.tools.inspection import inspect_directory
from kohort.storage.store import Store
store = Store.open({directory!r})
log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
for at in range(50):
    log.append(sequenced(at), now_ms=5)
print(take_producer_ids(store), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert run.stdout == "range(0, 1000)\n", run.stderr

    store = Store.open(directory)
    log = store.topics["orders"].partitions[0]
    assert offsets(log.read(0, 1 << 20)) == list(range(50))
    assert log.append(sequenced(49), now_ms=5).duplicate
    assert log.append(sequenced(50), now_ms=5).base_offset == 50
    assert take_producer_ids(store) == range(1000, 2000)
    store.close()


def test_a_directory_is_held_by_one_broker(directory: str) -> None:
    store = Store.open(directory)
    with pytest.raises(StorageError, match=r"is held by another broker \(process \d+\); stop that one or choose"):
        Store.open(directory)
    store.close()
    Store.open(directory).close()


def test_a_failed_opening_lets_the_directory_go(directory: str) -> None:
    Store.open(directory).close()
    catalog = Path(directory, "kohort.catalog")
    good = catalog.read_bytes()
    catalog.write_bytes(b"{}")
    with pytest.raises(StorageError, match=r"kohort.catalog is damaged \(it does not begin"):
        Store.open(directory)
    catalog.write_bytes(good)
    Store.open(directory).close()


def test_somebody_elses_directory_is_left_alone(directory: str) -> None:
    root = Path(directory)
    root.mkdir()
    (root / "thesis.tex").write_text("precious")
    with pytest.raises(StorageError, match=r"is not ours: .* holds thesis.tex; choose an empty directory or one that"):
        Store.open(directory)
    assert [path.name for path in root.iterdir()] == ["thesis.tex"]


def test_an_empty_directory_is_taken(directory: str) -> None:
    Path(directory, "lost+found").mkdir(parents=True)
    Store.open(directory).close()


def test_kafkas_own_directory_is_left_alone(directory: str) -> None:
    root = Path(directory)
    root.mkdir()
    (root / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abc\ndirectory.id=def\n")
    with pytest.raises(StorageError, match=r"was not made by kohort"):
        Store.open(directory)
    assert [path.name for path in root.iterdir()] == ["meta.properties"], "not even a lock is left"


def test_a_newer_format_is_left_alone(directory: str) -> None:
    Store.open(directory).close()
    meta = Path(directory, "meta.properties")
    meta.write_text(meta.read_text().replace("kohort.format.version=1", "kohort.format.version=2"))
    with pytest.raises(StorageError, match=r"format 2 of a newer kohort, this one reads up to 1; upgrade kohort"):
        Store.open(directory)


@pytest.mark.parametrize(
    ("path", "named"), [("/proc/kohort/data", "/proc/kohort"), ("/dev/null/data", "/dev/null/data")]
)
def test_a_directory_that_cannot_be_made_is_named(path: str, named: str) -> None:
    with pytest.raises(StorageError, match=rf"cannot (create directory|list) {named}: "):
        Store.open(path)


def test_an_unwritable_directory_says_what_to_do() -> None:
    """/proc takes no new files, whoever asks."""
    with pytest.raises(StorageError, match=r"cannot lock /proc/self/task/\.lock: .*; c"):
        DiskFileSystem().lock("/proc/self/task/.lock", "kohort")


def test_directory_without_its_lock_is_not_opened_by_a_second_broker(directory: str) -> None:
    store = Store.open(directory)
    Path(directory, ".lock").unlink()
    with pytest.raises(StorageError, match="is held by another broker; stop that one"):
        Store.open(directory)
    with pytest.raises(DiskFailedError, match=r"\.lock was removed or moved away while it was in use"):
        store.close()
    assert not Path(directory, ".kohort_cleanshutdown").exists(), "what another one has is not said to be whole"
    Store.open(directory).close()


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("kind", ["directory", "pipe", "link to nothing", "folder that is a file"])
def test_what_is_no_file_makes_one_partition_offline(directory: str, kind: str, is_clean: bool) -> None:
    """Apache Kafka serves the others, too."""
    store = Store.open(directory)
    for log in store.create_topic("orders", 3, topic_id=TOPIC_ID).partitions:
        log.append(batch(), now_ms=5)
    store.close(clean=is_clean)
    path = Path(directory, "orders-1", f"{0:020d}.log")
    if kind == "folder that is a file":
        shutil.rmtree(path.parent)
        path.parent.write_text("")
    else:
        path.unlink()
        if kind == "directory":
            path.mkdir()
        elif kind == "pipe":
            os.mkfifo(path)
        else:
            path.symlink_to("nowhere")
    named = str(path if kind != "folder that is a file" else path.parent)
    for _ in range(2):
        (content,) = [each for each in inspect_directory(DiskFileSystem(reads_only=True), directory) if each.is_damaged]
        assert content.partition == 1
        assert any(named in str(damage) for damage in content.damages)
        store = Store.open(directory)
        (offline,) = store.recovery.offline
        assert offline[0] == "orders-1"
        assert named in offline[1]
        assert [values(log) for log in store.topics["orders"].partitions if not log.offline] == [[b"v"]] * 2
        store.close(clean=is_clean)
    assert path.is_dir() or path.is_fifo() or path.is_symlink() or path.parent.is_file(), "it is left as it is"


def test_a_missing_catalog_is_an_error(directory: str) -> None:
    store = Store.open(directory)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.close()
    Path(directory, "kohort.catalog").unlink()
    with pytest.raises(StorageError, match=r"kohort.catalog is missing but \.kohort_cleanshutdown is there"):
        Store.open(directory)


def test_a_missing_partition_folder_is_an_error(directory: str) -> None:
    store = Store.open(directory)
    store.create_topic("orders", 2, topic_id=TOPIC_ID)
    store.close(clean=False)
    folder = Path(directory, "orders-1")
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    with pytest.raises(StorageError, match=r"orders-1 is missing though the catalog has topic orders"):
        Store.open(directory)

    folder.mkdir()
    store = Store.open(directory)
    assert summary(store) == {"orders": [0, 0]}
    store.close()


def test_a_folder_of_another_topic_is_an_error(directory: str) -> None:
    store = Store.open(directory)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.close()
    Path(directory, "orders-0", "partition.metadata").write_text(f"version: 0\ntopic_id: {format_topic_id(OTHER_ID)}")
    with pytest.raises(
        StorageError, match=r"partition.metadata names topic id .*, the catalog .*; move the folder away"
    ):
        Store.open(directory)


def test_an_unknown_folder_with_records_is_not_touched(directory: str) -> None:
    store = Store.open(directory)
    store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0].append(batch(), now_ms=5)
    store.close()
    root = Path(directory)
    (root / "orders-0").rename(root / "found-7")
    (root / "orders-0").mkdir()
    (root / "backup-2024").mkdir()
    (root / "backup-2024" / "notes.txt").write_text("precious")
    (root / ".kohort_cleanshutdown").unlink()

    with pytest.raises(StorageError, match=r"found-7 holds records, but the catalog does not know it; move it away"):
        Store.open(directory)
    assert (root / "found-7" / "00000000000000000000.log").stat().st_size
    assert (root / "backup-2024" / "notes.txt").exists()


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ü", "x" * 250, "../etc"])
def test_a_bad_topic_name_is_refused(name: str) -> None:
    store = Store.in_memory()
    refused(ErrorCode.INVALID_TOPIC_EXCEPTION, lambda: store.create_topic(name, 1, topic_id=TOPIC_ID))


def test_bad_requests_change_nothing() -> None:
    store = Store.in_memory()
    store.create_topic("orders", 2, topic_id=TOPIC_ID)
    refused(ErrorCode.TOPIC_ALREADY_EXISTS, lambda: store.create_topic("orders", 1, topic_id=OTHER_ID))
    refused(ErrorCode.INVALID_PARTITIONS, lambda: store.create_topic("other", 0, topic_id=OTHER_ID))
    refused(ErrorCode.INVALID_PARTITIONS, lambda: store.carry_out(store.changes.plan_partitions("orders", 2)))
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: store.carry_out(store.changes.plan_partitions("other", 2)))
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: store.delete_topic("other"))
    refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, lambda: store.carry_out(store.changes.plan_configs("other", {})))
    with pytest.raises(UnknownOptionError, match=r"did you mean retention.ms"):
        store.create_topic("other", 1, topic_id=OTHER_ID, configs={"retntion.ms": "1"})
    with pytest.raises(ConfigError, match=r"flush.messages cannot be 0"):
        store.carry_out(store.changes.plan_configs("orders", {"flush.messages": "0"}))
    assert summary(store) == {"orders": [0, 0]}
    assert store.topics["orders"].configs == {}


def test_a_bad_default_is_told_at_once() -> None:
    with pytest.raises(ConfigError, match=r"segment.bytes cannot be"):
        Store.in_memory({"segment.bytes": "big"})


def test_partitions_are_added(directory: str) -> None:
    store = Store.open(directory)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.topics["orders"].partitions[0].append(batch(2), now_ms=5)
    store.carry_out(store.changes.plan_partitions("orders", 3))
    store.topics["orders"].partitions[2].append(batch(1), now_ms=5)
    store.close()

    store = Store.open(directory)
    assert summary(store) == {"orders": [2, 0, 1]}
    store.close()


def test_topic_that_is_made_again_while_its_folders_leave_stops_no_start() -> None:
    """Killed in between: the folders of both have to go, and those of the first have their last name already."""
    for step in range(200):
        fs = MemoryFileSystem()
        store = Store.open("/data", fs=fs)
        store.create_topic("orders", 2, topic_id=TOPIC_ID).partitions[1].append(batch(3), now_ms=5)
        gone = store.changes.plan_deletion("orders")
        store.changes.write((gone,))
        store.changes.settle(gone)
        again = store.changes.plan_topic("orders", 3, topic_id=TopicId(bytes(16)))
        fs.steps_left = step
        try:
            store.changes.write((again,))
            finished = True
        except Crashed:
            finished = False
        # The process alone is gone: what it had changed is there.
        fs.crash(lambda _path, _durable, written: written, changes_kept=lambda _path, unsynced: unsynced)
        store = Store.open("/data", fs=fs)
        check_folders(fs, store)
        assert summary(store) in ({}, {"orders": [0, 0, 0]})
        store.close()
        if finished:
            break
    assert finished and step > 5


def test_log_of_the_groups_stays_compacted() -> None:
    """Also where all configs of a topic are replaced and this one is not named: nothing else would end its growth."""
    store = Store.in_memory()
    store.create_topic(OFFSETS_TOPIC, 1, topic_id=TOPIC_ID, configs={"cleanup.policy": "compact"})
    for configs in ({"cleanup.policy": "delete"}, {"segment.bytes": "1000"}):
        with pytest.raises(ConfigError, match=r"cleanup.policy of __consumer_offsets has to have compact"):
            store.carry_out(store.changes.plan_configs(OFFSETS_TOPIC, configs))
    store.carry_out(store.changes.plan_configs(OFFSETS_TOPIC, {"cleanup.policy": "compact,delete"}))


def test_configs_are_replaced_and_kept(directory: str) -> None:
    store = Store.open(directory)
    topic = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs={"retention.ms": "1"})
    store.carry_out(store.changes.plan_configs("orders", {"max.message.bytes": "100"}))
    refused(ErrorCode.MESSAGE_TOO_LARGE, lambda: topic.partitions[0].append(batch(value=bytes(100)), now_ms=5))
    store.close()

    store = Store.open(directory)
    assert store.topics["orders"].configs == {"max.message.bytes": "100"}
    assert store.topics["orders"].partitions[0].config.max_message_bytes == 100
    store.close()


def test_the_brokers_defaults_hold_where_a_topic_says_nothing() -> None:
    store = Store.in_memory({"max.message.bytes": 500, "message.timestamp.type": "LogAppendTime"})
    first = store.create_topic("a", 1, topic_id=TOPIC_ID).partitions[0]
    second = store.create_topic("b", 1, topic_id=OTHER_ID, configs={"max.message.bytes": "600"}).partitions[0]
    assert (first.config.max_message_bytes, second.config.max_message_bytes) == (500, 600)
    assert first.config.is_log_append_time


def test_a_deleted_topic_is_gone_and_may_come_back_empty(directory: str) -> None:
    store = Store.open(directory)
    log = store.create_topic("orders", 2, topic_id=TOPIC_ID).partitions[0]
    store.create_topic("orders-1", 1, topic_id=OTHER_ID)
    log.append(batch(value=b"read on"), now_ms=5)
    views = log.read(0, 1000)
    store.delete_topic("orders")

    assert offsets(views) == [0], "a reader finishes"
    assert sorted(path.name for path in Path(directory).iterdir() if path.is_dir()) == ["orders-1-0"]
    store.create_topic("orders", 1, topic_id=TopicId(bytes(15) + b"1"))
    store.close(clean=False)

    store = Store.open(directory)
    assert summary(store) == {"orders-1": [0], "orders": [0]}
    store.close()


@pytest.mark.parametrize("name", ["photos-delete", "photos-2.bak-delete"])
def test_a_folder_of_somebody_elses_is_not_taken_for_a_deleted_topic(directory: str, name: str) -> None:
    """Only Kafka's whole form of a deleted folder's name is one: topic, partition, id, suffix."""
    Store.open(directory).close()
    photo = Path(directory, name, "me.jpg")
    photo.parent.mkdir()
    photo.write_bytes(b"mine")

    store = Store.open(directory)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    store.delete_topic("orders")
    assert photo.read_bytes() == b"mine"
    store.close()


@pytest.mark.parametrize("name", ["notes.txt", "00000000000000000000.log"])
def test_a_folder_in_the_way_of_a_new_topic_is_refused_and_left_alone(directory: str, name: str) -> None:
    """Somebody's files, or records that no catalog knows, are not what a creation that failed leaves."""
    store = Store.open(directory)
    store.create_topic("orders", 1, topic_id=TOPIC_ID)
    file = Path(directory, "orders-1", name)
    file.parent.mkdir()
    file.write_bytes(b"mine")
    with pytest.raises(StorageError, match="orders-1 is in the way of topic orders; move it away"):
        store.carry_out(store.changes.plan_partitions("orders", 2))
    assert (file.read_bytes(), summary(store)) == (b"mine", {"orders": [0]})
    store.close()


def test_a_topic_with_the_longest_name_can_be_deleted(directory: str) -> None:
    store = Store.open(directory)
    store.create_topic("x" * 249, 2, topic_id=TOPIC_ID)
    store.delete_topic("x" * 249)
    assert not [path for path in Path(directory).iterdir() if path.is_dir()]
    store.close()


def test_a_failed_sync_at_the_end_leaves_no_marker() -> None:
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0].append(batch(), now_ms=5)
    fs.sync_error = "Input/output error"
    with pytest.raises(SyncFailedError):
        store.close()
    fs.sync_error = ""

    store = Store.open("/data", fs=fs)
    assert not store.recovery.is_clean
    store.close()


def test_a_clean_stop_is_durable() -> None:
    """Also for topics that trust the page cache while they run."""
    fs = MemoryFileSystem()
    store = Store.open("/data", settings=PAGE_CACHE, fs=fs)
    store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0].append(batch(3), now_ms=5)
    store.close()
    fs.crash()

    store = Store.open("/data", fs=fs)
    assert (summary(store), store.recovery.is_clean) == ({"orders": [3]}, True)
    fs.crash()
    assert not Store.open("/data", fs=fs).recovery.is_clean, "the marker does not come back"


def test_folders_are_durable_before_the_catalog_names_them() -> None:
    """Also on a file system that does not keep the order of changes."""
    synced: list[bool] = []

    class Watched(MemoryFileSystem):
        def sync_directory(self, path: str) -> None:
            super().sync_directory(path)
            if self.exists("/data/orders-0"):
                synced.append(b"orders" not in self.open("/data/kohort.catalog").read(0, 10_000))

    fs = Watched()
    Store.open("/data", fs=fs).create_topic("orders", 1, topic_id=TOPIC_ID)
    assert synced == [True]


def create(store: Store) -> None:
    store.create_topic("flights", 2, topic_id=OTHER_ID)


def delete(store: Store) -> None:
    store.delete_topic("orders")


def add(store: Store) -> None:
    store.carry_out(store.changes.plan_partitions("orders", 4))


def configure(store: Store) -> None:
    store.carry_out(store.changes.plan_configs("orders", {"retention.ms": "1"}))


def take_ids(store: Store) -> None:
    take_producer_ids(store)


def close(store: Store) -> None:
    store.close()


@pytest.mark.parametrize("change", [create, delete, add, configure, take_ids, close])
@pytest.mark.parametrize("changes_kept", ["none", "half", "all"])
def test_a_change_that_stops_at_any_step_has_happened_or_not(
    change: Callable[[Store], None], changes_kept: str
) -> None:
    """Power fails after each single step of a change; the next start finds the old state or the new one."""

    def keep(_path: str, unsynced: int) -> int:
        return {"none": 0, "half": unsynced // 2, "all": unsynced}[changes_kept]

    seen = []
    for step in range(200):
        fs = MemoryFileSystem()
        store = Store.open("/data", fs=fs)
        log = store.create_topic("orders", 2, topic_id=TOPIC_ID).partitions[1]
        log.append(batch(3), now_ms=5)
        log.mark_durable(log.sync())
        block = take_producer_ids(store)
        fs.steps_left = step
        try:
            change(store)
            finished = True
        except Crashed:
            finished = False
        fs.crash(changes_kept=keep)

        store = Store.open("/data", fs=fs)
        state = (summary(store), dict(store.topics["orders"].configs) if "orders" in store.topics else {})
        seen.append(state)
        check_folders(fs, store)
        assert take_producer_ids(store).start >= block.stop + 1000 * (finished and change is take_ids)
        store.create_topic("later", 1, topic_id=TopicId(bytes(16))).partitions[0].append(batch(), now_ms=5)
        store.close()
        if finished:
            break
    assert finished
    old: State = ({"orders": [0, 3]}, {})
    outcomes: dict[Callable[[Store], None], State] = {
        create: ({"orders": [0, 3], "flights": [0, 0]}, {}),
        delete: ({}, {}),
        add: ({"orders": [0, 3, 0, 0]}, {}),
        configure: ({"orders": [0, 3]}, {"retention.ms": "1"}),
    }
    new = outcomes.get(change, old)
    turn = seen.index(new)
    assert seen[:turn] == [old] * turn
    assert seen[turn:] == [new] * (len(seen) - turn)


def check_folders(fs: MemoryFileSystem, store: Store) -> None:
    """Nothing is left of what did not happen."""
    expected = {f"{log.topic}-{log.partition}" for topic in store.topics.values() for log in topic.partitions}
    assert {name for name in fs.list_directory("/data") if "orders" in name or "flights" in name} == expected


def test_a_first_start_that_stops_at_any_step_can_be_repeated() -> None:
    for step in range(50):
        fs = MemoryFileSystem()
        fs.steps_left = step
        try:
            Store.open("/data", fs=fs)
            finished = True
        except Crashed:
            finished = False
        fs.crash(changes_kept=lambda _path, unsynced: unsynced)
        store = Store.open("/data", fs=fs)
        store.create_topic("orders", 1, topic_id=TOPIC_ID)
        store.close()
        if finished:
            return
    raise AssertionError("the first start never ended")


def test_a_restart_that_stops_at_any_step_can_be_repeated() -> None:
    """Recovery itself is killed, again and again, with a torn tail and a deletion to finish."""
    for step in range(100):
        fs = MemoryFileSystem()
        store = Store.open("/data", fs=fs)
        log = store.create_topic("orders", 1, topic_id=TOPIC_ID).partitions[0]
        store.create_topic("flights", 2, topic_id=OTHER_ID)
        log.append(batch(2), now_ms=5)
        log.mark_durable(log.sync())
        log.append(batch(2), now_ms=5)
        fs.steps_left = 5
        with pytest.raises(Crashed):
            store.delete_topic("flights")
        fs.crash(lambda _path, durable, size: (durable + size + 1) // 2, changes_kept=lambda _path, unsynced: unsynced)

        fs.steps_left = step
        try:
            Store.open("/data", fs=fs)
            finished = True
        except Crashed:
            finished = False
        fs.crash()
        store = Store.open("/data", fs=fs)
        assert summary(store) == {"orders": [2]}
        check_folders(fs, store)
        store.close()
        if finished:
            return
    raise AssertionError("the restart never ended")
