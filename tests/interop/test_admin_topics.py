"""Topics, administered at our own brokers."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

import pytest
from confluent_kafka.admin import ConfigResource as ConfluentConfigResource
from confluent_kafka.admin import NewTopic as ConfluentNewTopic
from kafka.admin import ConfigResource as KafkaPythonConfigResource
from kafka.admin import NewTopic as KafkaPythonNewTopic

import kohort
from kohort import NewTopic
from kohort.cli.main import main
from kohort.errors import BrokerError, ConfigError, ErrorCode, UnsupportedFeatureError
from kohort.testing import Cluster
from support.peers.awaited_admin import AwaitedAdmin
from support.peers.cli import Finished
from support.scenarios.topics_day import TIMES, play_configs, play_offsets, play_topics

MANY = 700
Cli = Callable[..., Finished]


@pytest.mark.parametrize("play", [play_topics, play_configs, play_offsets])
def test_a_day_at_three_brokers(play: Callable[..., None]) -> None:
    """Of an application with threads, and of one with an event loop."""
    with Cluster(3) as cluster:
        play({"bootstrap_servers": cluster.bootstrap_servers}, "day")
        play({"bootstrap_servers": cluster.bootstrap_servers}, "awaited", admin_of=AwaitedAdmin)


def test_offsets_are_listed_where_leaders_have_moved_to() -> None:
    """Those of the broker that is gone are asked for again, and nothing else is."""
    with Cluster(3) as cluster, kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("moving", 6)
        assert [row.offset for row in admin.list_offsets(["moving"]).values()] == [0] * 6
        cluster.stop(2)
        assert [row.offset for row in admin.list_offsets(["moving"]).values()] == [0] * 6


def test_what_our_broker_does_not_serve_yet_is_said() -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("kept", 2)
        with pytest.raises(UnsupportedFeatureError, match=r"is kohort's broker .* and has no AlterReplicaLogDirs"):
            admin.alter_replica_log_dirs({("kept", 0, 1): "/elsewhere"})
        with pytest.raises(BrokerError, match=r"Cannot update these configs dynamically: \[node.id\]"):
            admin.alter_configs(("broker", 1), {"node.id": 3})
        assert admin.describe_configs(("broker", "")) == {("broker", ""): []}


def test_hundreds_of_topics_are_made_and_deleted_by_one_call() -> None:
    """In as many requests as it takes; the broker tells everybody of them once a request."""
    names = [f"many-{number}" for number in range(MANY)]
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert [row.name for row in admin.create_topics(names)] == names
        admin.delete_topics(names)
        assert [row.name for row in admin.list_topics() if not row.is_internal] == []


def test_one_broker_keeps_one_copy() -> None:
    """As Apache Kafka with one broker: a factor that it cannot give is refused, not lowered."""
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for wrong, code in (
            ({"replication_factor": 3}, ErrorCode.INVALID_REPLICATION_FACTOR),
            ({"assignments": [[2]]}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ):
            with pytest.raises(BrokerError) as refused:
                admin.create_topic("copied", **wrong)
            assert refused.value.code is code
        admin.create_topic("copied", replication_factor=1)


@pytest.mark.parametrize(
    "topic",
    [
        NewTopic("t", 2, 1, configs={"flush.ms": 7}),
        ConfluentNewTopic("t", 2, 1, config={"flush.ms": "7"}),
        KafkaPythonNewTopic("t", 2, 1, topic_configs={"flush.ms": 7}),
        ConfluentNewTopic("t", replica_assignment=[[1], [1]], config={"flush.ms": "7"}),
    ],
    ids=["kohort", "confluent", "kafka-python", "confluent with an assignment"],
)
def test_new_topics_of_other_clients_are_understood(topic: Any) -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (made,) = admin.create_topics([topic])
        assert (made.name, made.partition_count, made.replication_factor) == ("t", 2, 1)
        assert admin.describe_topics(["t"])[0].configs == {"flush.ms": "7"}


@pytest.mark.parametrize(
    "resource",
    [
        ("topic", "t"),
        ConfluentConfigResource("topic", "t"),
        KafkaPythonConfigResource("TOPIC", "t"),
    ],
    ids=["kohort", "confluent", "kafka-python"],
)
def test_config_resources_of_other_clients_are_understood(resource: Any) -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t")
        assert list(admin.describe_configs(resource)) == list(admin.describe_configs([resource])) == [("topic", "t")]


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda admin: admin.create_topics("t"), "a list is expected"),
        (lambda admin: admin.create_topics(NewTopic("t")), "a list is expected"),
        (lambda admin: admin.create_topics(["t", "t"]), "topic t is named twice"),
        (lambda admin: admin.create_topics([7]), "7 is no new topic"),
        (lambda admin: admin.create_topic("t", 0), "partitions cannot be 0"),
        (lambda admin: admin.create_topic("t", True), "partitions cannot be True"),
        (lambda admin: admin.create_topic("t", replication_factor=0), "replication_factor cannot be 0"),
        (lambda admin: admin.create_topic("t", replication_factor=40_000), "replication_factor cannot be 40000"),
        (lambda admin: admin.create_topic("t", 3, assignments=[[1]]), "assignments has 1: leave partitions out"),
        (
            lambda admin: admin.create_topic("t", replication_factor=2, assignments=[[1]]),
            "leave replication_factor out",
        ),
        (lambda admin: admin.create_topic("t", assignments=[]), "assignments is empty"),
        (lambda admin: admin.create_topic("t", assignments=[[1, 1]]), "none twice"),
        (lambda admin: admin.create_topic("t", assignments=[[1], [1, 2]]), "for partition 1"),
        (lambda admin: admin.create_topic("t", assignments={1: [1]}), "numbered from 0 without gaps"),
        (lambda admin: admin.create_topic("t", assignments=["12"]), "assignments cannot have '12'"),
        (lambda admin: admin.create_topic("t", assignments="12"), "assignments cannot be '12'"),
        (lambda admin: admin.create_topic("t", configs=["flush.ms"]), "a mapping is expected"),
        (lambda admin: admin.create_topic(7), "topic must be text"),
        (lambda admin: admin.create_partitions("t"), "total is missing"),
        (lambda admin: admin.create_partitions("t", 0), "total of t cannot be 0"),
        (lambda admin: admin.create_partitions(["t"], 2), "a mapping of topics to totals"),
        (lambda admin: admin.create_partitions({"t": 2}, assignments={"u": [[1]]}), "u, which is not to be grown"),
        (lambda admin: admin.list_offsets("t"), r"like \['orders'\]"),
        (lambda admin: admin.list_offsets(kohort.TopicPartition("t", 0)), r"like \['orders'\]"),
        (lambda admin: admin.list_offsets(["t"], "newest"), "at cannot be 'newest'"),
        (lambda admin: admin.list_offsets(["t"], -1), "at cannot be -1"),
        (lambda admin: admin.list_offsets(["t"], datetime(2026, 1, 1)), "without a time zone"),
        (lambda admin: admin.list_offsets(["t"], timedelta(seconds=-1)), "how long ago"),
        (lambda admin: admin.list_offsets(["t"], isolation_level="none"), "isolation_level cannot be 'none'"),
        (lambda admin: admin.delete_records([("t", 0)]), "a mapping is expected"),
        (lambda admin: admin.delete_records({("t", 0): -1}), "before which records go cannot be -1"),
        (lambda admin: admin.delete_records({("t", 0): "earliest"}), "cannot be 'earliest'"),
        (lambda admin: admin.describe_configs("orders"), "resources cannot be 'orders'"),
        (lambda admin: admin.describe_configs(["orders"]), "'orders' has no configs"),
        (lambda admin: admin.describe_configs(("topics", "t")), "'topics' has no configs"),
        (lambda admin: admin.describe_configs(("broker", "one")), "'one' is no broker"),
        (lambda admin: admin.describe_configs(("topic", "t"), "flush.ms"), r"like \['flush.ms'\]"),
        (lambda admin: admin.alter_configs(("topic", "t")), "nothing to change"),
        (lambda admin: admin.alter_configs(("topic", "t"), ["flush.ms"]), "a mapping is expected"),
        (lambda admin: admin.alter_configs(("topic", "t"), {"a": 1}, delete=["a"]), "a is changed twice"),
        (lambda admin: admin.alter_configs(("topic", "t"), delete="flush.ms"), r"like \['flush.ms'\]"),
        (lambda admin: admin.alter_configs(("topic", "t"), append={"a": None}), "needs the entries"),
        (lambda admin: admin.delete_topics("t"), r"like \['t'\]"),
    ],
)
def test_what_cannot_be_meant_is_refused_before_anybody_is_asked(call: Any, says: str) -> None:
    with kohort.Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises((ConfigError, TypeError), match=says):
        call(admin)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process."""

    def run(*words: str) -> Finished:
        try:
            code = main(words)
        except SystemExit as wrong:
            code = int(wrong.code or 0)
        out, err = capsys.readouterr()
        return Finished(code=code, out=out, err=err)

    return run


