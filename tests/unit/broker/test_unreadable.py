"""A disk that cannot give what is on it when a broker starts: what that concerns is offline, and all else is served."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from kohort.broker.options.settings import BrokerSettings
from kohort.broker.server import Server
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC, coordinator_partition
from kohort.storage.store import Store
from kohort.storage.tools.inspection import inspect_directory
from kohort.storage.tools.repair import Remedy, plan_repair, repair
from kohort.testing import Fault, FaultyFileSystem, Operation
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages.describe_broker import DescribeBrokerRequest
from kohort.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import ApiKey
from support.builders.storage_logs import TOPIC_ID, batch
from support.dialogues.broker_wire import RawClient

PARTITIONS = 4
CONFIG = {"offsets.topic.num.partitions": PARTITIONS, "journal.ring.rows": 0}
#: A group of each partition of `__consumer_offsets`.
GROUPS = {coordinator_partition(name, partition_count=PARTITIONS): name for name in map(str, range(100))}


def serve(disk: FaultyFileSystem, ask: Callable[[RawClient], Any], *, is_killed: bool = False) -> Any:
    """What a client gets of a broker's life; then the process is gone."""

    def with_client(port: int) -> Any:
        with RawClient(port) as client:
            return ask(client)

    async def live() -> Any:
        server = Server(BrokerSettings.of(CONFIG, port=0, data_dir="/data"), fs=disk)
        await server.start()
        try:
            return await asyncio.to_thread(with_client, server.port)
        finally:
            await server.stop()

    found = asyncio.run(live())
    disk.restart()
    if is_killed:
        Store.open("/data", fs=disk).close(clean=False)
        disk.restart()
    return found


def commit(client: RawClient, group: str, offset: int) -> int:
    rows = [OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)]
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name="t", partitions=rows)],
    )
    code: int = client.ask(ApiKey.OFFSET_COMMIT, 8, request).topics[0].partitions[0].error_code
    return code


def committed(client: RawClient, group: str) -> tuple[int, int | None]:
    """(error, offset)."""
    asked = OffsetFetchRequestGroup(group_id=group, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    (row,) = client.ask(ApiKey.OFFSET_FETCH, 8, OffsetFetchRequest(groups=[asked])).groups
    return row.error_code, row.topics[0].partitions[0].committed_offset if row.topics else None


def coordinators(client: RawClient) -> dict[int, int]:
    """Partition of `__consumer_offsets` -> what FindCoordinator says of its groups."""
    request = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUPS[number] for number in range(PARTITIONS)])
    rows = client.ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators
    return {number: row.error_code for number, row in enumerate(rows)}


def fill(client: RawClient) -> None:
    client.create_topic("t", partitions=3)
    for number in range(3):
        client.produce("t", b"a", partition=number)
    for group in GROUPS.values():
        assert commit(client, group, 1) == 0


def within(folder: str) -> Callable[[Operation], bool]:
    return lambda operation: f"{folder}/" in operation.path


