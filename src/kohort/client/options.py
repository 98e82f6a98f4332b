"""Options of consumers, producers and admin clients: Kafka's names, types, limits and defaults.

Laws: a value is checked once, here. Machines see the frozen settings of this module, never raw options.
Source: Apache Kafka's consumer, producer and admin configurations. Where a default differs, its doc says so.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kohort.client.actions import Endpoint
from kohort.client.localassignors import LocalAssignor
from kohort.client.membershipoptions import MEMBERSHIP, check_membership, heartbeat_intervals, or_nothing
from kohort.client.option_kinds import (
    check_protocols,
    choice,
    codec,
    endpoint_of,
    function,
    number,
    parse_servers,
    switch,
    text,
)
from kohort.client.producer.core.partitioner import DEFAULT_PARTITIONER, parse_partitioner
from kohort.client.retry import Backoff
from kohort.client.securityoptions import SECURITY, SecuritySettings, security_settings
from kohort.config import Option, OptionSet, Unserved, Verdict, as_keyword
from kohort.errors import ConfigError

_INT32_MAX: Final = 2**31 - 1


_SHARED: Final = (
    Option(
        name="bootstrap.servers",
        parse=parse_servers,
        default=["127.0.0.1:9092"],
        doc="host:port of brokers to start from (Kafka: no default).",
    ),
    text("client.id", "kohort", "Name of this client in the broker's logs (Kafka: empty)."),
    number("request.timeout.ms", 30_000, "How long an answer may take.", minimum=1),
    number("retry.backoff.ms", 100, "First pause before a retry."),
    number("retry.backoff.max.ms", 1_000, "Longest pause before a retry."),
    number("reconnect.backoff.ms", 50, "First pause before connecting again."),
    number("reconnect.backoff.max.ms", 1_000, "Longest pause before connecting again."),
    number("socket.connection.setup.timeout.ms", 10_000, "How long connecting may take.", minimum=1),
    number("metadata.max.age.ms", 300_000, "Longest time between two looks at the cluster.", minimum=1),
    number(
        "receive.buffer.bytes",
        -1,
        "SO_RCVBUF; -1 leaves it to the system, which tunes it (Kafka: 64 KiB, producer 32 KiB).",
        minimum=-1,
    ),
    number("send.buffer.bytes", -1, "SO_SNDBUF; -1 leaves it to the system (Kafka: 128 KiB).", minimum=-1),
    *SECURITY,
)

#: Limits of a producer's calls are max.block.ms and delivery.timeout.ms.
_CALLS: Final = (number("default.api.timeout.ms", 60_000, "Limit of calls without a timeout.", minimum=1),)

_OFFSETS: Final = (
    switch("enable.auto.commit", True, "Commit what the application has processed."),
    switch(
        "enable.auto.offset.store",
        True,
        "What poll has returned counts as processed when it is called again; off: what store_offsets was given "
        "(librdkafka's option, not Kafka's).",
    ),
    number("auto.commit.interval.ms", 5_000, "Pause between two automatic commits.", minimum=1),
    choice(
        "auto.offset.reset",
        "latest",
        "Where to start without a committed offset, or when it is out of range.",
        "earliest",
        "latest",
        "none",
    ),
    choice(
        "isolation.level",
        "read_uncommitted",
        "Whether to wait for transactions to end, and leave out aborted ones.",
        "read_uncommitted",
        "read_committed",
    ),
)

_FETCH: Final = (
    number("max.poll.records", 500, "Most records that one poll returns.", minimum=1),
    number(
        "consumer.timeout.ms",
        -1,
        "Iterating a consumer ends after so long without a record (kafka-python's, not Kafka's; -1: never).",
        minimum=-1,
    ),
    number("fetch.min.bytes", 1, "Bytes that the broker waits for."),
    number("fetch.max.bytes", 50 * 1024 * 1024, "Most bytes of one fetch.", minimum=1),
    number("fetch.max.wait.ms", 500, "How long the broker waits for fetch.min.bytes."),
    number(
        "max.partition.fetch.bytes",
        4 * 1024 * 1024,
        "Most bytes of one partition in one fetch (Kafka: 1 MiB).",
        minimum=1,
    ),
    number(
        "fetch.buffer.bytes",
        64 * 1024 * 1024,
        "Most bytes fetched ahead of the application (in Kafka no option); 0: only hold partitions.",
        maximum=2**40,
    ),
    switch("check.crcs", True, "Check the checksum of every batch."),
    function("key.deserializer", "A function that is given the bytes of each key (Kafka: a class)."),
    function("value.deserializer", "A function that is given the bytes of each value (Kafka: a class)."),
    choice("on.corrupt.records", "stop", "Damaged records: stop raises, skip logs (Kafka: stop).", "stop", "skip"),
    text("client.rack", "", "Rack of this client."),
    switch("allow.auto.create.topics", True, "Let the broker create a topic that is asked for."),
)

#: Options that a running consumer may change.
_LIMITS: Final = (
    "fetch.buffer.bytes",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "max.partition.fetch.bytes",
    "max.poll.records",
)

_CONSUMING: Final = (*_CALLS, *MEMBERSHIP, *_OFFSETS, *_FETCH)
_PRODUCING: Final = (
    choice("acks", "all", "Copies that must hold a record.", "all", "-1", "0", "1"),
    switch("enable.idempotence", True, "No record twice, none out of order."),
    number("linger.ms", 5, "How long a batch waits for more records."),
    number(
        "batch.size",
        16_384,
        "Bytes at which a batch is sent at once; while its leader is busy it goes on filling, up to max.request.size.",
    ),
    codec("compression.type", "Codec of batches.", "gzip", "snappy", "lz4", "zstd"),
    number(
        "max.in.flight.requests.per.connection",
        5,
        "Requests sent ahead of answers; at most 5 with idempotence.",
        minimum=1,
    ),
    number("delivery.timeout.ms", 120_000, "How long a record may take in all.", minimum=1),
    number("buffer.memory", 32 * 1024 * 1024, "Bytes that wait to be sent.", minimum=1, maximum=2**40),
    number("max.request.size", 1_048_576, "Most bytes of one request.", minimum=1),
    number("max.block.ms", 60_000, "How long send waits for room, 0 means not at all; partitions_for for an answer."),
    number("retries", _INT32_MAX, "Attempts within delivery.timeout.ms."),
    Option(
        name="partitioner",
        parse=parse_partitioner,
        default=DEFAULT_PARTITIONER,
        doc="Which partition a record goes to that names none: murmur2_random, Kafka's own way (murmur2 of the key; "
        "without one batch.size bytes to each partition in turn); librdkafka's murmur2, consistent, consistent_random, "
        "fnv1a, fnv1a_random and random; round_robin; or a function of topic, key and number of partitions, called in "
        "the background (in Kafka partitioner.class).",
    ),
    function("key.serializer", "A function that makes bytes of a key (Kafka: a class)."),
    function("value.serializer", "A function that makes bytes of a value (Kafka: a class)."),
    number("compression.gzip.level", -1, "Level of gzip; -1 is its usual one, 6.", minimum=-1, maximum=9),
    number(
        "compression.lz4.level",
        9,
        "Level of lz4; 9 is the fast way, all others the thorough one, as in Kafka.",
        minimum=1,
        maximum=17,
    ),
    number("compression.zstd.level", 3, "Level of zstd.", minimum=-131_072, maximum=22),
)


def _unserved(table: str, *others: tuple[str, Iterable[Option]]) -> Callable[[], tuple[Unserved, ...]]:
    """Return a reader of unserved options: those of Kafka's clients, and those of `others` here."""

    def read() -> tuple[Unserved, ...]:
        from kohort.client import kafkaoptions

        rows: tuple[Unserved, ...] = getattr(kafkaoptions, table)
        return rows + tuple(
            Unserved(" ".join(option.name for option in options), Verdict.NOT_NEEDED, f"it concerns {whom}")
            for whom, options in others
        )

    return read


