"""The configs that a topic can have: Kafka's names, and those of them that this broker acts on.

Laws: every name of Apache Kafka is known, stored and shown; `LogConfig` holds what changes behaviour here.
One default differs: `flush.messages` is 1, so that an acks=all answer means that the records are on the disk; Kafka
leaves that to the operating system, which is had by setting 9223372036854775807.
Source: Apache Kafka 4.3, topic configs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kohort.config import Option, OptionSet, parse_bool, parse_float, parse_int, parse_list, parse_str

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1


def _number(name: str, default: int, doc: str, *, minimum: int = 0, maximum: int = LONG_MAX) -> Option:
    return Option(name=name, parse=parse_int, default=default, doc=doc, minimum=minimum, maximum=maximum)


def _choice(name: str, default: str, doc: str, *choices: str) -> Option:
    return Option(name=name, parse=parse_str, default=default, doc=doc, choices=choices)


#: Configs that a topic may carry.
TOPIC_OPTIONS: Final = OptionSet(
    "topic config",
    [
        _number(
            "flush.messages", 1, "Records after which the log is synced; 1: before each acks=all answer.", minimum=1
        ),
        _number("max.message.bytes", 1_048_588, "Largest record batch, in bytes.", maximum=INT_MAX),
        _choice("message.timestamp.type", "CreateTime", "Whose clock dates records.", "CreateTime", "LogAppendTime"),
        _number("segment.bytes", 1 << 30, "Size at which a new segment file begins.", minimum=14, maximum=INT_MAX),
        Option(
            name="cleanup.policy",
            parse=parse_list,
            default=["delete"],
            doc="delete, compact or both; acted on for __consumer_offsets only, kept for other topics.",
        ),
        _choice(
            "compression.type",
            "producer",
            "Codec of stored batches.",
            "uncompressed",
            "zstd",
            "lz4",
            "snappy",
            "gzip",
            "producer",
        ),
        _number("compression.gzip.level", -1, "Level of gzip.", minimum=-1, maximum=9),
        _number("compression.lz4.level", 9, "Level of lz4.", minimum=1, maximum=17),
        _number("compression.zstd.level", 3, "Level of zstd.", minimum=-131072, maximum=22),
        _number("delete.retention.ms", 86_400_000, "How long compaction keeps tombstones."),
        _number("file.delete.delay.ms", 60_000, "Wait before a file is removed."),
        _number("flush.ms", LONG_MAX, "Time after which the log is synced."),
        _number("index.interval.bytes", 4096, "Bytes between two index entries.", maximum=INT_MAX),
        _number("max.compaction.lag.ms", LONG_MAX, "Latest time at which a record is compacted.", minimum=1),
        _number("min.compaction.lag.ms", 0, "Earliest time at which a record is compacted."),
        Option(
            name="min.cleanable.dirty.ratio",
            parse=parse_float,
            default=0.5,
            minimum=0,
            maximum=1,
            doc="Share of uncompacted bytes at which compaction begins.",
        ),
        _number("min.insync.replicas", 1, "Replicas that acks=all waits for.", minimum=1, maximum=INT_MAX),
        _number("message.timestamp.before.max.ms", LONG_MAX, "How old a record's timestamp may be."),
        _number("message.timestamp.after.max.ms", 3_600_000, "How far in the future a record's timestamp may be."),
        Option(name="preallocate", parse=parse_bool, default=False, doc="Reserve a segment's space at once."),
        _number("retention.bytes", -1, "Size of a partition above which old segments go; -1: no limit.", minimum=-1),
        _number("retention.ms", 604_800_000, "Age at which segments go; -1: never.", minimum=-1),
        _number("segment.index.bytes", 10_485_760, "Size of an index file.", minimum=4, maximum=INT_MAX),
        _number("segment.jitter.ms", 0, "Random delay of time-based segments."),
        _number("segment.ms", 604_800_000, "Age at which a new segment file begins.", minimum=1),
        Option(
            name="unclean.leader.election.enable", parse=parse_bool, default=False, doc="One replica: without effect."
        ),
        Option(name="remote.storage.enable", parse=parse_bool, default=False, doc="Tiered storage: without effect."),
        _number("local.retention.bytes", -2, "Tiered storage: without effect.", minimum=-2),
        _number("local.retention.ms", -2, "Tiered storage: without effect.", minimum=-2),
        Option(
            name="leader.replication.throttled.replicas",
            parse=parse_list,
            default=[],
            doc="One replica: without effect.",
        ),
        Option(
            name="follower.replication.throttled.replicas",
            parse=parse_list,
            default=[],
            doc="One replica: without effect.",
        ),
    ],
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LogConfig:
    """What a partition's log is told by its topic."""

    #: Records after which a sync is wanted; 1: readers see only what is synced.
    flush_messages: int = 1
    max_message_bytes: int = 1_048_588
    #: The broker's clock dates records, instead of the producer's.
    is_log_append_time: bool = False
    segment_bytes: int = 1 << 30
    #: Of each key only the newest record is to be kept.
    is_compacted: bool = False
    #: Share of the closed segments' bytes that must be uncompacted before they are rewritten.
    min_cleanable_dirty_ratio: float = 0.5
    #: How long a tombstone stays once it was compacted.
    delete_retention_ms: int = 86_400_000

    @classmethod
    def of(cls, configs: Mapping[str, object], defaults: Mapping[str, object]) -> LogConfig:
        """From a topic's own configs over the broker's defaults; `ConfigError` for a bad name or value."""
        values = TOPIC_OPTIONS.parse({**defaults, **configs})
        return cls(
            flush_messages=values["flush.messages"],
            max_message_bytes=values["max.message.bytes"],
            is_log_append_time=values["message.timestamp.type"] == "LogAppendTime",
            segment_bytes=values["segment.bytes"],
            is_compacted="compact" in values["cleanup.policy"],
            min_cleanable_dirty_ratio=values["min.cleanable.dirty.ratio"],
            delete_retention_ms=values["delete.retention.ms"],
        )
