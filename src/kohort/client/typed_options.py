"""The clients' options as keyword arguments, for editors and for those who check types; nothing of it runs.

Made by `python tools/typed_options.py > src/kohort/client/typed_options.py` from the tables in `options.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypedDict


class SharedOptions(TypedDict, total=False):
    """Options of every client."""

    bootstrap_servers: str | Sequence[str]
    """host:port of brokers to start from (Kafka: no default)."""
    client_id: str
    """Name of this client in the broker's logs (Kafka: empty)."""
    request_timeout_ms: int
    """How long an answer may take."""
    retry_backoff_ms: int
    """First pause before a retry."""
    retry_backoff_max_ms: int
    """Longest pause before a retry."""
    reconnect_backoff_ms: int
    """First pause before connecting again."""
    reconnect_backoff_max_ms: int
    """Longest pause before connecting again."""
    socket_connection_setup_timeout_ms: int
    """How long connecting may take."""
    metadata_max_age_ms: int
    """Longest time between two looks at the cluster."""
    receive_buffer_bytes: int
    """SO_RCVBUF; -1 leaves it to the system, which tunes it (Kafka: 64 KiB, producer 32 KiB)."""
    send_buffer_bytes: int
    """SO_SNDBUF; -1 leaves it to the system (Kafka: 128 KiB)."""


class AdminOptions(SharedOptions, total=False):
    """Options of admin clients."""

    default_api_timeout_ms: int
    """Limit of calls without a timeout."""


class ConsumerOptions(SharedOptions, total=False):
    """Options of consumers."""

    default_api_timeout_ms: int
    """Limit of calls without a timeout."""
    group_id: str | None
    """Group to join or to commit for; none means neither."""
    group_instance_id: str | None
    """Name of a static member: it keeps its partitions while it restarts within its session, and does not leave
    the group when it closes."""
    group_protocol: Literal["consumer", "classic"]
    """Protocol of membership; consumer (KIP-848) falls back to classic where the broker lacks it (Kafka: classic)."""
    group_remote_assignor: str | None
    """Assignor of the coordinator (consumer protocol)."""
    partition_assignment_strategy: str | Sequence[str]
    """Assignors in order of preference (classic protocol; in Kafka classes): range, roundrobin, cooperative-
    sticky; with the last one alone, members keep what does not move while the group rebalances."""
    session_timeout_ms: int
    """A coordinator silent for so long is given up; classic: so is a member, by the coordinator."""
    heartbeat_interval_ms: int | None
    """Pause between heartbeats; classic: 3000 by default (as in Kafka); consumer: by default what the broker says,
    otherwise proposed to a kohort broker, whose answer counts."""
    max_poll_interval_ms: int
    """Longest time between two polls, and for a revocation, before the member leaves."""
    revocation_timeout_policy: Literal["retry_then_leave", "leave", "retry"]
    """What to do when a revocation callback takes longer than max.poll.interval.ms (in Kafka no option)."""
    enable_auto_commit: bool
    """Commit what the application has processed."""
    enable_auto_offset_store: bool
    """What poll has returned counts as processed when it is called again; off: what store_offsets was given
    (librdkafka's option, not Kafka's)."""
    auto_commit_interval_ms: int
    """Pause between two automatic commits."""
    auto_offset_reset: Literal["earliest", "latest", "none"]
    """Where to start without a committed offset, or when it is out of range."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether to wait for transactions to end, and leave out aborted ones."""
    max_poll_records: int
    """Most records that one poll returns."""
    consumer_timeout_ms: int
    """Iterating a consumer ends after so long without a record (kafka-python's, not Kafka's; -1: never)."""
    fetch_min_bytes: int
    """Bytes that the broker waits for."""
    fetch_max_bytes: int
    """Most bytes of one fetch."""
    fetch_max_wait_ms: int
    """How long the broker waits for fetch.min.bytes."""
    max_partition_fetch_bytes: int
    """Most bytes of one partition in one fetch (Kafka: 1 MiB)."""
    fetch_buffer_bytes: int
    """Most bytes fetched ahead of the application (in Kafka no option); 0: only hold partitions."""
    check_crcs: bool
    """Check the checksum of every batch."""
    key_deserializer: Callable[[Any], Any] | None
    """A function that is given the bytes of each key (Kafka: a class)."""
    value_deserializer: Callable[[Any], Any] | None
    """A function that is given the bytes of each value (Kafka: a class)."""
    on_corrupt_records: Literal["stop", "skip"]
    """Damaged records: stop raises, skip logs (Kafka: stop)."""
    client_rack: str
    """Rack of this client."""
    allow_auto_create_topics: bool
    """Let the broker create a topic that is asked for."""


class ProducerOptions(SharedOptions, total=False):
    """Options of producers."""

    acks: Literal["all", "-1", "0", "1", -1, 0, 1]
    """Copies that must hold a record."""
    enable_idempotence: bool
    """No record twice, none out of order."""
    linger_ms: int
    """How long a batch waits for more records."""
    batch_size: int
    """Bytes at which a batch is sent at once; while its leader is busy it goes on filling, up to max.request.size."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """Codec of batches."""
    max_in_flight_requests_per_connection: int
    """Requests sent ahead of answers; at most 5 with idempotence."""
    delivery_timeout_ms: int
    """How long a record may take in all."""
    buffer_memory: int
    """Bytes that wait to be sent."""
    max_request_size: int
    """Most bytes of one request."""
    max_block_ms: int
    """How long send waits for room, 0 means not at all; partitions_for for an answer."""
    retries: int
    """Attempts within delivery.timeout.ms."""
    partitioner: str | Callable[[str, bytes | None, int], int]
    """Which partition a record goes to that names none: murmur2_random, Kafka's own way (murmur2 of the key;
    without one batch.size bytes to each partition in turn); librdkafka's murmur2, consistent,
    consistent_random, fnv1a, fnv1a_random and random; round_robin; or a function of topic, key and number of
    partitions, called in the background (in Kafka partitioner.class)."""
    key_serializer: Callable[[Any], Any] | None
    """A function that makes bytes of a key (Kafka: a class)."""
    value_serializer: Callable[[Any], Any] | None
    """A function that makes bytes of a value (Kafka: a class)."""
    compression_gzip_level: int
    """Level of gzip; -1 is its usual one, 6."""
    compression_lz4_level: int
    """Level of lz4; 9 is the fast way, all others the thorough one, as in Kafka."""
    compression_zstd_level: int
    """Level of zstd."""
