"""The options of a broker: Kafka's broker configs that have a meaning here, and kohort's own.

Laws: an unknown name is an error that suggests the most similar valid name. Every value is checked here, once.
Source: Apache Kafka 4.3's broker configuration; a default that differs is named in the option's documentation.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from os import PathLike, fspath
from typing import Any, Final

from kohort.assign.assignors import BUILT_IN
from kohort.base import options
from kohort.base.options import Option, OptionSet, Unserved
from kohort.base.values import value
from kohort.broker.options.first_users import FirstUser
from kohort.broker.options.kinds import INT32_MAX, INT64_MAX, KIBI, MEBI, count, flag, text
from kohort.broker.options.listener_options import take_overrides
from kohort.broker.options.listeners import ListenerSettings, listeners_of, parse_endpoints
from kohort.broker.options.security_options import SECURITY_OPTIONS
from kohort.coordinator import settings as groups
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ConfigError

#: The name of the HTTP address among the listeners' names, which are in upper case.
HTTP: Final = "http"
#: The option with the HTTP address.
HTTP_LISTEN: Final = "http.listen"
#: The broker's identity, addresses and data directory.
_NODE: Final = [
    count("node.id", 1, "The id of this broker in Metadata responses (Kafka: no default)."),
    count("broker.id", None, "Older name of node.id (Kafka: -1 for none)."),
    text("cluster.id", None, "The cluster's id (in Kafka no option); by default that in the data directory."),
    text(
        "listeners",
        None,
        "The addresses to listen on, as NAME://HOST:PORT with commas; a name is that of a protocol or is in "
        "listener.security.protocol.map; port 0 takes a free one (Kafka: PLAINTEXT on every address; here on "
        "127.0.0.1).",
    ),
    text(
        "advertised.listeners",
        None,
        "The addresses that clients of each listener connect to, as NAME://HOST:PORT with commas; by default, or for a "
        "listener that is left out, the address listened on (Kafka: such clients find no broker).",
    ),
    text(
        HTTP_LISTEN,
        None,
        "The HTTP address of /metrics, /healthz and /readyz, and with `kohort up` of the console, as HOST:PORT; "
        "by default none (not in Kafka).",
    ),
    text("log.dir", None, "The data directory; without one, logs are kept in memory (Kafka: /tmp/kafka-logs)."),
    text("log.dirs", None, "Another name of log.dir; only one directory is supported here."),
    count(
        "memory.limit.bytes",
        None,
        "Most bytes of records in a broker without a data directory; further records are refused as by a full "
        "disk; by default a quarter of the machine's memory (not in Kafka).",
        low=MEBI,
        high=INT64_MAX,
    ),
]
#: Defaults and rules of topics.
_TOPICS: Final = [
    count("num.partitions", 1, "Default number of partitions of a created topic.", low=1, high=10_000),
    count("default.replication.factor", 1, "Only 1 makes sense: this cluster is one broker.", low=1, high=1),
    count("min.insync.replicas", 1, "Only 1 makes sense: this cluster is one broker.", low=1, high=1),
    flag("auto.create.topics.enable", True, "Whether a Metadata request for an unknown topic creates the topic."),
    flag("delete.topic.enable", True, "Whether topics can be deleted."),
    count("message.max.bytes", MEBI + 12, "The largest record batch that is accepted."),
    text(
        "compression.type",
        "producer",
        "Codec with which batches are stored; producer: as the producer has sent them.",
        choices=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    Option(
        name="compression.gzip.level",
        parse=options.parse_int,
        default=-1,
        doc="Level of gzip if compression.type is gzip.",
        choices=(-1, *range(1, 10)),
    ),
    count("compression.lz4.level", 9, "Level of lz4 if compression.type is lz4.", low=1, high=17),
    count("compression.zstd.level", 3, "Level of zstd if compression.type is zstd.", low=-131072, high=22),
]
#: The coordinator's defaults, which the options below have, too.
_GROUP_DEFAULTS: Final = GroupSettings()


def _group(name: str, doc: str, *, low: int = 0) -> Option:
    return count(name, getattr(_GROUP_DEFAULTS, name.replace(".", "_")), doc, low=low)


#: The coordinator's options.
_GROUPS: Final = [
    count(
        "offsets.topic.replication.factor",
        1,
        "Only 1 makes sense: this cluster is one broker (Kafka: 3).",
        low=1,
        high=1,
    ),
    count("offsets.topic.num.partitions", 4, "Partitions of the coordinator's log (Kafka: 50).", low=1, high=1000),
    count(
        "offsets.topic.segment.bytes",
        16 * MEBI,
        "Size at which a segment of the coordinator's log is closed; closed segments are compacted (Kafka: 104857600).",
        low=64 * KIBI,
    ),
    _group("offset.metadata.max.bytes", "Longest metadata text that may be committed with an offset, bytes."),
    _group("offsets.retention.minutes", "How long offsets are kept while no member of their group uses them.", low=1),
    count("offsets.retention.check.interval.ms", 600_000, "How often the broker looks for such offsets.", low=1),
    _group("group.min.session.timeout.ms", "Shortest session timeout a classic member may ask for.", low=1),
    _group("group.max.session.timeout.ms", "Longest session timeout a classic member may ask for.", low=1),
    count(
        "group.initial.rebalance.delay.ms",
        100,
        "How long an empty classic group waits for more members, so that those that start together are assigned at the "
        "beginning (Kafka: 3000).",
    ),
    _group("group.max.size", "Most members of a classic group.", low=1),
    _group("group.consumer.session.timeout.ms", "Time without heartbeats before a KIP-848 member is fenced.", low=1),
    _group(
        "group.consumer.min.session.timeout.ms",
        "Lower bound of a KIP-848 group's session timeout (Kafka: 45000).",
        low=1,
    ),
    _group(
        "group.consumer.max.session.timeout.ms",
        "Upper bound of a KIP-848 group's session timeout (Kafka: 60000).",
        low=1,
    ),
    _group("group.consumer.heartbeat.interval.ms", "Heartbeat interval of KIP-848 members.", low=1),
    _group(
        "group.consumer.min.heartbeat.interval.ms", "Lower bound of a KIP-848 group's interval (Kafka: 5000).", low=1
    ),
    _group(
        "group.consumer.max.heartbeat.interval.ms", "Upper bound of a KIP-848 group's interval (Kafka: 15000).", low=1
    ),
    _group("group.consumer.max.size", "Most members of a KIP-848 group.", low=1),
    Option(
        name="group.consumer.assignors",
        parse=options.parse_list,
        default=list(_GROUP_DEFAULTS.group_consumer_assignors),
        doc="Server-side assignors that members may choose, also user-defined ones (docs/reference/assignors.md); "
        "the first is the default (Kafka: uniform, range).",
    ),
    text(
        "group.assignor",
        _GROUP_DEFAULTS.group_assignor,
        "The assignor of every KIP-848 group without a group.assignor config, whichever its members name: one "
        "of group.consumer.assignors; empty: the one that most members name (not in Kafka).",
    ),
    text(
        "group.consumer.assignor.mismatch",
        _GROUP_DEFAULTS.group_consumer_assignor_mismatch,
        "How a member is treated that names another assignor than its KIP-848 group uses: vote: it has one vote; "
        "refuse: it may not join (not in Kafka, where members vote).",
        choices=groups.MISMATCH_POLICIES,
    ),
    text(
        "group.consumer.migration.policy",
        _GROUP_DEFAULTS.group_consumer_migration_policy,
        "In which direction a group with members may change its protocol while its members are replaced one by one.",
        choices=groups.MIGRATION_POLICIES,
    ),
    _group(
        "group.consumer.assignment.interval.ms",
        "Shortest time between two computations of an assignment (Kafka: 1000).",
    ),
    _group(
        "group.consumer.assignment.window.ms",
        "The assignment of a KIP-848 group is computed so long after its latest change; 0: at each (Kafka: no option).",
    ),
    _group(
        "group.consumer.assignment.window.max.ms",
        "The assignment is computed so long after the first change at the latest (Kafka: no option).",
    ),
    _group("group.consumer.min.assignment.interval.ms", "Lower bound of a KIP-848 group's assignment interval."),
    _group("group.consumer.max.assignment.interval.ms", "Upper bound of a KIP-848 group's assignment interval."),
    flag(
        "group.consumer.assignor.offload.enable",
        _GROUP_DEFAULTS.group_consumer_assignor_offload_enable,
        "Whether a user-defined assignor runs in its own process; built-in ones always run in the coordinator's loop "
        "(in Kafka 4.3 an internal option).",
    ),
    _group(
        "group.consumer.assignor.timeout.ms",
        "Time limit of a user-defined assignor; then it has failed, and the assignment stays (in Kafka no option).",
        low=1,
    ),
    _group(
        "group.consumer.rebalance.heartbeat.interval.ms",
        "Heartbeat interval of a KIP-848 member while its assignment changes; 0: the usual interval (not in Kafka).",
    ),
    _group(
        "group.heartbeat.rate.max",
        "Heartbeats per second of one KIP-848 group above which its members get longer intervals (not in Kafka).",
        low=1,
    ),
    _group(
        "group.disconnect.grace.ms",
        "How long a member stays once its connection closed without a leave, from its next heartbeat on (classic: more "
        "than its interval); -1: its session decides (not in Kafka).",
        low=-1,
    ),
    text(
        "group.ownership.enforce",
        _GROUP_DEFAULTS.group_ownership_enforce,
        "Which fetches are checked for partitions of other members: off: none; ours: those that name their member, by "
        "a tag or a token; all: also those of a client id and host that only one member has (not in Kafka).",
        choices=groups.ENFORCEMENTS,
    ),
    text(
        "group.ownership.refusal",
        _GROUP_DEFAULTS.group_ownership_refusal,
        "The response to a stock client for a partition of another member: quiet: no error and no records; strict: "
        "NOT_LEADER_OR_FOLLOWER (not in Kafka).",
        choices=groups.OWNERSHIP_REFUSALS,
    ),
    _group(
        "group.ownership.lease.ms",
        "How long a member may read without contact to the coordinator; -1: half of the session timeout, which is "
        "also the most (not in Kafka).",
        low=-1,
    ),
    text(
        "group.liveness",
        _GROUP_DEFAULTS.group_liveness,
        "What keeps the session of a stable member alive: heartbeat: its heartbeats; fetch: also fetches that identify "
        "their member (not in Kafka).",
        choices=groups.LIVENESS,
    ),
    _group(
        "group.assignor.max.moves",
        "Most partitions that one assignment moves from a living owner to another; "
        "-1: as many as balance needs (not in Kafka).",
        low=-1,
    ),
    _group(
        "group.assignor.imbalance",
        "The numbers of partitions of two members may differ by so many more than one before a move (not in Kafka).",
    ),
]
#: Limits on clients.
_LIMITS: Final = [
    count("socket.request.max.bytes", 100 * MEBI, "Longest request with records; others: 16 MiB.", low=KIBI),
    count(
        "socket.listen.backlog.size",
        4_096,
        "Connections that may wait to be accepted; the system's own limit (Linux: net.core.somaxconn, 4096) holds, too "
        "(Kafka: 50).",
        low=1,
    ),
    count(
        "max.connections",
        10_000,
        "Most connections at a time, and no more than there are file descriptors for; a further one replaces one "
        "without a request so far, or is closed (Kafka: no limit).",
        low=1,
    ),
    count("max.connections.per.ip", INT32_MAX, "Most connections at a time from one address.", low=1),
    count("connections.max.idle.ms", 600_000, "Time without a request after which a connection is closed.", low=1),
    count(
        "queued.max.request.bytes",
        256 * MEBI,
        "Most bytes of incomplete requests over all connections; reading pauses above it; the same limit for members' "
        "requests that wait for their groups (Kafka: no limit, and only for incomplete ones).",
        low=MEBI,
        high=INT64_MAX,
    ),
    count("queued.max.requests", 500, "Most requests in flight of one connection; reading pauses above it.", low=1),
    count("fetch.max.bytes", 55 * MEBI, "Most bytes in one Fetch response.", low=KIBI),
    count(
        "max.incremental.fetch.session.cache.slots",
        1_000,
        "Most fetch sessions; further clients name all of their partitions in each Fetch request.",
        low=0,
    ),
    count("max.request.partition.size.limit", 2_000, "Most partitions in a DescribeTopicPartitions response.", low=1),
]
#: Limits of topics and groups.
_TOPIC_LIMITS: Final = [
    count("max.topics", 20_000, "Most topics; further ones are refused (not in Kafka).", low=1),
    count("max.partitions", 50_000, "Most partitions of all topics; further ones are refused (not in Kafka).", low=1),
    count("max.groups", 50_000, "Most groups; requests that create further ones are refused (not in Kafka).", low=1),
    count(
        "auto.create.topics.per.minute",
        1_000,
        "Most topics that are auto-created within a minute (not in Kafka).",
        low=1,
    ),
]

# Options of the logs of topics: rolling, retention, syncing and compaction.
#
# Most are the defaults of topic configs. An age can be given in several units; the finest given unit applies.
# Source: Apache Kafka's broker configs log.*.

_MINUTE_MS: Final = 60_000
_HOUR_MS: Final = 3_600_000
_LOGS: Final = [
    count("log.segment.bytes", 1024 * MEBI, "Size at which a segment is closed and the next one begins.", low=14),
    count(
        "log.flush.interval.messages",
        1,
        "1: each append is synced before it is acknowledged (acks=all); by Kafka's default the system decides.",
        low=1,
        high=INT64_MAX,
    ),
    count(
        "log.flush.interval.ms",
        INT64_MAX,
        "How long a record may stay unsynced if log.flush.interval.messages is above 1 (Kafka: no default).",
        high=INT64_MAX,
    ),
    Option(
        name="log.cleanup.policy",
        parse=options.parse_list,
        default=["delete"],
        doc="How old records are removed: delete, compact or both.",
        choices=("compact", "delete"),
    ),
    count(
        "log.retention.hours",
        168,
        "Age at which segments are deleted, by their records' timestamps; -1: never.",
        low=-1,
    ),
    count("log.retention.minutes", None, "The same in minutes; it precedes the hours.", low=-1),
    count("log.retention.ms", None, "The same in milliseconds; it precedes both.", low=-1, high=INT64_MAX),
    count(
        "log.retention.bytes", -1, "Size above which old segments are deleted; -1: no limit.", low=-1, high=INT64_MAX
    ),
    count("log.retention.check.interval.ms", 300_000, "How often retention is applied.", low=1),
    count(
        "log.flush.offset.checkpoint.interval.ms",
        60_000,
        "How often the indexes and producer state of changed logs are written, so that a start after a crash is short.",
        low=1,
    ),
    count(
        "log.scrub.bytes.per.second",
        10 * MEBI,
        "Rate at which segments are read again to verify their checksums; 0: never (not in Kafka).",
    ),
    count("log.segment.delete.delay.ms", 60_000, "How long the file of a deleted segment is kept.", high=INT64_MAX),
    count(
        "producer.id.expiration.ms",
        86_400_000,
        "How long a partition keeps the state of an idempotent producer that sends nothing.",
        low=1,
        high=INT64_MAX,
    ),
    count(
        "producer.id.expiration.check.interval.ms",
        600_000,
        "How often the broker looks for such producers (Kafka does not document it).",
        low=1,
    ),
    count("log.roll.hours", 168, "Age at which a segment is closed and the next one begins.", low=1),
    count("log.roll.ms", None, "The same in milliseconds; it precedes the hours.", low=1, high=INT64_MAX),
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
    count("log.cleaner.backoff.ms", 15_000, "How often the broker looks for logs to compact."),
    Option(
        name="log.cleaner.min.cleanable.ratio",
        parse=options.parse_float,
        default=0.5,
        minimum=0,
        maximum=1,
        doc="Share of uncompacted bytes in closed segments at which compaction begins.",
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
        "How long a tombstone is kept after it was compacted.",
        high=INT64_MAX,
    ),
    count(
        "log.cleaner.dedupe.buffer.size",
        128 * MEBI,
        "Most memory for keys while a log is compacted; a longer log takes several compactions.",
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
    """Return the default of every topic config by name; `values`: all broker options."""
    minutes, hours = values["log.retention.minutes"], values["log.retention.hours"]
    retention_ms = _finest((values["log.retention.ms"], 1), (minutes, _MINUTE_MS), (hours, _HOUR_MS))
    return {
        **{topic: options.as_text(values[broker]) for broker, topic in TOPIC_DEFAULTS.items()},
        "retention.ms": str(retention_ms),
        "segment.ms": str(_finest((values["log.roll.ms"], 1), (values["log.roll.hours"], _HOUR_MS))),
    }


def _finest(*given: tuple[int | None, int]) -> int:
    """Return the first number that is given, converted to ms; -1 (no limit) stays -1."""
    number, unit_ms = next((number, unit_ms) for number, unit_ms in given if number is not None)
    return number if number < 0 else number * unit_ms


# Options of transactions.

_TRANSACTIONS: Final = [
    count(
        "transaction.state.log.num.partitions",
        4,
        "Partitions of the transaction coordinator's log, when it is made (Kafka: 50).",
        low=1,
        high=1000,
    ),
    count(
        "transaction.state.log.replication.factor",
        1,
        "Only 1 makes sense: this cluster is one broker (Kafka: 3).",
        low=1,
        high=1,
    ),
    count(
        "transaction.state.log.min.isr", 1, "Only 1 makes sense: this cluster is one broker (Kafka: 2).", low=1, high=1
    ),
    count(
        "transaction.state.log.segment.bytes",
        16 * MEBI,
        "Size at which a file of that log is closed; what is closed is compacted (Kafka: 104857600).",
        low=64 * KIBI,
    ),
    count("transaction.max.timeout.ms", 900_000, "Longest timeout that a transactional producer may ask for.", low=1),
    count(
        "transactional.id.expiration.ms",
        604_800_000,
        "How long a transactional id without a transaction is remembered.",
        low=1,
    ),
    count(
        "max.transactional.ids",
        100_000,
        "Most transactional ids; further ones are refused (not in Kafka).",
        low=1,
    ),
    count(
        "max.transaction.partitions",
        10_000,
        "Most partitions of one transaction; one that would have more is refused (not in Kafka).",
        low=1,
    ),
    count(
        "max.transaction.waiting.requests",
        16,
        "Most requests of one transactional id that wait for the end of its transaction; 0: none waits (not in Kafka).",
        high=1000,
    ),
]


# Options of the journal: how many rows are kept, in memory and on disk; Kafka has none.

_JOURNAL: Final = [
    count(
        "journal.ring.rows",
        20_000,
        "Most rows of the journal in memory; above, the group with most loses its oldest; 0: none (not in Kafka).",
        high=INT64_MAX,
    ),
    flag(
        "journal.topic.enable",
        True,
        "Whether a broker with a data directory writes the journal to the topic __group_journal (not in Kafka).",
    ),
    count(
        "journal.topic.retention.bytes",
        64 * MEBI,
        "Size above which the oldest segments of __group_journal are deleted; -1: no limit (not in Kafka).",
        low=-1,
        high=INT64_MAX,
    ),
    count(
        "journal.topic.retention.ms",
        604_800_000,
        "Age at which segments of __group_journal are deleted; -1: never (not in Kafka).",
        low=-1,
        high=INT64_MAX,
    ),
]


# Options of moves: the pace of partitions between members of a KIP-848 group; Kafka has none.

_MOVES: Final = [
    Option(
        name="group.moves.per.second",
        parse=options.parse_float,
        default=0.0,
        minimum=0,
        maximum=groups.MOST_MOVES_PER_SECOND,
        doc="Most partitions that begin to move from one member of a KIP-848 group to another in a second; "
        "0: all at once (not in Kafka).",
    ),
    count(
        "group.moves.burst",
        1,
        "Moves that may begin together after a time without any (not in Kafka).",
        low=1,
        high=groups.MOST_MOVES_AT_ONCE,
    ),
    flag(
        "group.moves.paused",
        False,
        "Whether no move begins; a partition without an owner is assigned all the same (not in Kafka).",
    ),
    text(
        "group.moves.order",
        "name",
        "Which waiting move begins next: by topic and partition (name), that with most records that the "
        "group has not committed (lag), or that with most bytes (size) (not in Kafka).",
        choices=groups.MOVE_ORDERS,
    ),
]


# Options of delayed heartbeats: for which clients, and how long a join may wait; Kafka has none.

_PUSH: Final = [
    flag(
        "group.push.enable",
        True,
        "Whether the response to a heartbeat is delayed until a change, for clients that allow it (not in Kafka).",
    ),
    count(
        "group.push.join.hold.ms",
        1_000,
        "How long the first response to a joining member may be delayed, so that it has the assignment; 0: not at all "
        "(not in Kafka).",
        high=10_000,
    ),
    Option(
        name="group.push.clients",
        parse=options.parse_list,
        default=[],
        doc="Software names of further clients whose heartbeats may be delayed, in addition to those that were tried; "
        "*: all, also those that do not allow it, as KafkaJS and sarama (not in Kafka).",
    ),
]


# Options of static groups of named members; Kafka has none (KIP-345's draft had).

_STATIC: Final = [
    text(
        "group.membership",
        _GROUP_DEFAULTS.group_membership,
        "Whether groups accept any member (dynamic) or only those with a group.instance.id, which keep partitions "
        "while they are offline (static) (not in Kafka).",
        choices=groups.MEMBERSHIPS,
    ),
    _group(
        "group.registration.timeout.ms",
        "How long a static group keeps the partitions of an offline member (not in Kafka).",
        low=1,
    ),
    _group("group.min.registration.timeout.ms", "Lower bound of a group's registration timeout (not in Kafka).", low=1),
    _group("group.max.registration.timeout.ms", "Upper bound of a group's registration timeout (not in Kafka).", low=1),
    _group(
        "group.expansion.timeout.ms",
        "How long new members of a static group wait, from the first one on, for the rebalance that assigns partitions "
        "(not in Kafka).",
        low=1,
    ),
    _group("group.min.expansion.timeout.ms", "Lower bound of a group's expansion timeout (not in Kafka).", low=1),
    _group("group.max.expansion.timeout.ms", "Upper bound of a group's expansion timeout (not in Kafka).", low=1),
    text(
        "group.static.fallback",
        _GROUP_DEFAULTS.group_static_fallback,
        "How a static group becomes dynamic again: by an administrator alone (admin), or also by the first member that "
        "joins it without a name while it is stable (join) (not in Kafka).",
        choices=groups.STATIC_FALLBACKS,
    ),
]


def _kafkas_own() -> Iterable[Unserved]:
    """Return Kafka's options that this broker lacks; called when a name is unknown."""
    from kohort.broker.options.kafkaoptions import KAFKAS_OWN

    return KAFKAS_OWN


