"""What is named twice in one request counts once, and is answered as Apache Kafka 4.3 answers it."""

from __future__ import annotations

from typing import Any

import pytest

import kohort
from kohort.errors import ErrorCode
from kohort.wire.registry import ApiKey
from kohort.wire.schema import Message, fields_of
from support.dialogues.broker_wire import RawClient, batch_of, make
from support.peers.apache_broker import ApacheKafka
from support.waiting import PATIENCE_SECONDS, until

pytestmark = [pytest.mark.interop, pytest.mark.apache]
PARTITIONS = 3
_TOPIC = 2
#: What Apache Kafka never answers.
UNANSWERED = "configs to set"
#: Who has said nothing by then never does.
SILENCE_SECONDS = 5.0


def told(message: Any) -> Any:
    """Names, numbers and codes of an answer, without what differs between any two brokers."""
    if isinstance(message, Message):
        return {
            field.name: told(getattr(message, field.name))
            for field in fields_of(type(message))
            if field.name not in UNLIKE
        }
    if isinstance(message, list):
        return sorted((told(each) for each in message), key=repr)
    return bool(message) if isinstance(message, bytes | bytearray | memoryview) else message


#: Times, ids, sizes, addresses, and words that explain a code.
UNLIKE = frozenset(
    [
        "throttle_time_ms",
        "topic_id",
        "error_message",
        "message",
        "brokers",
        "cluster_id",
        "log_dir",
        "total_bytes",
        "usable_bytes",
        "partition_size",
        "session_id",
        "log_append_time_ms",
        "leader_epoch",
        "host",
        "port",
        "configs",
        "timestamp",
        "replica_nodes",
        "isr_nodes",
        "is_cordoned",
        "group_state",
    ]
)
_ONE = {"partition_index": 0, "committed_offset": 5, "committed_metadata": "m"}
_OTHER = {"partition_index": 0, "committed_offset": 7, "committed_metadata": "m"}


def commit(version: int, *, in_rows: bool, key: ApiKey = ApiKey.OFFSET_COMMIT) -> tuple[ApiKey, int, Any]:
    if in_rows:
        topics = [{"name": "t", "partitions": [_ONE]}, {"name": "t", "partitions": [_OTHER]}]
    else:
        topics = [{"name": "t", "partitions": [_ONE, _OTHER]}]
    return key, version, make(key, group_id="g", topics=topics)


def asked(key: ApiKey, version: int, **values: Any) -> tuple[ApiKey, int, Any]:
    return key, version, make(key, **values)


def _twice(**row: Any) -> list[dict[str, Any]]:
    return [row, row]


