"""Records between our clients and confluent-kafka's, over any broker, and how our clients treat bad addresses.

Counterparts that must agree: what one side sends the other reads as it was, in every codec, key by key and header by
header.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import wait
from time import monotonic, time_ns
from typing import Any, Final, NamedTuple

import confluent_kafka
import pyarrow as pa
import pytest

from kohort import Admin, Consumer, ConsumerRecord, Producer, TopicPartition
from kohort.errors import BrokerError, BrokersUnreachableError, ErrorCode, UnknownTopicError
from kohort.wire.registry import ApiKey
from support.peers.lossy_proxy import LossyProxy
from support.scenarios.client_scenarios import (
    CODECS,
    PATIENCE_SECONDS,
    fresh,
    is_listed,
    new_topic,
    partitions_of,
    poll_until,
    send_values,
    wait_until,
)
from support.waiting import until


class Plain(NamedTuple):
    """A record without where it came from."""

    key: bytes | None
    value: bytes | None
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...]


#: A little while ago: records from long ago are deleted by the first broker that looks.
_T: Final = time_ns() // 1_000_000 - 60_000
#: Keys and values of all kinds; enough repetition for codecs to have something to do.
SAMPLES: Final = (
    Plain(b"key", b"value", _T, ()),
    Plain(None, b"no key", _T + 1, ()),
    Plain(b"tombstone", None, _T + 2, ()),
    Plain(None, None, _T + 3, ()),
    Plain(b"", b"", _T + 4, ()),
    Plain(b"headers", b"x", _T + 1000, (("a", b"1"), ("a", b"2"), ("empty", b""), ("null", None), ("ü", b"\x00\xff"))),
    Plain(b"backwards in time", "grüße".encode(), _T - 5000, ()),
    *(Plain(b"%d" % number, b"abcdefgh" * 40, _T + number, ()) for number in range(200)),
)


def plain(record: ConsumerRecord) -> Plain:
    """What travels of a record that our consumer has read."""
    return Plain(record.key, record.value, record.timestamp, record.headers)


def read_with_confluent(bootstrap: str, topic: str, number: int) -> list[Plain]:
    """The first records of partition 0 as confluent-kafka reads them."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": fresh("reader")})
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[Plain] = []
        deadline = monotonic() + PATIENCE_SECONDS
        while len(found) < number and monotonic() < deadline:
            records: list[Any] = consumer.consume(1000, timeout=0.2)
            for record in records:
                assert record.error() is None, record.error()
                headers = tuple(record.headers() or ())
                found.append(Plain(record.key(), record.value(), record.timestamp()[1], headers))
        return found
    finally:
        consumer.close()


def send_with_confluent(bootstrap: str, topic: str, **config: Any) -> None:
    """The samples into partition 0, as confluent-kafka sends them."""
    named = {key.replace("_", "."): value for key, value in config.items()}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "linger.ms": 50, **named})
    for key, value, timestamp, headers in SAMPLES:
        producer.produce(topic, value, key, partition=0, timestamp=timestamp, headers=list(headers))
    assert producer.flush(PATIENCE_SECONDS) == 0


# -- codecs -----------------------------------------------------------------------------------------------------------


def our_records_are_read_by_others(bootstrap: str) -> None:
    """Every codec, without codec, idempotent or not: confluent-kafka and we read what we sent."""
    for codec in CODECS:
        for acks in ("0", "1", "all") if codec == "none" else ("all",):
            with (
                new_topic(bootstrap, "ours") as topic,
                Producer(bootstrap_servers=bootstrap, compression_type=codec, acks=acks) as producer,
            ):
                sent = [
                    producer.send(topic, value, key, partition=0, timestamp_ms=timestamp, headers=headers)
                    for key, value, timestamp, headers in SAMPLES
                ]
                ends = [each.result(PATIENCE_SECONDS) for each in sent]
                wanted = [-1] * len(SAMPLES) if acks == "0" else list(range(len(SAMPLES)))
                assert [end.offset for end in ends] == wanted
                assert [end.timestamp for end in ends] == [sample.timestamp for sample in SAMPLES]
                assert read_with_confluent(bootstrap, topic, len(SAMPLES)) == list(SAMPLES), (codec, acks)
                with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
                    consumer.assign(partitions_of(topic, 1))
                    assert [plain(record) for record in poll_until(consumer, len(SAMPLES))] == list(SAMPLES)


