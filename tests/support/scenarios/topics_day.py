"""What an administrator does with topics in a day, at any cluster of three brokers."""

from __future__ import annotations

from typing import Any

import pytest

import kohort
from kohort import NewTopic, TopicPartition
from kohort.client.admin.results.configs import ConfigEntry
from kohort.errors import BrokerError, ErrorCode, KohortError, PartlyDoneError, UnknownTopicError

#: Milliseconds since 1970 of the records' times: the second one has the latest.
TIMES = (1_700_000_000_000, 1_700_000_009_000, 1_700_000_005_000)


def play_topics(servers: dict[str, Any], name: str, admin_of: Any = kohort.Admin) -> None:
    """Several topics made, checked only, grown and deleted; of what was refused each call says which and why."""
    plain, copied, placed, more = (f"{name}-{word}" for word in ("plain", "copied", "placed", "more"))
    with admin_of(**servers) as admin:
        wanted = [plain, NewTopic(copied, 2, 3), NewTopic(placed, assignments=[[2, 3, 1], [3, 1, 2]])]
        checked = admin.create_topics(wanted, validate_only=True)
        assert [(row.name, row.partition_count, row.topic_id) for row in checked] == [
            (plain, 1, None),
            (copied, 2, None),
            (placed, 2, None),
        ]
        assert not {row.name for row in admin.list_topics()} & {plain, copied, placed}
        made = admin.create_topics(wanted)
        shown = admin.describe_topics([copied, placed])
        assert [row.topic_id for row in made[1:]] == [row.topic_id for row in shown]
        assert [set(row.replicas) for topic in shown for row in topic.partitions] == [{1, 2, 3}] * 4
        assert [row.replication_factor for row in made[1:]] == [3, 3]
        refused = _refused(lambda: admin.create_topics([copied, NewTopic(more), NewTopic(f"{name}-9", 1, 9), "a/b"]))
        assert list(refused.done) == [more]
        assert refused.done[more].partition_count == 1
        assert {each: _code(why) for each, why in refused.failed.items()} == {
            copied: ErrorCode.TOPIC_ALREADY_EXISTS,
            f"{name}-9": ErrorCode.INVALID_REPLICATION_FACTOR,
            "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
        }
        _grow(admin, copied, placed, f"{name}-nowhere")
        refused = _refused(lambda: admin.delete_topics([plain, f"{name}-nowhere", copied, placed, more, plain]))
        assert list(refused.done) == [plain, copied, placed, more]
        assert isinstance(refused.failed[f"{name}-nowhere"], UnknownTopicError)


def _grow(admin: kohort.Admin, copied: str, placed: str, nowhere: str) -> None:
    admin.create_partitions(copied, 3, validate_only=True)
    assert len(admin.describe_topics([copied])[0].partitions) == 2
    admin.create_partitions({copied: 4, placed: 3}, assignments={placed: [[3, 2, 1]]})
    assert [len(topic.partitions) for topic in admin.describe_topics([copied, placed])] == [4, 3]
    refused = _refused(lambda: admin.create_partitions({copied: 5, placed: 2, nowhere: 2}))
    assert refused.done == {copied: 5}
    assert _code(refused.failed[placed]) is ErrorCode.INVALID_PARTITIONS
    assert isinstance(refused.failed[nowhere], UnknownTopicError)
    with pytest.raises(BrokerError) as why:
        admin.create_partitions(placed, 4, assignments=[[1, 2, 3], [2, 3, 1]])
    assert why.value.code is ErrorCode.INVALID_REPLICA_ASSIGNMENT