def test_commands_for_several_topics_say_which_they_could_not_do(cli: Cli) -> None:
    """What was done is on the output, what was not on the error output, and the code is 1."""
    with Cluster(3) as cluster, kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        place = ("-b", cluster.bootstrap_servers)
        made = cli("topic", "create", "a", "b", "--replication-factor", "3", "--json", *place)
        rows = [json.loads(line) for line in made.out.splitlines()]
        assert [(row["topic"], row["partitions"], row["replication_factor"], row["created"]) for row in rows] == [
            ("a", 1, 3, True),
            ("b", 1, 3, True),
        ]
        partly = cli("topic", "create", "a", "c", "--assign", "2:1:3,3:1:2", *place)
        assert (partly.code, partly.out) == (1, "created c with 2 partitions, 3 copies of each\n")
        assert "1 of 2 done (c), 1 not: a: TOPIC_ALREADY_EXISTS" in partly.err
        grown = cli("topic", "grow", "a", "nowhere", "--partitions", "2", *place)
        assert (grown.code, grown.out) == (1, "a has 2 partitions now\n")
        assert "topic nowhere does not exist" in grown.err
        only = cli("topic", "grow", "b", "--partitions", "2", "--assign", "1:2:3", "--validate-only", *place)
        assert (only.code, only.out) == (0, "b could have 2 partitions\n")
        deleted = cli("topic", "delete", "a", "nowhere", "c", *place)
        assert (deleted.code, deleted.out) == (1, "deleted a, c\n")
        assert [row.name for row in admin.list_topics() if not row.is_internal] == ["b"]
        wrong = cli("topic", "create", "d", "--assign", "1;2", *place)
        assert (wrong.code, wrong.out) == (2, "")
        assert "1:2,2:3 are those of two partitions" in wrong.err


