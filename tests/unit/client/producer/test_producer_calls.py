"""The producer's calls with a broker: callbacks, serializers, partitioners, levels, and the words of other clients."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.errors import (
    BrokerError,
    BufferFullError,
    ConfigError,
    ErrorCode,
    KohortTimeoutError,
    SerializationError,
    StateError,
)
from kohort.records.compression import compress
from support.waiting import until

WAIT_S = 20.0
ORDERS = 4


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", ORDERS)
        yield broker.bootstrap_servers


class Told:
    """What callbacks were called with."""

    def __init__(self) -> None:
        self.errors: list[Any] = []
        self.stored: list[kohort.RecordMetadata] = []
        self.threads: set[int] = set()

    def __call__(self, error: Any, metadata: Any) -> None:
        self.errors.append(error)
        self.stored.append(metadata)
        self.threads.add(threading.get_ident())


class TestCallbacks:
    """`on_delivery`, as in confluent-kafka."""

    def test_they_are_called_in_order_in_the_thread_that_flushes(self, address: str) -> None:
        """Never on the producer's own."""
        told = Told()
        with Producer(bootstrap_servers=address) as producer:
            for number in range(500):
                producer.send("orders", b"%d" % number, partition=1, on_delivery=told)
            assert producer.flush(WAIT_S) == 0
            assert told.errors == [None] * 500
        offsets = [stored.offset for stored in told.stored]
        assert offsets == list(range(offsets[0], offsets[0] + 500))
        assert {(stored.topic, stored.partition) for stored in told.stored} == {("orders", 1)}
        assert told.threads == {threading.get_ident()}

    def test_poll_waits_for_the_first_and_counts_them(self, address: str) -> None:
        """0 is what is there."""
        told = Told()
        go_on = threading.Event()
        with (
            ThreadPoolExecutor() as pool,
            Producer(
                # Nothing ends before the poll may wait for it: `produce` would call back what has ended meanwhile.
                bootstrap_servers=address,
                linger_ms=0,
                partitioner=lambda *_: 0 if go_on.wait(WAIT_S) else -1,
            ) as producer,
        ):
            assert producer.poll(0) == 0
            for word, timeout in (("a", WAIT_S), ("b", None)):
                go_on.clear()
                producer.produce("orders", word, callback=told)
                polled = pool.submit(producer.poll, timeout)
                go_on.set()
                assert polled.result(WAIT_S) == 1
        assert len(told.stored) == 2

    def test_send_calls_those_of_earlier_records(self, address: str) -> None:
        """What has ended waits for no poll, so it never piles up."""
        told = Told()
        with Producer(bootstrap_servers=address, linger_ms=0) as producer:
            producer.send("orders", b"a", on_delivery=told).result(WAIT_S)
            until(lambda: told.stored, what="a callback", step=lambda: producer.send("orders", b"b").result(WAIT_S))

    def test_close_calls_what_is_left(self, address: str) -> None:
        told = Told()
        producer = Producer(bootstrap_servers=address, linger_ms=60_000)
        producer.send("orders", b"a", on_delivery=told)
        producer.close()
        assert told.errors == [None]

    def test_failed_record_is_told_with_its_error(self, address: str) -> None:
        """And is not counted among those that nobody has asked for."""
        told = Told()
        with Producer(bootstrap_servers=address) as producer:
            producer.send("orders", b"a", partition=99, on_delivery=told)
            producer.flush(WAIT_S)
        assert isinstance(told.errors[0], ConfigError)
        assert (told.stored[0].topic, told.stored[0].offset) == ("orders", -1)

    @pytest.mark.logs_bugs
    def test_callback_that_raises_is_logged_and_holds_up_nobody(
        self, address: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        told = Told()

        def fail(_: object, __: object) -> None:
            raise ZeroDivisionError

        with Producer(bootstrap_servers=address) as producer:
            producer.send("orders", b"a", on_delivery=fail)
            producer.send("orders", b"b", on_delivery=told)
            producer.flush(WAIT_S)
        assert told.errors == [None]
        # The broker is in this process, too, and says when the machine stands still.
        said = [record.getMessage() for record in caplog.records if record.name == "kohort.client"]
        assert said == ["on_delivery has failed for a record of orders"]

    @pytest.mark.parametrize("call", ["flush", "close"])
    def test_what_waits_for_callbacks_is_refused_in_one(self, address: str, call: str) -> None:
        """With a sentence, at once; sending and waiting for a future are fine there."""
        ends: list[object] = []
        with Producer(bootstrap_servers=address, linger_ms=0) as producer:

            def work(_: object, __: object) -> None:
                try:
                    getattr(producer, call)()
                except StateError as why:
                    ends.append(str(why))
                ends.append(producer.send("orders", b"b").result(WAIT_S).topic)
                ends.append(producer.poll(WAIT_S))

            producer.send("orders", b"a", on_delivery=work)
            producer.flush(WAIT_S)
        assert ends == [
            f"{call}() waits for callbacks to return, so none of them can call it: call it behind",
            "orders",
            0,
        ]

    @pytest.mark.logs_bugs
    def test_callbacks_of_a_machine_that_fails_are_called(self, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """With the cause, by close."""
        told = Told()
        producer = Producer(bootstrap_servers=address, linger_ms=60_000)
        producer.send("orders", b"a", on_delivery=told)

        def fail(*_: object) -> None:
            raise ZeroDivisionError("planted")

        monkeypatch.setattr("kohort.client.producer.core.accumulator.Accumulator.close_all", fail)
        with pytest.raises(StateError, match="planted"):
            producer.flush(WAIT_S)
        with pytest.raises(StateError, match="planted"):
            producer.close()
        assert [str(error) for error in told.errors] == [
            "this producer has stopped after an internal error (ZeroDivisionError: planted); create a new one"
        ]


class TestSerializers:
    """Functions of one argument, as kafka-python has them."""

    def test_they_make_what_is_sent(self, address: str) -> None:
        with Producer(bootstrap_servers=address, key_serializer=str.encode, value_serializer=json.dumps) as producer:
            stored = producer.send("orders", {"a": 1}, "ä").result(WAIT_S)
        with Consumer(bootstrap_servers=address) as consumer:
            place = TopicPartition("orders", stored.partition)
            consumer.assign([place])
            consumer.seek(place, stored.offset)
            record = consumer.poll(WAIT_S)[0]
        assert (record.key, record.value) == ("ä".encode(), b'{"a": 1}')

    @pytest.mark.parametrize(("which", "topic"), [("key", "orders"), ("value", "orders")])
    def test_one_that_fails_is_named_with_the_topic(self, address: str, which: str, topic: str) -> None:
        def fail(_: object) -> bytes:
            raise KeyError("id")

        with Producer({f"{which}.serializer": fail}, bootstrap_servers=address) as producer:
            with pytest.raises(
                SerializationError, match=rf"the {which} of a record of orders: KeyError\('id'\)"
            ) as why:
                producer.send(topic, b"v", b"k")
            assert isinstance(why.value.__cause__, KeyError)
        with Producer(bootstrap_servers=address, value_serializer=lambda value: value) as producer:
            with pytest.raises(TypeError, match="value is a int"):
                producer.send(topic, 5)
            producer.send(topic, b"good").result(WAIT_S)

    def test_one_that_cannot_be_called_is_refused(self) -> None:
        with pytest.raises(ConfigError, match=r"value.serializer cannot be 'json': a function is expected"):
            Producer(value_serializer="json")


class TestPartitioners:
    """By name, or a function."""

    def test_function_decides(self, address: str) -> None:
        with Producer(
            bootstrap_servers=address, partitioner=lambda topic, key, count: int(key) % count if topic else 0
        ) as producer:
            sent = [producer.send("orders", b"x", b"%d" % number) for number in range(8)]
            assert [each.result(WAIT_S).partition for each in sent] == [0, 1, 2, 3] * 2

    def test_function_that_fails_ends_that_record_alone(self, address: str) -> None:
        """Named with the topic; the next one is sent."""
        with Producer(bootstrap_servers=address, partitioner=lambda _, key, __: {b"a": 1, b"b": 77}[key]) as producer:
            sent = [producer.send("orders", b"x", key) for key in (b"a", b"b", b"c", b"a")]
            assert [sent[0].result(WAIT_S).partition, sent[3].result(WAIT_S).partition] == [1, 1]
            assert "has chosen 77 for a record of orders" in str(sent[1].exception(WAIT_S))
            assert "has failed for a record of orders: KeyError" in str(sent[2].exception(WAIT_S))

    def test_name_is_checked_at_once(self) -> None:
        with pytest.raises(ConfigError, match="partitioner cannot be 'sticky': one of murmur2_random, "):
            Producer(partitioner="sticky")

    def test_round_robin_reaches_every_partition(self, address: str) -> None:
        with Producer(bootstrap_servers=address, partitioner="round_robin") as producer:
            sent = [producer.send("orders", b"x", b"same") for _ in range(ORDERS)]
            assert {each.result(WAIT_S).partition for each in sent} == set(range(ORDERS))


@pytest.mark.parametrize(("codec", "low", "high"), [("gzip", 1, 9), ("lz4", 1, 12), ("zstd", -7, 19)])
def test_level_of_compression(address: str, codec: str, low: int, high: int) -> None:
    """More of it takes fewer bytes, and is read all the same."""
    data = Path(__file__).read_bytes()
    assert len(compress(codec, data, level=high)) < len(compress(codec, data, level=low))
    for level in (low, high):
        options = {"compression.type": codec, f"compression.{codec}.level": level}
        with Producer(options, bootstrap_servers=address) as producer:
            stored = producer.send("orders", data).result(WAIT_S)
        with Consumer(bootstrap_servers=address) as consumer:
            place = TopicPartition("orders", stored.partition)
            consumer.assign([place])
            consumer.seek(place, stored.offset)
            assert consumer.poll(WAIT_S)[0].value == data


class TestRoom:
    """`buffer.memory` and `max.block.ms`."""

    def test_full_buffer_raises_at_once_where_nothing_waits(self, address: str) -> None:
        """confluent-kafka's BufferError, kafka-python's timeout; when there is room again it goes on."""
        with Producer(bootstrap_servers=address, buffer_memory=1_000, max_block_ms=0, linger_ms=60_000) as producer:
            first = producer.send("orders", bytes(900))
            with pytest.raises(BufferError, match=r"buffer.memory \(1000 bytes\) is full: records are sent") as full:
                producer.send("orders", bytes(900))
            assert isinstance(full.value, KohortTimeoutError) and isinstance(full.value, BufferFullError)
            producer.flush(WAIT_S)
            assert first.done()
            producer.send("orders", bytes(900))

    def test_record_above_the_buffer_is_sent_alone(self, address: str) -> None:
        """Otherwise it would wait for ever."""
        with Producer(bootstrap_servers=address, buffer_memory=100, linger_ms=0) as producer:
            producer.send("orders", b"small")
            assert producer.send("orders", bytes(5_000)).result(WAIT_S).topic == "orders"

    def test_close_ends_the_wait_of_another_thread(self) -> None:
        """For a broker that is not there."""
        producer = Producer(bootstrap_servers="127.0.0.1:1", buffer_memory=1_000, reconnect_backoff_ms=60_000)
        ends: list[BaseException] = []

        def send() -> None:
            try:
                while True:
                    producer.send("orders", bytes(900))
            except StateError as why:
                ends.append(why)

        thread = threading.Thread(target=send)
        thread.start()
        producer.close(0.0)
        thread.join(WAIT_S)
        assert [str(why) for why in ends] == ["this producer is closed"]


class TestPartitionsFor:
    """What kafka-python's has."""

    def test_partitions_of_a_topic(self, address: str) -> None:
        with Producer(bootstrap_servers=address) as producer:
            assert producer.partitions_for("orders") == [0, 1, 2, 3]
            assert producer.partitions_for("absent") == []

    def test_nobody_answers(self) -> None:
        with (
            Producer(bootstrap_servers="127.0.0.1:1", max_block_ms=300) as producer,
            pytest.raises(
                KohortTimeoutError, match=r"partitions of orders are not known in time: 127.0.0.1:1: Connection"
            ),
        ):
            producer.partitions_for("orders")


def test_words_of_confluent_kafka(address: str) -> None:
    """Its example, with dotted names."""
    told = Told()
    producer = Producer({"bootstrap.servers": address})
    for data in ("a", "b"):
        producer.poll(0)
        producer.produce("orders", data.encode("utf-8"), callback=told)
    assert producer.flush() == 0
    producer.produce("orders", key="k", value="v", partition=2, timestamp=1_000, headers={"h": b"1"}, on_delivery=told)
    producer.flush()
    assert (told.stored[2].partition, told.stored[2].timestamp) == (2, 1_000)
    with pytest.raises(TypeError, match="callback is another name for on_delivery"):
        producer.produce("orders", b"x", callback=told, on_delivery=told)
    producer.close()


def test_record_too_large_for_its_topic_fails_and_others_are_sent(address: str) -> None:
    """Batches grow while they wait, so that a refused one is cut until it fits."""
    with Admin(bootstrap_servers=address) as admin:
        admin.create_topic("narrow", 1, configs={"max.message.bytes": "3000"})
    with Producer(bootstrap_servers=address, batch_size=1_000, linger_ms=0) as producer:
        sent = [producer.send("narrow", b"%d" % number + bytes(300), partition=0) for number in range(200)]
        large = producer.send("narrow", bytes(5_000), partition=0)
        later = [producer.send("narrow", b"%d" % number + bytes(300), partition=0) for number in range(20)]
        offsets = [each.result(WAIT_S).offset for each in (*sent, *later)]
        assert offsets == list(range(220))
        error = large.exception(WAIT_S)
    assert isinstance(error, BrokerError) and error.code is ErrorCode.MESSAGE_TOO_LARGE


def test_late_record_names_the_cause() -> None:
    """Not only how long it took."""
    with Broker() as broker:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers, delivery_timeout_ms=800, linger_ms=0)
        producer.send("orders", b"a").result(WAIT_S)
    known = [producer.send("orders", b"b") for _ in range(3)]
    other = producer.send("another", b"b")
    for future in (*known, other):
        assert "Connection refused" in str(future.exception(WAIT_S))
    producer.close(0.0)


@pytest.mark.process
@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore:This process")
def test_producer_is_refused_in_a_fork(address: str) -> None:
    """A record of the child would be queued for a thread that it does not have."""
    with Producer(bootstrap_servers=address, linger_ms=60_000) as producer:
        future = producer.send("orders", b"a")
        reading, writing = os.pipe()
        child = os.fork()
        if child == 0:
            words = []
            for call in (
                lambda: producer.send("orders", b"b"),
                producer.flush,
                lambda: producer.partitions_for("orders"),
            ):
                try:
                    call()
                    words.append("nothing")
                except StateError as why:
                    words.append(str(why))
            os.write(writing, json.dumps(words).encode())
            os._exit(0)
        os.waitpid(child, 0)
        os.close(writing)
        with os.fdopen(reading) as answer:
            assert set(json.load(answer)) == {"this producer belongs to another process; create a new one after a fork"}
        producer.flush(WAIT_S)
        assert future.done()
