"""Apache Kafka's own command line tools, unchanged, against our broker and on our files.

Each run starts a JVM, which takes longer than what it does here: one run serves several questions.
Source: Apache Kafka 4.3, org.apache.kafka.tools.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import kohort
from support.peers.kafka_tools import run_kafka_tool
from support.peers.restarts import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

TOPICS = "org.apache.kafka.tools.TopicCommand"
GROUPS = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
CONSOLE = "org.apache.kafka.tools.consumer.ConsoleConsumer"
CONFIGS = "kafka.admin.ConfigCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
DELETE_RECORDS = "org.apache.kafka.tools.DeleteRecordsCommand"
DUMP = "org.apache.kafka.tools.DumpLogSegments"

RECORDS = 30
PARTITIONS = 3

Tool = Callable[..., list[str]]


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("data")


@pytest.fixture(scope="module")
def broker(data_dir: Path) -> Iterator[kohort.Broker]:
    with kohort.Broker(data_dir=data_dir, config={"group.consumer.heartbeat.interval.ms": 200}) as broker:
        yield broker


@pytest.fixture
def tool(broker: kohort.Broker) -> Tool:
    """A tool's answer, line by line, without empty lines."""

    def run(main_class: str, *words: str) -> list[str]:
        said = run_kafka_tool(main_class, "--bootstrap-server", broker.bootstrap_servers, *words)
        return [line.rstrip() for line in said.splitlines() if line.strip()]

    return run


def table(lines: list[str]) -> list[dict[str, str]]:
    """Rows of a tool's tables by their headers; a line that begins with GROUP is a header."""
    rows: list[dict[str, str]] = []
    header: list[str] = []
    for line in lines:
        if line.startswith("GROUP "):
            header = line.split()
        else:
            rows.append(dict(zip(header, line.split(), strict=False)))
    return rows


def test_topic_command(tool: Tool) -> None:
    name = ("--topic", "flights")
    create = tool(TOPICS, "--create", *name, "--partitions", "2", "--config", "retention.ms=100000")
    assert create == ["Created topic flights."]
    title, *rows = tool(TOPICS, "--describe", *name)
    assert re.fullmatch(
        r"Topic: flights\tTopicId: \S{22}\tPartitionCount: 2\tReplicationFactor: 1\t"
        r"Configs: min.insync.replicas=1,retention.ms=100000",
        title,
    )
    assert [row.split("\t")[2:6] for row in rows] == [
        [f"Partition: {number}", "Leader: 1", "Replicas: 1", "Isr: 1"] for number in range(2)
    ]
    assert tool(TOPICS, "--delete", *name) == []
    assert "flights" not in tool(TOPICS, "--list")


def test_delete_records_command(tool: Tool, broker: kohort.Broker, tmp_path: Path) -> None:
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(3):
            producer.send("trimmed", b"%d" % number, partition=0).result(10)
    asked = tmp_path / "offsets.json"
    asked.write_text('{"version": 1, "partitions": [{"topic": "trimmed", "partition": 0, "offset": 2}]}')
    said = tool(DELETE_RECORDS, "--offset-json-file", str(asked))
    assert said[-1].split() == ["partition:", "trimmed-0", "low_watermark:", "2"]


