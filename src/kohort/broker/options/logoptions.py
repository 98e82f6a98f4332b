"""Options of the logs of topics: rolling, retention, syncing and compaction.

Most are the defaults of topic configs. Ages are given in one of several units: the finest that is given counts.
Source: Apache Kafka's broker configs log.*.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kohort.broker.options.optionkinds import INT64_MAX, MEBI, count, text
from kohort.config import Option, as_text, parse_float, parse_list

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
LOG_OPTIONS: Final = [
    count("log.segment.bytes", 1024 * MEBI, "Size at which a log file is closed and the next one begun.", low=14),
    count(
        "log.flush.interval.messages",
        1,
        "1 makes each append durable before it is acknowledged (acks=all); Kafka's default leaves it to the system.",
        low=1,
        high=INT64_MAX,
    ),
    count(
        "log.flush.interval.ms",
        INT64_MAX,
        "How long a record may stay unsynced, where log.flush.interval.messages lets it (Kafka: no default).",
        high=INT64_MAX,
    ),
    Option(
        name="log.cleanup.policy",
        parse=parse_list,
        default=["delete"],
        doc="How old records go: delete, compact or both.",
        choices=("compact", "delete"),
    ),
    count("log.retention.hours", 168, "Age at which log files go, by the times of their records; -1: never.", low=-1),
    count("log.retention.minutes", None, "The same in minutes; before the hours.", low=-1),
    count("log.retention.ms", None, "The same in milliseconds; before the others.", low=-1, high=INT64_MAX),
    count(
        "log.retention.bytes", -1, "Size of a partition above which old files go; -1: no limit.", low=-1, high=INT64_MAX
    ),
    count("log.retention.check.interval.ms", 300_000, "How often files are looked for that are to go.", low=1),
    count(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often indexes and producers are written for logs that changed, so that a start after a crash is short.",
        low=1,
    ),
    count(
        "log.scrub.bytes.per.second",
        10 * MEBI,
        "Rate at which closed log files are read again and held against their checksums; 0: never (not in Kafka).",
    ),
    count("log.segment.delete.delay.ms", 60_000, "How long the file of a segment that went stays.", high=INT64_MAX),
    count(
        "producer.id.expiration.ms",
        86_400_000,
        "How long a partition remembers an idempotent producer that is silent.",
        low=1,
        high=INT64_MAX,
    ),
    count(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often producers are looked for that are silent (Kafka does not document it).",
        low=1,
    ),
    count("log.roll.hours", 168, "Age at which a log file is closed and the next one begun.", low=1),
    count("log.roll.ms", None, "The same in milliseconds; before the hours.", low=1, high=INT64_MAX),
    text(
        "log.message.timestamp.type",
        "CreateTime",
        "Whose clock stamps records.",
        choices=("CreateTime", "LogAppendTime"),
    ),
    count("log.message.timestamp.before.max.ms", INT64_MAX, "How old a record's timestamp may be.", high=INT64_MAX),
    count(
        "log.message.timestamp.after.max.ms",
        3_600_000,
        "How far in the future a record's timestamp may be.",
        high=INT64_MAX,
    ),
    count("log.cleaner.backoff.ms", 15_000, "How often the broker looks for logs that are to be compacted."),
    Option(
        name="log.cleaner.min.cleanable.ratio",
        parse=parse_float,
        default=0.5,
        minimum=0,
        maximum=1,
        doc="Share of uncompacted bytes in closed files at which compaction begins.",
    ),
    count("log.cleaner.min.compaction.lag.ms", 0, "Age before which no record is compacted.", high=INT64_MAX),
    count(
        "log.cleaner.max.compaction.lag.ms",
        INT64_MAX,
        "Age at which a record is compacted at the latest.",
        low=1,
        high=INT64_MAX,
    ),
    count(
        "log.cleaner.delete.retention.ms",
        86_400_000,
        "How long a tombstone stays once it was compacted.",
        high=INT64_MAX,
    ),
    count(
        "log.cleaner.dedupe.buffer.size",
        128 * MEBI,
        "Most memory for keys while a log is compacted; a longer log takes several goes.",
        low=MEBI,
        high=INT64_MAX,
    ),
]

#: Broker option -> the topic config for which it is the default.
TOPIC_DEFAULTS: Final = {
    "message.max.bytes": "max.message.bytes",
    "log.segment.bytes": "segment.bytes",
    "log.flush.interval.messages": "flush.messages",
    "log.flush.interval.ms": "flush.ms",
    "log.cleanup.policy": "cleanup.policy",
    "log.retention.bytes": "retention.bytes",
    "log.segment.delete.delay.ms": "file.delete.delay.ms",
    "log.message.timestamp.type": "message.timestamp.type",
    "log.message.timestamp.before.max.ms": "message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms": "message.timestamp.after.max.ms",
    "compression.type": "compression.type",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.zstd.level": "compression.zstd.level",
    "log.cleaner.min.cleanable.ratio": "min.cleanable.dirty.ratio",
    "log.cleaner.delete.retention.ms": "delete.retention.ms",
    "log.cleaner.min.compaction.lag.ms": "min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms": "max.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
}


def topic_defaults(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the default of every topic config by its name; `values` has all broker options."""
    minutes, hours = values["log.retention.minutes"], values["log.retention.hours"]
    retention_ms = _finest((values["log.retention.ms"], 1), (minutes, _MINUTE_MS), (hours, _HOUR_MS))
    return {
        **{topic: as_text(values[broker]) for broker, topic in TOPIC_DEFAULTS.items()},
        "retention.ms": str(retention_ms),
        "segment.ms": str(_finest((values["log.roll.ms"], 1), (values["log.roll.hours"], _HOUR_MS))),
    }


def _finest(*given: tuple[int | None, int]) -> int:
    """Return the first given number in its unit; -1, no limit, stays -1."""
    number, unit_ms = next((number, unit_ms) for number, unit_ms in given if number is not None)
    return number if number < 0 else number * unit_ms