@pytest.mark.parametrize(
    ("is_killed", "where"), [(True, "t-1/0"), (True, "t-1/partition.metadata"), (False, "t-1/partition.metadata")]
)
def test_partition_that_cannot_be_read_at_the_start_is_offline_and_all_others_are_served(
    is_killed: bool, where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache Kafka has a directory offline then: LEADER_NOT_AVAILABLE, KAFKA_STORAGE_ERROR, no row in its size."""
    disk = FaultyFileSystem()
    serve(disk, fill, is_killed=is_killed)
    # With it a start that follows a clean stop reads no file that is as it was.
    disk.remove("/data/.kohort_laststop")
    disk.inject(Fault.UNREADABLE, where=lambda operation: operation.path.startswith(f"/data/{where}"))

    def look(client: RawClient) -> None:
        asked = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        (topic,) = client.ask(ApiKey.METADATA, 9, asked).topics
        rows = {row.partition_index: row for row in topic.partitions}
        assert {number: row.error_code for number, row in rows.items()} == {0: 0, 1: 5, 2: 0}
        assert (rows[1].leader_id, rows[1].offline_replicas, rows[0].offline_replicas) == (-1, [1], [])
        assert [client.produce("t", b"b", partition=number).error_code for number in range(3)] == [0, 56, 0]
        fetched = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=100) for number in range(3)]
        request = FetchRequest(max_bytes=1_000, topics=[FetchTopic(topic="t", partitions=fetched)])
        (answer,) = client.ask(ApiKey.FETCH, 11, request).responses
        assert {row.partition_index: row.error_code for row in answer.partitions} == {0: 0, 1: 56, 2: 0}
        listed = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in range(3)]
        offsets = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=listed)])
        (answer,) = client.ask(ApiKey.LIST_OFFSETS, 5, offsets).topics
        assert {row.partition_index: row.error_code for row in answer.partitions} == {0: 0, 1: 56, 2: 0}
        (directory,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 3, DescribeLogDirsRequest(topics=None)).results
        assert {row.partition_index for topic in directory.topics if topic.name == "t" for row in topic.partitions} == {
            0,
            2,
        }
        facts = client.ask(PrivateApiKey.DESCRIBE_BROKER, 0, DescribeBrokerRequest()).facts
        assert {"offline.partitions": "1", "offline.partitions.first": "t-1"}.items() <= {
            fact.name: fact.value for fact in facts
        }.items()

    serve(disk, look)
    told = [line for line in caplog.messages if line.startswith("event=partition_offline")]
    assert len(told) == 1
    assert told[0].startswith("event=partition_offline partition=t-1 cannot read /data/t-1/")
    assert "all others are served" in told[0]
    disk.heal()

    def read_again(client: RawClient) -> None:
        fetched = [FetchPartition(partition=1, fetch_offset=0, partition_max_bytes=100)]
        request = FetchRequest(max_bytes=1_000, topics=[FetchTopic(topic="t", partitions=fetched)])
        (row,) = client.ask(ApiKey.FETCH, 11, request).responses[0].partitions
        assert (row.error_code, row.high_watermark) == (0, 1)
        assert client.produce("t", b"b", partition=1).base_offset == 1

    serve(disk, read_again)


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_partition_with_a_file_of_another_log_is_offline_until_somebody_takes_it_away(
    is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    disk = FaultyFileSystem()

    def fill_more(client: RawClient) -> None:
        fill(client)
        for value in (b"b", b"c"):
            client.produce("t", value, partition=1)

    serve(disk, fill_more, is_killed=is_killed)
    path = "/data/t-1/00000000000000000001.log"
    disk.open(path, create=True).write(0, bytes(batch(2)))
    before = {name: disk.open(f"/data/t-1/{name}").size() for name in disk.list_directory("/data/t-1")}

    def look(client: RawClient) -> None:
        assert [client.produce("t", b"b", partition=number).error_code for number in range(3)] == [0, 56, 0]
        assert committed(client, GROUPS[0]) == (0, 1)

    serve(disk, look, is_killed=is_killed)
    told = next(line for line in caplog.messages if line.startswith("event=partition_offline partition=t-1"))
    assert f"{path} begins at offset 1, but the file before it ends at 3; is it of another log?" in told
    assert {name: disk.open(f"/data/t-1/{name}").size() for name in disk.list_directory("/data/t-1")} == before
    (content,) = [each for each in inspect_directory(disk, "/data") if each.damages]
    assert (content.topic, content.partition, content.records) == ("t", 1, 3)
    (step,) = plan_repair([content], drop=False)
    assert (step.remedy, path in str(step.damage)) == (Remedy.RESTORE, True)
    disk.remove(path)

    def read_again(client: RawClient) -> None:
        assert client.produce("t", b"d", partition=1).base_offset == 3

    serve(disk, read_again)


def test_what_a_clean_stop_left_is_a_hole_though_a_start_could_not_read_it_meanwhile() -> None:
    """It was promised once; that a start in between knew nothing of it makes it no torn tail."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    log = store.create_topic("t", 1, topic_id=TOPIC_ID).partitions[0]
    for _ in range(3):
        log.append(batch(), now_ms=1)
    store.close()
    fs.remove("/data/t-0/log.state")
    disk = FaultyFileSystem(fs)
    disk.inject(Fault.UNREADABLE, where=lambda operation: operation.path == "/data/t-0/partition.metadata")
    store = Store.open("/data", fs=disk)
    assert store.topics["t"].partitions[0].offline
    store.close()
    disk.restart()
    disk.heal()
    path = "/data/t-0/00000000000000000000.log"
    fs.open(path).truncate(2 * len(batch()))
    log = Store.open("/data", fs=disk).topics["t"].partitions[0]
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(2, 3)]