def play_configs(servers: dict[str, Any], name: str, admin_of: Any = kohort.Admin) -> None:
    """Configs of topics changed one by one, beside those of brokers and of a group."""
    other, nowhere = f"{name}-other", f"{name}-nowhere"
    with admin_of(**servers) as admin:
        admin.create_topics([NewTopic(name, configs={"retention.ms": 5, "flush.ms": 7}), other])

        def row(config: str) -> ConfigEntry:
            (found,) = admin.describe_configs(("topic", name), [config])["topic", name]
            return found

        assert (row("retention.ms").value, row("retention.ms").source) == ("5", "DYNAMIC_TOPIC_CONFIG")
        assert (row("segment.bytes").is_default, row("segment.bytes").default) == (True, str(1 << 30))
        admin.alter_configs(
            ("topic", name), {"max.message.bytes": 5000}, delete=["flush.ms"], append={"cleanup.policy": ["compact"]}
        )
        assert row("flush.ms").is_default
        assert [row(each).value for each in ("max.message.bytes", "cleanup.policy", "retention.ms")] == [
            "5000",
            "delete,compact",
            "5",
        ]
        admin.alter_configs(("topic", name), {"retention.ms": None}, subtract={"cleanup.policy": "delete"})
        assert (row("cleanup.policy").value, row("retention.ms").is_default) == ("compact", True)
        admin.alter_configs(("topic", name), {"retention.ms": 9}, validate_only=True)
        assert row("retention.ms").is_default
        with pytest.raises(BrokerError) as wrong:
            admin.alter_configs(("topic", name), {"retention.ms": 9, "segment.bytes": "x"})
        assert wrong.value.code is ErrorCode.INVALID_CONFIG
        assert row("retention.ms").is_default, "all or none"

        refused = _refused(lambda: admin.alter_configs([("topic", nowhere), ("topic", other)], {"flush.ms": 3}))
        assert [str(each) for each in refused.done] == [f"topic {other}"]
        refused = _refused(lambda: admin.describe_configs([("topic", other), ("broker", 99), ("topic", nowhere)]))
        assert {str(each) for each in refused.failed} == {"broker 99", f"topic {nowhere}"}
        assert "there is no broker 99; the cluster has 1, 2, 3" in str(refused)
        found = admin.describe_configs([("broker", 1), ("topic", name), ("broker", "3"), ("group", name)], ["node.id"])
        assert {str(each): [row.value for row in rows] for each, rows in found.items()} == {
            "broker 1": ["1"],
            f"topic {name}": [],
            "broker 3": ["3"],
            f"group {name}": [],
        }
        assert found["broker", "1"][0].is_read_only
        admin.delete_topics([name, other])


def play_offsets(servers: dict[str, Any], name: str, admin_of: Any = kohort.Admin) -> None:
    """Offsets at both ends and at times, of partitions that are led by three brokers."""
    with admin_of(**servers) as admin:
        admin.create_topic(name, 3)
        parts = [TopicPartition(name, number) for number in range(3)]
        with kohort.Producer(**servers) as producer:
            for each in TIMES:
                producer.send(name, b"x", partition=1, timestamp_ms=each)
        assert [row.offset for row in admin.list_offsets([name]).values()] == [0, 3, 0]
        assert [row.offset for row in admin.list_offsets(parts, "earliest").values()] == [0, 0, 0]
        one = parts[1]
        rows = {
            at: admin.list_offsets([one], at)[one] for at in (TIMES[0], TIMES[0] + 1, TIMES[1] + 1, "max-timestamp")
        }
        assert [(row.offset, row.timestamp) for row in rows.values()] == [
            (0, TIMES[0]),
            (1, TIMES[1]),
            (None, None),
            (1, TIMES[1]),
        ]
        own = admin.list_offsets({parts[2]: "earliest", one: "latest"}, isolation_level="read_committed")
        assert [(each.partition, row.offset) for each, row in own.items()] == [(1, 3), (2, 0)]
        refused = _refused(lambda: admin.list_offsets([*parts, (name, 7), (f"{name}-nowhere", 0)] * 1_000))
        assert list(refused.done) == parts
        assert sorted(map(str, refused.failed.values()))[0].startswith(f"{name} has no partition 7")
        assert all(isinstance(why, UnknownTopicError) for why in refused.failed.values())


def _refused(call: Any) -> PartlyDoneError:
    with pytest.raises(PartlyDoneError) as refused:
        call()
    return refused.value


def _code(why: KohortError) -> ErrorCode:
    assert isinstance(why, BrokerError)
    return why.code
