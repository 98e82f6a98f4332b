"""The options of `format("kohort")`: each value, each name in any case, each mistake one sentence."""

from __future__ import annotations

import pickle

import pytest

from kohort import TopicPartition
from kohort.errors import ConfigError, UnknownOptionError
from kohort.spark.options import (
    ALL_COLUMNS,
    COMMITTED,
    EARLIEST,
    LATEST,
    SourceOptions,
    Times,
    for_batch,
    for_stream,
    parse_options,
)

_JAVA = "org.apache.kafka.clients.consumer"
SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> SourceOptions:
    """With a broker and, unless something to read is given, a topic."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    wanted = {} if {"assign", "subscribePattern"} & named.keys() else {"subscribe": "orders"}
    return parse_options({**SERVERS, **wanted, **named})


def test_defaults() -> None:
    """A topic and a broker are enough."""
    options = parse()
    assert options.topics == ("orders",)
    assert options.partitions == ()
    assert (options.starting, options.ending, options.own["maxOffsetsPerTrigger"]) == (None, None, None)
    assert options.columns == ALL_COLUMNS
    assert options.group_id is None
    assert (options.group_join_timeout_ms, options.group_rebalance_timeout_ms) == (60_000, 1_800_000)
    assert (options.waits_in_doubt, options.checkpoint_location) == (True, None)
    assert (options.api_timeout_ms, options.poll_timeout_ms) == (60_000, 60_000)
    assert (options.own["minPartitions"], options.own["maxRecordsPerPartition"]) == (None, None)
    assert (options.own["minOffsetsPerTrigger"], options.max_trigger_delay_ms) == (None, 900_000)
    assert options.own["failOnDataLoss"]
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092", "allow.auto.create.topics": "false"}
    assert options.remarks == ()


def test_names_come_in_any_case() -> None:
    """Spark hands them over in lower case, users write them as in Spark's documentation."""
    given = {
        "KAFKA.BOOTSTRAP.SERVERS": "a:1",
        "Subscribe": "orders",
        "STARTINGOFFSETS": "Earliest",
        "maxoffsetspertrigger": "7",
        "Kafka.Group.Id": "Billing",
        "includeheaders": "TRUE",
        "groupjointimeout": "1min",
    }
    options = parse_options(given)
    assert options.client["bootstrap.servers"] == "a:1"
    assert options.topics == ("orders",)
    assert options.starting == EARLIEST
    assert options.own["maxOffsetsPerTrigger"] == 7
    assert options.group_id == "Billing"
    assert options.columns[-1] == "headers"
    assert options.group_join_timeout_ms == 60_000


def test_joining_may_take_longer_than_a_session() -> None:
    """So that an AvailableNow run outlives a member that was killed, unless the user wants otherwise."""
    assert parse(kafka__group__id="g", kafka__session__timeout__ms="10000").group_join_timeout_ms == 25_000
    assert parse(kafka__group__id="g", groupJoinTimeout="5s").group_join_timeout_ms == 5_000


def test_what_becomes_of_a_batch_in_doubt() -> None:
    """It is waited for, or not."""
    assert not parse(kafka__group__id="g", inDoubt="Release").waits_in_doubt
    with pytest.raises(ConfigError, match="inDoubt"):
        parse(kafka__group__id="g", inDoubt="perhaps")
    with pytest.raises(ConfigError, match="inDoubt is for members of a group"):
        parse(inDoubt="wait")


def test_options_travel_to_executors() -> None:
    """They are pickled with the reader."""
    options = parse(startingOffsets='{"orders": {"0": 5}}')
    assert pickle.loads(pickle.dumps(options)) == options


def test_subscribe_takes_several_topics_once_each() -> None:
    """A topic that is named twice is not read twice."""
    assert parse(subscribe="b, a,b").topics == ("a", "b")


def test_assign_names_partitions() -> None:
    """JSON as in Spark; order and repetition do not matter."""
    options = parse(assign='{"b": [1, 0, 1], "a": [2]}')
    assert options.topics == ()
    assert options.partitions == (TopicPartition("a", 2), TopicPartition("b", 0), TopicPartition("b", 1))


