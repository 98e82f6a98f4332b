"""Batches that have to be unfolded before they are stored: refused as by Kafka, in their order, beside the loop."""

from __future__ import annotations

import time

import confluent_kafka
import kafka
import kafka.errors
import pytest

import kohort
from kohort.broker import batch_validation
from kohort.broker.embedded import Broker
from kohort.errors import BrokerError, ErrorCode
from kohort.records.batch import build_batch, iterate_records
from kohort.records.header import seal, split_batches
from kohort.wire.messages.produce import PartitionProduceResponse
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, fetch_request, produce_request


def produce(client: RawClient, batch: bytes, *, acks: int = -1) -> PartitionProduceResponse:
    answer = client.ask(ApiKey.PRODUCE, 9, produce_request("t", batch, acks=acks))
    row = answer.responses[0].partition_responses[0]
    assert isinstance(row, PartitionProduceResponse)
    return row


def stored(client: RawClient) -> bytes:
    raw: bytes = client.ask(ApiKey.FETCH, 11, fetch_request("t")).responses[0].partitions[0].records
    return raw


def long_batch(number: int, codec: str, *, count: int = 20_000) -> bytes:
    """It is short as it comes, and unfolds to far more than the loop would unfold."""
    return build_batch([(b"k", b"%d" % number, now_ms(), ())] * count, compression=codec)


def now_ms() -> int:
    return int(time.time() * 1000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_record_without_key_is_refused_by_a_compacted_topic(client: RawClient, codec: str) -> None:
    """KIP-467: which record it was; nothing of its batch is stored."""
    client.create_topic("t", cleanup_policy="compact")
    rows = [(b"k", b"v", now_ms(), ()), (None, b"v", now_ms(), ())]
    for count in (1, 20_000):
        row = produce(client, build_batch(rows * count, compression=codec))
        assert (row.error_code, row.record_errors[0].batch_index) == (ErrorCode.INVALID_RECORD, 1)
        assert str(row.record_errors[0].batch_index_error_message).startswith("Compacted topic cannot accept message")
    assert stored(client) == b""


def test_long_and_short_batches_stay_in_order(client: RawClient) -> None:
    """One that is looked into beside the loop holds up those behind it, and nobody else's."""
    client.create_topic("t", compression_type="zstd")
    batches = [long_batch(0, "gzip"), *(build_batch([(b"k", b"%d" % at, now_ms(), ())]) for at in range(1, 5))]
    for batch in batches:
        client.send(ApiKey.PRODUCE, 9, produce_request("t", batch))
    answers = [client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0] for _ in batches]
    assert [(row.error_code, row.base_offset) for row in answers] == [(0, 0), *((0, 20_000 + at) for at in range(4))]
    raw = stored(client)
    assert {header.compression for _, header in split_batches(raw)} == {"zstd"}
    assert [record.value for record in iterate_records(raw)][-5:] == [b"0", b"1", b"2", b"3", b"4"]


@pytest.mark.large
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_batch_that_unfolds_to_nonsense_is_refused_beside_the_loop(client: RawClient, codec: str) -> None:
    """One that claims other records than it has, or unfolds to more than is held; those behind it are stored."""
    client.create_topic("t", max_message_bytes="4000000")
    many = 100_000
    whole = long_batch(7, codec, count=many)
    lies = []
    for count in (1, many - 1, many + 1, (1 << 31) - 1):
        lie = bytearray(whole)
        lie[57:61], lie[23:27] = count.to_bytes(4, "big"), (count - 1).to_bytes(4, "big")
        seal(lie)
        lies.append(bytes(lie))
    bomb = build_batch([(b"k", bytes(65 << 20), 1_000, ())], compression="zstd")
    sent = [*lies, bomb, whole, build_batch([(b"k", b"v", now_ms(), ())])]
    for batch in sent:
        client.send(ApiKey.PRODUCE, 9, produce_request("t", batch))
    answers = [client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0] for _ in sent]
    refused = (ErrorCode.INVALID_RECORD, -1)
    assert [(row.error_code, row.base_offset) for row in answers] == [refused] * 5 + [(0, 0), (0, many)]