@pytest.mark.parametrize("is_killed", [False, True], ids=["stopped", "killed"])
def test_groups_of_a_log_that_cannot_be_read_are_served_by_nobody(
    is_killed: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """An empty answer to OffsetFetch would have them begin anew."""
    disk = FaultyFileSystem()
    serve(disk, fill, is_killed=is_killed)
    disk.inject(Fault.UNREADABLE, where=within(f"{OFFSETS_TOPIC}-2"))

    def look(client: RawClient) -> None:
        assert coordinators(client) == {0: 0, 1: 0, 2: ErrorCode.COORDINATOR_NOT_AVAILABLE, 3: 0}
        assert commit(client, GROUPS[2], 2) == ErrorCode.NOT_COORDINATOR
        assert committed(client, GROUPS[2]) == (ErrorCode.NOT_COORDINATOR, None)
        assert commit(client, GROUPS[1], 2) == 0
        assert committed(client, GROUPS[1]) == (0, 2)

    serve(disk, look)
    (told,) = [line for line in caplog.messages if line.startswith("event=groups_not_served")]
    assert f"partition={OFFSETS_TOPIC}-2 cannot read " in told
    disk.heal()
    assert serve(disk, lambda client: committed(client, GROUPS[2])) == (0, 1)


def test_groups_of_a_log_with_a_hole_are_served_once_somebody_has_settled_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What was in the hole may have been the only commit of a group, or what ended one."""
    fs = MemoryFileSystem()
    disk = FaultyFileSystem(fs)
    ours = [name for name in map(str, range(100)) if coordinator_partition(name, partition_count=PARTITIONS) == 2]
    other = next(name for name in ours if name != GROUPS[2])

    def fill_more(client: RawClient) -> None:
        fill(client)
        for offset in (2, 3):
            assert commit(client, GROUPS[2], offset) == 0
        assert commit(client, other, 7) == 0

    serve(disk, fill_more, is_killed=True)
    fs.remove(f"/data/{OFFSETS_TOPIC}-2/log.state")
    path = f"/data/{OFFSETS_TOPIC}-2/00000000000000000000.log"
    file = fs.open(path)
    file.write(61 + 20, bytes([file.read(61 + 20, 1)[0] ^ 1]))

    def look(client: RawClient) -> None:
        assert coordinators(client)[2] == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert committed(client, GROUPS[2]) == (ErrorCode.NOT_COORDINATOR, None)
        assert committed(client, GROUPS[3]) == (0, 1)

    serve(disk, look)
    (told,) = [line for line in caplog.messages if line.startswith("event=groups_not_served")]
    assert "kohort log repair" in told
    contents = list(inspect_directory(disk, "/data"))
    assert {step.remedy for step in plan_repair(contents, drop=True)} == {Remedy.DROP}
    repair(disk, "/data", contents, drop=True)
    disk.restart()
    assert serve(disk, lambda client: (committed(client, GROUPS[2]), committed(client, other))) == ((0, 3), (0, 7))


def test_check_goes_on_behind_a_partition_that_cannot_be_read() -> None:
    disk = FaultyFileSystem()
    serve(disk, fill)
    disk.inject(Fault.UNREADABLE, where=lambda operation: operation.path == "/data/t-1/00000000000000000000.log")
    contents = {f"{each.topic}-{each.partition}": each for each in inspect_directory(disk, "/data")}
    assert {name: each.records for name, each in contents.items() if name.startswith("t-")} == {
        "t-0": 1,
        "t-1": 0,
        "t-2": 1,
    }
    assert [name for name, each in contents.items() if each.damages] == ["t-1"]
    (damage,) = contents["t-1"].damages
    assert damage.is_unreadable
    assert "cannot read /data/t-1/00000000000000000000.log: Input/output error" in str(damage)
    assert [step.remedy for step in plan_repair(contents.values(), drop=False)] == [Remedy.UNREADABLE]
