"""Produce and Fetch as bytes on the wire."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.records.batch import build_batch, iterate_records
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.init_producer_id import InitProducerIdRequest
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient, batch_of, fetch_request, produce_request


def values_of(answer: object) -> list[bytes | None]:
    """The values in the first partition of a Fetch answer."""
    row = answer.responses[0].partitions[0]  # type: ignore[attr-defined]
    assert row.error_code == 0, row
    return [record.value for record in iterate_records(row.records or b"")]


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.PRODUCE][0], VERSIONS[ApiKey.PRODUCE][1] + 1))
def test_produce_works_in_every_version(client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t")
    data = PartitionProduceData(index=0, records=batch_of(b"a", b"b"))
    request = ProduceRequest(
        acks=-1, timeout_ms=1, topic_data=[TopicProduceData(name="t", topic_id=topic_id, partition_data=[data])]
    )
    rows = [client.ask(ApiKey.PRODUCE, version, request).responses[0].partition_responses[0] for _ in range(2)]
    assert [(row.error_code, row.base_offset) for row in rows] == [(0, 0), (0, 2)]


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.FETCH][0], VERSIONS[ApiKey.FETCH][1] + 1))
def test_fetch_works_in_every_version(client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t")
    client.produce("t", b"a", b"b")
    answer = client.ask(ApiKey.FETCH, version, fetch_request("t", topic_id=topic_id if version >= 13 else bytes(16)))
    assert values_of(answer) == [b"a", b"b"]
    row = answer.responses[0].partitions[0]
    assert (row.high_watermark, row.last_stable_offset) == (2, 2)


def test_one_refused_partition_does_not_hold_up_the_others(client: RawClient) -> None:
    client.create_topic("t", partitions=2)
    rows = [PartitionProduceData(index=number, records=batch_of(b"x")) for number in (0, 1, 7)]
    other = [PartitionProduceData(index=0, records=batch_of(b"x"))]
    request = ProduceRequest(
        acks=-1,
        timeout_ms=1,
        topic_data=[
            TopicProduceData(name="t", partition_data=rows),
            TopicProduceData(name="unknown", partition_data=other),
        ],
    )
    answer = client.ask(ApiKey.PRODUCE, 9, request)
    codes = [[row.error_code for row in topic.partition_responses] for topic in answer.responses]
    assert codes == [[0, 0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]]


def _with_wrong_crc() -> bytes:
    batch = bytearray(batch_of(b"x"))
    batch[-1] ^= 1
    return bytes(batch)


def _with_length(length: int) -> bytes:
    batch = bytearray(batch_of(b"x"))
    batch[8:12] = length.to_bytes(4, "big", signed=True)
    return bytes(batch)


@pytest.mark.parametrize(
    ("records", "code"),
    [
        (_with_wrong_crc(), ErrorCode.CORRUPT_MESSAGE),
        (_with_length(2**31 - 1), ErrorCode.CORRUPT_MESSAGE),
        (_with_length(-5), ErrorCode.CORRUPT_MESSAGE),
        (_with_length(0), ErrorCode.CORRUPT_MESSAGE),
        (batch_of(b"x")[:-1], ErrorCode.CORRUPT_MESSAGE),
        (b"", ErrorCode.INVALID_RECORD),
        (None, ErrorCode.INVALID_RECORD),
        (b"\0" * 100, ErrorCode.INVALID_RECORD),
    ],
)
def test_a_damaged_batch_is_refused_and_nothing_is_stored(
    client: RawClient, records: bytes | None, code: ErrorCode
) -> None:
    client.create_topic("t")
    answer = client.ask(ApiKey.PRODUCE, 9, produce_request("t", records))
    assert answer.responses[0].partition_responses[0].error_code == code
    assert values_of(client.ask(ApiKey.FETCH, 11, fetch_request("t"))) == []


@pytest.mark.parametrize("acks", [2, -2])
def test_other_acks_are_refused(client: RawClient, acks: int) -> None:
    client.create_topic("t")
    assert client.produce("t", b"x", acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


def test_acks_0_gets_no_answer(client: RawClient) -> None:
    client.create_topic("t")
    client.send(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"x"), acks=0))
    assert values_of(client.ask(ApiKey.FETCH, 11, fetch_request("t"))) == [b"x"]


def test_acks_0_that_fails_closes_the_connection(client: RawClient) -> None:
    """As in Kafka: the client has no other way to learn that its picture of the cluster is wrong."""
    client.send(ApiKey.PRODUCE, 9, produce_request("unknown", batch_of(b"x"), acks=0))
    assert client.is_closed_by_broker()


def test_the_coordinators_log_is_not_for_clients_to_write(client: RawClient) -> None:
    assert client.produce("__consumer_offsets", b"x").error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


def test_a_repeated_batch_of_an_idempotent_producer_is_stored_once(client: RawClient) -> None:
    client.create_topic("t")
    answer = client.ask(
        ApiKey.INIT_PRODUCER_ID, 4, InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    )
    assert answer.error_code == 0
    batch = build_batch([(None, b"x", 1, ())], producer_id=answer.producer_id, producer_epoch=0, base_sequence=0)
    rows = [client.ask(ApiKey.PRODUCE, 9, produce_request("t", batch)) for _ in range(2)]
    assert [row.responses[0].partition_responses[0].base_offset for row in rows] == [0, 0]
    gap = build_batch([(None, b"x", 1, ())], producer_id=answer.producer_id, producer_epoch=0, base_sequence=5)
    refused = client.ask(ApiKey.PRODUCE, 9, produce_request("t", gap)).responses[0].partition_responses[0]
    assert refused.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_ids_are_given_once(client: RawClient) -> None:
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1)
    ids = [client.ask(ApiKey.INIT_PRODUCER_ID, 4, request).producer_id for _ in range(5)]
    assert len(set(ids)) == 5


def test_an_acknowledged_record_of_a_synced_topic_is_readable(tmp_path: Path) -> None:
    """flush.messages=1 is the default: the answer waits for the disk, and so do readers."""
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        sent = [client.send(ApiKey.PRODUCE, 9, produce_request("t", batch_of(b"x"))) for _ in range(50)]
        got = [client.receive(ApiKey.PRODUCE, 9) for _ in sent]
        assert [correlation_id for correlation_id, _ in got] == sent
        offsets = [answer.responses[0].partition_responses[0].base_offset for _, answer in got]
        assert offsets == list(range(50))
        assert len(values_of(client.ask(ApiKey.FETCH, 11, fetch_request("t")))) == 50


# ---- waiting


def test_a_fetch_waits_for_data_and_is_woken_by_it(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000))
    with RawClient(broker.port) as other:
        other.produce("t", b"x")
    assert values_of(client.receive(ApiKey.FETCH, 11)[1]) == [b"x"]


def test_a_fetch_waits_until_there_are_enough_bytes(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    size = len(batch_of(b"x"))
    client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000, min_bytes=3 * size))
    with RawClient(broker.port) as other:
        for _ in range(3):
            other.produce("t", b"x")
    assert values_of(client.receive(ApiKey.FETCH, 11)[1]) == [b"x"] * 3


def test_a_fetch_whose_time_is_over_is_answered_with_what_there_is(client: RawClient) -> None:
    client.create_topic("t")
    client.produce("t", b"x")
    began = time.monotonic()
    answer = client.ask(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=100, min_bytes=1 << 20))
    assert values_of(answer) == [b"x"]
    assert time.monotonic() - began >= 0.09


def test_a_fetch_of_a_topic_that_is_deleted_is_answered(broker: Broker, client: RawClient) -> None:
    client.create_topic("t")
    client.send(ApiKey.FETCH, 11, fetch_request("t", max_wait_ms=60_000))
    with RawClient(broker.port) as other:
        other.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(timeout_ms=30_000, topic_names=["t"]))
    row = client.receive(ApiKey.FETCH, 11)[1].responses[0].partitions[0]
    assert row.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_fetch_that_finds_an_error_does_not_wait(client: RawClient) -> None:
    client.create_topic("t")
    answer = client.ask(ApiKey.FETCH, 11, fetch_request("t", offset=99, max_wait_ms=60_000))
    assert answer.responses[0].partitions[0].error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    unknown = client.ask(ApiKey.FETCH, 13, fetch_request("", topic_id=b"1" * 16, max_wait_ms=60_000))
    assert unknown.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_fetch_keeps_to_the_bytes_of_request_and_partition_but_gives_at_least_one_batch(client: RawClient) -> None:
    client.create_topic("t", partitions=2)
    size = len(batch_of(bytes(1000)))
    for number in range(2):
        for _ in range(4):
            client.produce("t", bytes(1000), partition=number)

    def fetch(max_bytes: int, partition_max_bytes: int) -> list[int]:
        rows = [
            FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=partition_max_bytes)
            for number in range(2)
        ]
        request = FetchRequest(max_bytes=max_bytes, topics=[FetchTopic(topic="t", partitions=rows)])
        answer = client.ask(ApiKey.FETCH, 11, request)
        return [len(row.records or b"") // size for row in answer.responses[0].partitions]

    assert fetch(10 * size, 2 * size) == [2, 2]
    assert fetch(3 * size, 10 * size) == [3, 0]
    assert fetch(1, 10 * size) == [1, 0]
    assert fetch(10 * size, 1) == [1, 0]
    assert fetch(-1, -1) == [1, 0]


# ---- offsets by time


@pytest.mark.parametrize(
    ("timestamp", "found"),
    [(-1, (-1, 3)), (-2, (-1, 0)), (-3, (3000, 2)), (-4, (-1, 0)), (-5, (-1, -1)), (2000, (2000, 1)), (9000, (-1, -1))],
)
def test_offsets_by_time(client: RawClient, timestamp: int, found: tuple[int, int]) -> None:
    client.create_topic("t")
    batch = build_batch([(None, b"x", 1000 * number, ()) for number in (1, 2, 3)])
    client.ask(ApiKey.PRODUCE, 9, produce_request("t", batch))
    row = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[row])])
    answer = client.ask(ApiKey.LIST_OFFSETS, 9, request).topics[0].partitions[0]
    assert (answer.error_code, answer.timestamp, answer.offset) == (0, *found)


def test_offsets_of_what_does_not_exist_are_refused(client: RawClient) -> None:
    client.create_topic("t", partitions=2)
    rows = [
        ListOffsetsPartition(partition_index=2, timestamp=-1),
        ListOffsetsPartition(partition_index=0, timestamp=-7),
        ListOffsetsPartition(partition_index=1, timestamp=-1, current_leader_epoch=4),
    ]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=rows)])
    answer = client.ask(ApiKey.LIST_OFFSETS, 9, request)
    assert [row.error_code for row in answer.topics[0].partitions] == [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    ]
