"""`kohort metrics` and `kohort broker status --check`: pages over the wire, of one's own cluster or another's."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

import kohort
from kohort.broker.http import Asked
from kohort.cli.main import main
from kohort.cli.verbs.metrics import _Pages
from kohort.client.admin.results.cluster import BrokerDescription, ClusterDescription
from kohort.client.admin.results.groups import GroupDescription, GroupListing, MemberDescription
from kohort.client.admin.results.topics import PartitionDescription, TopicDescription
from kohort.errors import BrokersUnreachableError, ErrorCode, UnknownTopicError, UnsupportedFeatureError
from kohort.ids import TopicPartition
from kohort.metrics.cluster import EndOffsets, collect
from kohort.metrics.exposition import write
from kohort.metrics.peers import Names, build_families, find_problems

openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("orders", 2)
        admin.alter_group_offsets("billing", {TopicPartition("orders", 0): 0})
        yield broker.bootstrap_servers


def test_page_is_printed(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["metrics", "-b", address, "--families", "kminion", "--openmetrics"]) == 0
    names = {family.name for family in openmetrics.text_string_to_metric_families(capsys.readouterr().out)}
    assert {"kminion_kafka_consumer_group_topic_lag", "kminion_kafka_topic_log_dir_size_total_bytes"} <= names


def test_status_is_checked(address: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["broker", "status", "-b", address, "--check"]) == 0
    assert capsys.readouterr().out == "nothing is wrong\n"
    facts = {"disk.refuses": "true", "offline.partitions": "1", "offline.partitions.first": "orders-0"}
    assert [each.is_served for each in find_problems(facts)] == [False, True]


def test_scrapers_at_one_time_get_one_page_and_a_cluster_that_is_away_is_told(address: str) -> None:
    async def scrape(admin: Any) -> list[Any]:
        pages = _Pages(admin, "kafka-exporter")
        asked = Asked("GET", "/metrics", {}, {"accept": "text/plain"})
        found = await asyncio.gather(*(pages.metrics(asked) for _ in range(3)))
        return [*found, await pages.readiness(asked)]

    with kohort.Admin(bootstrap_servers=address) as admin:
        first, second, third, ready = asyncio.run(scrape(admin))
    assert first.body.startswith(b"# HELP kafka_brokers")
    assert first.body == second.body == third.body
    assert ready.status == 200
    answers = asyncio.run(scrape(FakeKafka(is_away=True)))
    assert [each.status for each in answers] == [503] * 4


class FakeKafka:
    """What `kohort.Admin` tells of a cluster of two brokers of Apache Kafka, one of them away."""

    def __init__(self, *, is_away: bool = False) -> None:
        self.is_away = is_away
        self.deleted = 1

    def describe_cluster(self) -> ClusterDescription:
        if self.is_away:
            raise BrokersUnreachableError([("kafka:9092", "refused")])
        brokers = tuple(
            BrokerDescription(broker_id=each, host="kafka", port=9090 + each, rack=None, is_fenced=False)
            for each in (1, 2)
        )
        return ClusterDescription(cluster_id="c", controller_id=2, brokers=brokers)

    def describe_broker(self) -> dict[str, str]:
        raise UnsupportedFeatureError(ErrorCode.UNSUPPORTED_VERSION)

    def list_topics(self) -> list[TopicDescription]:
        partitions = [
            PartitionDescription(
                partition=number,
                leader=leader,
                leader_epoch=0,
                replicas=(1, 2),
                in_sync=in_sync,
                begin_offset=begin,
                end_offset=end,
            )
            for number, (leader, in_sync, begin, end) in enumerate(
                [(1, (1,), 5, 100), (-1, (), -1, -1), (2, (1, 2), 0, 7)]
            )
        ]
        configs = {"min.insync.replicas": "2"}
        return [
            TopicDescription(
                name="orders", topic_id="", is_internal=False, partitions=tuple(partitions), configs=configs, idle={}
            )
        ]

    def describe_topics(self, names: list[str]) -> list[TopicDescription]:
        if self.deleted:
            self.deleted -= 1
            raise UnknownTopicError("gone")
        return [each for each in self.list_topics() if each.name in names]

    def list_groups(self) -> list[GroupListing]:
        return [
            GroupListing(group_id=each, group_type="consumer", state="Stable", protocol_type="consumer")
            for each in ("billing", "gone")
        ]

    def describe_groups(self, groups: list[str]) -> dict[str, Any]:
        owned = (TopicPartition("orders", 0), TopicPartition("orders", 2))
        member = MemberDescription(
            member_id="m",
            instance_id=None,
            client_id="a",
            client_host="",
            member_epoch=1,
            assignment=owned,
            target=owned,
        )
        group = GroupDescription(
            group_id="billing", group_type="consumer", state="Stable", assignor="range", group_epoch=1,
            assignment_epoch=1, members=(member,),
        )  # fmt: skip
        return {"billing": group, "gone": UnknownTopicError("gone")}

    def list_group_offsets(self, groups: list[str]) -> dict[str, Any]:
        committed = {0: 90, 1: 3, 2: 9}
        offsets = {TopicPartition("orders", each): kohort.OffsetAndMetadata(at) for each, at in committed.items()}
        return {"billing": offsets, "gone": {}}

    def describe_log_dirs(self) -> list[Any]:
        return []


def page_of(names: Names) -> dict[str, float]:
    families = build_families(collect(FakeKafka()), EndOffsets(), names=names)
    text = write(each for each in families if each is not None)
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}


def test_apache_kafka_has_no_invented_numbers() -> None:
    """No series of a partition without a leader, no lag below 0, none of what only kohort's brokers tell."""
    found = page_of("kafka-exporter")
    lags = {name: value for name, value in found.items() if name.startswith("kafka_consumergroup_lag{")}
    labels = 'consumergroup="billing",topic="orders",partition='
    assert lags == {f'kafka_consumergroup_lag{{{labels}"0"}}': 10, f'kafka_consumergroup_lag{{{labels}"2"}}': 0}
    assert found[f'kafka_consumergroup_current_offset{{{labels}"1"}}'] == 3
    assert 'kafka_topic_partition_leader{topic="orders",partition="1"}' not in found
    assert found['kafka_topic_partition_leader{topic="orders",partition="2"}'] == 2
    for name, values in {
        "topic_partition_leader_is_preferred": [1, 0, 0],
        "topic_partition_under_replicated_partition": [1, 1, 0],
        "cluster_partition_underminisr": [1, 1, 0],
        "cluster_partition_atminisr": [0, 0, 1],
    }.items():
        rows = [found[f'kafka_{name}{{topic="orders",partition="{number}"}}'] for number in range(3)]
        assert rows == values, name
    assert not [name for name in found if name.startswith(("kohort_broker", "kohort_member", "kohort_group_lag"))]
    assert 'kafka_consumergroup_members{consumergroup="gone"}' not in found


