"""The options of reading by `format("kohort")`, as data: Spark's Kafka source's and kohort's own.

Laws: Spark's names have Spark's values and defaults; what means nothing here is taken, and a line of the log says why.
Source: Spark's Kafka integration guide and `KafkaSourceProvider`; P1 to P3.
"""

from __future__ import annotations

from typing import Final

from kohort.config import Idle, Option, OptionSet, parse_bool, parse_int, parse_list, parse_str


def _parse_word(text: object) -> str:
    """Parse one of several words, in any case."""
    return parse_str(text).strip().lower()


_WHAT: Final = (
    Option(name="subscribe", parse=parse_list, default=None, doc="Topics, with commas."),
    Option(
        name="subscribePattern",
        parse=parse_str,
        default=None,
        doc="A regular expression that whole names of topics match, in Python's syntax (Spark: Java's); with a group "
        "the coordinator matches, by RE2. Topics that are made later count, too.",
    ),
    Option(name="assign", parse=parse_str, default=None, doc='Partitions as JSON: {"orders": [0, 1]}.'),
)
_BOUNDS: Final = (
    Option(
        name="startingOffsets",
        parse=parse_str,
        default=None,
        doc="For a new query: earliest (default of a batch), latest (default of a stream), "
        'JSON like {"orders": {"0": 23, "1": -2}} (-2 earliest, -1 latest), or committed: where the group of '
        "kafka.group.id stands, from the beginning where it stands nowhere (not Spark's).",
    ),
    Option(
        name="startingOffsetsByTimestamp",
        parse=parse_str,
        default=None,
        doc='JSON like {"orders": {"0": 1700000000000}}, milliseconds; goes before startingOffsets.',
    ),
    Option(
        name="startingTimestamp",
        parse=parse_int,
        default=None,
        doc="One timestamp for all partitions, milliseconds; goes before startingOffsetsByTimestamp.",
        minimum=0,
    ),
    Option(
        name="startingOffsetsByTimestampStrategy",
        parse=_parse_word,
        default="error",
        doc="Where no record is that young: error, or start at the latest offset.",
        choices=("error", "latest"),
    ),
    Option(name="endingOffsets", parse=parse_str, default=None, doc="latest (default) or JSON; batch only."),
    Option(
        name="endingOffsetsByTimestamp",
        parse=parse_str,
        default=None,
        doc="As startingOffsetsByTimestamp, the latest offset where no record is that young; batch only.",
    ),
    Option(
        name="endingTimestamp",
        parse=parse_int,
        default=None,
        doc="One timestamp for all partitions; goes before endingOffsetsByTimestamp; batch only.",
        minimum=0,
    ),
    Option(
        name="failOnDataLoss",
        parse=parse_bool,
        default=True,
        doc="Whether the query ends where records were deleted before they were read, or a topic was made anew; "
        "otherwise that partition goes on at its first record, and a line of the log says what was skipped.",
    ),
)
_SIZES: Final = (
    Option(
        name="maxOffsetsPerTrigger",
        parse=parse_int,
        default=None,
        doc="Cap of a micro-batch, records, shared over partitions by their backlog; stream only.",
        minimum=1,
    ),
    Option(
        name="maxBytesPerTrigger",
        parse=parse_int,
        default=None,
        doc="About how many bytes of keys, values and headers a micro-batch reads, by the records with which it begins "
        "in each partition (Spark's Kafka source has none); stream only.",
        minimum=1,
    ),
    Option(
        name="minOffsetsPerTrigger",
        parse=parse_int,
        default=None,
        doc="Wait for so many records, but not longer than maxTriggerDelay; AvailableNow does not wait; stream only.",
        minimum=1,
    ),
    Option(
        name="maxTriggerDelay",
        parse=parse_str,
        default="15m",
        doc="Longest wait for minOffsetsPerTrigger; stream only.",
    ),
    Option(
        name="minPartitions",
        parse=parse_int,
        default=None,
        doc="Cut long ranges until there are about so many tasks.",
        minimum=1,
    ),
    Option(
        name="maxRecordsPerPartition",
        parse=parse_int,
        default=None,
        doc="Cut ranges that are longer (Spark: no limit; here 2500000 where neither this nor minPartitions is given).",
        minimum=1,
    ),
)
_ROWS: Final = (
    Option(name="includeHeaders", parse=parse_bool, default=False, doc="Adds the column headers."),
    Option(
        name="columns",
        parse=parse_list,
        default=None,
        doc="The columns to produce, in this order; fewer are faster (not Spark's).",
    ),
)
_WAITS: Final = (
    Option(
        name="kafkaConsumer.pollTimeoutMs",
        parse=parse_int,
        default=None,
        doc="How long a task waits for records at one offset (Spark: spark.network.timeout; here by default "
        "kafka.default.api.timeout.ms).",
        minimum=1,
    ),
    Option(
        name="fetchOffset.numRetries",
        parse=parse_int,
        default=3,
        doc="Of Spark's questions about offsets.",
        minimum=0,
        idle=Idle(words="questions about offsets are asked again until kafka.default.api.timeout.ms"),
    ),
    Option(
        name="fetchOffset.retryIntervalMs",
        parse=parse_int,
        default=1000,
        doc="Pause between them.",
        minimum=0,
        idle=Idle(words="kafka.retry.backoff.ms is the pause before a question is asked again"),
    ),
)
_GROUP: Final = (
    Option(
        name="groupIdPrefix",
        parse=parse_str,
        default=None,
        doc="Of the names that Spark makes up for groups.",
        idle=Idle(words="no group is made up: kafka.group.id names one, and without it there is none"),
    ),
    Option(
        name="groupJoinTimeout",
        parse=parse_str,
        default=None,
        doc="How long a plan waits to be a member of the group; AvailableNow: to own partitions. By default 15 s "
        "longer than kafka.session.timeout.ms, so that the session of a member that was killed has ended.",
    ),
    Option(
        name="groupRebalanceTimeout",
        parse=parse_str,
        default="30min",
        doc="How long a revoked partition may stay with a running batch; longer than batch plus trigger.",
    ),
    Option(
        name="inDoubt",
        parse=_parse_word,
        default="wait",
        doc="What becomes of a batch that was planned and is not known to be finished when its query ends: wait, its "
        "partitions are kept for the query's return until its session has ended; release, others have them at once and "
        "may read it again.",
        choices=("wait", "release"),
    ),
    Option(
        name="externalOffsets",
        parse=_parse_word,
        default="follow",
        doc="Offsets of the group that are set from outside, by a tool or by members that are no queries, while the "
        "query is down: follow, it goes there, back or on; ignore, its checkpoint counts, but for what lies before "
        "them. A line of the log says for each partition from where to where.",
        choices=("follow", "ignore"),
    ),
    Option(
        name="checkpointLocation",
        parse=parse_str,
        default=None,
        doc="The query's checkpointLocation on a local file system: a query that ends looks there whether its last "
        "batch is finished.",
    ),
)

