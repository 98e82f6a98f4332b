"""The configs of topics: Kafka's names, and those among them on which this broker acts.

Laws: every name of Apache Kafka is known, stored and shown, and a value that Kafka would refuse is refused; one that
changes nothing says so (`idle`). `LogConfig` holds what changes behaviour here. What was stored by another version is
kept and never keeps a broker from starting.
One default differs: `flush.messages` is 1, so that an acks=all answer means that the records are on the disk; Kafka
leaves that to the operating system, which is had by setting 9223372036854775807.
Source: Apache Kafka 4.3, topic configs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from kohort.base import options
from kohort.base.values import value
from kohort.errors import ConfigError
from kohort.wire.private import NO_EFFECT

LONG_MAX: Final = (1 << 63) - 1
INT_MAX: Final = (1 << 31) - 1
_REPLICA: Final = re.compile(r"[0-9]+:[0-9]+")


def parse_replicas(text: object) -> list[str]:
    """Parse PARTITION:BROKER pairs, or * for all."""
    replicas = options.parse_list(text)
    if replicas != ["*"] and not all(map(_REPLICA.fullmatch, replicas)):
        raise ValueError("PARTITION:BROKER pairs with commas are expected, or *")
    return replicas


def _no_effect(*unless: object) -> options.Idle:
    """Return the note for a config that never has an effect."""
    return options.Idle(words=NO_EFFECT, unless=unless)


def _number(
    name: str, default: int, doc: str, *, low: int = 0, high: int = LONG_MAX, idle: options.Idle | None = None
) -> options.Option:
    return options.Option(
        name=name, parse=options.parse_int, default=default, doc=doc, minimum=low, maximum=high, idle=idle
    )


def _choice(name: str, default: str, doc: str, *choices: str, idle: options.Idle | None = None) -> options.Option:
    return options.Option(name=name, parse=options.parse_str, default=default, doc=doc, choices=choices, idle=idle)


def _switch(name: str, doc: str) -> options.Option:
    """Build a switch that is off by default, and has no effect if it is on."""
    return options.Option(name=name, parse=options.parse_bool, default=False, doc=doc, idle=_no_effect(False))


def _replicas(name: str, doc: str) -> options.Option:
    return options.Option(name=name, parse=parse_replicas, default=[], doc=doc, idle=_no_effect([]))


#: Configs that a topic may carry.
_CONFIGS: Final = [
    # Of appends and segments.
    _number("index.interval.bytes", 4096, "Bytes of batches between two entries of an index.", high=INT_MAX),
    _number("flush.messages", 1, "Records after which the log is synced; 1: before each acks=all answer.", low=1),
    _number("flush.ms", LONG_MAX, "Time after which records are synced that flush.messages lets wait."),
    _number("max.message.bytes", 1_048_588, "Largest record batch, in bytes.", high=INT_MAX),
    _choice("message.timestamp.type", "CreateTime", "The clock that dates records.", "CreateTime", "LogAppendTime"),
    _number(
        "segment.bytes",
        1 << 30,
        "Size at which a new segment file begins; in memory at most 16777216 (Kafka: at least 1048576).",
        low=14,
        high=INT_MAX,
    ),
    # Of compaction.
    options.Option(
        name="cleanup.policy",
        parse=options.parse_list,
        default=["delete"],
        doc="How old records go: delete, compact or both.",
        choices=("compact", "delete"),
    ),
    _number("delete.retention.ms", 86_400_000, "How long compaction keeps tombstones."),
    options.Option(
        name="min.cleanable.dirty.ratio",
        parse=options.parse_float,
        default=0.5,
        minimum=0,
        maximum=1,
        doc="Share of uncompacted bytes at which compaction begins.",
    ),
    _number("max.compaction.lag.ms", LONG_MAX, "Age at which a record is compacted at the latest.", low=1),
    _number("min.compaction.lag.ms", 0, "Age before which no record is compacted."),
    # Of retention and rolling.
    _number("retention.bytes", -1, "Size of a partition above which old segments go; -1: no limit.", low=-1),
    _number("retention.ms", 604_800_000, "Age at which segments go, by their records' times; -1: never.", low=-1),
    _number("segment.ms", 604_800_000, "Age at which a new segment file begins.", low=1),
    _number("segment.jitter.ms", 0, "By so much a segment may begin earlier, so that not all begin at once."),
    _number("file.delete.delay.ms", 60_000, "Wait before the file of a segment that went is removed."),
    # Of the checks of timestamps.
    _number("message.timestamp.before.max.ms", LONG_MAX, "How old a record's timestamp may be."),
    _number("message.timestamp.after.max.ms", 3_600_000, "How far in the future a record's timestamp may be."),
    # Of the stored codec.
    _choice(
        "compression.type",
        "producer",
        "Codec of stored batches; producer: as they come.",
        "uncompressed",
        "zstd",
        "lz4",
        "snappy",
        "gzip",
        "producer",
    ),
    options.Option(
        name="compression.gzip.level",
        parse=options.parse_int,
        default=-1,
        doc="Level of gzip.",
        choices=(-1, *range(1, 10)),
    ),
    _number("compression.lz4.level", 9, "Level of lz4.", low=1, high=17),
    _number("compression.zstd.level", 3, "Level of zstd.", low=-131072, high=22),
    # Of kohort alone.
    options.Option(
        name="kohort.read.members.only",
        parse=options.parse_bool,
        default=False,
        doc="Whether fetches that do not say which group member's they are get TOPIC_AUTHORIZATION_FAILED (not in "
        "Kafka).",
    ),
    # Without effect on this broker.
    _number(
        "min.insync.replicas",
        1,
        "Replicas that acks=all waits for; this cluster is one broker, and there is one.",
        low=1,
        high=INT_MAX,
        idle=_no_effect(1),
    ),
    _number(
        "segment.index.bytes",
        10_485_760,
        "Size of an index file; here it grows with its segment.",
        low=4,
        high=INT_MAX,
        idle=_no_effect(),
    ),
    _switch("preallocate", "Reserve a segment's space at once; here a file grows."),
    _switch("unclean.leader.election.enable", "Whether records may be lost for a leader; here is one replica."),
    _replicas("leader.replication.throttled.replicas", "Replicas that copy slowly; here is nothing to copy."),
    _replicas("follower.replication.throttled.replicas", "Replicas that are copied slowly; here is nothing to copy."),
    _switch("remote.storage.enable", "Tiered storage, which is not offered: true is refused."),
    _switch("remote.log.copy.disable", "Tiered storage, which is not offered."),
    _switch("remote.log.delete.on.disable", "Tiered storage, which is not offered."),
    _number("local.retention.bytes", -2, "Tiered storage, which is not offered.", low=-2, idle=_no_effect(-2)),
    _number("local.retention.ms", -2, "Tiered storage, which is not offered.", low=-2, idle=_no_effect(-2)),
]

#: The names of brokers' defaults of these configs, and names that Kafka 4.0 has removed.
_UNSERVED: Final = (
    options.Unserved(
        "log.retention.ms log.retention.hours log.retention.minutes", options.Verdict.CALLED, "retention.ms"
    ),
    options.Unserved("log.retention.bytes", options.Verdict.CALLED, "retention.bytes"),
    options.Unserved("log.segment.bytes", options.Verdict.CALLED, "segment.bytes"),
    options.Unserved("log.roll.ms log.roll.hours", options.Verdict.CALLED, "segment.ms"),
    options.Unserved("log.cleanup.policy", options.Verdict.CALLED, "cleanup.policy"),
    options.Unserved("log.flush.interval.messages", options.Verdict.CALLED, "flush.messages"),
    options.Unserved("log.flush.interval.ms", options.Verdict.CALLED, "flush.ms"),
    options.Unserved("log.message.timestamp.type", options.Verdict.CALLED, "message.timestamp.type"),
    options.Unserved("message.max.bytes", options.Verdict.CALLED, "max.message.bytes"),
    options.Unserved("message.timestamp.difference.max.ms", options.Verdict.CALLED, "message.timestamp.before.max.ms"),
    options.Unserved(
        "message.format.version message.downconversion.enable",
        options.Verdict.NOT_NEEDED,
        "Kafka 4.0 has taken it out, too",
    ),
)

TOPIC_OPTIONS: Final = options.OptionSet(
    "topic config",
    _CONFIGS,
    unserved=lambda: _UNSERVED,
)


@value
class LogConfig:
    """The configs of a partition's log, from its topic; fields have the names of configs where they hold just these."""

    #: Records after which a sync is wanted; 1: readers see only synced records.
    flush_messages: int = 1
    #: For so long a record may stay unsynced at most, where `flush_messages` lets it.
    flush_ms: int = LONG_MAX
    max_message_bytes: int = 1_048_588
    #: Whether the broker's clock dates records, instead of the producer's.
    is_log_append_time: bool = False
    segment_bytes: int = 1 << 30
    #: Bytes of batches between two entries of an index.
    index_interval_bytes: int = 4096
    #: For so long a segment takes records at most, by their times, less up to `segment_jitter_ms`.
    segment_ms: int = 604_800_000
    segment_jitter_ms: int = 0
    #: Old segments go: those whose newest record is older than that, and those beyond that size; -1: no limit.
    is_deleted: bool = True
    retention_ms: int = 604_800_000
    retention_bytes: int = -1
    #: How long the file of a segment that went stays.
    file_delete_delay_ms: int = 60_000
    #: Of each key only the newest record is to be kept.
    is_compacted: bool = False
    #: Share of the closed segments' bytes that must be uncompacted before they are rewritten.
    min_cleanable_dirty_ratio: float = 0.5
    #: How long a tombstone stays once it was compacted.
    delete_retention_ms: int = 86_400_000
    #: No record is compacted before it is so old, and each is soon after it is so old.
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = LONG_MAX
    #: So much earlier and later than the broker's clock a record's time may be, unless that clock dates it.
    message_timestamp_before_max_ms: int = LONG_MAX
    message_timestamp_after_max_ms: int = 3_600_000
    #: Codec of stored batches, and its level; producer: as they come. Level `None` is the codec's usual one.
    compression_type: str = "producer"
    compression_level: int | None = None
    #: Whether only fetches that say which group member's they are may read.
    is_read_by_members_only: bool = False

    @classmethod
    def of(cls, configs: Mapping[str, object], defaults: Mapping[str, object]) -> LogConfig:
        """Build from a topic's own configs over the broker's defaults; `ConfigError` for a bad name or value."""
        values = TOPIC_OPTIONS.parse({**defaults, **configs})
        alike = {name: values[key] for name in cls.__annotations__ if (key := name.replace("_", ".")) in values}
        return cls(
            **{
                **alike,
                "is_log_append_time": values["message.timestamp.type"] == "LogAppendTime",
                "is_deleted": "delete" in values["cleanup.policy"],
                "is_compacted": "compact" in values["cleanup.policy"],
                "compression_type": _CODECS.get(values["compression.type"], values["compression.type"]),
                "compression_level": _level(values),
                "is_read_by_members_only": values["kohort.read.members.only"],
            }
        )

    @classmethod
    def of_stored(cls, configs: Mapping[str, object], defaults: Mapping[str, object]) -> LogConfig:
        """Build as `of` does, but treat configs that this version would refuse as not set."""
        return cls.of({name: value for name, value in configs.items() if _is_valid(name, value)}, defaults)


#: Kafka's names of codecs in configs -> their names in batches, where these differ.
_CODECS: Final = {"uncompressed": "none"}


def _level(values: Mapping[str, object]) -> int | None:
    level = values.get(f"compression.{values['compression.type']}.level")
    assert level is None or isinstance(level, int), "levels are numbers"
    # Of gzip -1 is the usual one.
    return None if level == -1 and values["compression.type"] == "gzip" else level


def _is_valid(name: str, value: object) -> bool:
    try:
        TOPIC_OPTIONS.option(name).check(value)
    except ConfigError:
        return False
    return True