CONSUMER_OPTIONS: Final = OptionSet(
    "consumer option", (*_SHARED, *_CONSUMING), unserved=_unserved("FOR_CONSUMERS", ("producers", _PRODUCING))
)
PRODUCER_OPTIONS: Final = OptionSet(
    "producer option", (*_SHARED, *_PRODUCING), unserved=_unserved("FOR_PRODUCERS", ("consumers", _CONSUMING))
)
ADMIN_OPTIONS: Final = OptionSet(
    "admin option",
    (*_SHARED, *_CALLS),
    unserved=_unserved("FOR_ADMINS", ("producers", _PRODUCING), ("consumers", (*MEMBERSHIP, *_OFFSETS, *_FETCH))),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSettings:
    """The checked values of the options that every client has."""

    bootstrap: tuple[Endpoint, ...]
    client_id: str
    request_timeout_ms: int
    metadata_max_age_ms: int
    connect_timeout_ms: int
    receive_buffer_bytes: int
    send_buffer_bytes: int
    retry: Backoff
    reconnect: Backoff
    security: SecuritySettings = field(default_factory=SecuritySettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerSettings:
    """The checked values of a consumer's own options; times in milliseconds, sizes in bytes."""

    group_id: str | None
    #: `group.instance.id` of a static member; `None` means a dynamic one.
    group_instance_id: str | None
    #: These make a group static whose first member this one is; -1: not sent.
    registration_timeout_ms: int
    expansion_timeout_ms: int
    group_protocol: str
    group_remote_assignor: str | None
    local_assignors: tuple[LocalAssignor, ...]
    assignment_strategy: tuple[str, ...]
    enable_auto_commit: bool
    #: Whether handed-out records count as processed; otherwise the application stores offsets.
    enable_auto_offset_store: bool
    auto_commit_interval_ms: int
    auto_offset_reset: str
    #: Whether the application has set auto.offset.reset, so that the start needs no warning.
    is_reset_chosen: bool
    session_timeout_ms: int
    heartbeat_interval_ms: int
    #: Proposed to a KIP-848 coordinator; -1: the coordinator decides.
    proposed_heartbeat_interval_ms: int
    max_poll_interval_ms: int
    max_poll_records: int
    #: An iteration ends after so long without a record; -1 means never.
    consumer_timeout_ms: int
    revocation_timeout_policy: str
    fetch_carries_membership: bool
    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    fetch_buffer_bytes: int
    check_crcs: bool
    is_read_committed: bool
    client_rack: str
    allow_auto_create_topics: bool


def client_settings(values: Mapping[str, Any], *, seed: int = 0) -> ClientSettings:
    """Build the settings of parsed options; `seed` makes this client's pauses differ from others'.

    Raises:
        ConfigError: options contradict each other, or a file that they name cannot be used.
    """
    check_protocols(values["bootstrap.servers"], values["security.protocol"])
    return ClientSettings(
        bootstrap=tuple(endpoint_of(server) for server in values["bootstrap.servers"]),
        client_id=values["client.id"],
        request_timeout_ms=values["request.timeout.ms"],
        metadata_max_age_ms=values["metadata.max.age.ms"],
        connect_timeout_ms=values["socket.connection.setup.timeout.ms"],
        receive_buffer_bytes=values["receive.buffer.bytes"],
        send_buffer_bytes=values["send.buffer.bytes"],
        retry=Backoff(base_ms=values["retry.backoff.ms"], max_ms=values["retry.backoff.max.ms"], seed=seed),
        reconnect=Backoff(base_ms=values["reconnect.backoff.ms"], max_ms=values["reconnect.backoff.max.ms"], seed=seed),
        security=security_settings(values),
    )


def consumer_settings(values: Mapping[str, Any], given: Container[str] = ()) -> ConsumerSettings:
    """Build settings from options that `CONSUMER_OPTIONS` has parsed; refuse contradicting ones.

    `given`: names of the options that are set.
    """
    check_membership(values)
    interval_ms, proposed_ms = heartbeat_intervals(values)
    return ConsumerSettings(
        group_id=values["group.id"],
        group_instance_id=values["group.instance.id"],
        registration_timeout_ms=or_nothing(values["registration.timeout.ms"]),
        expansion_timeout_ms=or_nothing(values["expansion.timeout.ms"]),
        group_protocol=values["group.protocol"],
        group_remote_assignor=values["group.remote.assignor"],
        local_assignors=values["group.local.assignors"],
        assignment_strategy=tuple(values["partition.assignment.strategy"]),
        enable_auto_commit=values["enable.auto.commit"],
        enable_auto_offset_store=values["enable.auto.offset.store"],
        auto_commit_interval_ms=values["auto.commit.interval.ms"],
        auto_offset_reset=values["auto.offset.reset"],
        is_reset_chosen="auto.offset.reset" in given,
        session_timeout_ms=values["session.timeout.ms"],
        heartbeat_interval_ms=interval_ms,
        proposed_heartbeat_interval_ms=proposed_ms,
        max_poll_interval_ms=values["max.poll.interval.ms"],
        max_poll_records=values["max.poll.records"],
        consumer_timeout_ms=values["consumer.timeout.ms"],
        revocation_timeout_policy=values["revocation.timeout.policy"],
        fetch_carries_membership=values["fetch.carries.membership"],
        fetch_min_bytes=values["fetch.min.bytes"],
        fetch_max_bytes=values["fetch.max.bytes"],
        fetch_max_wait_ms=values["fetch.max.wait.ms"],
        max_partition_fetch_bytes=values["max.partition.fetch.bytes"],
        fetch_buffer_bytes=values["fetch.buffer.bytes"],
        check_crcs=values["check.crcs"],
        is_read_committed=values["isolation.level"] == "read_committed",
        client_rack=values["client.rack"],
        allow_auto_create_topics=values["allow.auto.create.topics"],
    )


def changed_limits(config: object, options: Mapping[str, object]) -> dict[str, Any]:
    """Return changed fields of `ConsumerSettings`; refuse options that a running consumer cannot change."""
    given = CONSUMER_OPTIONS.gather(config, options)
    for name in sorted(given.keys() - set(_LIMITS)):
        raise ConfigError(
            f"{name} cannot be changed while the consumer runs, only {', '.join(_LIMITS)}: create a new consumer"
        )
    return {as_keyword(name): CONSUMER_OPTIONS.option(name).check(value) for name, value in given.items()}
