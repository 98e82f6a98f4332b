"""A setting that lets a power cut take what was acknowledged says so, and nothing else does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import kohort
from kohort.base.durability_window import DurabilityWindow
from kohort.broker.embedded import Broker
from kohort.cli.main import main

RELAXED = {"flush.messages": "10000", "flush.ms": "1000"}
SENTENCE = (
    "acks=all is answered before records are on disk: a power cut may take about the last 10,000 records or 1 s of a "
    "partition"
)


def relaxed_lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    lines = [line for line in caplog.messages if line.startswith("event=relaxed")]
    caplog.clear()
    return lines


def test_what_may_be_lost_is_told_at_the_start_and_to_who_asks(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("synced", configs={"flush.ms": 7})
        admin.create_topic("some", configs=RELAXED)
        admin.create_topic("fewer", configs={"flush.messages": 10})
    assert relaxed_lines(caplog) == []

    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        facts = admin.describe_broker()
        windows = [topic.loss_window for topic in admin.describe_topics(["synced", "some", "fewer"])]
        assert main(["topic", "describe", "synced", "some", "-b", broker.bootstrap_servers]) == 0
        told = capsys.readouterr().out
        assert main(["topic", "describe", "some", "--json", "-b", broker.bootstrap_servers]) == 0
        (described,) = json.loads(capsys.readouterr().out)
    assert relaxed_lines(caplog) == [f"event=relaxed topics=2 may_lose={SENTENCE!r}"]
    assert (facts["relaxed.topics"], facts["relaxed.may.lose"]) == ("2", SENTENCE)
    assert windows == [None, DurabilityWindow(10_000, 1_000), DurabilityWindow(10, None)]
    assert told.count("acks=all") == 1 and SENTENCE in told.splitlines()
    assert described["loss_window"] == {"records": 10_000, "ms": 1_000}


def test_relaxed_defaults_are_told_before_there_are_topics(caplog: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    config = {"log.flush.interval.messages": (1 << 63) - 1}
    with Broker(data_dir=tmp_path, config=config):
        pass
    (line,) = relaxed_lines(caplog)
    assert line.startswith("event=relaxed topics=new ") and "all that the system has not written yet" in line


def test_relaxed_log_of_the_groups_is_told_until_it_is_synced_by_name(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """`log.flush.interval.messages` is every topic's default, the groups' own included, as Apache Kafka's is."""

    def told() -> int:
        found = sum(line.startswith("event=groups_relaxed topic=__consumer_offsets") for line in caplog.messages)
        caplog.clear()
        return found

    config = {"log.flush.interval.messages": 10_000}
    for _ in range(2):
        with Broker(data_dir=tmp_path, config=config):
            assert told() == 1
    with (
        Broker(data_dir=tmp_path, config=config) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.alter_configs([("topic", "__consumer_offsets")], {"flush.messages": 1})
    assert told() == 1
    with Broker(data_dir=tmp_path, config=config):
        assert told() == 0


def test_a_broker_in_memory_says_nothing_of_power(caplog: pytest.LogCaptureFixture) -> None:
    config = {"log.flush.interval.messages": 10}
    with Broker(config=config) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert "relaxed.topics" not in admin.describe_broker()
    assert relaxed_lines(caplog) == []