def records_of_others_are_read(bootstrap: str) -> None:
    """Every codec of confluent-kafka, as records and as Arrow columns."""
    for codec in CODECS:
        with (
            new_topic(bootstrap, "theirs") as topic,
            Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer,
        ):
            send_with_confluent(bootstrap, topic, compression_type=codec, enable_idempotence=codec == "zstd")
            consumer.assign(partitions_of(topic, 1))
            records = poll_until(consumer, len(SAMPLES))
            assert [plain(record) for record in records] == list(SAMPLES), codec
            assert [record.offset for record in records] == list(range(len(SAMPLES)))
            consumer.seek(TopicPartition(topic, 0), 0)
            table = _read_table(consumer, len(SAMPLES))
            assert [_plain_of_row(row) for row in table.to_pylist()] == list(SAMPLES), codec
            assert table.column("offset").to_pylist() == list(range(len(SAMPLES)))
            assert set(table.column("topic").to_pylist()) == {topic}


def _read_table(consumer: Consumer, rows: int) -> pa.Table:
    batches: list[pa.RecordBatch] = []
    deadline = monotonic() + PATIENCE_SECONDS
    while sum(batch.num_rows for batch in batches) < rows and monotonic() < deadline:
        batches += consumer.poll_arrow(0.5, include_headers=True)
    return pa.Table.from_batches(batches)


def _plain_of_row(row: dict[str, Any]) -> Plain:
    headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
    return Plain(row["key"], row["value"], int(row["timestamp"].timestamp() * 1000 + 0.5), headers)


# -- producing --------------------------------------------------------------------------------------------------------


def keys_go_where_java_puts_them(bootstrap: str) -> None:
    """Equal keys meet in the partition that Java's murmur2 chooses, as confluent-kafka computes it."""
    _compare_partitions(bootstrap, "murmur2", Producer(bootstrap_servers=bootstrap))


def keys_go_where_librdkafka_puts_them(bootstrap: str, rule: str) -> None:
    """By each of its rules."""
    _compare_partitions(bootstrap, rule, Producer(bootstrap_servers=bootstrap, partitioner=rule))


def _compare_partitions(bootstrap: str, rule: str, producer: Producer) -> None:
    keys = [b"k%d" % number for number in range(64)] + [b"\xff\x00", "zürich".encode(), b"x" * 100]
    with producer, new_topic(bootstrap, "keys", 7) as topic:
        theirs: dict[bytes, int] = {}

        def note(_: object, sent: Any) -> None:
            theirs[sent.key()] = sent.partition()

        other = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "partitioner": rule})
        for key in keys:
            other.produce(topic, b"", key, on_delivery=note)
        assert other.flush(PATIENCE_SECONDS) == 0
        sent = {key: producer.send(topic, b"", key) for key in keys}
        ours = {key: each.result(PATIENCE_SECONDS).partition for key, each in sent.items()}
        assert ours == theirs


def records_without_key_reach_every_partition(bootstrap: str) -> None:
    """Without keys the batches, not the records, are spread; every partition gets some."""
    with (
        new_topic(bootstrap, "spread", 3) as topic,
        Producer(bootstrap_servers=bootstrap, batch_size=1000) as producer,
    ):
        sent = [producer.send(topic, b"x" * 100) for _ in range(600)]
        partitions = [each.result(PATIENCE_SECONDS).partition for each in sent]
    assert set(partitions) == {0, 1, 2}


def missing_topic_is_created_by_sending(bootstrap: str) -> str:
    """A broker that creates topics gets the time to do so; returns the topic, to which others have sent, too."""
    topic = fresh("created")
    with Producer(bootstrap_servers=bootstrap) as producer:
        assert producer.send(topic, b"first").result(PATIENCE_SECONDS).offset == 0
    with Producer(bootstrap_servers=bootstrap) as producer:
        assert producer.send(topic, b"second").result(PATIENCE_SECONDS).offset == 1
    return topic


def refused_records_say_why(bootstrap: str) -> None:
    """A name that no topic can have, a partition that is not there, a record that is too large for the broker."""
    with (
        new_topic(bootstrap, "refused") as topic,
        Producer(bootstrap_servers=bootstrap, max_request_size=4 << 20) as producer,
    ):
        too_large = producer.send(topic, b"x" * (2 << 20))
        with pytest.raises(BrokerError) as refusal:
            too_large.result(PATIENCE_SECONDS)
        assert refusal.value.code is ErrorCode.MESSAGE_TOO_LARGE
        with pytest.raises(ValueError, match=f"{topic} has partitions 0 to 0, there is no 5"):
            producer.send(topic, b"x", partition=5).result(PATIENCE_SECONDS)
        with pytest.raises(BrokerError) as refusal:
            producer.send("no such topic!", b"x").result(PATIENCE_SECONDS)
        assert refusal.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert producer.send(topic, b"x").result(PATIENCE_SECONDS).offset == 0


