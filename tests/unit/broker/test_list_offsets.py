"""Offsets by time tell nothing that a crash could take back."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kohort.broker.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, _Lookup
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.records.batch import build_batch
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import TimePlace, segment_name
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from kohort.wire.registry import ApiKey
from support.builders.coldness import make_cold
from support.builders.storage_logs import batch, empty_log
from support.dialogues.broker_wire import RawClient, produce_request


def look_up(log: PartitionLog, timestamp: int) -> tuple[int, int]:
    """What is answered without a thread."""
    answer = ListOffsetsPartitionResponse(partition_index=0, error_code=0)
    lookup = _Lookup(log, answer, timestamp, is_committed=False)
    assert lookup.is_done_at_once() or lookup.look()
    return answer.timestamp, answer.offset


@pytest.mark.parametrize(
    ("timestamp", "before", "after"),
    [
        (LATEST, (-1, 0), (-1, 3)),
        (EARLIEST, (-1, 0), (-1, 0)),
        (MAX_TIMESTAMP, (-1, -1), (1002, 2)),
        (1000, (-1, -1), (1000, 0)),
        (1001, (-1, -1), (1001, 1)),
    ],
)
def test_records_that_are_not_synced_are_not_told(
    timestamp: int, before: tuple[int, int], after: tuple[int, int]
) -> None:
    """The first of them is at the high watermark itself."""
    log = empty_log(MemoryFileSystem(), flush_messages=1)
    log.append(batch(3), now_ms=1)
    assert look_up(log, timestamp) == before
    log.mark_durable(log.sync())
    assert look_up(log, timestamp) == after


def test_partition_that_is_named_twice_is_refused_once(client: RawClient) -> None:
    """As by Apache Kafka: to look it up by time may be much work for a few bytes."""
    client.create_topic("t", partitions=2)
    asked = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in (0, 1, 0)]
    answer = client.ask(
        ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    )
    codes = [(row.partition_index, row.error_code) for row in answer.topics[0].partitions]
    assert codes == [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE)]


def ask_for(client: RawClient, timestamp: int) -> tuple[int, int, int]:
    """Error, timestamp and offset of what is found in partition 0 of t."""
    asked = [ListOffsetsPartition(partition_index=0, timestamp=timestamp)]
    answer = client.ask(
        ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    )
    (row,) = answer.topics[0].partitions
    return row.error_code, row.timestamp, row.offset


@pytest.mark.parametrize("limit_bytes", [64 << 20, 500_000])
def test_long_batch_is_unfolded_beside_the_loop(
    client: RawClient, broker: Broker, monkeypatch: pytest.MonkeyPatch, limit_bytes: int
) -> None:
    """4 KB that unfold to much more: exactly, or by the batch's header where that is beyond the limit."""
    monkeypatch.setattr(TimePlace.find_record, "__kwdefaults__", {"limit_bytes": limit_bytes, "wait": True})
    client.create_topic("t")
    records = [(None, bytes(10_000), 1000 + number, ()) for number in range(100)]
    client.ask(ApiKey.PRODUCE, 9, produce_request("t", build_batch(records, compression="zstd")))

    names = {thread.name for thread in threading.enumerate()}
    expected = (1042, 42) if limit_bytes > 1_000_000 else (1099, 0)
    assert ask_for(client, 1042) == (0, *expected)
    assert "kohort-unfold-0" in {thread.name for thread in threading.enumerate()} - names
    assert ask_for(client, MAX_TIMESTAMP) == (0, 1099, 99 if limit_bytes > 1_000_000 else 0)
    assert ask_for(client, 1100) == (0, -1, -1)


def test_cold_log_is_looked_up_beside_the_loop(tmp_path: Path) -> None:
    """The header's page comes from the disk, and the answer after it."""
    with Broker(data_dir=str(tmp_path)) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        for number in range(20):
            client.ask(ApiKey.PRODUCE, 9, produce_request("t", bytes(batch(timestamp=1000 + number))))
        make_cold(tmp_path / "t-0" / segment_name(0))

        assert ask_for(client, 1007) == (0, 1007, 7)
        assert "kohort-read-0" in {thread.name for thread in threading.enumerate()}