#: Every option of the broker.
BROKER_OPTIONS: Final = OptionSet(
    "broker option",
    [
        *_NODE,
        *_TOPICS,
        *_TOPIC_LIMITS,
        *_LOGS,
        *_GROUPS,
        *_MOVES,
        *_STATIC,
        *_PUSH,
        *_LIMITS,
        *_TRANSACTIONS,
        *_JOURNAL,
        *SECURITY_OPTIONS,
    ],
    unserved=_kafkas_own,
)


@value
class BrokerSettings:
    """A broker's checked options, with the addresses parsed.

    `listeners`: at least one. `data_dir`: `None` keeps logs in memory. `values`: every option by its dotted name, but
    not those of single listeners.
    """

    listeners: tuple[ListenerSettings, ...]
    data_dir: str | None
    node_id: int
    groups: GroupSettings
    # A `Password` hides its value, but so many values are of no use in a text.
    values: dict[str, Any] = field(repr=False)
    #: SCRAM users that are created at the start.
    first_users: tuple[FirstUser, ...] = ()

    @property
    def host(self) -> str:
        """The address of the first listener."""
        return self.listeners[0].host

    @property
    def port(self) -> int:
        """The port of the first listener."""
        return self.listeners[0].port

    @property
    def http_listener(self) -> ListenerSettings | None:
        """The address of the HTTP server; `None`: there is none."""
        text = self.values["http.listen"]
        if not text:
            return None
        try:
            (found,) = parse_endpoints(HTTP_LISTEN, text)
        except (ConfigError, ValueError):
            found = None
        if found is None or "://" in text:
            raise ConfigError(f"http.listen cannot be {text!r}: HOST:PORT is expected, as 127.0.0.1:9099")
        return ListenerSettings(name=HTTP, host=found.host, port=found.port, values=self.values)

    @property
    def protected_listener(self) -> str | None:
        """The listener whose connections are admitted even at `max.connections`; `None`: no listener."""
        name: str | None = self.values["inter.broker.listener.name"]
        return name and name.upper()

    @classmethod
    def of(
        cls,
        config: Mapping[str, object] | None = None,
        *,
        host: str | None = None,
        port: int | None = None,
        data_dir: str | PathLike[str] | None = None,
    ) -> BrokerSettings:
        """Check `config`; the keyword arguments replace values of `listeners` and `log.dir`.

        If the advertised port is the port in `listeners`, `port` replaces it as well.

        Raises `UnknownOptionError` or `ConfigError` with the valid names or values.
        """
        if config is not None and not isinstance(config, Mapping):
            raise ConfigError(f"config cannot be {config!r}: a mapping of names to values is expected")
        others, overrides = take_overrides(config or {}, BROKER_OPTIONS)
        values = BROKER_OPTIONS.parse(others)
        settings = cls(
            listeners=listeners_of(
                values,
                overrides,
                host=None if host is None else _text_argument("host", host, "an address or a name"),
                port=_PORT.check(port),
            ),
            data_dir=_directory(values) if data_dir is None else _text_argument("data_dir", data_dir, "a path"),
            node_id=_agreed(values, "broker.id", "node.id"),
            groups=_group_settings(values),
            values=values,
        )
        # The property checks its option here, so that a start fails for a wrong value.
        _ = settings.http_listener
        protected, names = settings.protected_listener, [each.name for each in settings.listeners]
        if protected and protected not in names:
            known = ", ".join(names)
            raise ConfigError(f"inter.broker.listener.name cannot be {protected!r}: one of {known} is expected")
        return settings

    def topic_defaults(self) -> dict[str, str]:
        """Return the default of every topic config, by its name."""
        return topic_defaults(self.values)


