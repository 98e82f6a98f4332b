"""Offsets by time tell nothing that a crash could take back."""

from __future__ import annotations

import pytest

from kohort.broker.apis.list_offsets import EARLIEST, LATEST, MAX_TIMESTAMP, _look_up
from kohort.errors import ErrorCode
from kohort.storage.memoryfs import MemoryFileSystem
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.registry import ApiKey
from support.broker_wire import RawClient
from support.storage_logs import batch, empty_log


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
    assert _look_up(log, timestamp) == before
    log.mark_durable(log.sync())
    assert _look_up(log, timestamp) == after


def test_partition_that_is_named_twice_is_refused_once(client: RawClient) -> None:
    """As by Apache Kafka: to look it up by time may be much work for a few bytes."""
    client.create_topic("t", partitions=2)
    asked = [ListOffsetsPartition(partition_index=number, timestamp=LATEST) for number in (0, 1, 0)]
    answer = client.ask(
        ApiKey.LIST_OFFSETS, 7, ListOffsetsRequest(topics=[ListOffsetsTopic(name="t", partitions=asked)])
    )
    codes = [(row.partition_index, row.error_code) for row in answer.topics[0].partitions]
    assert codes == [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE)]
