"""Broker, and the program that transforms, are killed again and again: each record comes out once, in its order.

4 lives here, 1,000 by `make soak ONLY=transforms`. Log files are small, so that they are closed and read back
meanwhile.
"""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest

import kohort
from support.depth import at_depth
from support.peers.restarts import MortalBroker, wait_until

pytestmark = pytest.mark.interop

CYCLES = at_depth(4, 1_000)
#: Records that are read in between two kills, at most.
STRIDE = 200
PARTITIONS = 2
RECORDS = CYCLES * STRIDE + 400
#: A program that is killed leaves the group when its session ends.
CONFIG = {
    "transaction.state.log.segment.bytes": 65_536,
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.min.session.timeout.ms": 1_000,
}
READER: dict[str, Any] = {
    "auto_offset_reset": "earliest", "isolation_level": "read_committed", "enable_auto_commit": False,
    "reconnect_backoff_max_ms": 200,
}  # fmt: skip
PROGRAM = """
import sys, kohort
address = sys.argv[1]
def double(records, transaction):
    for record in records:
        transaction.send("out", value=record.value, partition=record.partition)
with (
    kohort.Consumer("in", bootstrap_servers=address, group_id="g", auto_offset_reset="earliest",
        enable_auto_commit=False, isolation_level="read_committed", reconnect_backoff_max_ms=200) as consumer,
    kohort.Producer(bootstrap_servers=address, transactional_id="t", reconnect_backoff_max_ms=200) as producer,
):
    kohort.transform(consumer, producer, double, max_records=20)
"""


class Transformer:
    """The program, until it is killed."""

    def __init__(self, address: str) -> None:
        self._process = subprocess.Popen([sys.executable, "-c", PROGRAM, address], stderr=subprocess.PIPE, text=True)

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        _, said = self._process.communicate(timeout=30)
        assert "Traceback" not in said, said


@pytest.mark.timeout(90 + 10 * CYCLES)
def test_each_record_comes_out_once_over_many_lives(tmp_path: Path) -> None:
    random = Random(27)
    read: dict[int, list[int]] = {partition: [] for partition in range(PARTITIONS)}
    with ExitStack() as stack:
        broker = stack.enter_context(MortalBroker(tmp_path / "data", CONFIG))
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            for name in ("in", "out"):
                admin.create_topic(name, PARTITIONS, configs={"segment.bytes": "16384"})
        with kohort.Producer(bootstrap_servers=broker.address) as feed:
            for partition in range(PARTITIONS):
                feed.send_many("in", [b"%d" % number for number in range(RECORDS)], partition=partition).result(60)
        with kohort.Consumer(bootstrap_servers=broker.address, group_id="reader", **READER) as reader:
            # No member: its group would give the partitions to it anew after each of the broker's lives.
            reader.assign([kohort.TopicPartition("out", partition) for partition in range(PARTITIONS)])

            def read_to(total: int) -> bool:
                for record in reader.poll(0.1):
                    read[record.partition].append(int(record.value or b""))
                return sum(map(len, read.values())) >= total

            worker = Transformer(broker.address)
            stack.callback(lambda: worker.kill())  # noqa: PLW0108 - the worker of that time
            for cycle in range(CYCLES):
                goal = cycle * STRIDE + random.randrange(1, STRIDE)
                wait_until(lambda goal=goal: read_to(goal), f"{goal} records are out")
                victims = random.choice(("broker", "worker", "both"))
                if victims != "worker":
                    broker.kill()
                if victims != "broker":
                    worker.kill()
                if victims != "worker":
                    broker.revive()
                if victims != "broker":
                    worker = Transformer(broker.address)
            wait_until(lambda: read_to(PARTITIONS * RECORDS), "all records are out", seconds=120)
            assert not reader.poll(0.5), "nothing comes twice"
    assert read == {partition: list(range(RECORDS)) for partition in range(PARTITIONS)}
