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
from kohort.wire.registry import ApiKey
from support.broker_wire import RawClient

pytestmark = pytest.mark.interop
DESCRIPTORS = 256
PARTITIONS = 300


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
    assert process.wait(30) == 0, "it stops cleanly"
    process.stdout.close()


def read_all(client: RawClient) -> dict[int, int]:
    """Partition -> offset behind its last record, of those with any."""
    rows = [
        FetchPartition(partition=number, fetch_offset=0, partition_max_bytes=10_000) for number in range(PARTITIONS)
    ]
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