def lost_answers_double_nothing(bootstrap: str, proxy: LossyProxy) -> None:
    """Idempotence: batches whose answers were lost are sent again, and stored once, in order."""
    with (
        new_topic(bootstrap, "lossy") as topic,
        Producer(bootstrap_servers=bootstrap, batch_size=500, retry_backoff_ms=10) as producer,
    ):
        sent = [producer.send(topic, b"%d" % number) for number in range(20)]
        producer.flush(PATIENCE_SECONDS)
        proxy.lose_answers(ApiKey.PRODUCE, 3)
        sent += [producer.send(topic, b"%d" % number) for number in range(20, 400)]
        assert [each.result(PATIENCE_SECONDS).offset for each in sent] == list(range(400))
        assert proxy.lost == 3
        with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
            consumer.assign(partitions_of(topic, 1))
            assert [record.value for record in poll_until(consumer, 400)] == [b"%d" % number for number in range(400)]
            assert consumer.end_offsets(partitions_of(topic, 1)) == dict.fromkeys(partitions_of(topic, 1), 400)


# -- bad addresses, missing topics ------------------------------------------------------------------------------------


def wrong_address_is_named(port: int) -> None:
    """Nobody listens there: every client says so long before anything times out, naming the address.

    Records alone wait for a broker that may start later.
    """
    address = f"127.0.0.1:{port}"
    hour_ms, hour_s = 3_600_000, 3_600.0
    with (
        Admin(bootstrap_servers=address, default_api_timeout_ms=hour_ms) as admin,
        pytest.raises(BrokersUnreachableError, match=address),
    ):
        admin.list_topics()
    with (
        Producer(bootstrap_servers=address, delivery_timeout_ms=hour_ms) as producer,
        pytest.raises(BrokersUnreachableError, match=address),
    ):
        producer.connect(hour_s)
    with Consumer(bootstrap_servers=address, group_id="orders") as consumer:
        consumer.subscribe(["orders"])
        with pytest.raises(BrokersUnreachableError, match=address):
            consumer.poll(hour_s)


def records_wait_for_their_first_broker(bootstrap: str, port: int, lines: Callable[[], list[str]]) -> None:
    """Nobody listens at their address, and later somebody does: what was sent meanwhile is stored, in order."""
    early = "8 records wait for a broker, the oldest for another 119 s at most (delivery.timeout.ms)"
    with new_topic(bootstrap, "early") as topic, Producer(bootstrap_servers=f"127.0.0.1:{port}") as producer:
        sent = [producer.send(topic, b"%d" % number, partition=0) for number in range(8)]
        until(lambda: any(line.startswith(early) for line in lines()), what="a word", step=lambda: wait(sent, 0.05))
        assert producer.flush(0) == 8
        assert not any(future.done() for future in sent)
        with LossyProxy(port=port, target_port=int(bootstrap.rpartition(":")[2])):
            assert [each.result(PATIENCE_SECONDS).offset for each in sent] == list(range(8))
            assert producer.flush(PATIENCE_SECONDS) == 0


def missing_topic_is_named(bootstrap: str) -> None:
    """A broker that creates nothing by itself: producer and consumer name the topic, subscribers wait for it."""
    missing = fresh("missing")
    with Producer(bootstrap_servers=bootstrap) as producer, pytest.raises(UnknownTopicError, match=missing):
        producer.send(missing, b"x").result(PATIENCE_SECONDS)
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([TopicPartition(missing, 0)])
        with pytest.raises(UnknownTopicError, match=missing):
            wait_until(lambda: False, "an error", consumer)
    with Consumer(
        bootstrap_servers=bootstrap, group_id=fresh("early"), auto_offset_reset="earliest", metadata_max_age_ms=300
    ) as consumer:
        consumer.subscribe([missing])
        wait_until(lambda: consumer.has_assignment, "an empty assignment", consumer)
        with Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic(missing)
            wait_until(lambda: is_listed(admin, missing), f"{missing} is known")
        send_values(bootstrap, missing, [b"at last"])
        assert [record.value for record in poll_until(consumer, 1)] == [b"at last"]
