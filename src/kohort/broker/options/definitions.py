"""Broker options: constructors by kind, and the options of logs, groups and limits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kohort.base.options import Option, as_text, parse_bool, parse_float, parse_int, parse_list, parse_str
from kohort.coordinator.settings import (
    MEMBERSHIPS,
    MOST_MOVES_AT_ONCE,
    MOST_MOVES_PER_SECOND,
    MOVE_ORDERS,
    STATIC_FALLBACKS,
    GroupSettings,
)

#: Units and limits of numbers.
KIBI: Final = 1024
MEBI: Final = 1024 * 1024
INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1


def flag(name: str, default: bool, doc: str) -> Option:
    """Build an option that is a switch."""
    return Option(name=name, parse=parse_bool, default=default, doc=doc)


def count(name: str, default: int | None, doc: str, *, low: int = 0, high: int = INT32_MAX) -> Option:
    """Build an option that is a number within inclusive limits."""
    return Option(name=name, parse=parse_int, default=default, doc=doc, minimum=low, maximum=high)


def text(name: str, default: str | None, doc: str, *, choices: tuple[str, ...] = ()) -> Option:
    """Build an option that is a text, one of `choices` if there are any."""
    return Option(name=name, parse=parse_str, default=default, doc=doc, choices=choices)


# Options of the logs of topics: rolling, retention, syncing and compaction.
#
# Most are the defaults of topic configs. Ages are given in one of several units: the finest that is given counts.
# Source: Apache Kafka's broker configs log.*.

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
        "The clock that stamps records.",
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


# Options of the journal: how many rows are kept, in memory and on disk; Kafka has none.


def _bound(name: str, default: int, doc: str, *, low: int) -> Option:
    return Option(name=name, parse=parse_int, default=default, doc=doc, minimum=low, maximum=(1 << 63) - 1)


#: All options of the journal.
JOURNAL_OPTIONS: Final = [
    _bound(
        "journal.ring.rows",
        20_000,
        "Rows of the journal in memory; beyond that the group that has most loses its oldest; 0: none (not in Kafka).",
        low=0,
    ),
    Option(
        name="journal.topic.enable",
        parse=parse_bool,
        default=True,
        doc="Whether a broker with a data directory keeps the journal in the topic __group_journal (not in Kafka).",
    ),
    _bound(
        "journal.topic.retention.bytes",
        64 * 1024 * 1024,
        "Size above which the oldest segments of __group_journal go; -1: no limit (not in Kafka).",
        low=-1,
    ),
    _bound(
        "journal.topic.retention.ms",
        604_800_000,
        "Age at which the segments of __group_journal go; -1: never (not in Kafka).",
        low=-1,
    ),
]


# Options of moves: the pace of partitions between members of a KIP-848 group; Kafka has none.

#: All options of moves.
MOVE_OPTIONS: Final = [
    Option(
        name="group.moves.per.second",
        parse=parse_float,
        default=0.0,
        minimum=0,
        maximum=MOST_MOVES_PER_SECOND,
        doc="Most partitions that begin to move from one member of a KIP-848 group to another in a second; "
        "0: all at once (not in Kafka).",
    ),
    Option(
        name="group.moves.burst",
        parse=parse_int,
        default=1,
        minimum=1,
        maximum=MOST_MOVES_AT_ONCE,
        doc="How many of them may begin together after a time without any (not in Kafka).",
    ),
    Option(
        name="group.moves.paused",
        parse=parse_bool,
        default=False,
        doc="Whether none of them begins; a partition without an owner is given out all the same (not in Kafka).",
    ),
    Option(
        name="group.moves.order",
        parse=parse_str,
        default="name",
        choices=MOVE_ORDERS,
        doc="Which of those that wait begins next: by topic and partition (name), that with most records that the "
        "group has not committed (lag), or that with most bytes (size) (not in Kafka).",
    ),
]


# Options of held heartbeats: for which clients, and how long a join may wait; Kafka has none.

#: All options of held heartbeats.
PUSH_OPTIONS: Final = [
    Option(
        name="group.push.enable",
        parse=parse_bool,
        default=True,
        doc="Whether a heartbeat without news is answered when there is some, for clients that bear it (not in Kafka).",
    ),
    Option(
        name="group.push.join.hold.ms",
        parse=parse_int,
        default=1_000,
        doc="How long a member that joins may wait for its first answer, so that its share is in it; 0: not at all "
        "(not in Kafka).",
        minimum=0,
        maximum=10_000,
    ),
    Option(
        name="group.push.clients",
        parse=parse_list,
        default=[],
        doc="Software names of further clients whose heartbeats may be held, beside those that were tried; "
        "*: all (not in Kafka).",
    ),
]


# Options of static groups of named members; Kafka has none (KIP-345's draft had).

_DEFAULTS: Final = GroupSettings()

#: All options of static groups.
STATIC_OPTIONS: Final = [
    text(
        "group.membership",
        _DEFAULTS.group_membership,
        "Whether groups take any member (dynamic) or only those with a group.instance.id, which keep what they have "
        "while they are away (static) (not in Kafka).",
        choices=MEMBERSHIPS,
    ),
    count(
        "group.registration.timeout.ms",
        _DEFAULTS.group_registration_timeout_ms,
        "How long a static group keeps what an offline member has (not in Kafka).",
        low=1,
    ),
    count(
        "group.min.registration.timeout.ms",
        _DEFAULTS.group_min_registration_timeout_ms,
        "Lower bound of a group's registration timeout (not in Kafka).",
        low=1,
    ),
    count(
        "group.max.registration.timeout.ms",
        _DEFAULTS.group_max_registration_timeout_ms,
        "Upper bound of a group's registration timeout (not in Kafka).",
        low=1,
    ),
    count(
        "group.expansion.timeout.ms",
        _DEFAULTS.group_expansion_timeout_ms,
        "How long a static group gathers new members, from the first on, before one rebalance gives them something "
        "(not in Kafka).",
        low=1,
    ),
    count(
        "group.min.expansion.timeout.ms",
        _DEFAULTS.group_min_expansion_timeout_ms,
        "Lower bound of a group's expansion timeout (not in Kafka).",
        low=1,
    ),
    count(
        "group.max.expansion.timeout.ms",
        _DEFAULTS.group_max_expansion_timeout_ms,
        "Upper bound of a group's expansion timeout (not in Kafka).",
        low=1,
    ),
    text(
        "group.static.fallback",
        _DEFAULTS.group_static_fallback,
        "How a static group becomes dynamic again: by an administrator alone (admin), or also by the first member that "
        "joins it without a name while it is stable (join) (not in Kafka).",
        choices=STATIC_FALLBACKS,
    ),
]
