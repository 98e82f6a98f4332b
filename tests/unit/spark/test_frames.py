"""The typed calls: what they hand to Spark, and what they refuse before Spark is asked; real frames: tests/spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kohort import TopicPartition
from kohort.base.options import as_keyword
from kohort.client.options import CONSUMER_OPTIONS
from kohort.errors import ConfigError, UnknownOptionError
from kohort.spark import read_stream, read_topic, write_stream, write_topic
from kohort.spark.frames import to_texts
from kohort.spark.option_table import IDLE, OPTIONS, REFUSED, SINK_OPTIONS, ReadOptions, WriteOptions

BATCH: Any = SimpleNamespace(isStreaming=False)
STREAM: Any = SimpleNamespace(isStreaming=True)
P0, P2 = TopicPartition("orders", 0), TopicPartition("orders", 2)


class Session:
    """Spark's session and its readers, as far as they are asked: it takes options and gives them back."""

    def __init__(self) -> None:
        self.read = self.readStream = self

    def format(self, name: str) -> Session:
        assert name == "kohort"
        return self

    def options(self, **options: str) -> Session:
        self.given = options
        return self

    def load(self) -> dict[str, str]:
        return self.given


def read(**options: Any) -> Any:
    return read_topic(Session(), **{"bootstrap_servers": "h:1", **options})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("topics", "orders", "orders"),
        ("topics", ["b", "a"], "b,a"),
        ("topics", {"b", "a"}, "a,b"),
        ("assign", [P2, P0], '{"orders": [0, 2]}'),
        ("assign", '{"orders": [0]}', '{"orders": [0]}'),
        ("startingOffsets", {P0: 23, P2: -2}, '{"orders": {"0": 23, "2": -2}}'),
        ("startingOffsets", {"orders": {"0": 23}}, '{"orders": {"0": 23}}'),
        ("startingOffsets", "earliest", "earliest"),
        ("includeHeaders", True, "true"),
        ("minPartitions", 8, "8"),
        ("kafkaConsumer_pollTimeoutMs", 500, "500"),
    ],
)
def test_values_become_sparks_texts(name: str, value: object, text: str) -> None:
    topics = {} if name in ("topics", "assign") else {"topics": "orders"}
    given = read(**topics, **{name: value})
    spelled = {"topics": "subscribe", "kafkaConsumer_pollTimeoutMs": "kafkaConsumer.pollTimeoutMs"}
    assert given[spelled.get(name, name)] == text


def test_kafkas_options_are_keywords_and_none_is_left_out() -> None:
    assert read(topics="orders", fetch_max_bytes=1 << 20, group_id=None, bootstrap_servers=["h:1", "h:2"]) == {
        "subscribe": "orders",
        "kafka.bootstrap.servers": "h:1,h:2",
        "kafka.fetch.max.bytes": "1048576",
    }


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"topics": "a", "startingOffset": "earliest"}, UnknownOptionError, "did you mean startingOffsets"),
        ({"topics": "a", "auto_offset_reset": "latest"}, ConfigError, "use startingOffsets"),
        ({"topics": "a", "startingOffsets": "latest"}, ConfigError, "startingOffsets cannot be latest in a batch"),
        ({"topics": "a", "subscribe": "b"}, ConfigError, "topics are given twice"),
        ({}, ConfigError, "exactly one of the options"),
        ({"topics": []}, TypeError, "subscribe cannot be"),
        ({"topics": [P0]}, TypeError, "subscribe cannot be"),
        ({"topics": b"orders"}, TypeError, "subscribe cannot be b'orders'"),
        ({"topics": "a", "startingOffsets": {("orders", 0): 1}}, TypeError, "startingOffsets cannot have"),
        ({"topics": "a", "bootstrap_servers": None}, ConfigError, "kafka.bootstrap.servers is needed"),
    ],
)
def test_mistakes_are_said_before_spark_is_asked(
    options: dict[str, object], error: type[Exception], sentence: str
) -> None:
    """One sentence in the line that is wrong, not behind a page of Java's."""
    with pytest.raises(error, match=sentence):
        read(**options)


def test_stream_and_batch_have_options_of_their_own() -> None:
    session: Any = Session()
    servers = {"bootstrap_servers": "h:1"}
    with pytest.raises(ConfigError, match="endingOffsets is an option of batches"):
        read_stream(session, "orders", endingOffsets="latest", bootstrap_servers="h:1")
    with pytest.raises(ConfigError, match="this DataFrame is a stream: give it to write_stream"):
        write_topic(STREAM, "totals", bootstrap_servers="h:1")
    with pytest.raises(ConfigError, match="this DataFrame is no stream: give it to write_topic"):
        write_stream(BATCH, "totals", bootstrap_servers="h:1")
    with pytest.raises(ConfigError, match="option topic cannot be empty"):
        write_topic(BATCH, " ", bootstrap_servers="h:1")
    with pytest.raises(UnknownOptionError, match=r"sink option ack; did you mean acks\?"):
        write_topic(BATCH, "totals", ack="all", **servers)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="topic must be text, not list"):
        write_topic(BATCH, ["totals"], bootstrap_servers="h:1")  # type: ignore[arg-type]


def test_every_option_has_its_keyword() -> None:
    """What Spark's source takes, and Kafka's as far as they are not the source's own."""
    taken = [option for option in CONSUMER_OPTIONS if option.name not in REFUSED and option.name not in IDLE]
    theirs = {as_keyword(name) for option in taken for name in (option.name, *option.also)}
    # One of the options that all clients share cannot travel.
    assert ReadOptions.__optional_keys__ - {"ssl_context"} == theirs | {option.keyword for option in OPTIONS}
    assert {option.keyword for option in SINK_OPTIONS} - {"topic"} < WriteOptions.__optional_keys__
    assert {"acks", "compression_type", "bootstrap_servers"} < WriteOptions.__optional_keys__
    given = dict.fromkeys(ReadOptions.__optional_keys__, "1")
    named = to_texts(given, own=OPTIONS, settings=CONSUMER_OPTIONS)
    assert all(name.startswith("kafka.") or name in OPTIONS for name in named)


def test_function_travels_by_its_name() -> None:
    """As long as it can be imported where it is called; what is made on the spot cannot."""
    given = {"sasl_oauth_token_provider": parse_server, "ssl_cafile": "ca.pem"}
    assert to_texts(given, own=OPTIONS, settings=CONSUMER_OPTIONS) == {
        "kafka.sasl.oauth.token.provider": f"{__name__}:parse_server",
        "kafka.ssl.ca.location": "ca.pem",
    }


def parse_server() -> str:
    """Stands for a function that makes tokens."""
    return "token"
