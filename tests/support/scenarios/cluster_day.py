"""What an administrator does with brokers, leaders, copies and transactions in a day, at three Apache brokers."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import confluent_kafka
import pytest

import kohort
from kohort import TopicPartition
from kohort.errors import BrokerError, ConfigError, ErrorCode, PartlyDoneError, UnknownTopicError
from kohort.records.batch import build_batch
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.apache_cluster import ApacheCluster
from support.peers.cli import Finished, run_kohort
from support.peers.kafka_tools import run_kafka_tool
from support.scenarios.client_scenarios import fresh, poll_until, send_values, wait_until

#: A producer of whom no coordinator has heard.
STRANGER = 777_000


@contextmanager
def placed(admin: kohort.Admin, name: str) -> Iterator[list[TopicPartition]]:
    """A topic with two copies of three partitions; broker 1 leads the first of them, 2 the second, 3 the third."""
    topic = fresh(name)
    admin.create_topics([kohort.NewTopic(topic, assignments=[[1, 2], [2, 3], [3, 1]])])
    yield [TopicPartition(topic, number) for number in range(3)]
    admin.delete_topics([topic])


def leaders(admin: kohort.Admin, partitions: list[TopicPartition]) -> list[int]:
    """Who leads, by partition."""
    return [row.leader for row in admin.describe_topics([partitions[0].topic])[0].partitions]


def tool(cluster: ApacheCluster, name: str, *words: str) -> str:
    """What one of Kafka's own tools says."""
    return run_kafka_tool(f"org.apache.kafka.tools.{name}", "--bootstrap-server", cluster.bootstrap_servers, *words)


def describe_everything(cluster: ApacheCluster, admin: kohort.Admin) -> None:
    """Brokers, features, quorum and directories, as Kafka's own tools tell them."""
    described = admin.describe_cluster(include_fenced=True, include_authorized_operations=True)
    assert [(row.broker_id, row.is_fenced) for row in described.brokers] == [(1, False), (2, False), (3, False)]
    assert "alter_configs" in (described.authorized_operations or ())
    assert admin.describe_cluster().authorized_operations is None

    levels = {row.name: row for row in admin.describe_features().features}
    for line in tool(cluster, "FeatureCommand", "describe").splitlines():
        name, low, high, level = re.findall(r": (\S+)", line)[:4]
        if name != "metadata.version":
            row = levels.pop(name)
            assert (row.min_version, row.max_version, row.version_level) == (int(low), int(high), int(level))
    assert list(levels) == ["metadata.version"]
    with pytest.raises(BrokerError, match="for feature group") as lower:
        admin.update_features({"group.version": 0})
    assert lower.value.code is ErrorCode.INVALID_UPDATE_VERSION
    admin.update_features({"group.version": 0}, downgrade="safe", validate_only=True)
    assert admin.describe_features().features[1].version_level == 1, "it was a trial"

    quorum = admin.describe_quorum()
    told = tool(cluster, "MetadataQuorumCommand", "describe", "--status")
    assert re.search(r"LeaderId:\s+(\d+)", told)[1] == str(quorum.leader_id)  # type: ignore[index]
    assert [f'"{each}"' in told for each in quorum.listeners[1]] == [True]
    assert ([row.replica_id for row in quorum.voters], [row.replica_id for row in quorum.observers]) == ([1], [2, 3])
    assert all(row.directory_id in told for row in quorum.observers)

    with placed(admin, "files") as partitions:
        send_values(cluster.bootstrap_servers, partitions[0].topic, [b"x" * 1000] * 3, partition=0)
        wait_until(lambda: admin.describe_topics([partitions[0].topic])[0].partitions[0].end_offset == 3, "3 records")
        said = tool(cluster, "LogDirsCommand", "--describe", "--topic-list", partitions[0].topic)
        (row,) = (json.loads(line) for line in said.splitlines() if line.startswith("{"))
        theirs = {
            (broker["broker"], each["logDir"], log["partition"], log["size"])
            for broker in row["brokers"]
            for each in broker["logDirs"]
            for log in each["partitions"]
        }
        ours = {
            (each.broker_id, each.path, f"{log.topic}-{log.partition}", log.size_bytes)
            for each in admin.describe_log_dirs(partitions=partitions)
            for log in each.logs
        }
        assert ours == theirs and len(ours) == 6
        _move_files(admin, partitions[0].topic)


