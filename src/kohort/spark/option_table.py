"""The options of reading and writing by `format("kohort")`: those of Spark's Kafka source and kohort's own.

Type checkers see the fields as the keyword arguments of `read_topic` and its like. Each field is annotated with the
option that checks its value.

Laws: Spark's names have Spark's values and defaults; an option without effect here is accepted, and a log line says so.
Source: Spark's Kafka integration guide and `KafkaSourceProvider`; P1 to P3.
"""

# Without `from __future__ import annotations`: compiled annotations are read in a fifth of the time of text.

from collections.abc import Mapping, Sequence
from typing import Annotated, Final, Literal, TypeAlias, TypedDict

from kohort.base.options import Idle, Option, OptionSet, options_of, parse_bool, parse_int, parse_list, parse_str
from kohort.client.option_kinds import number, parsed, switch, text
from kohort.client.typed_options import ReaderOptions, WriterOptions
from kohort.ids import TopicPartition

BATCH_HEADERS: Final = "kohort.batchHeaders"
EXACTLY_ONCE: Final = "kohort.exactlyOnce"
TRANSACTIONAL_ID: Final = "kohort.transactionalId"

#: earliest, latest or committed; or a number for each partition, which is an offset or a timestamp in milliseconds.
ByPartition: TypeAlias = str | Mapping[TopicPartition, int] | Mapping[str, Mapping[str, int]]


def _parse_word(text: object) -> str:
    """Parse a keyword such as `latest`, in upper or lower case."""
    return parse_str(text).strip().lower()


def _word(default: str, doc: str) -> Option:
    return parsed(_parse_word, default, doc)


class OwnReadOptions(TypedDict, total=False):
    """Options of reading in addition to those of Kafka's consumer: Spark's and kohort's own."""

    subscribe: Annotated[str | Sequence[str] | None, parsed(parse_list, None, "Topics, with commas.")]
    subscribePattern: Annotated[
        str | None,
        text(
            None,
            "A regular expression that whole names of topics match, in Python's syntax (Spark: Java's); with a group "
            "the coordinator matches, by RE2. Topics that are made later count, too.",
        ),
    ]
    assign: Annotated[str | Sequence[TopicPartition] | None, text(None, 'Partitions as JSON: {"orders": [0, 1]}.')]
    startingOffsets: Annotated[
        ByPartition | None,
        text(
            None,
            'For a new query: earliest (default of a batch), latest (default of a stream), JSON like {"orders": '
            '{"0": 23, "1": -2}} (-2 earliest, -1 latest), or committed: where the group of kafka.group.id stands, '
            "from the beginning where it stands nowhere (not Spark's).",
        ),
    ]
    startingOffsetsByTimestamp: Annotated[
        ByPartition | None,
        text(None, 'JSON like {"orders": {"0": 1700000000000}}, milliseconds; goes before startingOffsets.'),
    ]
    startingTimestamp: Annotated[
        int | None,
        number(
            None,
            "One timestamp for all partitions, milliseconds; goes before startingOffsetsByTimestamp.",
            maximum=None,
        ),
    ]
    startingOffsetsByTimestampStrategy: Annotated[
        Literal["error", "latest"],
        _word("error", "Where no record is that young: error, or start at the latest offset."),
    ]
    endingOffsets: Annotated[ByPartition | None, text(None, "latest (default) or JSON; batch only.")]
    endingOffsetsByTimestamp: Annotated[
        ByPartition | None,
        text(None, "As startingOffsetsByTimestamp, the latest offset where no record is that young; batch only."),
    ]
    endingTimestamp: Annotated[
        int | None,
        number(
            None, "One timestamp for all partitions; goes before endingOffsetsByTimestamp; batch only.", maximum=None
        ),
    ]
    failOnDataLoss: Annotated[
        bool,
        switch(
            True,
            "Whether the query ends where records were deleted before they were read, or a topic was made anew; "
            "otherwise that partition goes on at its first record, and a line of the log says what was skipped.",
        ),
    ]
    maxOffsetsPerTrigger: Annotated[
        int | None,
        number(
            None,
            "Cap of a micro-batch, records, shared over partitions by their backlog; stream only.",
            minimum=1,
            maximum=None,
        ),
    ]
    maxBytesPerTrigger: Annotated[
        int | None,
        number(
            None,
            "About how many bytes of keys, values and headers a micro-batch reads, by the records with which it "
            "begins in each partition (Spark's Kafka source has none); stream only.",
            minimum=1,
            maximum=None,
        ),
    ]
    minOffsetsPerTrigger: Annotated[
        int | None,
        number(
            None,
            "Wait for so many records, but not longer than maxTriggerDelay; AvailableNow does not wait; stream only.",
            minimum=1,
            maximum=None,
        ),
    ]
    maxTriggerDelay: Annotated[str, text("15m", "Longest wait for minOffsetsPerTrigger; stream only.")]
    minPartitions: Annotated[
        int | None,
        number(None, "Cut long ranges until there are about so many tasks.", minimum=1, maximum=None),
    ]
    maxRecordsPerPartition: Annotated[
        int | None,
        number(
            None,
            "Cut ranges that are longer (Spark: no limit; here 2500000 where neither this nor minPartitions is given).",
            minimum=1,
            maximum=None,
        ),
    ]
    kohort_targetTaskRecords: Annotated[
        int | None,
        number(
            None,
            "About how many records a task reads: short partitions share one (not Spark's). By default as many as give "
            "each core a task, 50000 at least and 500000 at most; 1: a task for each partition.",
            minimum=1,
            maximum=None,
        ),
    ]
    includeHeaders: Annotated[bool, switch(False, "Adds the column headers.")]
    columns: Annotated[
        str | Sequence[str] | None,
        parsed(parse_list, None, "The columns to produce, in this order; fewer are faster (not Spark's)."),
    ]
    kafkaConsumer_pollTimeoutMs: Annotated[
        int | None,
        number(
            None,
            "How long a task waits for records at one offset (Spark: spark.network.timeout; here by default "
            "kafka.default.api.timeout.ms).",
            minimum=1,
            maximum=None,
        ),
    ]
    fetchOffset_numRetries: Annotated[
        int,
        Option(
            parse=parse_int,
            default=3,
            doc="Of Spark's questions about offsets.",
            minimum=0,
            idle=Idle(words="questions about offsets are asked again until kafka.default.api.timeout.ms"),
        ),
    ]
    fetchOffset_retryIntervalMs: Annotated[
        int,
        Option(
            parse=parse_int,
            default=1000,
            doc="Pause between them.",
            minimum=0,
            idle=Idle(words="kafka.retry.backoff.ms is the pause before a question is asked again"),
        ),
    ]
    groupIdPrefix: Annotated[
        str | None,
        Option(
            parse=parse_str,
            default=None,
            doc="Of the names that Spark makes up for groups.",
            idle=Idle(words="no group is made up: kafka.group.id names one, and without it there is none"),
        ),
    ]
    groupJoinTimeout: Annotated[
        str | None,
        text(
            None,
            "How long a plan waits to be a member of the group; AvailableNow: to own partitions. By default 15 s "
            "longer than kafka.session.timeout.ms, so that the session of a member that was killed has ended.",
        ),
    ]
    groupRebalanceTimeout: Annotated[
        str,
        text("30min", "How long a revoked partition may stay with a running batch; longer than batch plus trigger."),
    ]
    inDoubt: Annotated[
        Literal["wait", "release"],
        _word(
            "wait",
            "What becomes of a batch that was planned and is not known to be finished when its query ends: wait, its "
            "partitions are kept for the query's return until its session has ended; release, others have them at "
            "once and may read it again.",
        ),
    ]
    externalOffsets: Annotated[
        Literal["follow", "ignore"],
        _word(
            "follow",
            "Offsets of the group that are set from outside, by a tool or by members that are no queries, while the "
            "query is down: follow, it goes there, back or on; ignore, its checkpoint counts, but for what lies "
            "before them. A line of the log says for each partition from where to where.",
        ),
    ]
    checkpointLocation: Annotated[
        str | None,
        text(
            None,
            "The query's checkpointLocation on a local file system: a query that ends looks there whether its last "
            "batch is finished.",
        ),
    ]


