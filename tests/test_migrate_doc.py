"""docs/reference/migrate.md says what is so: every name exists, there and here, and no call is left out."""

from __future__ import annotations

import concurrent.futures
import inspect
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import aiokafka
import aiokafka.admin.client
import confluent_kafka
import confluent_kafka.admin
import confluent_kafka.aio
import kafka
import kafka.errors
import kafka.producer.future
import pytest

import kohort
import kohort.aio
import kohort.errors
from kohort.base.options import as_keyword, as_text
from kohort.client.options import CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.errors import ErrorCode
from support.builders.doc_names import Row, problem_with, public_names, rows_under

ROOT = Path(__file__).resolve().parents[1]
DOCUMENT = ROOT / "docs" / "reference" / "migrate.md"
TEXT = DOCUMENT.read_text()
OURS = (kohort, kohort.errors, concurrent.futures)


class Library(NamedTuple):
    """One that programs come from: where its names stand, and the classes of which none may be left out."""

    name: str
    modules: tuple[ModuleType, ...]
    classes: tuple[type, ...]

    @property
    def rows(self) -> list[Row]:
        return list(rows_under(TEXT, f"| {self.name} | here | what differs |"))


LIBRARIES = (
    Library(
        "confluent-kafka",
        (confluent_kafka, confluent_kafka.admin),
        (
            confluent_kafka.Consumer,
            confluent_kafka.Producer,
            confluent_kafka.Message,
            confluent_kafka.TopicPartition,
            confluent_kafka.admin.AdminClient,
        ),
    ),
    Library(
        "kafka-python",
        (kafka, kafka.errors),
        (kafka.KafkaConsumer, kafka.KafkaProducer, kafka.KafkaAdminClient),
    ),
    Library(
        "aiokafka",
        (aiokafka,),
        (aiokafka.AIOKafkaConsumer, aiokafka.AIOKafkaProducer, aiokafka.admin.client.AIOKafkaAdminClient),
    ),
)


@pytest.fixture(params=LIBRARIES, ids=lambda library: library.name)
def library(request: pytest.FixtureRequest) -> Library:
    found: Library = request.param
    return found


def test_every_name_of_theirs_exists(library: Library) -> None:
    assert len(library.rows) > 30
    assert [why for row in library.rows for name in row.theirs if (why := problem_with(name, library.modules))] == []


def test_every_name_of_ours_exists(library: Library) -> None:
    assert [why for row in library.rows for name in row.ours if (why := problem_with(name, OURS))] == []


def test_no_call_of_theirs_is_left_out_or_told_twice(library: Library) -> None:
    told = [".".join(name.partition("(")[0].split(".")[-2:]) for row in library.rows for name in row.theirs]
    assert set().union(*map(public_names, library.classes)) - set(told) == set()
    assert sorted({name for name in told if told.count(name) > 1}) == []


def test_what_is_told_to_be_missing_is_missing(library: Library) -> None:
    """Once there is something of that name, the row says so."""
    doors = {"Consumer": kohort.Consumer, "Producer": kohort.Producer, "Admin": kohort.Admin}
    for name in [name for row in library.rows if not row.ours for name in row.theirs]:
        kind, _, call = name.partition("(")[0].rpartition(".")
        found = [door for word, door in doors.items() if word in kind and "Record" not in kind and hasattr(door, call)]
        assert not found, name


def test_a_wrong_name_is_noticed() -> None:
    """What the tests above rely on."""
    assert problem_with("Consumer.pol", OURS) == "there is no Consumer.pol"
    assert problem_with("Consumer.poll(timeout_ms)", OURS) == "Consumer.poll takes no timeout_ms"
    assert problem_with("Consumer.poll(wait)", (confluent_kafka,)) == "Consumer.poll takes no wait"
    assert problem_with("Consumer.poll(timeout)", (confluent_kafka,)) is None


def test_every_error_of_kafka_python_is_told_or_has_our_code() -> None:
    told = {name for row in LIBRARIES[1].rows for name in row.theirs}
    numbers = {code.value for code in ErrorCode}
    errors = {name: each for name, each in vars(kafka.errors).items() if inspect.isclass(each)}
    of_clients = {name for name, each in errors.items() if not isinstance(getattr(each, "errno", None), int)}
    assert of_clients - told == set()
    unknown = {each.errno for each in errors.values() if isinstance(getattr(each, "errno", None), int)} - numbers
    assert unknown == set()


# -- defaults -----------------------------------------------------------------------------------------------------


def parameters(function: Any) -> dict[str, object]:
    return {name: each.default for name, each in inspect.signature(function).parameters.items()}


def defaults_there() -> dict[str, dict[str, object]]:
    """Library -> keyword -> default, of those that tell."""
    return {
        "kafka-python": {**kafka.KafkaProducer.DEFAULT_CONFIG, **kafka.KafkaConsumer.DEFAULT_CONFIG},
        "aiokafka": {
            **parameters(aiokafka.AIOKafkaProducer.__init__),
            **parameters(aiokafka.AIOKafkaConsumer.__init__),
        },
    }


def shown(value: object) -> str:
    """A default as the table has it."""
    if isinstance(value, tuple):
        return ",".join(each.name for each in value)
    if value is None or value == float("inf"):
        return "no limit"
    return as_text(value)


def default_rows() -> dict[str, Mapping[str, str]]:
    header, table = "| option | here | confluent-kafka | kafka-python | aiokafka |", {}
    for line in TEXT.partition(f"{header}\n")[2].split("\n\n", 1)[0].splitlines()[1:]:
        option, *cells = (cell.strip().strip("`") for cell in line.strip("|").split("|"))
        table[option] = dict(zip(("here", "confluent-kafka", "kafka-python", "aiokafka"), cells, strict=True))
    return table


#: What says the same in other words, or is nobody's concern: (keyword, default of theirs).
ALIKE = {
    ("bootstrap_servers", "localhost"),
    ("client_rack", None),
    ("heartbeat_interval_ms", 3000),
    ("receive_buffer_bytes", None),
    ("retries", float("inf")),
    ("sasl_mechanism", "PLAIN"),
    ("send_buffer_bytes", None),
    ("ssl_check_hostname", True),
}


def our_default(name: str) -> object:
    options = CONSUMER_OPTIONS if name in CONSUMER_OPTIONS else PRODUCER_OPTIONS
    return options.option(name).default


def test_defaults_are_those_of_the_code_and_of_the_libraries() -> None:
    """Of librdkafka, which tells none of them, they are copied from its documents."""
    spoken = {("acks", "-1"): "all", ("compression.type", "no limit"): "none"}
    for name, row in default_rows().items():
        assert row["here"] == as_text(our_default(name)), name
        for library, theirs in defaults_there().items():
            value = theirs.get(as_keyword(name), "")
            if name not in ("client.id", "partitioner") and type(value) is not object:
                found = shown(value)
                assert row[library] == spoken.get((name, found), found), (name, library)


def test_no_default_that_differs_is_left_out() -> None:
    told = set(map(as_keyword, default_rows()))
    for theirs in defaults_there().values():
        shared = {name for name in theirs if name in CONSUMER_OPTIONS or name in PRODUCER_OPTIONS}
        differing = {name for name in shared if theirs[name] != our_default(name)}
        assert differing - told - {name for name, default in ALIKE if theirs.get(name) == default} == set()
