"""Reading and writing topics by typed calls, for editors, type checkers and short stack traces.

The calls set the same options as `format("kohort").option(...)`, and check them in the caller's process: Spark checks
them in another Python process, and reports a mistake inside a long Java stack trace.

Laws: a call does nothing that options could not do. Keywords are the options' names with `_` in place of each dot.
Source: Spark's Kafka integration guide; the option tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from kohort.base.options import OptionSet, as_keyword
from kohort.client.options import CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.client.producer.core.partitioner import DEFAULT_PARTITIONER
from kohort.client.producer.producer import Producer
from kohort.errors import ConfigError, UnknownOptionError
from kohort.ids import TopicPartition
from kohort.spark.option_table import OPTIONS, SINK_OPTIONS, ReadOptions, WriteOptions
from kohort.spark.options import SinkOptions, for_batch, for_stream, parse_options, parse_sink_options

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter

_FORMAT: Final = "kohort"


def read_topic(
    spark: SparkSession, topics: str | Sequence[str] | None = None, **options: Unpack[ReadOptions]
) -> DataFrame:
    """Read the present records of topics as a DataFrame with the columns of Spark's Kafka source.

    Args:
        spark: made by `kohort.spark.session`, or passed to `kohort.spark.register`.
        topics: their names; `None` if `assign` or `subscribePattern` is given.
        options: Spark's by their names, Kafka's as for `kohort.Consumer`; partitions and offsets may be given as
            `TopicPartition` instead of JSON.

    Raises:
        ConfigError: an option is unknown or has an invalid value; raised before Spark is called.

    >>> from kohort import TopicPartition
    >>> read_topic(spark, "orders", bootstrap_servers="h:9092",  # doctest: +SKIP
    ...            startingOffsets={TopicPartition("orders", 0): 23}).count()
    1000
    """
    texts = _reading(topics, options)
    for_batch(parse_options(texts))
    return spark.read.format(_FORMAT).options(**texts).load()


def read_stream(
    spark: SparkSession, topics: str | Sequence[str] | None = None, **options: Unpack[ReadOptions]
) -> DataFrame:
    """Read topics as a streaming DataFrame; with `group_id` its query is a member of that group.

    Args and Raises: as `read_topic`.

    >>> orders = read_stream(spark, "orders", bootstrap_servers="h:9092", group_id="reports")  # doctest: +SKIP
    """
    texts = _reading(topics, options)
    for_stream(parse_options(texts))
    return spark.readStream.format(_FORMAT).options(**texts).load()


def write_topic(frame: DataFrame, topic: str | None = None, **options: Unpack[WriteOptions]) -> None:
    """Append the rows of a DataFrame to a topic, and wait until all of them are acknowledged.

    Args:
        frame: has a column `value`, and if wanted `key`, `headers`, `topic` and `partition`.
        topic: the topic of every row; `None` if the column `topic` names it.
        options: Kafka's, as for `kohort.Producer`.

    Raises:
        ConfigError: an option is unknown or has an invalid value; or `frame` is a stream, which `write_stream` takes.

    >>> write_topic(frame, "totals", bootstrap_servers="h:9092", compression_type="zstd")  # doctest: +SKIP
    """
    if frame.isStreaming:
        raise ConfigError("this DataFrame is a stream: give it to write_stream, and start() what that returns")
    texts = _writing(topic, options)
    frame.write.format(_FORMAT).options(**texts).mode("append").save()


def write_stream(
    frame: DataFrame, topic: str | None = None, *, exactly_once: bool = False, **options: Unpack[WriteOptions]
) -> DataStreamWriter:
    """Return a writer of a streaming DataFrame into a topic.

    Set its trigger, checkpoint and name as Spark does, then call `start()`.

    Args:
        frame, topic, options: as for `write_topic`.
        exactly_once: set `kohort.exactlyOnce`, and part the rows by the partitions that the topic has now, since one
            task may write to each: by the column `partition`, else by Kafka's hash of the key, else of the value.

    Raises:
        ConfigError: as for `write_topic`; or with `exactly_once` there is no such topic.
        BrokersUnreachableError: with `exactly_once`: no broker tells the partitions of the topic.

    >>> totals = write_stream(frame, "totals", bootstrap_servers="h:9092")  # doctest: +SKIP
    >>> query = totals.option("checkpointLocation", path).start()  # doctest: +SKIP
    """
    if not frame.isStreaming:
        raise ConfigError("this DataFrame is no stream: give it to write_topic")
    if exactly_once:
        options = {**options, "kohort_exactlyOnce": True}
    texts = _writing(topic, options)
    if exactly_once:
        frame = _part_rows(frame, parse_sink_options(texts))
    return frame.writeStream.format(_FORMAT).options(**texts)


def _part_rows(frame: DataFrame, options: SinkOptions) -> DataFrame:
    """Return the frame with a column `partition`, and each partition's rows in one task."""
    import pyarrow
    from pyspark.sql import functions as f
    from pyspark.sql.pandas.functions import arrow_udf

    if options.client.get("partitioner", DEFAULT_PARTITIONER) != DEFAULT_PARTITIONER:
        raise ConfigError(
            f"exactly_once parts rows by {DEFAULT_PARTITIONER}, Kafka's own: leave partitioner out, or give the rows a "
            "column partition"
        )
    _check_cluster(frame.sparkSession)
    assert options.topic is not None, "checked with the options"
    with Producer.from_config(options.client) as producer:
        producer.connect()
        count = len(producer.partitions_for(options.topic))
    if not count:
        raise ConfigError(f"exactly_once needs the partitions of {options.topic}, and there is no such topic yet")

    def choose(keys: Any, values: Any) -> Any:
        return choose_partitions(keys, values, count)

    # PySpark reads the kind of function there.
    choose.__annotations__ = {"keys": pyarrow.Array, "values": pyarrow.Array, "return": pyarrow.Array}
    columns = [f.col(name) if name in frame.columns else f.lit(None) for name in ("key", "value")]
    as_function: Any = arrow_udf
    chosen = as_function(choose, "int")(*(each.cast("binary") for each in columns))
    if "partition" in frame.columns:
        chosen = f.coalesce(f.col("partition").cast("int"), chosen)
    tasks = min(count, int(frame.sparkSession.conf.get("spark.sql.shuffle.partitions") or count))
    return frame.withColumn("partition", chosen).repartitionById(tasks, "partition")


