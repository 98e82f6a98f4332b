"""The options of `format("kohort")`: each value, each name in any case, each mistake one sentence."""

from __future__ import annotations

import pickle

import pytest

from kohort import TopicPartition
from kohort.errors import ConfigError, UnknownOptionError
from kohort.spark.options import ALL_COLUMNS, EARLIEST, LATEST, SourceOptions, parse_options

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def parse(**options: str) -> SourceOptions:
    """With a broker and, unless `assign` is given, a topic."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    wanted = {} if "assign" in named else {"subscribe": "orders"}
    return parse_options({**SERVERS, **wanted, **named})


def test_defaults() -> None:
    """A topic and a broker are enough."""
    options = parse()
    assert options.topics == ("orders",)
    assert options.partitions == ()
    assert (options.starting, options.ending, options.max_offsets_per_trigger) == (None, None, None)
    assert options.columns == ALL_COLUMNS
    assert options.group_id is None
    assert (options.group_join_timeout_ms, options.group_rebalance_timeout_ms) == (30_000, 1_800_000)
    assert options.api_timeout_ms == 60_000
    assert options.client == {"bootstrap.servers": "127.0.0.1:9092"}


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
    assert options.client == {"bootstrap.servers": "a:1"}
    assert options.topics == ("orders",)
    assert options.starting == EARLIEST
    assert options.max_offsets_per_trigger == 7
    assert options.group_id == "Billing"
    assert options.columns[-1] == "headers"
    assert options.group_join_timeout_ms == 60_000


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
    }
    assert options.api_timeout_ms == 5000
    assert options.group_id == "g"


def test_path_of_load_is_no_option() -> None:
    """Spark puts it there by itself."""
    assert parse_options({**SERVERS, "subscribe": "orders", "path": ""}).topics == ("orders",)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"assign": '{"orders": [0]}', "subscribe": "orders"}, "exactly one of the options subscribe and assign"),
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
        ({"startingOffsets": '{"orders": 5}'}, "offsets by partition are expected for orders"),
        ({"startingOffsets": '{"orders": {"x": 5}}'}, "orders-x cannot be at 5"),
        ({"startingOffsets": '{"orders": {"²": 5}}'}, "cannot be at 5"),
        ({"startingOffsets": '{"orders": {"0": -3}}'}, "orders-0 cannot be at -3"),
        ({"startingOffsets": '{"orders": {"0": "5"}}'}, "orders-0 cannot be at '5'"),
        ({"startingOffsets": '{"orders": {"0": true}}'}, "orders-0 cannot be at True"),
        ({"endingOffsets": "earliest"}, "endingOffsets is not valid JSON"),
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
        ({"kafka.group.protocol": "classic"}, "it is chosen by what the broker speaks"),
        ({"kafka.max.poll.interval.ms": "5"}, "use groupRebalanceTimeout"),
        ({"kafka.max.poll.records": "5"}, "use maxOffsetsPerTrigger"),
        ({"kafka.auto.commit.interval.ms": "5"}, "offsets are committed when Spark has committed the batch"),
        ({"groupJoinTimeout": "5s"}, "groupJoinTimeout is for members of a group: give kafka.group.id, too"),
        ({"path": "orders"}, "load() it is, with the option subscribe"),
        ({"kafka.fetch.buffer.bytes": "0"}, "kafka.fetch.buffer.bytes cannot be set"),
        ({"kafka.check.crcs": "perhaps"}, "check.crcs cannot be 'perhaps'"),
    ],
    ids=str,
)
def test_a_value_that_cannot_be_is_said(options: dict[str, str], sentence: str) -> None:
    """One sentence with the option, what was given and what is expected."""
    named = {name.replace(".", "__"): value for name, value in options.items()}
    if "assign" in options and "subscribe" in options:
        with pytest.raises(ConfigError, match=sentence):
            parse_options({**SERVERS, **options})
        return
    with pytest.raises(ConfigError) as raised:
        parse(**named)
    assert sentence in str(raised.value)


def test_what_is_missing_is_said() -> None:
    """The address, and what to read."""
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is needed"):
        parse_options({"subscribe": "orders"})
    with pytest.raises(ConfigError, match="exactly one of the options subscribe and assign is needed"):
        parse_options(SERVERS)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("subscrib", "unknown kohort source option subscrib; did you mean subscribe?"),
        ("startingOffset", "did you mean startingOffsets?"),
        ("bootstrap.servers", "did you mean kafka.bootstrap.servers?"),
        ("kafka.client.ids", "unknown consumer option client.ids; did you mean client.id?"),
        ("failOnDataLoss", "unknown kohort source option failOnDataLoss"),
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