class ReadOptions(OwnReadOptions, ReaderOptions, total=False):
    """Options of reading: Spark's, then Kafka's."""


class OwnWriteOptions(TypedDict, total=False):
    """Options of writing in addition to those of Kafka's producer: Spark's and kohort's own."""

    includeHeaders: Annotated[
        bool,
        Option(
            parse=parse_bool,
            default=False,
            doc="Whether headers are written.",
            idle=Idle(words="as by Spark's sink, a column headers is written where there is one", unless=(True,)),
        ),
    ]
    kohort_batchHeaders: Annotated[
        bool,
        switch(
            False,
            "Adds the headers kohort.query and kohort.batch, by which readers drop doubles; for streaming queries.",
        ),
    ]
    kohort_exactlyOnce: Annotated[
        bool,
        switch(
            False,
            "Whether each micro-batch is one transaction, which is not written again when Spark repeats the batch; for "
            "streaming queries with the option topic.",
        ),
    ]
    kohort_transactionalId: Annotated[
        str | None,
        text(
            None,
            "The name of the query's transactions, and of the group that has the number of its last batch; by default "
            "that of the query's id in its checkpoint, which has to be on a file system of the driver's machine.",
        ),
    ]


class SinkTable(OwnWriteOptions, total=False):
    """Options of the sink; `write_topic` and `write_stream` have the topic as an argument."""

    topic: Annotated[str | None, text(None, "The topic of every row; it wins over a column topic.")]


class WriteOptions(OwnWriteOptions, WriterOptions, total=False):
    """Options of writing: Spark's, then Kafka's."""

    #: As in `ProducerOptions`, but without functions: Spark passes options as text.
    partitioner: str


OPTIONS: Final = OptionSet("kohort source option", options_of(OwnReadOptions))
SINK_OPTIONS: Final = OptionSet("kohort sink option", options_of(SinkTable))

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
#: Kafka settings that are accepted and change nothing, and why.
IDLE: Final = {
    "allow.auto.create.topics": "reading never creates a topic",
    "auto.commit.interval.ms": "offsets are committed when Spark has committed the batch",
    "consumer.timeout.ms": "kafkaConsumer.pollTimeoutMs bounds how long a task waits",
    "enable.auto.offset.store": "offsets are committed when Spark has committed the batch",
    "max.poll.interval.ms": "groupRebalanceTimeout is how long a batch may hold a revoked partition",
    "max.poll.records": "records come in columns; maxOffsetsPerTrigger bounds a batch",
}
#: Options that need kafka.group.id.
OF_MEMBERS: Final = ("groupJoinTimeout", "groupRebalanceTimeout", "inDoubt", "externalOffsets", "checkpointLocation")
#: Options of streams only and of batches only: a batch ignores the former, a stream refuses the latter, as in Spark.
OF_STREAMS: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
OF_BATCHES: Final = ("endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp")