@pytest.mark.parametrize(
    ("text", "parsed"),
    [
        ("earliest", EARLIEST),
        (" Latest ", LATEST),
        (
            '{"a": {"0": 23, "1": -2}, "b": {"0": -1}}',
            {TopicPartition("a", 0): 23, TopicPartition("a", 1): -2, TopicPartition("b", 0): -1},
        ),
    ],
)
def test_starting_offsets(text: str, parsed: object) -> None:
    """Two words, or JSON with Spark's numbers."""
    assert parse(startingOffsets=text).starting == parsed


def test_ending_offsets() -> None:
    """A batch ends somewhere behind its beginning."""
    assert parse(endingOffsets="latest").ending == LATEST
    assert parse(endingOffsets='{"orders": {"0": 5}}').ending == {TopicPartition("orders", 0): 5}


@pytest.mark.parametrize(
    ("asked", "headers", "columns"),
    [
        ("value", "false", ("value",)),
        ("Offset, VALUE,timestamptype", "false", ("offset", "value", "timestampType")),
        ("value,headers", "false", ("value", "headers")),
        ("headers,value", "true", ("headers", "value")),
        ("value", "true", ("value", "headers")),
    ],
)
def test_columns(asked: str, headers: str, columns: tuple[str, ...]) -> None:
    """In the order asked; `includeHeaders` adds the column that was not asked for."""
    assert parse(columns=asked, includeHeaders=headers).columns == columns


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("250", 250), ("250ms", 250), ("3s", 3000), ("2 min", 120_000), ("1m", 60_000), ("1H", 3_600_000)],
)
def test_times(text: str, milliseconds: int) -> None:
    """A bare number counts milliseconds, as in Kafka."""
    options = parse(groupJoinTimeout=text, groupRebalanceTimeout=text, **{"kafka.group.id": "g"})
    assert (options.group_join_timeout_ms, options.group_rebalance_timeout_ms) == (milliseconds, milliseconds)


def test_settings_of_the_client_travel_on() -> None:
    """Everything behind `kafka.`, but the group, which only the member gets."""
    options = parse(kafka__client__id="etl", kafka__default__api__timeout__ms="5000", kafka__group__id="g")
    assert options.client == {
        "bootstrap.servers": "127.0.0.1:9092",
        "client.id": "etl",
        "default.api.timeout.ms": "5000",
        "allow.auto.create.topics": "false",
    }
    assert (options.api_timeout_ms, options.poll_timeout_ms) == (5000, 5000)
    assert options.group_id == "g"


def test_settings_of_executors_name_no_member() -> None:
    """They join nothing; the member has its name from the query."""
    options = parse(kafka__group__id="g", kafka__group__instance__id="etl-1")
    assert (options.group_id, options.group_instance_id) == ("g", "etl-1")
    assert not {"group.id", "group.instance.id"} & options.client.keys()


@pytest.mark.parametrize(
    ("name", "value", "setting"),
    [
        ("security.protocol", "plaintext", "plaintext"),
        (
            "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.RangeAssignor, roundrobin",
            "range,roundrobin",
        ),
        ("isolation.level", "read_committed", "read_committed"),
        ("group.protocol", "classic", "classic"),
        ("receive.buffer.bytes", "4194304", "4194304"),
    ],
)
def test_settings_of_sparks_source_are_taken(name: str, value: str, setting: str | None) -> None:
    """Under Java's names, with Java's values."""
    options = parse(**{f"kafka.{name}": value})
    assert options.client.get(name) == setting
    assert options.remarks == ()


@pytest.mark.parametrize(
    ("options", "remark"),
    [
        ({"groupIdPrefix": "p"}, "option groupIdPrefix changes nothing: no group is made up"),
        ({"fetchOffset.numRetries": "5"}, "option fetchOffset.numRetries changes nothing: questions about offsets"),
        ({"fetchOffset.retryIntervalMs": "5"}, "option fetchOffset.retryIntervalMs changes nothing"),
        ({"kafka.max.poll.records": "5"}, "option kafka.max.poll.records changes nothing: records come in columns"),
        ({"kafka.max.poll.interval.ms": "5"}, "changes nothing: groupRebalanceTimeout is how long"),
        ({"kafka.auto.commit.interval.ms": "5"}, "changes nothing: offsets are committed when Spark has committed"),
        ({"kafka.allow.auto.create.topics": "true"}, "changes nothing: reading never creates a topic"),
        ({"kafka.connections.max.idle.ms": "5"}, "option kafka.connections.max.idle.ms changes nothing: connections"),
        ({"kafka.metric.reporters": "a.B"}, "option kafka.metric.reporters changes nothing: the client publishes no"),
        ({"kafka.acks": "all"}, "option kafka.acks changes nothing: it concerns producers"),
        ({"kafka.group.instance.id": "a"}, "option kafka.group.instance.id changes nothing without kafka.group.id"),
        ({"maxTriggerDelay": "5s"}, "option maxTriggerDelay changes nothing without minOffsetsPerTrigger"),
        (
            {"startingTimestamp": "5", "startingOffsets": "earliest"},
            "option startingOffsets changes nothing: startingTimestamp goes before it",
        ),
    ],
    ids=str,
)
def test_what_means_nothing_is_taken_and_said(options: dict[str, str], remark: str) -> None:
    """One sentence each: a job that changes the name of its format goes on."""
    (said,) = parse(**options).remarks
    assert remark in said


