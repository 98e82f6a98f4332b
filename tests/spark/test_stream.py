"""`spark.readStream.format("kohort")`: queries that are members of a group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kohort
from kohort.broker.apis import offset_commit
from support.depth import IS_SOAK
from support.ports import quiet_port
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark


class Queries:
    """Starts queries that append what they read to Parquet, and stops what a test leaves running."""

    def __init__(self, spark: SparkSession, broker: kohort.Broker, folder: Path) -> None:
        self._spark = spark
        self._broker = broker
        self._folder = folder
        self._running: list[StreamingQuery] = []

    def start(self, name: str, trigger: dict[str, Any], **options: object) -> StreamingQuery:
        reader = self._spark.readStream.format("kohort").option(
            "kafka.bootstrap.servers", self._broker.bootstrap_servers
        )
        for option, value in options.items():
            reader = reader.option(option.replace("__", "."), str(value))
        writer = reader.load().writeStream.format("parquet").option("path", str(self._folder / name))
        query = writer.option("checkpointLocation", str(self._folder / f"{name}-checkpoint")).trigger(**trigger).start()
        self._running.append(query)
        return query

    def read(self, name: str) -> DataFrame:
        return self._spark.read.parquet(str(self._folder / name))

    def values(self, *names: str) -> list[int]:
        """The numbers that these queries have written, ascending, doubles included."""
        found = [int(row.value) for name in names for row in self.read(name).select("value").collect()]
        return sorted(found)

    def stop_all(self) -> None:
        for query in self._running:
            query.stop()


@pytest.fixture
def queries(spark: SparkSession, broker: kohort.Broker, tmp_path: Path) -> Iterator[Queries]:
    """Queries of one test."""
    running = Queries(spark, broker, tmp_path)
    yield running
    running.stop_all()


def eventually(condition: Callable[[], bool], what: str, *, within_s: float = 60.0) -> None:
    """Wait for something that Spark or the group does by itself; the tests have no other clock."""
    until(condition, what=what, seconds=within_s)


def committed(admin: kohort.Admin, group: str) -> dict[int, int | None]:
    return {row.partition: row.committed for row in admin.group_offsets(group)}


def test_available_now_reads_everything_and_commits_it(
    queries: Queries, admin: kohort.Admin, fill: Callable[..., None]
) -> None:
    """P2, P3: the first plan waits for the assignment, so the run is not empty; lag tools see the end."""
    fill("now", partitions=3, records=900)
    query = queries.start(
        "now",
        {"availableNow": True},
        subscribe="now",
        kafka__group__id="now-group",
        startingOffsets="earliest",
        maxOffsetsPerTrigger=300,
    )
    query.awaitTermination(90)
    assert queries.values("now") == list(range(900))
    batches = [progress["numInputRows"] for progress in query.recentProgress]
    assert max(batches) <= 303
    assert committed(admin, "now-group") == {0: 300, 1: 300, 2: 300}
    group = admin.describe_group("now-group")
    eventually(lambda: admin.describe_group("now-group").state == "Empty", "the ended query leaves its group")
    assert group.group_type == "consumer"


def test_query_goes_on_from_its_checkpoint(queries: Queries, admin: kohort.Admin, fill: Callable[..., None]) -> None:
    """A second run reads what came since, once."""
    fill("again", partitions=2, records=100)
    options = {"subscribe": "again", "kafka__group__id": "again-group", "startingOffsets": "earliest"}
    queries.start("again", {"availableNow": True}, **options).awaitTermination(90)
    fill.add("again", partitions=2, first=100, records=60)  # type: ignore[attr-defined]
    queries.start("again", {"availableNow": True}, **options).awaitTermination(90)
    assert queries.values("again") == list(range(160))
    assert committed(admin, "again-group") == {0: 80, 1: 80}


def test_without_a_group_nothing_is_committed(queries: Queries, admin: kohort.Admin, fill: Callable[..., None]) -> None:
    """As Spark's Kafka source: all partitions, offsets in the checkpoint only."""
    fill("alone", partitions=2, records=50)
    queries.start("alone", {"availableNow": True}, subscribe="alone", startingOffsets="earliest").awaitTermination(90)
    assert queries.values("alone") == list(range(50))
    assert not [group for group in admin.list_groups() if "alone" in group.group_id]