def _check_cluster(spark: SparkSession) -> None:
    """Refuse a cluster on which Spark may run a task beside an attempt that has written already.

    Of a second attempt in the same stage the task itself knows, but not of a second attempt of the whole stage.
    """
    master = spark.conf.get("spark.master", "") or ""
    attempts = spark.conf.get("spark.stage.maxConsecutiveAttempts", "4")
    if master and not master.startswith("local") and attempts != "1":
        raise ConfigError(
            "exactly_once needs spark.stage.maxConsecutiveAttempts=1 on a cluster: where an executor with shuffled "
            "rows is lost, Spark runs a stage again, and the first attempt's records are in the transaction; "
            "with 1 the batch fails, and is written whole when the query is started again"
        )


def choose_partitions(keys: pyarrow.Array, values: pyarrow.Array, count: int) -> pyarrow.Array:
    """Return the partition of each row, by Kafka's hash of its key, or of its value where it has no key.

    A row goes to the same partition whenever Spark computes it again.

    >>> import pyarrow
    >>> choose_partitions(pyarrow.array([b"a", None]), pyarrow.array([b"1", b"2"]), 7).to_pylist()
    [5, 2]
    """
    import pyarrow
    import pyarrow.compute

    from kohort.columnar.payloads import spans_of
    from kohort.records.span_kernels import spread_spans

    told = pyarrow.compute.coalesce(keys, values).cast(pyarrow.large_binary())
    numbers = memoryview(bytearray(4 * len(told))).cast("i")
    bounds = memoryview(bytearray(8 * (count + 2))).cast("q")
    spread_spans(spans_of(told), None, count, 0, numbers, bounds, memoryview(bytearray(8 * len(told))).cast("q"))
    return pyarrow.Array.from_buffers(pyarrow.int32(), len(told), [None, pyarrow.py_buffer(numbers)])


def _reading(topics: object, options: Mapping[str, Any]) -> dict[str, str]:
    if topics is not None and options.get("subscribe") is not None:
        raise ConfigError("topics are given twice: as an argument, and as subscribe")
    return to_texts({"subscribe": topics, **options}, own=OPTIONS, settings=CONSUMER_OPTIONS)


def _writing(topic: object, options: Mapping[str, Any]) -> dict[str, str]:
    if topic is not None and not isinstance(topic, str):
        raise TypeError(f"topic must be text, not {type(topic).__name__}")
    texts = to_texts({"topic": topic, **options}, own=SINK_OPTIONS, settings=PRODUCER_OPTIONS)
    parse_sink_options(texts)
    return texts


def to_texts(given: Mapping[str, Any], *, own: OptionSet, settings: OptionSet) -> dict[str, str]:
    """Convert options to Spark's names and texts, without those that are `None`.

    `UnknownOptionError`: a name is no option.

    >>> to_texts({"subscribe": ["a", "b"], "group_id": "g"}, own=OPTIONS, settings=CONSUMER_OPTIONS)
    {'subscribe': 'a,b', 'kafka.group.id': 'g'}
    """
    names = {as_keyword(name): f"kafka.{option.name}" for option in settings for name in (option.name, *option.also)}
    names |= {option.keyword: option.name for option in own}
    for name in given:
        if name not in names:
            raise UnknownOptionError(name, names, what=own.what)
    return {names[name]: _to_text(name, value) for name, value in given.items() if value is not None}


def _to_text(name: str, value: object) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str() | int() | float():
            return str(value)
        case Mapping():
            return json.dumps(_by_topic(name, value))
        case list() | tuple() | set() if name == "assign" and all(isinstance(part, TopicPartition) for part in value):
            topics: dict[str, list[int]] = {}
            for topic, number in sorted(value):
                topics.setdefault(topic, []).append(number)
            return json.dumps(topics)
        case list() | tuple() | set() if value and all(isinstance(part, str) for part in value):
            return ",".join(sorted(value) if isinstance(value, set) else value)
        case _ if callable(value) and getattr(value, "__module__", "__main__") != "__main__":
            # A function is passed on as MODULE:NAME, and imported in the process that calls it.
            return f"{value.__module__}:{getattr(value, '__qualname__', '')}"
    raise TypeError(f"{name} cannot be {value!r}: text, a number, a switch, a list or a dictionary is expected")


def _by_topic(name: str, value: Mapping[Any, Any]) -> dict[str, Any]:
    """Nest offsets by topic and partition, as Spark's JSON does; nested offsets stay as they are."""
    nested: dict[str, Any] = {}
    for key, inner in value.items():
        if isinstance(key, TopicPartition):
            nested.setdefault(key.topic, {})[str(key.partition)] = inner
        elif isinstance(key, str):
            nested[key] = inner
        else:
            raise TypeError(f"{name} cannot have {key!r}: partitions are expected, as TopicPartition('orders', 0)")
    return nested
