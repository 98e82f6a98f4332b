"""A broker, topics and queries for the Spark room's tests; no JVM takes part."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest

import kohort
from support.scenarios.client_scenarios import BROKER_CONFIG

pytest.importorskip("pyspark", reason="PySpark is not installed")
pytest.importorskip("pyarrow", reason="pyarrow is not installed")

if TYPE_CHECKING:
    from support.dialogues.spark_query import Start

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[kohort.Broker]:
    """In memory, quick to notice what happens in groups; like any other it creates topics that are asked for."""
    with kohort.Broker(config=BROKER_CONFIG) as running:
        yield running


@pytest.fixture
def address(broker: kohort.Broker) -> str:
    """HOST:PORT."""
    return broker.bootstrap_servers


@pytest.fixture(scope="module")
def admin(broker: kohort.Broker) -> Iterator[kohort.Admin]:
    """To create topics and to look at groups."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as client:
        yield client


@pytest.fixture
def topic(admin: kohort.Admin) -> Callable[[int], str]:
    """`topic(3)` creates a topic of three partitions."""

    def create(partitions: int = 1) -> str:
        # Not that of a test that runs beside this one: their groups would be of one application.
        name = f"topic-{os.getpid()}{next(_NUMBERS):04}"
        admin.create_topic(name, partitions)
        return name

    return create


@pytest.fixture
def fill(address: str) -> Callable[..., None]:
    """`fill("orders", {0: 10, 2: 5})` appends so many records to each partition."""

    def send(topic: str, records: dict[int, int]) -> None:
        # A producer of its own, because one that has seen the topic does not know partitions that were added since.
        with kohort.Producer(bootstrap_servers=address, linger_ms=0) as producer:
            sent = [
                producer.send(topic, b"%d" % number, b"key", partition=partition)
                for partition, size in records.items()
                for number in range(size)
            ]
            for future in sent:
                future.result(20)

    return send


@pytest.fixture
def start(address: str) -> Iterator[Start]:
    """Starts queries; what a test leaves running is stopped."""
    from support.dialogues.spark_query import Query

    running: list[Query] = []

    def build(**options: Any) -> Query:
        query = Query(address, **options)
        running.append(query)
        return query

    yield build
    for query in running:
        query.stop()


@pytest.fixture(autouse=True)
def keep_signal_handlers() -> Iterator[None]:
    """A reader with a group takes SIGTERM over, which here belongs to the test runner."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session", autouse=True)
def close_idle_connections() -> Iterator[None]:
    """What executors keep between tasks ends with their process, which here is the test runner's."""
    yield
    from kohort.spark import reading

    while reading._idle:
        reading._idle.popitem()[1].close(timeout=0)
