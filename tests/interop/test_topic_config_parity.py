"""Which configs a topic may have, and which record batches it takes: the same answers as Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import pytest

import kohort
from kohort.base.durability_window import DurabilityWindow
from kohort.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.registry import ApiKey
from support.builders.odd_batches import odd_batches, three
from support.dialogues.broker_wire import RawClient, make, produce_request
from support.peers.apache_broker import ApacheKafka
from support.peers.cli import run_kohort
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

VALUES = {
    "cleanup.policy": ["", "compact", "compact,delete", "compakt", "Compact", "none"],
    "compression.gzip.level": ["0", "-1", "1", "9", "10"],
    "compression.lz4.level": ["0", "17"],
    "compression.type": ["none", "uncompressed", "GZIP", "producer", "lz5"],
    "compression.zstd.level": ["23"],
    "delete.retention.ms": ["-1"],
    "file.delete.delay.ms": ["-1"],
    "flush.messages": ["0", "1"],
    "flush.ms": ["-1", "0"],
    "follower.replication.throttled.replicas": ["0:1,1:2"],
    "index.interval.bytes": ["-1", "0"],
    "leader.replication.throttled.replicas": ["", "*", "0:1", "abc", "none"],
    "local.retention.ms": ["-3", "-2", "-1", "99999999999"],
    "max.compaction.lag.ms": ["0", "1"],
    "max.message.bytes": ["-1", "0"],
    "message.format.version": ["3.0"],
    "message.timestamp.after.max.ms": ["-1"],
    "message.timestamp.type": ["createtime", "CreateTime"],
    "min.cleanable.dirty.ratio": ["1.5", "0", "x"],
    "min.compaction.lag.ms": ["-1"],
    "min.insync.replicas": ["0", "1", "2"],
    "preallocate": ["yes", "TRUE"],
    "remote.log.copy.disable": ["true"],
    "remote.storage.enable": ["true", "false"],
    "retention.bytes": ["-1", "0"],
    "retention.ms": ["-2", "-1", " 5 ", "1e3"],
    "segment.index.bytes": ["0", "4"],
    "segment.jitter.ms": ["-1"],
    "segment.ms": ["0", "1"],
    "unclean.leader.election.enable": ["true"],
}


#: What a coordinator says that has not come to be.
NOT_YET = {ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}

#: The same topics at both brokers, by what they ask of records.
TOPICS: dict[str, dict[str, str]] = {
    "plain": {},
    "dated": {"message_timestamp_type": "LogAppendTime"},
    "keyed": {"cleanup_policy": "compact"},
    "packed": {"compression_type": "zstd"},
    "young": {"message_timestamp_before_max_ms": "3600000"},
}
#: Where the answers differ: what ours is, and why. Apache Kafka stores what it answers with 0.
_UNREADABLE = "no reader of ours takes it, and few others do"
_NAMED = "Apache Kafka says UNKNOWN_SERVER_ERROR; a cause that has a name is named"
_OFFSETS = "Apache Kafka stores offsets that repeat, and says UNKNOWN_SERVER_ERROR of those it would have to change"
OURS: dict[str, tuple[ErrorCode, str]] = {
    "a batch and a half": (ErrorCode.INVALID_RECORD, "what is left over is not dropped without a word"),
    "half a batch": (ErrorCode.CORRUPT_MESSAGE, "a length that leads out of the request is damage, and is sent again"),
    "half a header": (ErrorCode.CORRUPT_MESSAGE, "the same"),
    "a codec that is none": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, _NAMED),
    "a codec that is none, 7": (ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, _NAMED),
    "a producer without an epoch": (ErrorCode.INVALID_RECORD, "nobody could be told from its predecessor"),
    "garbage": (ErrorCode.INVALID_RECORD, _NAMED),
    "noise": (ErrorCode.INVALID_RECORD, _NAMED),
    "empty": (ErrorCode.INVALID_RECORD, _NAMED),
    "cut": (ErrorCode.INVALID_RECORD, _NAMED),
    "bytes behind it": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "twice": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "offsets that repeat": (ErrorCode.INVALID_RECORD, _OFFSETS),
    "offsets beyond the last": (ErrorCode.INVALID_RECORD, _OFFSETS),
    "offsets that descend": (ErrorCode.INVALID_RECORD, _OFFSETS),
    "offset below zero": (ErrorCode.INVALID_RECORD, _OFFSETS),
    "header value shorter than null": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "key shorter than null": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "value shorter than null": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "length of a record below zero": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "length of a record beyond the batch": (ErrorCode.INVALID_RECORD, _UNREADABLE),
    "length of a record without an end": (ErrorCode.INVALID_RECORD, _NAMED),
    "a time beyond all numbers": (ErrorCode.INVALID_RECORD, _UNREADABLE),
}


def taken(port: int, batches: Mapping[str, bytes]) -> dict[str, tuple[int, list[int]]]:
    """(topic, batch) -> code and bad records of the answer."""
    answers = {}
    with RawClient(port) as client:
        for topic, configs in TOPICS.items():
            client.create_topic(f"of-{topic}", **configs)
            until(partial(is_written, client, f"of-{topic}"), what="the topic has a leader")
            for name, batch in batches.items():
                if topic == "plain" or name.startswith(("none", "zstd")):
                    answers[f"{topic}, {name}"] = produced(client, f"of-{topic}", batch)
        answers["zstd by a client that is too old"] = produced(client, "of-plain", three("zstd"), version=6)
    return answers


def is_written(client: RawClient, topic: str) -> bool:
    return produced(client, topic, three())[0] == 0


def produced(client: RawClient, topic: str, batch: bytes, *, version: int = 9) -> tuple[int, list[int]]:
    answer = client.ask(ApiKey.PRODUCE, version, produce_request(topic, batch))
    row = answer.responses[0].partition_responses[0]
    return row.error_code, [error.batch_index for error in row.record_errors]


def codes(port: int) -> dict[tuple[str, str], int]:
    """(config, value) -> the answer to a topic that has it; nothing is created."""
    answers = {}
    with RawClient(port) as client:
        for name, value in ((name, value) for name, values in VALUES.items() for value in values):
            config = CreatableTopicConfig(name=name, value=value)
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
            request = CreateTopicsRequest(topics=[topic], validate_only=True, timeout_ms=30_000)
            answers[name, value] = client.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code
    return answers


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    with ApacheKafka() as broker:
        yield broker


def test_values_are_taken_and_refused_as_by_apache_kafka(apache: ApacheKafka) -> None:
    with kohort.Broker() as ours:
        assert codes(ours.port) == codes(apache.port)


def test_batches_are_taken_and_refused_as_by_apache_kafka(apache: ApacheKafka) -> None:
    """KIP-467: and the same records are named; every difference is one of `OURS`, which are all needed."""
    batches = odd_batches()
    with kohort.Broker() as broker:
        ours, theirs = taken(broker.port, batches), taken(apache.port, batches)
    unlike = {name for name in theirs if ours[name] != theirs[name]}
    cases = {name: name.partition(", ")[2].rpartition(": ")[2] for name in theirs}
    assert {cases[name] for name in unlike} == set(OURS)
    assert {name: ours[name] for name in unlike} == {name: (OURS[cases[name]][0], []) for name in unlike}


def test_configs_that_are_set_to_nothing_are_refused_as_by_apache_kafka(apache: ApacheKafka) -> None:
    """CreateTopics by INVALID_CONFIG, what changes configs by INVALID_REQUEST; DELETE needs no value."""
    with kohort.Broker() as ours:
        found = nulls(ours.port)
        assert found == nulls(apache.port)
    assert set(found.values()) == {0, ErrorCode.INVALID_CONFIG, ErrorCode.INVALID_REQUEST}


def nulls(port: int) -> dict[str, int]:
    """What was asked -> the code of the answer; of topics, the broker and a group."""
    answers: dict[str, int] = {}
    with RawClient(port) as client:
        client.create_topic("bare")
        for name in ("retention.ms", "nonsense"):
            topic = CreatableTopic(
                name="n", num_partitions=1, replication_factor=1, configs=[CreatableTopicConfig(name=name, value=None)]
            )
            for only in (True, False):
                request = CreateTopicsRequest(topics=[topic], validate_only=only, timeout_ms=30_000)
                answers[f"create {name} {only}"] = client.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code
        for kind, of, name in [(2, "bare", "retention.ms"), (2, "bare", "nonsense"), (4, "", "log.retention.ms"),
                               (4, "", "nonsense"), (32, "g", "consumer.session.timeout.ms")]:  # fmt: skip
            resource = make(ApiKey.ALTER_CONFIGS, resources=[resource_of(kind, of, name=name)])
            answers[f"{kind} {name}"] = client.ask(ApiKey.ALTER_CONFIGS, 2, resource).responses[0].error_code
            operations = (0, 2, 3) if name == "nonsense" else (0, 1, 2, 3)
            for operation in operations:
                row = resource_of(kind, of, name=name, config_operation=operation)
                request = make(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=[row], validate_only=True)
                answer = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request)
                answers[f"{kind} {name} {operation}"] = answer.responses[0].error_code
    return answers


def resource_of(kind: int, of: str, **config: object) -> dict[str, object]:
    return {"resource_type": kind, "resource_name": of, "configs": [{**config, "value": None}]}


#: Configs of a topic whose origin is told otherwise: Apache Kafka has no default of them that it names, or another one.
ORIGINS_UNLIKE = {
    "flush.messages": "1 is the default here: what is acknowledged is on the disk",
    "flush.ms": "unset there",
    "retention.ms": "there its default is one of hours, which is not told",
    "segment.jitter.ms": "the same",
    "segment.ms": "the same",
    **dict.fromkeys(
        ["index.interval.bytes", "local.retention.bytes", "local.retention.ms", "preallocate", "segment.index.bytes"],
        "no option of this broker stands behind it",
    ),
    **dict.fromkeys(
        ["follower.replication.throttled.replicas", "leader.replication.throttled.replicas"], "a default is told here"
    ),
    **dict.fromkeys(
        ["remote.log.copy.disable", "remote.log.delete.on.disable", "remote.storage.enable"], "a default is told here"
    ),
}


def test_origin_of_a_topics_config_is_that_of_apache_kafka(apache: ApacheKafka) -> None:
    """The topic itself, the broker's start, or its default; by the names that these have there."""
    with kohort.Broker(config={"log.retention.bytes": 5_000_000}) as broker:
        ours = origins(broker.port)
    theirs = origins(apache.port)
    assert ours.pop("retention.bytes") == (4, [("log.retention.bytes", "5000000", 4), ("log.retention.bytes", "-1", 5)])
    del theirs["retention.bytes"]
    assert {name for name in ours.keys() & theirs.keys() if ours[name] != theirs[name]} == set(ORIGINS_UNLIKE)
    assert ours["min.insync.replicas"][0] == 3 and ours["max.message.bytes"][0] == 1


