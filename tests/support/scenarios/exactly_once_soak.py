"""Rounds of the exactly-once sink in a Spark whose Java is killed: `python -m support.scenarios.exactly_once_soak`.

A round copies a topic. Java is killed before EndTxn of a batch, between that and Spark's commit log, and at any moment;
then the query runs to its end. Another client has to read each row once.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Any, Final

import kohort
import kohort.spark
from kohort.spark.options import parse_sink_options
from kohort.spark.sink import KohortStreamWriter
from kohort.spark.source import KohortDataSource

RECORDS: Final = 3_000
PARTITIONS: Final = 4
A_BATCH: Final = 500
#: Seconds of one life.
PATIENCE_S: Final = 300


class Mortal(KohortStreamWriter):
    """A writer that kills Java where its text says."""

    where: str
    java: int

    def commit(self, messages: list[Any], batchId: int) -> None:
        self._die(f"before {batchId}")
        super().commit(messages, batchId)
        self._die(f"behind {batchId}")

    def _die(self, here: str) -> None:
        if here == self.where:
            os.kill(self.java, signal.SIGKILL)


def copy(address: str, folder: str, where: str, after_s: float) -> None:
    """Run the query until its end, or its death; `after_s`: seconds after which Java dies, 0 for never."""
    spark = kohort.spark.session(master="local[2]", **{"spark.ui.enabled": "false", "spark.driver.memory": "512m"})
    java = spark.sparkContext._gateway.proc.pid  # type: ignore[attr-defined,union-attr]  # py4j's

    class Source(KohortDataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> KohortStreamWriter:
            writer = Mortal(parse_sink_options(dict(self.options)), schema)
            writer.where, writer.java = where, java
            return writer

    spark.dataSource.register(Source)
    rows = kohort.spark.read_stream(
        spark, "copied", bootstrap_servers=address, startingOffsets="earliest", maxOffsetsPerTrigger=A_BATCH
    )
    writer = kohort.spark.write_stream(
        rows.selectExpr("key", "value"), "copies", exactly_once=True, bootstrap_servers=address
    )
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    if after_s:
        query.awaitTermination(int(after_s) + 1)
        os.kill(java, signal.SIGKILL)
    query.awaitTermination(PATIENCE_S)
    assert not query.isActive, "it has not ended"


def committed_values(address: str) -> Counter[bytes]:
    """What another client sees that reads committed records only."""
    import confluent_kafka

    level = {"isolation.level": "read_committed", "enable.partition.eof": True}
    reader = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "readers", **level})
    reader.assign([confluent_kafka.TopicPartition("copies", each, 0) for each in range(PARTITIONS)])
    found, ended = Counter[bytes](), 0
    while ended < PARTITIONS:
        message = reader.poll(60)
        assert message is not None, "a transaction is open"
        if message.error() is None:
            found[message.value() or b""] += 1
        else:
            ended += 1
    reader.close()
    return found


@contextmanager
def broker_of(kind: str) -> Iterator[str]:
    """The address of a new broker, ours or Apache Kafka."""
    if kind == "apache":
        from support.peers.apache_broker import ApacheKafka

        with ApacheKafka(heap="512m") as broker:
            yield broker.bootstrap_servers
    else:
        with tempfile.TemporaryDirectory() as data, kohort.Broker(data_dir=data, process=True) as ours:
            yield ours.bootstrap_servers


def play(seed: int, kind: str) -> list[str]:
    """Play a round; return how its lives have ended."""
    random, told = Random(seed), list[str]()
    with broker_of(kind) as address, tempfile.TemporaryDirectory() as folder:
        with kohort.Admin(bootstrap_servers=address) as admin:
            for topic in ("copied", "copies"):
                admin.create_topic(topic, PARTITIONS)
        numbers = [b"%d" % number for number in range(RECORDS)]
        with kohort.Producer(bootstrap_servers=address) as producer:
            producer.send_many("copied", numbers, keys=[b"%d" % (each % 97) for each in range(RECORDS)]).result(60)
        checkpoint = str(Path(folder, "checkpoint"))
        batches = sorted(random.sample(range(RECORDS // A_BATCH), 3))
        lives = [(f"{random.choice(('before', 'behind'))} {number}", 0.0) for number in batches]
        lives.insert(random.randrange(len(lives)), ("", random.uniform(1, 10)))
        for where, after_s in [*lives, ("", 0.0)]:
            command = [sys.executable, "-m", "support.scenarios.exactly_once_soak", "--copy", address, checkpoint]
            ended = subprocess.run(
                [*command, where, str(after_s)], capture_output=True, text=True, timeout=PATIENCE_S + 60, check=False
            )
            told.append(f"{where or after_s or 'to the end'}: {ended.returncode}")
            found = committed_values(address) if not (where or after_s) else Counter[bytes]()
        assert ended.returncode == 0, ended.stderr[-3000:]
        assert found == Counter(numbers), f"{len(found)} of {RECORDS} rows, {sum(found.values())} records"
    return told


def main(arguments: Sequence[str] | None = None) -> int:
    """Play; 0 if each row was there once in every round."""
    parser = argparse.ArgumentParser(prog="python -m support.scenarios.exactly_once_soak")
    parser.add_argument("seed", type=int, nargs="?", default=0, help="of the first round")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--broker", choices=("ours", "apache"), default="ours")
    parser.add_argument("--copy", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.copy:
        address, folder, where, after_s = options.copy
        copy(address, folder, where, float(after_s))
        return 0
    for seed in range(options.seed, options.seed + options.rounds):
        began_s = time.monotonic()
        told = play(seed, options.broker)
        print(f"round {seed}: {', '.join(told)}; {time.monotonic() - began_s:.0f} s", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
