"""Declarative pipelines: the example runs as a user runs it; `make soak` has it, since a server takes a minute."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyarrow.parquet
import pytest

import kohort
from support.peers.late_readers import run_in_time
from support.peers.spark_session import require_spark
from support.waiting import until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_900)]

ROOT = Path(__file__).resolve().parents[2]


def test_declarative_pipeline_reads_and_writes_topics_without_any_registration(tmp_path: Path) -> None:
    """A streaming table, a view of it and a sink, as `spark-pipelines run` leaves them; the command ends well."""
    require_spark()
    pytest.importorskip("yaml", reason="pyspark[pipelines] is not installed")
    example = ROOT / "examples" / "spark_pipeline"
    for file in example.iterdir():
        told = file.read_text().replace("file:///tmp/kohort-orders-pipeline", (tmp_path / "storage").as_uri())
        (tmp_path / file.name).write_text(told)
    programs = Path(sys.executable).parent
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{programs}:{environment['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    values = [b"%d" % number for number in range(100)]
    with kohort.Broker() as broker:
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send_many("orders", values, keys=[f"c{number % 5}" for number in range(100)]).result(30)
        command: list[str | Path] = [programs / "spark-pipelines", "run"]
        environment["KOHORT_BOOTSTRAP"] = broker.bootstrap_servers
        done = run_in_time(command, environment, folder=tmp_path, seconds=600)
        assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
        copies = values_of("copied-orders", broker.bootstrap_servers)
    assert "Run is COMPLETED." in done.stdout
    counts = pyarrow.parquet.read_table(tmp_path / "spark-warehouse" / "orders_of_customers").to_pylist()
    assert {row["key"]: row["count"] for row in counts} == {f"c{number}".encode(): 20 for number in range(5)}
    assert copies == sorted(values)


def values_of(topic: str, address: str) -> list[bytes]:
    """Of all its records, sorted."""
    with kohort.Consumer(bootstrap_servers=address) as consumer:
        partitions = [kohort.TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        consumer.seek_to_beginning()
        count = sum(consumer.end_offsets(partitions).values())
        values: list[bytes] = []
        until(
            lambda: len(values) >= count,
            what=f"{count} records of {topic}",
            step=lambda: values.extend(record.value or b"" for record in consumer.poll(1)),
        )
    return sorted(values)
