"""DeleteRecords: the oldest records go by request, for readers at once and for good."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from kafka import KafkaAdminClient
from kafka.structs import TopicPartition as KafkaPythonPartition

from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC
from kohort.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient, fetch_request
from support.waiting import until


def delete(
    client: RawClient, offset: int, *, topic: str = "t", partition: int = 0, version: int = 2
) -> tuple[int, int]:
    """(error, where the partition begins now)."""
    rows = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=rows)], timeout_ms=1000)
    (answer,) = client.ask(ApiKey.DELETE_RECORDS, version, request).topics
    (row,) = answer.partitions
    assert (answer.name, row.partition_index) == (topic, partition)
    return row.error_code, row.low_watermark


def fetched(client: RawClient, offset: int) -> tuple[int, int]:
    """(error, where the partition begins)."""
    row = client.ask(ApiKey.FETCH, 11, fetch_request("t", offset=offset)).responses[0].partitions[0]
    return row.error_code, row.log_start_offset


def earliest(client: RawClient, since_ms: int = -2) -> int:
    row = ListOffsetsPartition(partition_index=0, timestamp=since_ms)
    request = ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=[row])])
    offset: int = client.ask(ApiKey.LIST_OFFSETS, 7, request).topics[0].partitions[0].offset
    return offset


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.DELETE_RECORDS][0], VERSIONS[ApiKey.DELETE_RECORDS][1] + 1))
def test_readers_begin_where_records_are_left(client: RawClient, version: int) -> None:
    client.create_topic("t")
    for value in (b"a", b"b", b"c"):
        client.produce("t", value)
    assert delete(client, 2, version=version) == (0, 2)
    assert fetched(client, 1) == (ErrorCode.OFFSET_OUT_OF_RANGE, 2)
    assert fetched(client, 2) == (0, 2)
    assert earliest(client) == earliest(client, since_ms=0) == 2
    assert client.produce("t", b"d").log_start_offset == 2
    assert delete(client, 1, version=version) == (0, 2), "a log never begins earlier again"
    assert delete(client, -1, version=version) == (0, 4)
    assert fetched(client, 4) == (0, 4)
    assert earliest(client, since_ms=0) == -1


def test_what_cannot_be_deleted_is_refused_with_kafkas_codes(client: RawClient) -> None:
    client.create_topic("t")
    client.create_topic("compacted", cleanup_policy="compact")
    client.produce("t", b"a")
    assert delete(client, 2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, -2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert delete(client, 0, partition=1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(client, 0, topic="unknown") == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
    assert delete(client, 0, topic="compacted") == (ErrorCode.POLICY_VIOLATION, -1)
    assert delete(client, 0, topic=OFFSETS_TOPIC) == (ErrorCode.INVALID_TOPIC_EXCEPTION, -1)
    assert fetched(client, 0) == (0, 0)


def test_one_that_is_named_twice_counts_once(client: RawClient) -> None:
    client.create_topic("t")
    client.produce("t", b"a", b"b")
    rows = [DeleteRecordsPartition(partition_index=0, offset=offset) for offset in (2, 1)]
    request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=rows)], timeout_ms=1)
    (answer,) = client.ask(ApiKey.DELETE_RECORDS, 2, request).topics
    assert [(row.error_code, row.low_watermark) for row in answer.partitions] == [(0, 1)]


@pytest.mark.process
def test_start_survives_a_kill_and_files_go(tmp_path: Path) -> None:
    """Those with nothing but deleted records; what a topic of the same name gets is all there."""
    config = {"log.segment.bytes": 100, "log.segment.delete.delay.ms": 0}

    def files() -> list[int]:
        return sorted(int(path.name.split(".")[0]) for path in (tmp_path / "t-0").glob("*.log*"))

    with Broker(data_dir=tmp_path, config=config, process=True) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t")
            for _ in range(4):
                client.produce("t", bytes(40), bytes(40))
            assert delete(client, 5) == (0, 5)
            until(lambda: files() == [4, 6], what="files of records 0 to 3 have gone")
        broker.kill()
    with Broker(data_dir=tmp_path, config=config, process=True) as broker, RawClient(broker.port) as client:
        assert earliest(client) == 5
        assert fetched(client, 4)[0] == ErrorCode.OFFSET_OUT_OF_RANGE
        assert delete(client, -1) == (0, 8)
        until(lambda: files() == [8], what="all have gone")
        client.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(timeout_ms=30_000, topic_names=["t"]))
        client.create_topic("t")
        client.produce("t", b"x")
    with Broker(data_dir=tmp_path, config=config) as broker, RawClient(broker.port) as client:
        assert (earliest(client), fetched(client, 0)) == (0, (0, 0))


def test_file_of_a_segment_that_went_stays_for_its_time(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path, config={"log.segment.delete.delay.ms": 600_000}) as broker:
        with RawClient(broker.port) as client:
            client.create_topic("t")
            client.produce("t", b"a")
            assert delete(client, 1) == (0, 1)
        names = sorted(path.name for path in (tmp_path / "t-0").glob("*.log*"))
        assert names == [f"{0:020d}.log.deleted", f"{1:020d}.log"]
    with Broker(data_dir=tmp_path):
        assert [path.name for path in (tmp_path / "t-0").glob("*.log*")] == [f"{1:020d}.log"]


def test_other_clients_delete_records(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    client.produce("t", b"a", b"b", b"c")
    confluent = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    (future,) = confluent.delete_records([TopicPartition("t", 0, 1)]).values()
    assert future.result(10).low_watermark == 1
    python = KafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    python.delete_records({KafkaPythonPartition("t", 0): 2})
    python.close()
    assert earliest(client) == 2
