"""A broker under `ulimit -n 256`: more partitions than descriptors, and clients that take all that are left.

Source: users who had about 1,000 written partitions under the usual limit of 1,024.
"""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kohort.errors import ErrorCode
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, batch_of

pytestmark = pytest.mark.interop
DESCRIPTORS = 256
PARTITIONS = 300
#: A busy machine syncs as many files.
PATIENCE_SECONDS = 120
#: Some seven times as many.
MANY_PARTITIONS = 2_000


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The process, and its port."""
    serve = f"{sys.executable} -m kohort.broker --port 0 --stop-on-eof --data-dir {tmp_path}"
    process = subprocess.Popen(
        ["bash", "-c", f"ulimit -n {DESCRIPTORS}; exec {serve}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdin is not None and process.stdout is not None
    ready = process.stdout.readline()
    assert ready.startswith("ready "), ready
    yield process, int(ready.rpartition(":")[2])
    process.stdin.close()
    assert process.wait(PATIENCE_SECONDS) == 0, "it stops cleanly"
    process.stdout.close()


def read_all(client: RawClient, partitions: range = range(PARTITIONS)) -> dict[int, int]:
    """Partition -> offset behind its last record, of those with any."""
    rows = [FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=10_000) for number in partitions]
    request = FetchRequest(
        max_wait_ms=0, min_bytes=1, max_bytes=1 << 24, session_id=0, topics=[FetchTopic(topic="t", partitions=rows)]
    )
    answer = client.ask(ApiKey.FETCH, 11, request)
    return {row.partition_index: row.high_watermark for row in answer.responses[0].partitions if row.records}


def test_partitions_need_no_descriptor_each(broker: tuple[subprocess.Popen[str], int]) -> None:
    """All of them are written and read, and written and read again."""
    _, port = broker
    with RawClient(port) as client:
        client.create_topic("t", partitions=PARTITIONS)
        for turn in (1, 2):
            codes = [client.produce("t", b"x", partition=number).error_code for number in range(PARTITIONS)]
            assert codes == [0] * PARTITIONS
            assert read_all(client) == dict.fromkeys(range(PARTITIONS), turn)


def test_idle_connections_cannot_take_the_descriptors_of_the_log(
    broker: tuple[subprocess.Popen[str], int],
) -> None:
    """An append is stored or refused so that it is tried again; the broker lives, and all heals when they go."""
    process, port = broker
    with RawClient(port) as client:
        client.create_topic("t", partitions=PARTITIONS)
        with ExitStack() as idle:
            for _ in range(DESCRIPTORS):
                one = idle.enter_context(socket.socket())
                one.settimeout(2)
                one.connect(("127.0.0.1", port))
            codes = [client.produce("t", b"x", partition=number).error_code for number in range(PARTITIONS)]
            assert set(codes) <= {0, ErrorCode.KAFKA_STORAGE_ERROR}
            assert process.poll() is None
        stored = {number for number, code in enumerate(codes) if code == 0}
        codes = [client.produce("t", b"y", partition=number).error_code for number in range(PARTITIONS)]
        assert codes == [0] * PARTITIONS
        assert read_all(client) == {number: 1 + (number in stored) for number in range(PARTITIONS)}


def test_many_times_as_many_partitions_as_descriptors_are_written_and_read(
    broker: tuple[subprocess.Popen[str], int],
) -> None:
    _, port = broker
    batch = batch_of(b"x")
    with RawClient(port) as client:
        client.socket.settimeout(PATIENCE_SECONDS)
        client.create_topic("t", partitions=MANY_PARTITIONS)
        for begin in range(0, MANY_PARTITIONS, 500):
            part = range(begin, begin + 500)
            rows = [PartitionProduceData(index=number, records=batch) for number in part]
            data = [TopicProduceData(name="t", partition_data=rows)]
            answer = client.ask(ApiKey.PRODUCE, 9, ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=data))
            assert {row.error_code for row in answer.responses[0].partition_responses} == {0}
            assert read_all(client, part) == dict.fromkeys(part, 1)
