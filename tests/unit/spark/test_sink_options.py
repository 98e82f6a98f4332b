"""The options of writing by `format("kohort")`: each value, each name in any case, each mistake one sentence."""

from __future__ import annotations

import pickle

import pytest

from kohort.errors import ConfigError, UnknownOptionError
from kohort.spark.options import SinkOptions, parse_sink_options


def parse(**options: str) -> SinkOptions:
    """With a broker; `__` for dots."""
    named = {name.replace("__", "."): value for name, value in options.items()}
    return parse_sink_options({"kafka.bootstrap.servers": "127.0.0.1:9092", **named})


def test_broker_is_enough() -> None:
    """Rows name their topics then."""
    options = parse()
    assert (options.topic, options.client) == (None, {"bootstrap.servers": "127.0.0.1:9092"})
    assert not options.adds_batch_headers
    assert pickle.loads(pickle.dumps(options)) == options


def test_names_come_in_any_case_and_with_what_spark_adds() -> None:
    """Spark hands them over in lower case, with a stream's own options among them."""
    options = parse_sink_options(
        {
            "KAFKA.BOOTSTRAP.SERVERS": "a:1",
            "Topic": " orders ",
            "includeheaders": "true",
            "kafka.compression.type": "zstd",
            "kafka.Linger.Ms": "5",
            "kohort.exactlyonce": "false",
            "kohort.batchheaders": "true",
            "checkpointlocation": "/tmp/c",
            "queryname": "q",
            "asyncProgressTrackingEnabled": "false",
            "path": "",
        }
    )
    assert (options.topic, options.adds_batch_headers) == ("orders", True)
    assert options.client == {"bootstrap.servers": "a:1", "compression.type": "zstd", "linger.ms": "5"}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"topic": " "}, "option topic cannot be empty"),
        ({"includeHeaders": "maybe"}, "includeHeaders cannot be 'maybe': true or false is expected"),
        ({"kafka.key.serializer": "x"}, "option kafka.key.serializer cannot be set: keys are written as they are"),
        ({"kafka.value.serializer": "x"}, "option kafka.value.serializer cannot be set: values are written"),
        ({"kafka.acks": "2"}, "acks cannot be"),
        ({"kafka.linger.ms": "-1"}, "linger.ms cannot be -1"),
        ({"kohort.exactlyOnce": "true"}, "kohort.exactlyOnce needs the option topic: the number of the last batch"),
        (
            {"kohort.exactlyOnce": "true", "topic": "t", "kafka.acks": "1"},
            "kohort.exactlyOnce, options with kafka. in front: transactional.id needs acks=all",
        ),
        ({"asyncProgressTrackingEnabled": "true"}, "option asyncProgressTrackingEnabled cannot be set: Spark would"),
        (
            {"kafka.transactional.id": "x"},
            "option kafka.transactional.id cannot be set: kohort.exactlyOnce writes in transactions",
        ),
        ({"path": "orders"}, "the path 'orders' names no topic: leave it out, and give option topic"),
    ],
)
def test_wrong_value_is_refused_with_what_is_expected(options: dict[str, str], sentence: str) -> None:
    """One sentence, by the name that the user wrote."""
    with pytest.raises(ConfigError, match=sentence):
        parse(**options)


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("topics", "unknown kohort sink option topics; did you mean topic"),
        ("kohort.exactlyonec", "did you mean kohort.exactlyOnce"),
        ("kafka.bacth.size", "did you mean kafka.batch.size"),
        ("subscribe", "unknown kohort sink option subscribe"),
    ],
)
def test_unknown_name_is_answered_with_the_nearest(name: str, sentence: str) -> None:
    """Misspelt options end the query before it begins."""
    with pytest.raises(UnknownOptionError, match=sentence):
        parse(**{name: "1"})


def test_options_that_change_nothing_are_said() -> None:
    """In a line each: Spark's own option for headers, and what only Java's client has."""
    idle = "kafka__partitioner__adaptive__partitioning__enable"
    given = parse(includeHeaders="false", kohort__transactionalId="x", **{idle: "true"})
    assert [remark.split(":")[0] for remark in given.remarks] == [
        "option includeHeaders changes nothing",
        "option kafka.partitioner.adaptive.partitioning.enable changes nothing",
        "option kohort.transactionalId changes nothing without kohort.exactlyOnce",
    ]


def test_broker_is_needed() -> None:
    """There is no default to write to."""
    with pytest.raises(ConfigError, match=r"option kafka\.bootstrap\.servers is needed"):
        parse_sink_options({"topic": "orders"})