def test_commands_that_look_after_a_cluster(tool: Tool, broker: kohort.Broker, tmp_path: Path) -> None:
    """Configs of the broker, directories, elections, reassignments, the quorum; what one node has nothing to do for."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("kept", 2)
    who = ("--entity-type", "brokers", "--entity-name", "1")
    assert tool(CONFIGS, "--alter", *who, "--add-config", "log.retention.ms=5000") == [
        "Completed updating config for broker 1."
    ]
    title, row = tool(CONFIGS, "--describe", *who)
    assert title == "Dynamic configs for broker 1 are:"
    assert row.split()[:2] == ["log.retention.ms=5000", "sensitive=false"]
    assert "DYNAMIC_BROKER_CONFIG:log.retention.ms=5000" in row

    *_, found = tool(LOG_DIRS, "--describe", "--topic-list", "kept")
    (directory,) = json.loads(found)["brokers"][0]["logDirs"]
    assert {row["partition"]: row["size"] for row in directory["partitions"]} == {"kept-0": 0, "kept-1": 0}

    said = tool(ELECTION, "--election-type", "PREFERRED", "--topic", "kept", "--partition", "0")
    assert said == ["Valid replica already elected for partitions kept-0"]

    plan = tmp_path / "plan.json"
    plan.write_text('{"version": 1, "partitions": [{"topic": "kept", "partition": 0, "replicas": [1]}]}')
    said = tool(REASSIGN, "--reassignment-json-file", str(plan), "--execute")
    assert said[-1] == "Successfully started partition reassignment for kept-0"
    assert "Reassignment of partition kept-0 is completed." in tool(
        REASSIGN, "--reassignment-json-file", str(plan), "--verify"
    )

    said = tool(QUORUM, "describe", "--status")
    status = dict(line.split(":", 1) for line in said)
    assert (status["LeaderId"].strip(), status["MaxFollowerLag"].strip()) == ("1", "0")


def test_levels_of_loggers(tool: Tool) -> None:
    """KIP-412, as an administrator does it."""
    which = ("--entity-type", "broker-loggers", "--entity-name", "1")
    before = logging.getLogger("kohort.broker.storage").level
    try:
        assert tool(CONFIGS, "--alter", *which, "--add-config", "kohort.broker.storage=DEBUG") == [
            "Completed updating config for broker-logger 1."
        ]
        assert logging.getLogger("kohort.broker.storage").level == logging.DEBUG
        title, *rows = tool(CONFIGS, "--describe", *which)
        assert title == "Dynamic configs for broker-logger 1 are:"
        shown = dict(row.split()[0].split("=") for row in rows)
        assert (shown["kohort.broker.storage"], shown["root"]) == ("DEBUG", "WARN")
        tool(CONFIGS, "--alter", *which, "--delete-config", "kohort.broker.storage")
        assert logging.getLogger("kohort.broker.storage").level == logging.NOTSET
    finally:
        logging.getLogger("kohort.broker.storage").setLevel(before)


class Groups:
    """One group of each protocol, with a member that owns everything and has committed all but the last records."""

    def __init__(self, address: str) -> None:
        self._stack = ExitStack()
        with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
            admin.create_topic("orders", PARTITIONS)
            for number in range(RECORDS):
                producer.send("orders", b"order %d" % number, b"k", partition=number % PARTITIONS)
        ours = self._stack.enter_context(
            kohort.Consumer(bootstrap_servers=address, group_id="modern", enable_auto_commit=False)
        )
        ours.subscribe(["orders"])
        wait_until(lambda: ours.poll(0.1) or len(ours.assignment()) == PARTITIONS, "our member owns everything")
        ours.commit({kohort.TopicPartition("orders", number): 7 for number in range(PARTITIONS)})
        self.member_id = ours.member_id
        theirs = confluent_kafka.Consumer(
            {"bootstrap.servers": address, "group.id": "classic", "enable.auto.commit": False}
        )
        self._stack.callback(theirs.close)
        theirs.subscribe(["orders"])
        wait_until(lambda: theirs.poll(0.1) or len(theirs.assignment()) == PARTITIONS, "their member owns everything")
        offsets = [confluent_kafka.TopicPartition("orders", number, 6) for number in range(PARTITIONS)]
        theirs.commit(offsets=offsets, asynchronous=False)

    def stop(self) -> None:
        """Both members leave."""
        self._stack.close()


@pytest.fixture(scope="module")
def groups(broker: kohort.Broker) -> Iterator[Groups]:
    groups = Groups(broker.bootstrap_servers)
    yield groups
    groups.stop()


def test_group_command_shows_groups_of_both_protocols(broker: kohort.Broker, tool: Tool, groups: Groups) -> None:
    listed = table(tool(GROUPS, "--list", "--state"))
    assert listed == [{"GROUP": "classic", "STATE": "Stable"}, {"GROUP": "modern", "STATE": "Stable"}]

    rows = table(tool(GROUPS, "--describe", "--all-groups"))
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for group, ours in admin.groups_offsets(["classic", "modern"]).items():
            assert isinstance(ours, list)
            told = ("PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")
            assert [[row[name] for name in told] for row in rows if row["GROUP"] == group] == [
                [*map(str, (row.partition, row.committed, row.end_offset, row.lag, row.member_id))] for row in ours
            ]
    shown = [[row[name] for name in ("GROUP", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG")] for row in rows]
    assert sorted(shown) == [
        *(["classic", str(number), "6", "10", "4"] for number in range(PARTITIONS)),
        *(["modern", str(number), "7", "10", "3"] for number in range(PARTITIONS)),
    ]
    assert {row["HOST"] for row in rows} == {"/127.0.0.1"}
    assert {row["CONSUMER-ID"] for row in rows if row["GROUP"] == "modern"} == {groups.member_id}

    classic, modern = table(tool(GROUPS, "--describe", "--all-groups", "--members", "--verbose"))
    assert (classic["GROUP"], classic["#PARTITIONS"], classic["CURRENT-ASSIGNMENT"]) == ("classic", "3", "orders:0,1,2")
    assert (modern["GROUP"], modern["CONSUMER-ID"]) == ("modern", groups.member_id)
    for when in ("CURRENT", "TARGET"):
        assert (modern[f"{when}-EPOCH"], modern[f"{when}-ASSIGNMENT"]) == ("2", "orders:0,1,2")

    told = [line.split() for line in tool(GROUPS, "--describe", "--all-groups", "--state")]
    states = {words[0]: words[-3:] for words in told if words[0] != "GROUP"}
    assert states == {"classic": ["range", "Stable", "1"], "modern": ["uniform", "Stable", "1"]}


def test_group_command_moves_and_deletes_groups_that_are_empty(
    broker: kohort.Broker, tool: Tool, groups: Groups
) -> None:
    refused = "\n".join(tool(GROUPS, "--delete", "--group", "modern", "--group", "classic"))
    assert refused.count("GroupNotEmptyException") == 2
    groups.stop()

    reset = ("--reset-offsets", "--topic", "orders", "--all-groups", "--to-offset", "4", "--execute")
    rows = table(tool(GROUPS, *reset))
    assert sorted((row["GROUP"], row["PARTITION"], row["NEW-OFFSET"]) for row in rows) == [
        (group, str(number), "4") for group in ("classic", "modern") for number in range(PARTITIONS)
    ]
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        for group in ("classic", "modern"):
            assert [row.committed for row in admin.group_offsets(group)] == [4] * PARTITIONS
        assert "successful" in tool(GROUPS, "--delete", "--group", "classic")[0]
        assert [row.group_id for row in admin.list_groups()] == ["modern"]


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_console_consumer_reads_and_commits(broker: kohort.Broker, tool: Tool, groups: Groups, protocol: str) -> None:
    """Apache Kafka's own consumer: with the consumer protocol it names topics by id in OffsetCommit and OffsetFetch."""
    del groups
    words = ("--topic", "orders", "--from-beginning", "--max-messages", str(RECORDS), "--timeout-ms", "30000")
    said = tool(CONSOLE, *words, "--group", f"java-{protocol}", "--command-property", f"group.protocol={protocol}")
    assert sorted(line for line in said if line.startswith("order ")) == sorted(f"order {n}" for n in range(RECORDS))
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        committed = {row.partition: row.committed for row in admin.group_offsets(f"java-{protocol}")}
        assert committed == dict.fromkeys(range(PARTITIONS), RECORDS // PARTITIONS)
        admin.delete_groups([f"java-{protocol}"])


def dumped(*words: str, files: list[Path]) -> list[str]:
    said = run_kafka_tool(DUMP, *words, "--files", ",".join(map(str, files)))
    assert "invalid" not in said.lower().replace("isvalid", "")
    assert "isvalid: false" not in said
    return [line for line in said.splitlines() if line.startswith("| offset: ")]


def test_dump_reads_the_records(broker: kohort.Broker, groups: Groups, data_dir: Path) -> None:
    files = sorted(data_dir.glob("orders-*/*.log"))
    payloads = [line.rpartition("payload: ")[2] for line in dumped("--print-data-log", files=files)]
    assert payloads == [
        f"order {number}" for partition in range(PARTITIONS) for number in range(partition, RECORDS, PARTITIONS)
    ]


def test_dump_decodes_the_coordinators_log(broker: kohort.Broker, groups: Groups, data_dir: Path) -> None:
    """Kafka's own decoder reads what our coordinator writes: keys, values, and tombstones of what is gone."""
    groups.stop()
    files = [path for path in sorted(data_dir.glob("__consumer_offsets-*/*.log")) if path.stat().st_size]
    records: list[tuple[int, dict[str, Any], dict[str, Any] | None]] = []
    for line in dumped("--offsets-decoder", files=files):
        key_text, value_text = re.search(r"key: (\{.*\}) payload: (.*)$", line).groups()  # type: ignore[union-attr]
        key = json.loads(key_text)
        value = None if value_text == "<DELETE>" else json.loads(value_text)["data"]
        records.append((int(key["type"]), key["data"], value))
    modern = [(kind, key, value) for kind, key, value in records if "modern" in (key.get("groupId"), key.get("group"))]
    assert {kind for kind, _, _ in modern} == {1, 3, 5, 6, 7, 8}, "the record types of a KIP-848 group"
    subscriptions = [value for kind, _, value in modern if kind == 5]
    assert subscriptions[0] is not None and subscriptions[0]["subscribedTopicNames"] == ["orders"]
    assert subscriptions[-1] is None, "the member has left"
    commits = [(key["partition"], value["offset"]) for kind, key, value in modern if kind == 1 and value is not None]
    assert commits[:PARTITIONS] == [(number, 7) for number in range(PARTITIONS)]
    generations = [value for kind, key, value in records if kind == 2 and key["group"] == "classic"]
    first = generations[0]
    assert first is not None
    assert (first["protocolType"], first["generation"], first["protocol"]) == ("consumer", 1, "range")
    assert first["members"][0]["assignment"]["assignedPartitions"] == [{"topic": "orders", "partitions": [0, 1, 2]}]