def _move_files(admin: kohort.Admin, topic: str) -> None:
    here, nowhere = admin.describe_replica_log_dirs([(topic, 0, 1), (topic, 1, 1)])
    assert here.path is not None and (here.future_path, nowhere.path) == (None, None)
    with pytest.raises(PartlyDoneError) as partly:
        admin.alter_replica_log_dirs({(topic, 0, 1): here.path, (topic, 2, 1): "/not/there"})
    assert [str(each) for each in partly.value.done] == [f"{topic}-0 at broker 1"]
    assert "LOG_DIR_NOT_FOUND" in str(partly.value)
    with pytest.raises(PartlyDoneError, match="looking for broker 9: the brokers now are 1, 2, 3") as partly:
        admin.describe_log_dirs([1, 9])
    assert [row.broker_id for row in partly.value.done[1]] == [1]


def move_partitions(cluster: ApacheCluster, admin: kohort.Admin) -> None:
    """To other brokers, with some that cannot be; and who leads them then."""
    with placed(admin, "moved") as (first, second, third):
        with pytest.raises(PartlyDoneError, match="1 of 2 done") as partly:
            admin.alter_partition_reassignments({first: [2, 1], second: [2, 9]})
        assert partly.value.failed[second].code is ErrorCode.INVALID_REPLICA_ASSIGNMENT  # type: ignore[attr-defined]
        with pytest.raises(UnknownTopicError, match="has no partition 7"):
            admin.alter_partition_reassignments({third: [1, 2], TopicPartition(third.topic, 7): [1]})
        with pytest.raises(BrokerError, match="INVALID_REPLICATION_FACTOR"):
            admin.alter_partition_reassignments({third: [1]}, allow_replication_factor_change=False)
        with pytest.raises(BrokerError, match="NO_REASSIGNMENT_IN_PROGRESS"):
            admin.alter_partition_reassignments({third: None})
        admin.alter_partition_reassignments({second: [3, 2, 1]})
        wait_until(lambda: not admin.list_partition_reassignments([first, second]), "all have arrived")
        words = ("--verify", "--reassignment-json-file", _written(cluster, {first: [2, 1], second: [3, 2, 1]}))
        said = tool(cluster, "reassign.ReassignPartitionsCommand", *words)
        assert said.count("is completed.") == 2, said

        assert leaders(admin, [first]) == [1, 2, 3], "who has it leads on"
        rows = admin.elect_leaders([first, second, third])
        assert [row.is_elected for row in rows] == [True, True, False]
        assert admin.elect_leaders([first]) == [election(first, is_elected=False)]
        wait_until(lambda: leaders(admin, [first]) == [2, 3, 3], "the first of the brokers leads")


def election(partition: TopicPartition, *, is_elected: bool) -> Any:
    """What `elect_leaders` says of one partition."""
    from kohort.client.admin.results.cluster import LeaderElection

    return LeaderElection(topic=partition.topic, partition=partition.partition, is_elected=is_elected)


def _written(cluster: ApacheCluster, plan: dict[TopicPartition, list[int]]) -> str:
    path = cluster.brokers[0].directory / "plan.json"
    rows = [{"topic": each.topic, "partition": each.partition, "replicas": to} for each, to in plan.items()]
    path.write_text(json.dumps({"version": 1, "partitions": rows}))
    return str(path)


