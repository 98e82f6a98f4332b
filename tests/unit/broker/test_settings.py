"""Broker configs: Kafka's names, checked once, from Python or a file."""

from __future__ import annotations

from pathlib import Path

import pytest

from kohort.broker.options.configfile import load_config_file
from kohort.broker.options.settings import BROKER_OPTIONS, BrokerSettings
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ConfigError, UnknownOptionError


def advertised(settings: BrokerSettings) -> tuple[str | None, int | None]:
    """The address that clients of the first listener are told."""
    first = settings.listeners[0]
    return first.advertised_host, first.advertised_port


def test_defaults_are_the_coordinators_own() -> None:
    settings = BrokerSettings.of()
    # Dialogues with the coordinator do not wait for members that never come.
    assert settings.groups == GroupSettings(group_initial_rebalance_delay_ms=100)
    assert (settings.host, settings.port, settings.data_dir, settings.node_id) == ("127.0.0.1", 9092, None, 1)
    assert settings.topic_defaults()["flush.messages"] == "1"


@pytest.mark.parametrize("name", ["num.partitions", "num_partitions"])
def test_dotted_names_and_keywords_mean_the_same(name: str) -> None:
    assert BrokerSettings.of({name: "3"}).values["num.partitions"] == 3


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("num.partition", "num.partitions"), ("group.consumer.sesion.timeout.ms", "group.consumer.session.timeout.ms")],
)
def test_a_misspelt_name_is_an_error_that_tells_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(UnknownOptionError, match=f"unknown broker option {name}; did you mean {nearest}"):
        BrokerSettings.of({name: 1})


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"num.partitions": "many"}, "num.partitions cannot be 'many': a whole number is expected"),
        ({"num.partitions": 0}, "num.partitions cannot be 0: at least 1 is expected"),
        ({"default.replication.factor": 3}, "at most 1 is expected"),
        ({"listeners": "PLAINTEXT://localhost"}, "NAME://HOST:PORT is expected"),
        ({"log.dirs": "/a,/b"}, "exactly one directory"),
        ({"log.dirs": ""}, "exactly one directory"),
        ({"log.dir": "/a", "log.dirs": "/b"}, "log.dir (/a) and log.dirs (/b) contradict each other: keep one"),
        ({"broker.id": 2, "node.id": 3}, "broker.id (2) and node.id (3) contradict each other: keep one"),
        ({"num.partitions": 3, "num_partitions": 3}, "num.partitions is given twice (num.partitions and num_"),
        ({"listeners": ["PLAINTEXT://:9092"]}, "listeners cannot be ['PLAINTEXT://:9092']: text is expected"),
        ({"cluster.id": b"x"}, "cluster.id cannot be b'x': text is expected"),
        ({"group.consumer.assignors": b"uniform"}, "a list of names is expected"),
        ({5: 1}, "broker option 5 is not a name: text is expected"),
        ({"group.consumer.assignors": "mine"}, "group.consumer.assignors"),
        ({"group.consumer.heartbeat.interval.ms": 45_000}, "has to be below"),
    ],
)
def test_a_bad_value_is_one_clear_sentence(config: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        BrokerSettings.of(config)
    assert message in str(raised.value)


def test_a_port_that_cannot_be_is_refused() -> None:
    with pytest.raises(ConfigError, match="port cannot be 70000: at most 65535 is expected"):
        BrokerSettings.of(port=70_000)


def test_two_names_of_one_thing_may_agree(tmp_path: Path) -> None:
    settings = BrokerSettings.of({"log.dir": tmp_path, "log.dirs": str(tmp_path), "broker.id": 7})
    assert (settings.data_dir, settings.node_id) == (str(tmp_path), 7)


def test_group_options_reach_the_coordinator() -> None:
    settings = BrokerSettings.of(
        {
            "group.min.session.timeout.ms": 250,
            "group.consumer.heartbeat.interval.ms": "300",
            "offset.metadata.max.bytes": 7,
        }
    )
    assert settings.groups.group_min_session_timeout_ms == 250
    assert settings.groups.group_consumer_heartbeat_interval_ms == 300
    assert settings.groups.offset_metadata_max_bytes == 7


def test_listeners_and_advertised_listeners_are_taken_apart() -> None:
    settings = BrokerSettings.of(
        {"listeners": "PLAINTEXT://:7000", "advertised.listeners": "PLAINTEXT://[::1]:7001", "log.dir": "/data"}
    )
    assert (settings.host, settings.port) == ("0.0.0.0", 7000)
    assert advertised(settings) == ("::1", 7001)
    assert settings.data_dir == "/data"


def test_arguments_win_over_options() -> None:
    settings = BrokerSettings.of({"listeners": "PLAINTEXT://h:7000", "log.dir": "/a"}, host="i", port=0, data_dir="/b")
    assert (settings.host, settings.port, settings.data_dir) == ("i", 0, "/b")


def test_advertised_port_follows_the_one_that_is_given_instead() -> None:
    """`kohort up --config-file server.properties --port 9192`: clients would be sent to a port that nobody holds."""
    config = {"listeners": "PLAINTEXT://:9092", "advertised.listeners": "PLAINTEXT://localhost:9092"}
    settings = BrokerSettings.of(config, port=9192)
    assert (settings.port, *advertised(settings)) == (9192, "localhost", None)
    forwarded = BrokerSettings.of({**config, "advertised.listeners": "PLAINTEXT://outside:443"}, port=9192)
    assert advertised(forwarded) == ("outside", 443)
    # As into a container: what is said stays said, though it is the default port.
    mapped = BrokerSettings.of({"advertised.listeners": "PLAINTEXT://localhost:9092"}, port=19092)
    assert (mapped.port, *advertised(mapped)) == (19092, "localhost", 9092)


def test_every_option_says_what_it_is_for() -> None:
    assert all(option.doc.endswith((".", ")")) for option in BROKER_OPTIONS)


def test_properties_are_read_as_java_reads_them(tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_text("# comment\n! another\n\nnum.partitions = 3\nnode.id:7\nlisteners=PLAINTEXT://\\\n  :0\n")
    read = load_config_file(str(file))
    assert read.values == {"num.partitions": "3", "node.id": "7", "listeners": "PLAINTEXT://:0"}
    assert [read.place_of(name) for name in read.values] == [f"{file}:{line}" for line in (4, 5, 6)]


def test_toml_may_nest_or_quote_the_names(tmp_path: Path) -> None:
    file = tmp_path / "broker.toml"
    file.write_text('"num.partitions" = 3\nnode.id = 7\n[group.consumer]\nassignors = ["uniform"]\n')
    assert BrokerSettings.of(load_config_file(str(file)).values).node_id == 7


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.properties", b"num.partitions\n", "line 1: NAME=VALUE is expected"),
        ("a.toml", b"= 3", "is not valid TOML"),
        ("a.properties", b"\xff\xfe", "is not UTF-8 text"),
        ("a.properties", b"#" * (2 << 20), "is longer than"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes, message: str) -> None:
    file = tmp_path / name
    file.write_bytes(content)
    with pytest.raises(ConfigError) as raised:
        load_config_file(str(file))
    assert message in str(raised.value)
    assert name in str(raised.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        load_config_file(str(tmp_path / "none.properties"))