def test_apache_kafka_by_the_names_of_kminion() -> None:
    found = page_of("kminion")
    assert found['kminion_kafka_consumer_group_topic_assigned_partitions{group_id="billing",topic_name="orders"}'] == 2
    assert found['kminion_kafka_topic_high_water_mark_sum{topic_name="orders"}'] == 107
    assert not [name for name in found if "offset_commits" in name or "log_dir_size_total_bytes{topic" in name]


def test_pages_are_built_with_pauses() -> None:
    """Architecture rule 18: a broker makes a long page a few hundred rows at a time."""
    kafka = FakeKafka()
    (topic,) = kafka.list_topics()
    snapshot = collect(kafka)
    many = {f"topic-{number}": topic for number in range(400)}
    snapshot.topics = {name: collect_topic(name, snapshot) for name in many}
    since_pause = rows = most = 0
    for family in build_families(snapshot, EndOffsets()):
        rows += family is not None and len(family.rows)
        since_pause = 0 if family is None else since_pause + 1
        most = max(most, since_pause)
    assert rows > 400 * 3 * 7
    assert most < 40


def collect_topic(name: str, snapshot: Any) -> Any:
    from dataclasses import replace

    return replace(snapshot.topics["orders"], name=name)


def test_lag_in_seconds_is_never_more_than_the_truth() -> None:
    """kafka-lag-exporter's issues 37 and 45: a topic without traffic has no lag that grows."""
    ends = EndOffsets()
    ends.note("orders", 0, 10, now_ms=1_000)
    assert ends.lag_ms("orders", 0, 4, now_ms=1_000) == -1, "one reading says nothing"
    assert ends.lag_ms("orders", 0, 4, now_ms=61_000) == 60_000
    assert ends.lag_ms("orders", 0, 10, now_ms=3_600_000) == 0
    ends.note("orders", 0, 10, now_ms=101_000)
    ends.note("orders", 0, 20, now_ms=111_000)
    assert ends.lag_ms("orders", 0, 10, now_ms=111_000) == 10_000
    assert ends.lag_ms("orders", 0, 15, now_ms=111_000) == 5_000
    # The topic was deleted and made again.
    ends.note("orders", 0, 3, now_ms=120_000)
    assert ends.lag_ms("orders", 0, 2, now_ms=121_000) == 1_000
    for number in range(1_000):
        ends.note("orders", 0, 10 + number, now_ms=130_000 + number * 1_000)
    assert 0 < ends.lag_ms("orders", 0, 3, now_ms=1_130_000) <= 1_010_000