def origins(port: int) -> dict[str, tuple[int, list[tuple[str, str, int]]]]:
    """Config -> its source, and (name, value, source) of all that it could have come from."""
    with RawClient(port) as client:
        client.create_topic("told", max_message_bytes="2000")
        rows = described(client, 2, "told", None)
    return {row.name: (row.config_source, [(each.name, each.value, each.source) for each in row.synonyms])
            for row in rows}  # fmt: skip


def described(client: RawClient, kind: int, of: str, keys: list[str] | None) -> list[Any]:
    row = {"resource_type": kind, "resource_name": of, "configuration_keys": keys}
    request = make(ApiKey.DESCRIBE_CONFIGS, resources=[row], include_synonyms=True)
    answer = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, request)
    assert answer.results[0].error_code == 0
    return list(answer.results[0].configs)


def test_asking_for_no_config_is_asking_for_all(apache: ApacheKafka) -> None:
    with kohort.Broker() as ours:
        for port in (ours.port, apache.port):
            with RawClient(port) as client:
                client.create_topic("whole")
                node = str(client.ask(ApiKey.METADATA, 9, make(ApiKey.METADATA, topics=[])).brokers[0].node_id)
                for kind, of in ((2, "whole"), (4, node), (32, "g")):
                    every = [row.name for row in described(client, kind, of, None)]
                    assert every and [row.name for row in described(client, kind, of, [])] == every
                    assert described(client, kind, of, ["nonsense"]) == []