#: What is asked, one after the other, of a broker with the topic `t`.
TWICE: dict[str, tuple[ApiKey, int, Any]] = {
    "batches": asked(
        ApiKey.PRODUCE, 9, acks=-1, timeout_ms=5_000,
        topic_data=[{"name": "t", "partition_data": _twice(index=0, records=batch_of(b"x"))}],
    ),
    "batches of a topic in two rows": asked(
        ApiKey.PRODUCE, 9, acks=-1, timeout_ms=5_000,
        topic_data=_twice(name="t", partition_data=[{"index": 1, "records": batch_of(b"x")}]),
    ),
    "partitions to read": asked(
        ApiKey.FETCH, 11, max_bytes=1_000_000, session_id=0, session_epoch=-1,
        topics=[{"topic": "t", "partitions": _twice(partition=0, fetch_offset=0, partition_max_bytes=1_000)}],
    ),
    "ends": asked(
        ApiKey.LIST_OFFSETS, 7, topics=[{"name": "t", "partitions": _twice(partition_index=0, timestamp=-1)}]
    ),
    "ends of two rows": asked(
        ApiKey.LIST_OFFSETS, 7, topics=_twice(name="t", partitions=[{"partition_index": 0, "timestamp": -1}])
    ),
    "topics": asked(ApiKey.METADATA, 9, topics=_twice(name="t")),
    "commits": commit(8, in_rows=False),
    "offsets after them": asked(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None),
    "commits in two rows": commit(8, in_rows=True),
    "offsets after those": asked(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=None),
    "offsets": asked(ApiKey.OFFSET_FETCH, 7, group_id="g", topics=[{"name": "t", "partition_indexes": [0, 0]}]),
    "offsets of two rows": asked(
        ApiKey.OFFSET_FETCH, 7, group_id="g", topics=_twice(name="t", partition_indexes=[0])
    ),
    "offsets of groups": asked(
        ApiKey.OFFSET_FETCH, 9, groups=_twice(group_id="g", topics=[{"name": "t", "partition_indexes": [0]}])
    ),
    "coordinators": asked(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g", "g"]),
    "groups": asked(ApiKey.DESCRIBE_GROUPS, 5, groups=["g", "g"]),
    "consumer groups": asked(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, group_ids=["g", "g"]),
    "members that leave": asked(ApiKey.LEAVE_GROUP, 4, group_id="g", members=_twice(member_id="m")),
    "offsets to delete": asked(
        ApiKey.OFFSET_DELETE, 0, group_id="g", topics=[{"name": "t", "partitions": _twice(partition_index=0)}]
    ),
    "commits of old": commit(2, in_rows=False),
    "offsets to delete of two rows": asked(
        ApiKey.OFFSET_DELETE, 0, group_id="g", topics=_twice(name="t", partitions=[{"partition_index": 0}])
    ),
    "commits for the end": commit(9, in_rows=False),
    "groups to delete": asked(ApiKey.DELETE_GROUPS, 2, groups_names=["g", "g"]),
    "new topics": asked(
        ApiKey.CREATE_TOPICS, 6, timeout_ms=5_000, topics=_twice(name="n", num_partitions=1, replication_factor=1)
    ),
    "topics to grow": asked(
        ApiKey.CREATE_PARTITIONS, 2, timeout_ms=5_000, topics=_twice(name="t", count=5, assignments=None)
    ),
    "topics to delete": asked(ApiKey.DELETE_TOPICS, 5, timeout_ms=5_000, topic_names=["t", "t"]),
    "configs": asked(
        ApiKey.DESCRIBE_CONFIGS, 4,
        resources=_twice(resource_type=_TOPIC, resource_name="t", configuration_keys=["retention.ms"]),
    ),
    "configs to change": asked(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
        resources=_twice(
            resource_type=_TOPIC, resource_name="t",
            configs=[{"name": "retention.ms", "config_operation": 0, "value": "5000"}],
        ),
    ),
    "one config to change": asked(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, 1,
        resources=[
            {
                "resource_type": _TOPIC, "resource_name": "t",
                "configs": _twice(name="retention.ms", config_operation=0, value="5000"),
            }
        ],
    ),
    UNANSWERED: asked(
        ApiKey.ALTER_CONFIGS, 2,
        resources=_twice(resource_type=_TOPIC, resource_name="t", configs=[{"name": "retention.ms", "value": "5000"}]),
    ),
    "records to delete": asked(
        ApiKey.DELETE_RECORDS, 2, timeout_ms=5_000,
        topics=[{"name": "t", "partitions": _twice(partition_index=0, offset=0)}],
    ),
    "ends of epochs": asked(
        ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1,
        topics=[{"topic": "t", "partitions": _twice(partition=0, current_leader_epoch=-1, leader_epoch=0)}],
    ),
    "partitions on the disk": asked(ApiKey.DESCRIBE_LOG_DIRS, 4, topics=[{"topic": "t", "partitions": [0, 0]}]),
    "leaders": asked(
        ApiKey.ELECT_LEADERS, 2, timeout_ms=5_000, topic_partitions=[{"topic": "t", "partitions": [0, 0]}]
    ),
    "topics to describe": asked(
        ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, topics=_twice(name="t"), response_partition_limit=100
    ),
    "partitions to move": asked(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=5_000,
        topics=[{"name": "t", "partitions": _twice(partition_index=0, replicas=None)}],
    ),
    "partitions that move": asked(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=5_000, topics=[{"name": "t", "partition_indexes": [0, 0]}]
    ),
}  # fmt: skip


#: What is answered otherwise here, and why.
_ONCE = "Apache Kafka looks each up as often as it is named: the cost of an answer is bounded here"
_STORED = "Apache Kafka drops the first batch and says nothing of it: what is acknowledged is stored"
DIFFERENCES: dict[str, str] = {
    "batches": _STORED,
    "batches of a topic in two rows": _STORED,
    "partitions to read": "there is the batch more that is stored",
    "offsets": _ONCE,
    "offsets of two rows": _ONCE,
    "coordinators": _ONCE,
    "groups": _ONCE,
    "consumer groups": _ONCE,
    "configs": _ONCE,
    "ends of epochs": _ONCE,
    "leaders": _ONCE,
    UNANSWERED: "Apache Kafka never answers",
}


def answers(port: int, silence_seconds: float = PATIENCE_SECONDS) -> dict[str, Any]:
    """What a broker says to each, the error's name where it says nothing."""
    found = {}
    with RawClient(port) as client:
        client.create_topic("t", partitions=PARTITIONS)
        client.produce("t", b"first", partition=2)
    for name, (key, version, message) in TWICE.items():
        with RawClient(port) as client:
            client.socket.settimeout(silence_seconds if name == UNANSWERED else PATIENCE_SECONDS)
            try:
                found[name] = told(client.ask(key, version, message))
            except OSError as why:
                found[name] = type(why).__name__
    return found


def await_coordinator(port: int) -> None:
    """Until a broker that has just begun coordinates groups."""
    with RawClient(port) as client:
        _, version, message = asked(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=["g"])
        _, of_fetch, fetch = TWICE["offsets"]
        until(
            lambda: (
                not client.ask(ApiKey.FIND_COORDINATOR, version, message).coordinators[0].error_code
                and not client.ask(ApiKey.OFFSET_FETCH, of_fetch, fetch).error_code
            ),
            what="a coordinator",
        )


def test_what_is_named_twice_counts_once() -> None:
    properties = {"offsets.topic.num.partitions": 1, "offsets.topic.replication.factor": 1}
    with ApacheKafka(properties) as kafka, kohort.Broker() as broker:
        await_coordinator(kafka.port)
        theirs, ours = answers(kafka.port, SILENCE_SECONDS), answers(broker.port)
    assert {name for name in TWICE if ours[name] != theirs[name]} == set(DIFFERENCES)
    assert ours[UNANSWERED]["responses"][0]["error_code"] == ErrorCode.INVALID_REQUEST
