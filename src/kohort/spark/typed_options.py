"""The options of `kohort.spark.read_topic` and its like, for editors and for those who check types; nothing of it runs.

Made by `python tools/typed_options.py spark > src/kohort/spark/typed_options.py` from `option_table.py`,
`sinkoptions.py` and the clients' tables.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

from kohort.client.typed_options import SharedOptions
from kohort.ids import TopicPartition

#: earliest, latest or committed, or a number for each partition; milliseconds where timestamps are wanted.
ByPartition: TypeAlias = str | Mapping[TopicPartition, int] | Mapping[str, Mapping[str, int]]


class ReadOptions(SharedOptions, total=False):
    """Options of reading: Spark's, then Kafka's."""

    subscribe: str | Sequence[str] | None
    """Topics, with commas."""
    subscribePattern: str | None
    """A regular expression that whole names of topics match, in Python's syntax (Spark: Java's); with a group the
    coordinator matches, by RE2. Topics that are made later count, too."""
    assign: str | Sequence[TopicPartition] | None
    """Partitions as JSON: {'orders': [0, 1]}."""
    startingOffsets: ByPartition | None
    """For a new query: earliest (default of a batch), latest (default of a stream), JSON like {'orders': {'0': 23,
    '1': -2}} (-2 earliest, -1 latest), or committed: where the group of kafka.group.id stands, from the
    beginning where it stands nowhere (not Spark's)."""
    startingOffsetsByTimestamp: ByPartition | None
    """JSON like {'orders': {'0': 1700000000000}}, milliseconds; goes before startingOffsets."""
    startingTimestamp: int | None
    """One timestamp for all partitions, milliseconds; goes before startingOffsetsByTimestamp."""
    startingOffsetsByTimestampStrategy: Literal["error", "latest"]
    """Where no record is that young: error, or start at the latest offset."""
    endingOffsets: ByPartition | None
    """latest (default) or JSON; batch only."""
    endingOffsetsByTimestamp: ByPartition | None
    """As startingOffsetsByTimestamp, the latest offset where no record is that young; batch only."""
    endingTimestamp: int | None
    """One timestamp for all partitions; goes before endingOffsetsByTimestamp; batch only."""
    failOnDataLoss: bool
    """Whether the query ends where records were deleted before they were read, or a topic was made anew; otherwise
    that partition goes on at its first record, and a line of the log says what was skipped."""
    maxOffsetsPerTrigger: int | None
    """Cap of a micro-batch, records, shared over partitions by their backlog; stream only."""
    maxBytesPerTrigger: int | None
    """About how many bytes of keys, values and headers a micro-batch reads, by the records with which it begins in
    each partition (Spark's Kafka source has none); stream only."""
    minOffsetsPerTrigger: int | None
    """Wait for so many records, but not longer than maxTriggerDelay; AvailableNow does not wait; stream only."""
    maxTriggerDelay: str
    """Longest wait for minOffsetsPerTrigger; stream only."""
    minPartitions: int | None
    """Cut long ranges until there are about so many tasks."""
    maxRecordsPerPartition: int | None
    """Cut ranges that are longer (Spark: no limit; here 2500000 where neither this nor minPartitions is given)."""
    includeHeaders: bool
    """Adds the column headers."""
    columns: str | Sequence[str] | None
    """The columns to produce, in this order; fewer are faster (not Spark's)."""
    kafkaConsumer_pollTimeoutMs: int | None
    """How long a task waits for records at one offset (Spark: spark.network.timeout; here by default
    kafka.default.api.timeout.ms)."""
    fetchOffset_numRetries: int
    """Of Spark's questions about offsets."""
    fetchOffset_retryIntervalMs: int
    """Pause between them."""
    groupIdPrefix: str | None
    """Of the names that Spark makes up for groups."""
    groupJoinTimeout: str | None
    """How long a plan waits to be a member of the group; AvailableNow: to own partitions. By default 15 s longer
    than kafka.session.timeout.ms, so that the session of a member that was killed has ended."""
    groupRebalanceTimeout: str
    """How long a revoked partition may stay with a running batch; longer than batch plus trigger."""
    inDoubt: Literal["wait", "release"]
    """What becomes of a batch that was planned and is not known to be finished when its query ends: wait, its
    partitions are kept for the query's return until its session has ended; release, others have them at once
    and may read it again."""
    externalOffsets: Literal["follow", "ignore"]
    """Offsets of the group that are set from outside, by a tool or by members that are no queries, while the query
    is down: follow, it goes there, back or on; ignore, its checkpoint counts, but for what lies before them. A
    line of the log says for each partition from where to where."""
    checkpointLocation: str | None
    """The query's checkpointLocation on a local file system: a query that ends looks there whether its last batch
    is finished."""
    default_api_timeout_ms: int
    """Limit of calls without a timeout."""
    group_id: str | None
    """Group to join or to commit for; none means neither."""
    group_instance_id: str | None
    """Name of a static member: it keeps its partitions while it restarts within its session, and does not leave
    the group when it closes."""
    member_name: str | None
    """The same as group_instance_id."""
    registration_timeout_ms: int | None
    """How long the group keeps what a member with a name has that is offline. With this option or the next one,
    the first member that joins a group without members makes it a static one; later ones change nothing (in
    Kafka no option: its brokers skip both)."""
    expansion_timeout_ms: int | None
    """How long members that are new to a static group are gathered before they get something, all at once (in
    Kafka no option)."""
    group_protocol: Literal["consumer", "classic"]
    """Protocol of membership; consumer (KIP-848) falls back to classic where the broker lacks it (Kafka: classic)."""
    group_remote_assignor: str | None
    """Assignor of the coordinator (consumer protocol)."""
    partition_assignment_strategy: str | Sequence[str]
    """Assignors in order of preference (classic protocol; in Kafka classes): range, roundrobin, cooperative-
    sticky; with the last one alone, members keep what does not move while the group rebalances."""
    session_timeout_ms: int
    """A coordinator silent for so long, or for the group's session if that is shorter, is given up; classic: so is
    a member."""
    heartbeat_interval_ms: int | None
    """Pause between heartbeats; classic: 3000 by default (as in Kafka); consumer: by default what the broker says,
    otherwise proposed to a kohort broker, whose answer counts."""
    revocation_timeout_policy: Literal["retry_then_leave", "leave", "retry"]
    """What to do when a revocation callback takes longer than max.poll.interval.ms (in Kafka no option)."""
    fetch_carries_membership: bool
    """Hear of moves by fetches as well, from kohort brokers (not in Kafka)."""
    isolation_level: Literal["read_uncommitted", "read_committed"]
    """Whether to wait for transactions to end, and leave out aborted ones."""
    fetch_min_bytes: int
    """Bytes that the broker waits for."""
    fetch_max_bytes: int
    """Most bytes of one fetch."""
    fetch_max_wait_ms: int
    """How long the broker waits for fetch.min.bytes."""
    max_partition_fetch_bytes: int
    """Most bytes of one partition in one fetch (Kafka: 1 MiB)."""
    check_crcs: bool
    """Check the checksum of every batch."""
    on_corrupt_records: Literal["stop", "skip"]
    """Damaged records: stop raises, skip logs (Kafka: stop)."""
    client_rack: str
    """Rack of this client."""


class WriteOptions(SharedOptions, total=False):
    """Options of writing: Spark's, then Kafka's."""

    includeHeaders: bool
    """Whether headers are written."""
    kohort_batchHeaders: bool
    """Adds the headers kohort.query and kohort.batch, by which readers drop doubles; for streaming queries."""
    kohort_exactlyOnce: bool
    """Refused until there are transactions: the sink writes at least once."""
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
    partitioner: str
    """Which partition a record goes to that names none: murmur2_random, Kafka's own way (murmur2 of the key;
    without one batch.size bytes to each partition in turn); librdkafka's murmur2, consistent,
    consistent_random, fnv1a, fnv1a_random and random; round_robin; or a function of topic, key and number of
    partitions, called in the background (in Kafka partitioner.class)."""
    compression_gzip_level: int
    """Level of gzip; -1 is its usual one, 6."""
    compression_lz4_level: int
    """Level of lz4; 9 is the fast way, all others the thorough one, as in Kafka."""
    compression_zstd_level: int
    """Level of zstd."""