def test_topic_without_an_id_holds_up_no_other(apache: ApacheKafka) -> None:
    """Fetch 13: answered for itself, within a session or without, as one whose id is unknown."""
    with kohort.Broker() as ours:
        found = fetched_beside_nothing(ours.port)
        assert found == fetched_beside_nothing(apache.port)
    assert {code for code, *_ in found} == {0}


def test_offset_of_a_transaction_that_nothing_has_begun_is_taken_by_neither(apache: ApacheKafka) -> None:
    """No coordinator knows such a producer."""
    partitions = [{"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}]
    topics = [{"name": "begun", "partitions": partitions}]
    request = make(
        ApiKey.TXN_OFFSET_COMMIT, transactional_id="x", group_id="g", producer_id=7, producer_epoch=0, topics=topics
    )

    def check(port: int) -> None:
        with RawClient(port) as client:
            client.create_topic("begun")

            def code() -> int:
                # Asked for, both coordinators come to be.
                client.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="g", key_type=0))
                client.ask(ApiKey.FIND_COORDINATOR, 3, FindCoordinatorRequest(key="x", key_type=1))
                answer = client.ask(ApiKey.TXN_OFFSET_COMMIT, 3, request)
                found: int = answer.topics[0].partitions[0].error_code
                return found

            until(lambda: code() not in NOT_YET, what="the coordinators are there")
            assert code() == ErrorCode.INVALID_PRODUCER_ID_MAPPING

    with kohort.Broker() as ours:
        for port in (apache.port, ours.port):
            check(port)