def _group_settings(values: Mapping[str, Any]) -> GroupSettings:
    """Build the coordinator's settings: the field `group_max_size` has the option `group.max.size`."""
    by_keyword = {name.replace(".", "_"): value for name, value in values.items()}
    known = {field.name for field in fields(GroupSettings)}
    chosen: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in by_keyword.items() if name in known
    }
    if not set(chosen["group_consumer_assignors"]) <= set(BUILT_IN):
        # Searching installed packages takes time, so it is done only if such an assignor is configured.
        from kohort.broker.processes.assignorloading import installed_names

        chosen["own_assignors"] = installed_names()
    return GroupSettings(**chosen)


def _directory(values: Mapping[str, Any]) -> str | None:
    text: str | None = _agreed(values, "log.dir", "log.dirs")
    if text is not None and (not text or "," in text):
        raise ConfigError(f"log.dirs cannot be {text!r}: exactly one directory is supported")
    return text


def _agreed(values: Mapping[str, Any], first: str, second: str) -> Any:
    """Return the value of two options of the same meaning; `ConfigError` if both are given and differ."""
    given = {values[name] for name in (first, second) if values[name] != BROKER_OPTIONS.option(name).default}
    if len(given) > 1:
        raise ConfigError(f"{first} ({values[first]}) and {second} ({values[second]}) contradict each other: keep one")
    return next(iter(given), BROKER_OPTIONS.option(second).default)


#: The argument `port` of Python's API; in a file the port is part of `listeners`.
_PORT: Final = Option(
    name="port",
    parse=options.parse_int,
    default=None,
    doc="The port to listen on; 0: a free one.",
    minimum=0,
    maximum=65535,
)


def _text_argument(name: str, value: object, expected: str) -> str:
    """Check a Python argument that has to be a non-empty text or path."""
    text = fspath(value) if isinstance(value, PathLike) else value
    if not isinstance(text, str) or not text or "\0" in text:
        raise ConfigError(f"{name} cannot be {value!r}: {expected} is expected")
    return text
