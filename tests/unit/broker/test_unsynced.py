"""What a broker says, and does not say, while the disk takes its time."""

from __future__ import annotations

import select
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.embedded import Broker
from kohort.records.batch import iterate_records
from kohort.storage.files import fs
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, batch_of
from support.waiting import PATIENCE_SECONDS, until


class Disk:
    """The system's fdatasync, which waits for a permit each time once the disk is slow."""

    def __init__(self) -> None:
        self.is_slow = False
        self.permits = threading.Semaphore(0)
        self._sync = fs._FDATASYNC

    def sync(self, descriptor: int) -> None:
        if self.is_slow:
            assert self.permits.acquire(timeout=PATIENCE_SECONDS)
        self._sync(descriptor)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    disk = Disk()
    monkeypatch.setattr(fs, "_FDATASYNC", disk.sync)
    return disk


@pytest.fixture
def clients(disk: Disk, tmp_path: Path) -> Iterator[tuple[RawClient, RawClient]]:
    """Two connections to a broker with a topic of two partitions; the disk is slow from then on."""
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client, RawClient(broker.port) as other:
        client.create_topic("t", 2, flush_messages="1")
        disk.is_slow = True
        try:
            yield client, other
        finally:
            disk.is_slow = False
            disk.permits.release(100)


def readable(client: RawClient, *, max_wait_ms: int = 0) -> list[bytes | None]:
    """What a consumer of both partitions gets."""
    rows = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=1 << 20) for number in (0, 1)]
    request = FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, max_bytes=1 << 20, topics=[FetchTopic(topic="t", partitions=rows)]
    )
    (answer,) = client.ask(ApiKey.FETCH, 11, request).responses
    return [record.value for row in answer.partitions for record in iterate_records(row.records or b"")]


def test_acks_1_is_answered_and_nobody_reads_it_before_the_sync(
    clients: tuple[RawClient, RawClient], disk: Disk
) -> None:
    client, other = clients
    assert client.produce("t", b"x", acks=1).error_code == 0
    assert readable(other) == []

    disk.permits.release()
    assert readable(other, max_wait_ms=60_000) == [b"x"]


def test_acks_all_waits_for_every_partition_of_its_request(clients: tuple[RawClient, RawClient], disk: Disk) -> None:
    client, other = clients
    rows = [PartitionProduceData(index=number, records=batch_of(b"x")) for number in (0, 1)]
    data = [TopicProduceData(name="t", partition_data=rows)]
    client.send(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=1, topic_data=data))

    disk.permits.release()
    until(lambda: readable(other) == [b"x"], what="one partition is synced")
    assert select.select([client.socket], [], [], 0)[0] == [], "the other one is not"

    disk.permits.release()
    _, answer = client.receive(ApiKey.PRODUCE, 9)
    assert [row.error_code for row in answer.responses[0].partition_responses] == [0, 0]
    assert readable(other) == [b"x", b"x"]