def test_timestamps_go_before_offsets() -> None:
    """One for all before those by partition, these before offsets; where nothing is that young a strategy decides."""
    by_partition = '{"orders": {"0": 5}}'
    several = {TopicPartition("orders", 0): 5}
    assert parse(startingOffsetsByTimestamp=by_partition, startingOffsets="latest").starting == Times(
        "startingOffsetsByTimestamp", several, False
    )
    options = parse(
        startingTimestamp="7", startingOffsetsByTimestamp=by_partition, startingOffsetsByTimestampStrategy="LATEST"
    )
    assert options.starting == Times("startingTimestamp", 7, True)
    assert parse(endingOffsetsByTimestamp=by_partition).ending == Times("endingOffsetsByTimestamp", several, True)
    assert parse(endingTimestamp="9", endingOffsets="latest").ending == Times("endingTimestamp", 9, True)


def test_pattern_is_pythons() -> None:
    """Java's syntax is the same but for a few things."""
    assert parse(subscribePattern=" or.*|refunds ").pattern == "or.*|refunds"
    for wrong in ("", "or(", "(?<name>or)", "\\p{Alpha}+"):
        with pytest.raises(ConfigError, match="subscribePattern"):
            parse(subscribePattern=wrong)


def test_a_group_may_say_where_to_start() -> None:
    """Beyond Spark's own words."""
    assert parse(startingOffsets="Committed", kafka__group__id="g").starting == COMMITTED


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch: it would read nothing"),
        ({"startingOffsets": '{"orders": {"0": 3, "1": -1}}'}, r"startingOffsets: orders-1 cannot be at -1 \(latest\)"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, r"endingOffsets: orders-0 cannot be at -2 \(earliest\)"),
    ],
    ids=str,
)
def test_a_batch_that_would_read_nothing_is_refused(options: dict[str, str], sentence: str) -> None:
    """As by Spark: somebody expects records."""
    with pytest.raises(ConfigError, match=sentence):
        for_batch(parse(**options))


def test_options_of_streams_change_nothing_in_a_batch() -> None:
    """As in Spark, which says so too."""
    options = for_batch(parse(maxOffsetsPerTrigger="5", minOffsetsPerTrigger="2"))
    assert [remark.split()[1] for remark in options.remarks] == ["maxOffsetsPerTrigger", "minOffsetsPerTrigger"]


@pytest.mark.parametrize(
    "option",
    [{"endingOffsets": "latest"}, {"endingTimestamp": "5"}, {"endingOffsetsByTimestamp": '{"orders": {"0": 5}}'}],
    ids=str,
)
def test_a_stream_has_no_end(option: dict[str, str]) -> None:
    """As in Spark."""
    with pytest.raises(ConfigError, match=f"{next(iter(option))} is an option of batches; a stream has no end"):
        for_stream(parse(**option))


