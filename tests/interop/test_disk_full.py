"""A disk without room under a producer that sends: both sides say so at once, and once; nothing is lost by it.

The broker's process gets a limit on the size of its files, which the system keeps as it keeps the end of a disk: what
does not fit is written in part. No rights are needed, and the limit can be lifted again.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import kafka
import pytest
from kafka.errors import KafkaError

import kohort
from kohort.errors import BrokerError, KohortError, KohortTimeoutError
from support.peers.cli import Running, started_kohort

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not hasattr(resource, "prlimit"), reason="limits of another process are Linux's"),
]
RECORD = bytes(1000)


@dataclass(frozen=True)
class Place:
    """A broker in a process of its own, and the end of its disk."""

    running: Running
    bootstrap: str
    directory: Path
    #: Of the topic's files before the test.
    file_bytes: int

    def leave_room(self, count: int | None) -> None:
        """So many bytes fit into each of the topic's files, or (`None`) as many as ever."""
        limit = resource.RLIM_INFINITY if count is None else self.file_bytes + count
        resource.prlimit(self.running.process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with started_kohort("up", "--port", "0", "--data-dir", str(tmp_path)) as running:
        bootstrap = running.wait_for_lines(1, start="ready ")[0].removeprefix("ready ")
        with kohort.Admin(bootstrap_servers=bootstrap) as admin:
            admin.create_topic("orders", 2)
        with kohort.Producer(bootstrap_servers=bootstrap) as producer:
            for partition in (0, 1):
                producer.send("orders", RECORD, partition=partition).result(10)
        size = (tmp_path / "orders-0" / f"{0:020d}.log").stat().st_size
        yield Place(running, bootstrap, tmp_path, size)


def test_full_disk_is_said_once_on_both_sides_and_once_that_it_is_over(
    place: Place, caplog: pytest.LogCaptureFixture
) -> None:
    place.leave_room(100)
    with kohort.Producer(bootstrap_servers=place.bootstrap, linger_ms=0) as producer:
        stored = [producer.send("orders", RECORD, partition=partition) for partition in (0, 1)]
        # Enough for several attempts.
        assert producer.flush(3.0) == 2
        (line,) = [record.getMessage() for record in caplog.records]
        directory = place.directory / line.partition(":")[0].removeprefix("producing to ")
        assert directory.is_dir()
        assert line == (
            f"producing to {directory.name}: no space left in {directory} (KAFKA_STORAGE_ERROR), retrying for 120 s"
        )
        place.leave_room(None)
        assert [future.result(30).offset for future in stored] == [1, 1]
        assert producer.send("orders", RECORD, partition=0).result(30).offset == 2

    assert [record.getMessage() for record in caplog.records] == [
        line,
        f"producing to {directory.name}: works again",
    ]
    assert place.running.end() == 0
    began, ended = [each for each in place.running.complaints if "disk_" in each]
    assert f"event=disk_refuses what={directory.name} reason='no space left in {directory}'" in began
    assert "event=disk_takes_again after_seconds=" in ended


@pytest.mark.parametrize("timeout_ms", [4_000, 8_000])
def test_what_could_not_be_stored_in_time_fails_with_the_reason(place: Place, timeout_ms: int) -> None:
    place.leave_room(100)
    options = {"linger_ms": 0, "delivery_timeout_ms": timeout_ms}
    with kohort.Producer(bootstrap_servers=place.bootstrap, **options) as producer:
        failed = [producer.send("orders", RECORD, partition=0) for _ in range(3)]
        for future in failed:
            error = future.exception(30)
            assert isinstance(error, (BrokerError, KohortTimeoutError))
            assert "KAFKA_STORAGE_ERROR while producing to orders-0" in str(error)
            assert str(error).endswith(f": no space left in {place.directory}/orders-0")


def test_topic_that_does_not_fit_is_refused_with_the_reason_and_made_later(place: Place) -> None:
    place.leave_room(10 - place.file_bytes)
    with kohort.Producer(bootstrap_servers=place.bootstrap) as producer:
        error = producer.send("more", RECORD).exception(30)
        assert isinstance(error, BrokerError)
        assert str(error) == "KAFKA_STORAGE_ERROR while looking up topic more"
        place.leave_room(None)
        assert producer.send("more", RECORD).result(30).offset == 0
    assert place.running.end() == 0
    assert not any("Traceback" in line for line in place.running.complaints)


def commit_by_confluent(bootstrap: str, offset: int) -> None:
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "confluent"})
    try:
        consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, offset)], asynchronous=False)
    finally:
        consumer.close()


def commit_by_kafka_python(bootstrap: str, offset: int) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id="kafka-python", enable_auto_commit=False)
    try:
        place = kafka.TopicPartition("orders", 0)
        consumer.assign([place])
        consumer.commit({place: kafka.OffsetAndMetadata(offset, "", -1)}, timeout_ms=2_000)
    finally:
        consumer.close(autocommit=False)


def commit_by_kohort(bootstrap: str, offset: int) -> None:
    with kohort.Consumer(bootstrap_servers=bootstrap, group_id="kohort", enable_auto_commit=False) as consumer:
        consumer.commit({kohort.TopicPartition("orders", 0): offset}, timeout=2)


@pytest.mark.parametrize("commit", [commit_by_confluent, commit_by_kafka_python, commit_by_kohort])
def test_commit_that_does_not_fit_is_refused_and_the_next_one_is_taken(
    place: Place, commit: Callable[[str, int], None]
) -> None:
    """It was the end of the broker; what is said to the client is what Apache Kafka says: NOT_COORDINATOR."""
    commit(place.bootstrap, 1)
    resource.prlimit(place.running.process.pid, resource.RLIMIT_FSIZE, (10, resource.RLIM_INFINITY))
    with pytest.raises((confluent_kafka.KafkaException, KafkaError, KohortError)):
        commit(place.bootstrap, 2)
    assert place.running.process.poll() is None, "the broker goes on"
    place.leave_room(None)
    commit(place.bootstrap, 3)
    group = commit.__name__.removeprefix("commit_by_").replace("_", "-")
    with kohort.Admin(bootstrap_servers=place.bootstrap) as admin:
        assert [each.committed for each in admin.group_offsets(group)] == [3]