OPTIONS: Final = OptionSet("kohort source option", (*_WHAT, *_BOUNDS, *_SIZES, *_ROWS, *_WAITS, *_GROUP))

#: Kafka settings that the source owns; giving them is an error, as in Spark's Kafka source.
REFUSED: Final = {
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are committed when Spark has committed the batch",
    "fetch.buffer.bytes": "each task takes what it needs",
    "group.local.assignors": "an object cannot travel: name an assignor of the broker by group.remote.assignor",
    "interceptor.classes": "rows are what was sent; change them by Spark's functions",
    "ssl.context": "an object cannot travel: name files by ssl.ca.location and ssl.certificate.location",
    "key.deserializer": "the column key has the bytes as they are; use Spark's functions to read them",
    "value.deserializer": "the column value has the bytes as they are; use Spark's functions to read them",
}
#: Kafka settings that are taken and change nothing, and why.
IDLE: Final = {
    "allow.auto.create.topics": "reading never creates a topic",
    "auto.commit.interval.ms": "offsets are committed when Spark has committed the batch",
    "consumer.timeout.ms": "kafkaConsumer.pollTimeoutMs bounds how long a task waits",
    "enable.auto.offset.store": "offsets are committed when Spark has committed the batch",
    "max.poll.interval.ms": "groupRebalanceTimeout is how long a batch may hold a revoked partition",
    "max.poll.records": "records come in columns; maxOffsetsPerTrigger bounds a batch",
}
#: Options that only a member of a group has a use for.
OF_MEMBERS: Final = ("groupJoinTimeout", "groupRebalanceTimeout", "inDoubt", "externalOffsets", "checkpointLocation")
#: Options that only one of batch and stream has a use for: the other takes or refuses them as Spark does.
OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
OF_BATCHES: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
