"""Configs of topics: which values are Kafka's, and which of them change anything here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.errors import ConfigError, UnknownOptionError
from kohort.ids import TopicId
from kohort.storage.catalog import CatalogChange, CatalogFile
from kohort.storage.store import Store
from kohort.storage.topicconfig import TOPIC_OPTIONS, LogConfig
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.private import NO_EFFECT

#: Configs that are acted on, whatever their value.
ACTED_ON = {
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "index.interval.bytes",
    "kohort.read.members.only",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.jitter.ms",
    "segment.ms",
}


def test_log_config_follows_what_is_said_to_be_acted_on() -> None:
    """The table's word against the one class that reads it: a value other than the default changes the log's config."""
    others = {
        "compression.gzip.level": 7,
        "compression.lz4.level": 7,
        "compression.type": "zstd",
        "compression.zstd.level": 7,
        "message.timestamp.after.max.ms": 7,
        "message.timestamp.before.max.ms": 7,
        "file.delete.delay.ms": 7,
        "flush.messages": 7,
        "flush.ms": 7,
        "max.message.bytes": 7,
        "message.timestamp.type": "LogAppendTime",
        "segment.bytes": 99,
        "segment.jitter.ms": 7,
        "segment.ms": 7,
        "retention.bytes": 7,
        "retention.ms": 7,
        "index.interval.bytes": 7,
        "cleanup.policy": "compact",
        "delete.retention.ms": 7,
        "min.cleanable.dirty.ratio": 0.25,
        "min.compaction.lag.ms": 7,
        "max.compaction.lag.ms": 7,
        "kohort.read.members.only": True,
    }
    assert set(others) == ACTED_ON
    for name, value in others.items():
        beside = {"compression.type": name.split(".")[1]} if name.endswith(".level") else {}
        assert LogConfig.of({**beside, name: value}, {}) != LogConfig.of(beside, {}), name
        assert TOPIC_OPTIONS.option(name).idle_words(value) is None
    idle = {option.name for option in TOPIC_OPTIONS} - set(others)
    assert {name for name in idle if TOPIC_OPTIONS.option(name).idle is None} == set()


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("cleanup.policy", "delete", None),
        ("cleanup.policy", "compact,delete", None),
        ("compression.type", "gzip", None),
        ("min.insync.replicas", "2", NO_EFFECT),
        ("min.insync.replicas", "1", None),
        ("unclean.leader.election.enable", "false", None),
        ("unclean.leader.election.enable", "true", NO_EFFECT),
        ("leader.replication.throttled.replicas", "*", NO_EFFECT),
        ("min.insync.replicas", "many", NO_EFFECT),
    ],
)
def test_value_that_asks_for_what_happens_anyway_is_not_idle(name: str, value: object, words: str | None) -> None:
    assert TOPIC_OPTIONS.option(name).idle_words(value) == words


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("cleanup.policy", "compakt", "one of compact, delete is expected"),
        ("cleanup.policy", "delete,compakt", "cannot be 'compakt'"),
        ("compression.type", "lz5", "one of uncompressed, zstd, lz4, snappy, gzip, producer is expected"),
        ("compression.gzip.level", "0", "one of -1, 1, 2"),
        ("leader.replication.throttled.replicas", "all", "PARTITION:BROKER pairs"),
        ("preallocate", "yes", "true or false is expected"),
        ("retention.ms", "a week", "a whole number is expected"),
        ("retention.ms", "1_000", "a whole number is expected"),
        ("min.cleanable.dirty.ratio", "NaN", "a number is expected"),
        ("min.cleanable.dirty.ratio", "0_0.5", "a number is expected"),
    ],
)
def test_value_that_is_not_kafkas_is_refused(name: str, value: str, expected: str) -> None:
    with pytest.raises(ConfigError) as raised:
        LogConfig.of({name: value}, {})
    assert str(raised.value).startswith(f"{name} cannot be ") and expected in str(raised.value)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("log.retention.hours", "topic config log.retention.hours is called retention.ms here"),
        ("message.max.bytes", "topic config message.max.bytes is called max.message.bytes here"),
        ("message.format.version", "is not needed here: Kafka 4.0 has taken it out, too"),
        ("retension.ms", "unknown topic config retension.ms; did you mean retention.ms?"),
    ],
)
def test_name_of_elsewhere_is_answered_with_the_one_here(name: str, message: str) -> None:
    with pytest.raises(UnknownOptionError) as raised:
        TOPIC_OPTIONS.option(name)
    assert str(raised.value).endswith(message)


def test_what_another_version_stored_keeps_no_broker_from_starting() -> None:
    """Older versions took any text for cleanup.policy; newer ones may have names that this one has not."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    store.create_topic("orders", 1, topic_id=TopicId(b"1" * 16), configs={"flush.messages": "7"})
    store.close()
    file = CatalogFile(fs, "/data")
    entry = file.catalog.topics["orders"]
    other = {**entry.configs, "cleanup.policy": "compakt", "from.the.future": "1"}
    file.write(CatalogChange(topics=(replace(entry, configs=other),)))

    store = Store.open("/data", fs=fs)
    store.carry_out(store.changes.plan_partitions("orders", 2))
    topic = store.topics["orders"]

    assert [log.config.flush_messages for log in topic.partitions] == [7, 7]
    assert topic.configs == {"flush.messages": "7", "cleanup.policy": "compakt", "from.the.future": "1"}