def test_commands_about_records_show_first(cli: Cli) -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("aged", 2)
        place = ("-b", broker.bootstrap_servers)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for each in TIMES:
                producer.send("aged", b"x", partition=1, timestamp_ms=each).result(10)

        def column(*words: str) -> list[str]:
            return [line.split()[2] for line in cli("topic", *words, *place).out.splitlines()[1:]]

        assert column("offsets", "aged") == ["0", "3"]
        assert column("offsets", "aged:1", "--at", str(TIMES[1])) == ["1"]
        assert column("offsets", "aged", "--at", "2h") == ["-", "-"]
        shown = cli("topic", "offsets", "aged:1", "--at", "2023-11-14T22:13:25Z", *place)
        assert shown.out.splitlines()[1].split() == ["aged", "1", "1", "2023-11-14T22:13:29.000Z"]
        before = "2023-11-14T22:13:21Z"
        plan = cli("topic", "delete-records", "aged", "--before-datetime", before, "--json", *place)
        assert json.loads(plan.out)["partitions"][1] == {
            "topic": "aged",
            "partition": 1,
            "begin": 0,
            "new_begin": 1,
            "end": 3,
            "records": 1,
        }
        cut = cli("topic", "delete-records", "aged", "--older-than", "7d", *place)
        assert [line.split()[2:] for line in cut.out.splitlines()[1:]] == [["0", "0", "0", "0"], ["0", "3", "3", "3"]]
        assert "nothing is deleted yet: --execute does it" in cut.err
        done = cli("topic", "delete-records", "aged:1", "--before-offset", "2", "--execute", *place)
        assert [line.split() for line in done.out.splitlines()[1:]] == [["aged", "1", "0", "2", "3", "2"]]
        assert column("offsets", "aged:1", "--at", "earliest") == ["2"]


def test_commands_about_configs_tell_no_values_of_what_they_changed(cli: Cli) -> None:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("tuned")
        place = ("-b", broker.bootstrap_servers)
        words = ("retention.ms=5", "--append", "cleanup.policy=compact", "--delete", "flush.ms")
        only = cli("config", "alter", "topic", "tuned", *words, "--validate-only", *place)
        assert only.out == "could alter cleanup.policy, flush.ms, retention.ms of topic tuned\n"
        assert cli("config", "describe", "topic", "tuned", *place).out.startswith("no config was set")
        done = cli("config", "alter", "topic", "tuned", *words, "--json", *place)
        assert json.loads(done.out) == {
            "kind": "topic",
            "name": "tuned",
            "configs": ["cleanup.policy", "flush.ms", "retention.ms"],
            "altered": True,
        }
        (row,) = json.loads(cli("config", "describe", "topic", "tuned", "--only", "retention.ms", "--json", *place).out)
        assert (row["value"], row["default"], row["source"]) == ("5", "604800000", "DYNAMIC_TOPIC_CONFIG")
        for wrong, says in (
            (("alter", "topic", "tuned"), "there is nothing to change"),
            (("alter", "topics", "tuned", "a=1"), "did you mean topic?"),
            (("describe", "broker", "one"), "'one' is no broker"),
        ):
            said = cli("config", *wrong, *place)
            assert (said.code, said.out) == (2, "")
            assert says in said.err
        every = cli("config", "describe", "broker", "1", "--all", *place)
        assert any(line.split()[:2] == ["num.partitions", "1"] for line in every.out.splitlines())
