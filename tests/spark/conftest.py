"""One Spark session for all of these tests; without PySpark or Java they skip with the reason."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kohort
from support.peers.java_options import FEW_ROWS
from support.peers.spark_kafka import SparkKafkaUnavailableError, fetch_jars
from support.peers.spark_session import require_spark

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Fill = Callable[..., None]


def _spark_kafka_jars() -> str:
    """Of Spark's own Kafka source, for the tests that hold ours against it; without Maven these skip."""
    try:
        return ",".join(map(str, fetch_jars()))
    except SparkKafkaUnavailableError:
        return ""


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """A local session, two threads, no page; workers find the package through the environment."""
    require_spark()
    from kohort.spark.driver.java import use_java, use_this_python
    from kohort.spark.driver.pythons import use_file_sockets

    use_java()
    use_this_python()
    use_file_sockets()
    from pyspark.sql import SparkSession

    settings = {**FEW_ROWS, "spark.ui.showConsoleProgress": "false", "spark.jars": _spark_kafka_jars()}
    session = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    """A broker for each module, for no two to share a topic or a group; quick to notice what happens in groups."""
    config = {
        "group.consumer.heartbeat.interval.ms": 200,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }
    with kohort.Broker(config=config) as running:
        yield running


@pytest.fixture(scope="module")
def admin(broker: kohort.Broker) -> Iterator[kohort.Admin]:
    """To create topics and to look at groups."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def fill(broker: kohort.Broker, admin: kohort.Admin) -> Fill:
    """`fill("orders", partitions=3, records=100)` creates a topic; each value is its own number as text."""

    def create(topic: str, *, partitions: int, records: int) -> None:
        admin.create_topic(topic, partitions)
        add(topic, partitions=partitions, first=0, records=records)

    def add(topic: str, *, partitions: int, first: int, records: int) -> None:
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            futures = [
                producer.send(topic, b"%d" % number, b"k%d" % number, partition=number % partitions)
                for number in range(first, first + records)
            ]
            for future in futures:
                future.result(20)

    create.add = add  # type: ignore[attr-defined]
    return create


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A fresh checkpoint folder."""
    return str(tmp_path / "checkpoint")