def lose_a_broker(cluster: ApacheCluster) -> None:
    """What it led is led by others; it cannot lead while it is away, and does when it is back and asked for."""
    with kohort.Admin(bootstrap_servers=cluster.brokers[0].bootstrap_servers) as admin, placed(admin, "lost") as three:
        third = three[2]
        cluster.brokers[2].stop()
        wait_until(lambda: leaders(admin, three)[2] == 1, "another one leads")
        assert [row.broker_id for row in admin.describe_cluster().brokers] == [1, 2]
        assert admin.describe_cluster(include_fenced=True).brokers[2].is_fenced
        with pytest.raises(BrokerError, match="BROKER_NOT_AVAILABLE"):
            admin.describe_log_dirs([3])
        with pytest.raises(PartlyDoneError, match="PREFERRED_LEADER_NOT_AVAILABLE") as partly:
            admin.elect_leaders(three)
        assert list(partly.value.failed) == [third]
        with pytest.raises(BrokerError, match="PREFERRED_LEADER_NOT_AVAILABLE"):
            admin.elect_leaders([third])
        assert not admin.elect_leaders([third], unclean=True)[0].is_elected, "it has a leader"
        cluster.brokers[2].start()
        wait_until(lambda: 3 in admin.describe_topics([third.topic])[0].partitions[2].in_sync, "it has caught up")
        assert third in [TopicPartition(row.topic, row.partition) for row in admin.elect_leaders()]
        wait_until(lambda: leaders(admin, three)[2] == 3, "it leads again")


def end_transactions(cluster: ApacheCluster, admin: kohort.Admin) -> None:
    """One that its producer has left open, and one that no coordinator knows of."""
    with placed(admin, "sales") as partitions:
        name = partitions[0].topic
        owner = confluent_kafka.Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": name, "log_level": 0}
        )
        owner.init_transactions(30)
        owner.begin_transaction()
        for each in partitions:
            owner.produce(each.topic, b"open", partition=each.partition)
        assert owner.flush(30) == 0

        (listed,) = admin.list_transactions(["Ongoing"], pattern=f"{name[:-2]}.*")
        assert (listed.transactional_id, listed.state) == (name, "Ongoing")
        assert admin.list_transactions(producer_ids=[listed.producer_id]) == [listed]
        assert name in tool(cluster, "TransactionsCommand", "list")
        assert admin.list_transactions(["Ongoing"], running_longer_than_ms=3_600_000) == []
        (described,) = admin.describe_transactions([name])
        assert (described.state, described.partitions) == ("Ongoing", tuple(partitions))
        assert described.started_ms == admin.describe_transactions([name])[0].started_ms is not None
        with pytest.raises(PartlyDoneError, match="no coordinator knows nobody") as partly:
            admin.describe_transactions([name, "nobody"])
        assert list(partly.value.done) == [name]
        producers = admin.describe_producers(partitions)
        assert [(row.producer_id, row.transaction_start_offset) for row in producers] == [(listed.producer_id, 0)] * 3
        assert admin.find_hanging_transactions(partitions, older_than_ms=0) == [], "its coordinator knows of it"

        (fenced,) = admin.fence_producers([name])
        assert (fenced.transactional_id, fenced.producer_id) == (name, listed.producer_id)
        assert fenced.producer_epoch != described.producer_epoch
        wait_until(lambda: not any(row.transaction_start_offset is not None for row in
                                   admin.describe_producers(partitions)), "it is aborted")  # fmt: skip
        with pytest.raises(confluent_kafka.KafkaException):
            owner.commit_transaction(10)
        _abort_what_hangs(cluster, admin, partitions)


def _abort_what_hangs(cluster: ApacheCluster, admin: kohort.Admin, partitions: list[TopicPartition]) -> None:
    partition = partitions[0]
    _write_as_stranger(cluster, partition)
    send_values(cluster.bootstrap_servers, partition.topic, [b"behind"], partition=0)
    with kohort.Consumer(
        bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest"
    ) as reader:
        reader.assign([partition])
        (hanging,) = admin.find_hanging_transactions(partitions, older_than_ms=0)
        assert hanging.producer_id == STRANGER and hanging.transaction_start_offset is not None
        begin = hanging.transaction_start_offset
        with pytest.raises(ConfigError, match=f"begins at offset {begin + 1}: they begin at {begin}"):
            admin.abort_transaction(partition, begin + 1)
        assert admin.abort_transaction(partition, begin) == hanging
        with pytest.raises(ConfigError, match="none is open there"):
            admin.abort_transaction(partition, begin)
        assert [record.value for record in poll_until(reader, 1)] == [b"behind"]
    assert admin.find_hanging_transactions(partitions, older_than_ms=0) == []