def fetched_beside_nothing(port: int) -> list[tuple[int, list[tuple[bool, int]]]]:
    """Of each fetch its code, and (is the topic that there is, code) of its partitions."""
    with RawClient(port) as client:
        known = client.create_topic("beside")
        until(partial(is_written, client, "beside"), what="the topic has a leader")
        answers = []
        for version, epoch, ids in [(13, -1, [bytes(16), known]), (13, 0, [bytes(16), known]), (17, -1, [bytes(16)])]:
            partitions = [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}]
            topics = [{"topic_id": each, "partitions": partitions} for each in ids]
            request = make(ApiKey.FETCH, max_bytes=1_000_000, min_bytes=0, session_epoch=epoch, topics=topics)
            answer = client.ask(ApiKey.FETCH, version, request)
            rows = [(row.topic_id == known, part.error_code) for row in answer.responses for part in row.partitions]
            answers.append((answer.error_code, sorted(rows)))
    return answers


@pytest.mark.parametrize("name", ["g" * 5_000, "a\0b"], ids=["long", "with NUL"])
def test_group_ids_are_taken_as_by_apache_kafka(apache: ApacheKafka, name: str) -> None:
    """They are text of at most 32,767 bytes."""
    with kohort.Broker() as ours:
        for port in (ours.port, apache.port):
            with RawClient(port) as client:
                topic = f"read-by-{len(name)}"
                client.create_topic(topic)
                until(partial(is_committed, client, name, topic), what="the group has a coordinator")


def is_committed(client: RawClient, group: str, topic: str) -> bool:
    client.ask(ApiKey.FIND_COORDINATOR, 4, make(ApiKey.FIND_COORDINATOR, key_type=0, coordinator_keys=[group]))
    topics = [{"name": topic, "partitions": [{"partition_index": 0, "committed_offset": 1}]}]
    answer = client.ask(ApiKey.OFFSET_COMMIT, 8, make(ApiKey.OFFSET_COMMIT, group_id=group, topics=topics))
    return bool(answer.topics[0].partitions[0].error_code == 0)


def test_what_a_power_cut_may_take_is_told_of_topics_of_apache_kafka(apache: ApacheKafka) -> None:
    limits = {"flush.messages": 500, "flush.ms": 1_500}
    with kohort.Admin(bootstrap_servers=apache.bootstrap_servers) as admin:
        admin.create_topics(["plain", kohort.NewTopic("synced", configs={"flush.messages": 1})])
        admin.create_topic("some", configs=limits)
        windows = [topic.loss_window for topic in admin.describe_topics(["plain", "synced", "some"])]
    assert windows == [DurabilityWindow(None, None), None, DurabilityWindow(500, 1_500)]
    told = run_kohort("topic", "describe", "plain", "--bootstrap", apache.bootstrap_servers).out.splitlines()
    assert told[1].endswith("a power cut may take all that the system has not written yet")