def test_second_query_takes_its_share_and_gives_it_back(
    queries: Queries, admin: kohort.Admin, fill: Callable[..., None]
) -> None:
    """P2, P4: two queries share a topic; partitions are handed over between micro-batches, each record is read once."""
    fill("shared", partitions=4, records=400)
    options = {
        "subscribe": "shared",
        "kafka__group__id": "shared-group",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 200,
    }
    first = queries.start("first", {"processingTime": "300 milliseconds"}, **options)
    eventually(lambda: sum(value or 0 for value in committed(admin, "shared-group").values()) == 400, "first reads all")
    second = queries.start("second", {"processingTime": "300 milliseconds"}, **options)

    def owns() -> list[int]:
        return sorted(len(member.assignment) for member in admin.describe_group("shared-group").members)

    eventually(lambda: owns() == [2, 2], "each query owns two partitions")
    fill.add("shared", partitions=4, first=400, records=400)  # type: ignore[attr-defined]
    eventually(lambda: sum(value or 0 for value in committed(admin, "shared-group").values()) == 800, "both read on")
    first.stop()
    eventually(lambda: owns() == [4], "the second owns all when the first has stopped")
    events = admin.group_history("shared-group").events
    assert [each.details["reason"] for each in events if each.event == "member_removed"] == ["member left"]
    fill.add("shared", partitions=4, first=800, records=200)  # type: ignore[attr-defined]
    eventually(lambda: sum(value or 0 for value in committed(admin, "shared-group").values()) == 1000, "the rest")
    second.stop()
    assert queries.values("first", "second") == list(range(1000))
    assert queries.read("second").where("offset >= 100").count() >= 200


@pytest.mark.skipif(not IS_SOAK, reason="make soak ONLY=capabilities")
@pytest.mark.timeout(600)
@pytest.mark.parametrize("enforce", ["ours", "all"])
def test_queries_read_each_record_once_where_ownership_is_enforced_and_the_broker_restarts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, enforce: str
) -> None:
    """H5: one takes its share, the broker comes back, the other one leaves; no task is taken for a former owner."""
    grants: list[str] = []
    commit = offset_commit.handle

    def hear(context: Any, request: Any, message: Any) -> Any:
        grants.extend([message.grant] if message.grant else [])
        return commit(context, request, message)

    monkeypatch.setattr(offset_commit, "handle", hear)
    config = {"group.consumer.heartbeat.interval.ms": 200, "group.consumer.min.heartbeat.interval.ms": 100}
    given: dict[str, Any] = {
        "data_dir": str(tmp_path / "data"), "port": quiet_port(),
        "config": {**config, "group.ownership.enforce": enforce},
    }  # fmt: skip
    with ExitStack() as stack:
        broker = stack.enter_context(kohort.Broker(**given))
        address = broker.bootstrap_servers
        running = Queries(spark, broker, tmp_path)
        stack.callback(running.stop_all)
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=address))
        admin.create_topic("enforced", 4)

        def send(first: int, last: int) -> None:
            with kohort.Producer(bootstrap_servers=address) as producer:
                for number in range(first, last):
                    producer.send("enforced", b"%d" % number, partition=number % 4)

        def has_read(count: int) -> Callable[[], bool]:
            return lambda: sum(value or 0 for value in committed(admin, "enforced").values()) == count

        def owns() -> list[int]:
            return sorted(len(member.assignment) for member in admin.describe_group("enforced").members)

        options = {"subscribe": "enforced", "kafka__group__id": "enforced", "startingOffsets": "earliest"}
        send(0, 200)
        first = running.start("first", {"processingTime": "300 milliseconds"}, **options)
        eventually(has_read(200), "the first one reads all")
        second = running.start("second", {"processingTime": "300 milliseconds"}, **options)
        eventually(lambda: owns() == [2, 2], "each has its share")
        send(200, 400)
        eventually(has_read(400), "both read on")
        broker.stop()
        stack.enter_context(kohort.Broker(**given))
        send(400, 600)
        eventually(has_read(600), "both read on behind the restart")
        eventually(lambda: owns() == [2, 2], "each has its share still")
        first.stop()
        eventually(lambda: owns() == [4], "the second one has all")
        send(600, 800)
        eventually(has_read(800), "it reads on")
        second.stop()
        assert running.values("first", "second") == list(range(800))
        # The driver is the member, and fetches nothing; tasks read by hand.
        assert grants == []


def test_option_of_a_batch_is_refused(queries: Queries) -> None:
    """A stream has no end."""
    with pytest.raises(Exception, match="endingOffsets is an option of batches"):
        queries.start("x", {"availableNow": True}, subscribe="x", endingOffsets="latest").awaitTermination(60)


def test_unreachable_broker_ends_the_query_with_its_address(spark: SparkSession, tmp_path: Path) -> None:
    """Not a hang."""
    query = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", "127.0.0.1:1")
        .option("subscribe", "x")
        .option("kafka.group.id", "x")
        .load()
        .writeStream.format("noop")
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .start()
    )
    with pytest.raises(Exception, match=r"127\.0\.0\.1:1"):
        query.awaitTermination(90)