def test_more_than_may_wait_is_to_be_sent_again(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = long_batch(7, "lz4")
    monkeypatch.setattr(batch_validation, "WAITING_LIMIT_BYTES", len(batch) - 1)
    client.create_topic("t")
    assert produce(client, batch).error_code == ErrorCode.REQUEST_TIMED_OUT
    monkeypatch.undo()
    assert produce(client, batch).base_offset == 0


def test_the_loop_unfolds_so_much_in_one_turn(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is beyond that is unfolded beside it, and answered in its turn."""
    monkeypatch.setattr(batch_validation, "TURN_BYTES", 20_000)
    client.create_topic("t")
    batches = [long_batch(number, "zstd", count=1_000) for number in range(9)]
    for batch in batches:
        client.send(ApiKey.PRODUCE, 9, produce_request("t", batch))
    answers = [client.receive(ApiKey.PRODUCE, 9)[1].responses[0].partition_responses[0] for _ in batches]
    assert [row.base_offset for row in answers] == [number * 1_000 for number in range(9)]
    assert [record.value for record in iterate_records(stored(client))][::1_000] == [b"%d" % n for n in range(9)]


@pytest.mark.parametrize("acks", [1, -1])
def test_long_batch_is_answered_when_it_is_stored(client: RawClient, acks: int) -> None:
    client.create_topic("t", cleanup_policy="compact")
    assert produce(client, long_batch(7, "lz4"), acks=acks).base_offset == 0
    assert produce(client, long_batch(7, "lz4"), acks=acks).base_offset == 20_000


def test_acks_0_is_heard_of_by_nobody_but_in_the_log(client: RawClient) -> None:
    client.create_topic("t", cleanup_policy="compact")
    client.send(ApiKey.PRODUCE, 9, produce_request("t", long_batch(7, "gzip"), acks=0))
    assert produce(client, long_batch(8, "gzip")).base_offset == 20_000
    client.send(ApiKey.PRODUCE, 9, produce_request("t", build_batch([(None, b"v", now_ms(), ())]), acks=0))
    assert client.is_closed_by_broker()


def test_repeated_batch_of_a_recoded_topic_is_stored_once(client: RawClient) -> None:
    client.create_topic("t", compression_type="lz4")
    batch = build_batch([(b"k", b"v", now_ms(), ())] * 3, producer_id=5, producer_epoch=0, base_sequence=0)
    assert [produce(client, batch).base_offset for _ in range(2)] == [0, 0]
    after = build_batch([(b"k", b"v", now_ms(), ())], producer_id=5, producer_epoch=0, base_sequence=3)
    assert produce(client, after).base_offset == 3
    gap = build_batch([(b"k", b"v", now_ms(), ())], producer_id=5, producer_epoch=0, base_sequence=9)
    assert produce(client, gap).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_record_of_tomorrow_is_refused(client: RawClient) -> None:
    """message.timestamp.after.max.ms is an hour, as in Kafka; a broker that dates records itself does not care."""
    client.create_topic("t")
    tomorrow = build_batch([(b"k", b"v", now_ms() + 86_400_000, ())])
    row = produce(client, tomorrow)
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert "message.timestamp.after.max.ms" in str(row.error_message)
    assert "The timestamp should be within [" in str(row.error_message), "the limit is told to who reads no more"
    assert produce(client, build_batch([(b"k", b"v", now_ms() + 1_800_000, ())])).error_code == 0


def test_record_of_yesterday_is_refused_where_a_topic_says_so(client: RawClient) -> None:
    client.create_topic("t", message_timestamp_before_max_ms="3600000")
    rows = [(b"k", b"v", time, ()) for time in (now_ms(), now_ms() - 86_400_000, -1)]
    row = produce(client, build_batch(rows, compression="gzip"))
    assert row.error_code == ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in row.record_errors] == [1]


def test_users_of_other_clients_are_told(broker: Broker, client: RawClient) -> None:
    client.create_topic("t", cleanup_policy="compact")
    place = broker.bootstrap_servers
    told: list[confluent_kafka.KafkaError] = []
    confluent = confluent_kafka.Producer({"bootstrap.servers": place})
    confluent.produce("t", b"no key", on_delivery=lambda error, _: told.append(error))
    confluent.flush(10)
    assert [error.code() for error in told] == [confluent_kafka.KafkaError.INVALID_RECORD]
    python = kafka.KafkaProducer(bootstrap_servers=place)
    with pytest.raises(kafka.errors.InvalidRecordError):
        python.send("t", b"no key").get(10)
    python.close()
    python = kafka.KafkaProducer(bootstrap_servers=place)
    with pytest.raises(kafka.errors.InvalidTimestampError):
        python.send("t", b"v", key=b"k", timestamp_ms=now_ms() + 86_400_000).get(10)
    python.close()
    with (
        kohort.Producer(bootstrap_servers=place) as ours,
        pytest.raises(BrokerError, match="INVALID_RECORD"),
    ):
        ours.send("t", b"no key").result(10)