def _write_as_stranger(cluster: ApacheCluster, partition: TopicPartition, *, leader: int = 1) -> None:
    """A transactional batch that was added to no transaction, which a broker takes that does not verify it."""
    now_ms = int(time.time() * 1000)
    batch = build_batch(
        [(None, b"stuck", now_ms, [])], producer_id=STRANGER, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    row = PartitionProduceData(index=partition.partition, records=[batch])
    topic = TopicProduceData(name=partition.topic, partition_data=[row])
    request = ProduceRequest(transactional_id="stranger", acks=-1, timeout_ms=10_000, topic_data=[topic])
    with RawClient(cluster.brokers[leader - 1].port) as client:
        (answer,) = client.ask(ApiKey.PRODUCE, 11, request).responses[0].partition_responses
    assert answer.error_code == 0, answer


def command(cluster: ApacheCluster, *words: str, stdin: str = "") -> Finished:
    """How one command line of ours ends."""
    return run_kohort(*words, stdin=stdin, env={"KOHORT_BOOTSTRAP": cluster.bootstrap_servers})


def administer_by_commands(cluster: ApacheCluster, admin: kohort.Admin) -> None:
    """`kohort cluster` and `kohort transactions` show what they would do, and with --execute it is done."""
    with placed(admin, "shell") as (first, second, _):
        assert command(cluster, "cluster", "describe", "--fenced").out.splitlines()[1].split()[0] == "BROKER"
        assert "voter" in command(cluster, "cluster", "quorum").out
        tried = command(cluster, "cluster", "features", "group.version=0", "--downgrade", "safe")
        assert (tried.code, tried.err) == (0, "kohort: nothing is changed yet: --execute does it\n")
        row = command(cluster, "cluster", "log-dirs", "2", "--topic", first.topic, "--json").out
        assert [log["partition"] for log in json.loads(row)[0]["logs"]] == [0, 1]

        plan = json.dumps({"partitions": [{"topic": second.topic, "partition": 1, "replicas": [3, 2]}]})
        words = ("cluster", "reassign", f"{first}=2,1", "--file", "-")
        shown = command(cluster, *words, stdin=plan)
        assert [line.split()[1:] for line in shown.out.splitlines()[1:]] == [["0", "1,2", "2,1"], ["1", "2,3", "3,2"]]
        assert "nothing is changed yet" in shown.err
        assert leaders(admin, [first]) == [1, 2, 3]
        assert admin.describe_topics([first.topic])[0].partitions[0].replicas == (1, 2)
        assert command(cluster, *words, "--execute", stdin=plan).code == 0
        wait_until(lambda: admin.describe_topics([first.topic])[0].partitions[0].replicas == (2, 1), "it is told")
        assert command(cluster, "cluster", "reassign").out == "no reassignment is ongoing\n"
        wrong = command(cluster, "cluster", "reassign", "--file", "-", stdin='{"partitions": [{"topic": "x"}]}')
        assert (wrong.code, "the standard input is no plan" in wrong.err) == (2, True)

        due = command(cluster, "cluster", "elect-leaders", str(first), str(second))
        assert [line.split()[1:] for line in due.out.splitlines()[1:]] == [["0", "1", "2"], ["1", "2", "3"]]
        assert command(cluster, "cluster", "elect-leaders", str(first), "--execute").code == 0
        wait_until(lambda: leaders(admin, [first]) == [2, 2, 3], "the other one waits still")

        _write_as_stranger(cluster, TopicPartition(first.topic, 0), leader=2)
        assert str(STRANGER) in command(cluster, "transactions", "hanging", first.topic, "--older-than", "0").out
        abort = ("transactions", "abort", str(first), "--start-offset", "0")
        assert "nothing is changed yet" in command(cluster, *abort).err
        assert len(admin.find_hanging_transactions([first], older_than_ms=0)) == 1
        assert command(cluster, *abort, "--execute").code == 0
        assert admin.find_hanging_transactions([first], older_than_ms=0) == []
