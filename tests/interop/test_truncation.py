"""A consumer that has read what a crash took is told so, by the leader epoch (KIP-320)."""

from __future__ import annotations

import logging
from pathlib import Path

import confluent_kafka
import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.storage.log_state import LAST_STOP_NAME, STATE_NAME
from kohort.storage.store import Store
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.registry import ApiKey
from support.builders.storage_logs import PAGE_CACHE, TOPIC_ID, batch
from support.dialogues.broker_wire import RawClient, fetch_request
from support.ports import quiet_port

TOPIC = "orders"


def write(data_dir: Path, records: int) -> Store:
    """A topic whose records are left to the system, one batch each."""
    store = Store.open(str(data_dir))
    if TOPIC not in store.topics:
        store.create_topic(TOPIC, 1, topic_id=TOPIC_ID, configs=PAGE_CACHE)
    for number in range(records):
        store.topics[TOPIC].partitions[0].append(batch(value=b"%d" % number), now_ms=5)
    return store


def lose_power(store: Store, data_dir: Path, *, left: int) -> None:
    """Stop as a machine does that had synced the first `left` records."""
    store.close(clean=False)
    path = data_dir / f"{TOPIC}-0" / f"{0:020d}.log"
    path.write_bytes(path.read_bytes()[: path.stat().st_size * left // 10])
    # A clean stop had synced them all, and says so twice; nobody had.
    path.with_name(STATE_NAME).unlink(missing_ok=True)
    (data_dir / LAST_STOP_NAME).unlink(missing_ok=True)


def test_epochs_tell_where_the_log_was_cut(tmp_path: Path) -> None:
    lose_power(write(tmp_path, 10), tmp_path, left=6)
    write(tmp_path, 3).close()
    with Broker(data_dir=tmp_path) as broker, RawClient(int(broker.bootstrap_servers.rpartition(":")[2])) as client:
        asked = [OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=epoch) for epoch in (0, 1)]
        for row, expected in zip(asked, [(0, 6), (1, 9)], strict=True):
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic=TOPIC, partitions=[row])])
            answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, request).topics[0].partitions[0]
            assert (answer.error_code, answer.leader_epoch, answer.end_offset) == (0, *expected)

        def fetched(offset: int, epoch: int) -> tuple[int, int, int]:
            request: FetchRequest = fetch_request(TOPIC, topic_id=TOPIC_ID, offset=offset)
            request.topics[0].partitions[0].last_fetched_epoch = epoch
            row = client.ask(ApiKey.FETCH, 13, request).responses[0].partitions[0]
            return row.error_code, row.diverging_epoch.epoch, row.diverging_epoch.end_offset

        assert fetched(9, 0) == (0, 0, 6), "it has read records 6 to 8 of epoch 0, which are others now"
        assert fetched(6, 0) == (0, -1, -1)
        assert fetched(8, 1) == (0, -1, -1)
        assert fetched(8, 2)[0] == 1, "an epoch that was never here: OFFSET_OUT_OF_RANGE"


def test_our_consumer_goes_back_to_the_cut_and_says_so(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    write(tmp_path, 10).close()
    with Broker(data_dir=tmp_path, port=quiet_port()) as broker:
        address = broker.bootstrap_servers
        with kohort.Consumer(bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as consumer:
            consumer.assign([(TOPIC, 0)])
            while consumer.position((TOPIC, 0)) < 10:
                consumer.poll(1.0)
            broker.stop()
            lose_power(write(tmp_path, 0), tmp_path, left=6)
            write(tmp_path, 3).close()
            with (
                caplog.at_level(logging.WARNING),
                Broker(data_dir=tmp_path, port=int(address.rpartition(":")[2])),
            ):
                read = []
                while len(read) < 3:
                    read += [record.offset for record in consumer.poll(1.0)]
    assert read == [6, 7, 8]
    assert "was cut at offset 6, before the position 10" in caplog.text


def test_librdkafka_finds_the_cut(tmp_path: Path) -> None:
    """It validates the epoch of its position, and `auto.offset.reset` says what happens then."""
    lose_power(write(tmp_path, 10), tmp_path, left=6)
    write(tmp_path, 9).close()
    with Broker(data_dir=tmp_path) as broker:
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "auto.offset.reset": "error"}
        )
        consumer.assign([confluent_kafka.TopicPartition(TOPIC, 0, 10, leader_epoch=0)])
        message = None
        for _ in range(50):
            message = consumer.poll(0.2)
            if message is not None:
                break
        consumer.close()
    assert message is not None and message.error() is not None
    assert "truncation detected at offset 10 (leader epoch 0): broker end offset is 6" in message.error().str()