def test_path_of_load_is_no_option() -> None:
    """Spark puts it there by itself."""
    assert parse_options({**SERVERS, "subscribe": "orders", "path": ""}).topics == ("orders",)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            {"subscribePattern": "or.*", "subscribe": "orders"},
            "exactly one of the options subscribe, subscribePattern and assign is needed",
        ),
        ({"assign": "[", "subscribe": "orders"}, "subscribePattern and assign is needed"),
        ({"subscribe": " , "}, "subscribe names no topic"),
        ({"kafka.group.id": ""}, "kafka.group.id cannot be empty"),
        ({"assign": '{"orders": [0]}', "kafka.group.id": "g"}, "assign and kafka.group.id exclude each other"),
        ({"assign": "orders"}, "assign is not valid JSON"),
        ({"assign": "[1]"}, "assign is not a JSON object"),
        ({"assign": "{}"}, "assign names no partition"),
        ({"assign": '{"orders": 0}'}, "a list of partition numbers is expected for orders"),
        ({"assign": '{"orders": [true]}'}, "a list of partition numbers is expected for orders"),
        ({"assign": '{"orders": [-1]}'}, "a list of partition numbers is expected for orders"),
        ({"startingOffsets": "newest"}, "startingOffsets is not valid JSON"),
        ({"startingOffsets": "5"}, "startingOffsets is not a JSON object"),
        ({"startingOffsets": '{"orders": 5}'}, "numbers by partition are expected for orders"),
        ({"startingOffsets": '{"orders": {"x": 5}}'}, "orders-x cannot be at 5"),
        ({"startingOffsets": '{"orders": {"²": 5}}'}, "cannot be at 5"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders-0 cannot be at -3"),
        ({"startingOffsets": '{"orders": {"0": "5"}}'}, "orders-0 cannot be at '5'"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "orders-0 cannot be at True"),
        ({"startingOffsets": '{"orders": {"11111111111": 1}}'}, "orders-11111111111 cannot be at 1"),
        ({"startingOffsets": '{"orders": {"0": 9223372036854775808}}'}, "orders-0 cannot be at 9223372036854775808"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets is not valid JSON"),
        ({"startingOffsets": "committed"}, "startingOffsets cannot be committed without a group: give kafka.group.id"),
        ({"endingOffsets": "earliest"}, "endingOffsets cannot be earliest: latest or offsets by partition"),
        ({"endingOffsets": "committed", "kafka.group.id": "g"}, "endingOffsets cannot be committed: latest or offsets"),
        ({"startingTimestamp": "today"}, "startingTimestamp cannot be 'today': a whole number is expected"),
        ({"endingTimestamp": "-1"}, "endingTimestamp cannot be -1: at least 0 is expected"),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": -2}}'}, "startingOffsetsByTimestamp: orders-0 cannot be at"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "one of error, latest is expected"),
        ({"failOnDataLoss": "no"}, "failOnDataLoss cannot be 'no': true or false is expected"),
        ({"minPartitions": "0"}, "minPartitions cannot be 0: at least 1 is expected"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition cannot be -1: at least 1 is expected"),
        ({"minOffsetsPerTrigger": "0"}, "minOffsetsPerTrigger cannot be 0: at least 1 is expected"),
        (
            {"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"},
            "minOffsetsPerTrigger cannot be 9: maxOffsetsPerTrigger is 5, which is less",
        ),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay cannot be 'soon': a time such as 500ms"),
        ({"kafkaConsumer.pollTimeoutMs": "0"}, "kafkaConsumer.pollTimeoutMs cannot be 0: at least 1 is expected"),
        ({"fetchOffset.numRetries": "-1"}, "fetchOffset.numRetries cannot be -1: at least 0 is expected"),
        ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger cannot be 0: at least 1 is expected"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger cannot be 'many': a whole number is expected"),
        ({"includeHeaders": "yes"}, "includeHeaders cannot be 'yes': true or false is expected"),
        ({"columns": ""}, "columns cannot be ''"),
        ({"columns": "value,VALUE"}, "columns cannot be 'value,VALUE'"),
        ({"groupJoinTimeout": "soon"}, "groupJoinTimeout cannot be 'soon': a time such as 500ms"),
        ({"groupJoinTimeout": "0s"}, "groupJoinTimeout cannot be '0s'"),
        ({"groupJoinTimeout": "-5s"}, "groupJoinTimeout cannot be '-5s'"),
        ({"groupRebalanceTimeout": "1000h"}, "groupRebalanceTimeout cannot be '1000h'"),
        ({"groupRebalanceTimeout": "5 weeks"}, "groupRebalanceTimeout cannot be '5 weeks'"),
        ({"kafka.auto.offset.reset": "latest"}, "kafka.auto.offset.reset cannot be set: use startingOffsets"),
        ({"kafka.enable.auto.commit": "true"}, "offsets are committed when Spark has committed the batch"),
        (
            {"kafka.key.deserializer": "org.apache"},
            "kafka.key.deserializer cannot be set: the column key has the bytes",
        ),
        ({"kafka.interceptor.classes": "a.B"}, "kafka.interceptor.classes cannot be set: rows are what was sent"),
        (
            {"kafka.sasl.jaas.config": "a;", "kafka.security.protocol": "SASL_SSL"},
            "options with kafka. in front: sasl.jaas.config begins with no login module that is known",
        ),
        ({"kafka.ssl.engine.factory.class": "a.B"}, "it names a Java class"),
        ({"kafka.security.protocol": "SASL_SSL"}, "options with kafka. in front: sasl.mechanism is needed"),
        ({"kafka.ssl.truststore.location": "/x"}, "ssl.ca.location would change nothing: security.protocol is PLAIN"),
        ({"kafka.sasl.kerberos.service.name": "k"}, "Kerberos logins are made by Java"),
        ({"kafka.ssl.truststore.type": "JKS"}, "option kafka.ssl.truststore.type cannot be 'JKS'"),
        ({"kafka.ssl.context": "x"}, "an object cannot travel"),
        ({"kafka.sasl.username": "a", "kafka.sasl.plain.username": "b"}, "is given twice, under two names"),
        ({"kafka.fetch.message.max.bytes": "1"}, "is called kafka.max.partition.fetch.bytes here"),
        ({"spark.kafka.clusters.a.auth": "x"}, "delegation tokens are fetched and renewed by a JVM"),
        ({"groupJoinTimeout": "5s"}, "groupJoinTimeout is for members of a group: give kafka.group.id, too"),
        ({"path": "orders"}, "the path 'orders' names no topic: leave it out, and give option subscribe"),
        ({"owner": "root", "option.subscribe": "orders", "provider": "kohort"}, "TEMPORARY VIEW ... USING kohort"),
        ({"kafka.fetch.buffer.bytes": "0"}, "kafka.fetch.buffer.bytes cannot be set"),
        ({"kafka.check.crcs": "perhaps"}, "option kafka.check.crcs cannot be 'perhaps'"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_said(options: dict[str, str], sentence: str) -> None:
    """One sentence with the option, what was given and what is expected."""
    named = {name.replace(".", "__"): value for name, value in options.items()}
    with pytest.raises(ConfigError) as raised:
        parse(**named)
    assert sentence in str(raised.value)


def test_what_is_missing_is_said() -> None:
    """The address, and what to read."""
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is needed"):
        parse_options({"subscribe": "orders"})
    with pytest.raises(
        ConfigError, match=r"HOST:PORT \(no option is given at all: those of a table Spark forgets; CREATE"
    ):
        parse_options({})
    with pytest.raises(
        ConfigError, match="exactly one of the options subscribe, subscribePattern and assign is needed"
    ):
        parse_options(SERVERS)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("subscrib", "unknown kohort source option subscrib; did you mean subscribe?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("kafka.client.ids", "unknown consumer option kafka.client.ids; did you mean kafka.client.id?"),
        ("failOnDataLos", "did you mean failOnDataLoss?"),
    ],
)
def test_an_unknown_option_names_the_nearest(name: str, sentence: str) -> None:
    """A misspelt option is never ignored."""
    with pytest.raises(UnknownOptionError) as raised:
        parse_options({**SERVERS, "subscribe": "orders", name: "1"})
    assert sentence in str(raised.value)


def test_an_unknown_column_names_the_nearest() -> None:
    """Also among several."""
    with pytest.raises(UnknownOptionError, match=r"unknown column valeu; did you mean value\?"):
        parse(columns="key,valeu")


@pytest.mark.parametrize("location", ["s3a://bucket/orders", "hdfs://host/orders", "file://host/orders"])
def test_checkpoint_that_the_reader_cannot_see_is_said(location: str) -> None:
    """It is taken, because nothing is lost by it; what to do instead is in the line."""
    options = parse(kafka__group__id="g", checkpointLocation=location)
    assert options.checkpoint_location is None
    (remark,) = options.remarks
    assert remark.startswith(
        f"option checkpointLocation changes nothing: {location} is on no file system of the driver"
    )
    assert "QueryListener" in remark
    assert parse(kafka__group__id="g", checkpointLocation="file:///data/orders").remarks == ()
