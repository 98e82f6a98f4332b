"""What happened to groups outlives the broker, in a topic that is nobody's to write and anybody's to read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import pytest

import kohort
from kohort.cli.main import main
from kohort.client.admin.calls import groups
from kohort.errors import BrokerError
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.explain.explaining import explain
from kohort.testing import Cluster
from support.waiting import until


def read_once(address: str) -> None:
    """A member of "billing" comes and goes."""
    with kohort.Consumer("orders", bootstrap_servers=address, group_id="billing") as consumer:
        until(lambda: bool(consumer.assignment()), what="the member", step=lambda: consumer.poll(0.02))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[kohort.Broker]:
    with kohort.Broker(data_dir=str(tmp_path), process=True) as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        read_once(broker.bootstrap_servers)
        yield broker


def written(address: str) -> list[dict[str, object]]:
    """The rows of "billing" in the topic, as a consumer reads them to its end."""
    place = kohort.TopicPartition(JOURNAL_TOPIC, 0)
    records: list[kohort.ConsumerRecord] = []
    with kohort.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([place])
        end = consumer.end_offsets([place])[place]
        until(
            lambda: consumer.position(place) >= end,
            what=f"the end of the topic, {end}",
            step=lambda: records.extend(consumer.poll(0.2)),
        )
    return [json.loads(record.value or b"") for record in records if record.key == b"billing"]


def test_a_killed_broker_knows_what_happened_before_and_says_what_may_be_missing(
    broker: kohort.Broker, tmp_path: Path
) -> None:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        before = admin.group_history("billing").events
    until(lambda: len(written(broker.bootstrap_servers)) == len(before), what="the rows in the topic")
    broker.kill()
    with (
        kohort.Broker(data_dir=str(tmp_path), process=True) as again,
        kohort.Admin(bootstrap_servers=again.bootstrap_servers) as admin,
    ):
        found = admin.group_history("billing")
        *older, started = found.events
        assert tuple(older) == before
        assert (started.event, started.details["before"]) == ("broker_started", "crashed")
        assert found.is_complete
        assert explain("billing", found.events).last == explain("billing", before).last
        read_once(again.bootstrap_servers)
        later = admin.group_history("billing", after=started.sequence).events
        assert later[0].event == "ConsumerGroupHeartbeat"
        assert later[0].cause > max(event.cause for event in found.events)


def test_its_records_are_the_rows_of_the_history(broker: kohort.Broker) -> None:
    address = broker.bootstrap_servers
    with kohort.Admin(bootstrap_servers=address) as admin:
        events = admin.group_history("billing").events
    until(lambda: len(written(address)) == len(events), what="the rows in the topic")
    assert written(address) == [{"v": 1, "group_id": "billing", **asdict(event)} for event in events]


def test_the_topic_is_the_broker_s_own(broker: kohort.Broker) -> None:
    address = broker.bootstrap_servers
    until(lambda: bool(written(address)), what="the topic")
    with kohort.Admin(bootstrap_servers=address) as admin:
        assert [topic.name for topic in admin.list_topics() if not topic.is_internal] == ["orders"]
        with pytest.raises(BrokerError, match="internal"):
            admin.delete_topics([JOURNAL_TOPIC])
        with pytest.raises(BrokerError), kohort.Producer(bootstrap_servers=address) as producer:
            producer.send(JOURNAL_TOPIC, value=b"mine").result(10)
        with kohort.Consumer(bootstrap_servers=address, group_id="patterns") as consumer:
            consumer.subscribe(pattern=".*")
            until(lambda: bool(consumer.assignment()), what="the pattern", step=lambda: consumer.poll(0.02))
            assert {each.topic for each in consumer.assignment()} == {"orders"}


def test_what_lies_far_back_in_the_topic_is_had_by_who_asks_for_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The ring of this broker has room for the last few rows; the topic is read from its end, a page at a time."""
    options = {"journal.ring.rows": 8}
    with (
        kohort.Broker(data_dir=str(tmp_path), config=options) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        address = broker.bootstrap_servers
        admin.create_topic("orders", 2)
        for _ in range(3):
            read_once(address)
        latest = admin.group_history("billing", after=0).events
        until(
            lambda: len(written(address)) > len(latest) and latest[-1].sequence in sequences(address), what="the rows"
        )

        whole = admin.group_history("billing")
        assert [event.sequence for event in whole.events] == sequences(address)
        assert whole.is_complete and not whole.has_older
        assert not admin.group_history("billing", after=0).is_complete

        monkeypatch.setattr(groups, "_USUAL_PAGES", 0)
        near = admin.group_history("billing")
        assert near.events == latest and near.has_older and not near.is_complete
        assert admin.group_history("billing", whole=True) == whole
        with pytest.raises(kohort.errors.NotInHistoryError):
            admin.explain_group("billing").rebalance(2)
        assert admin.explain_group("billing", whole=True).rebalance(2).triggers[0].trigger == "member joined"

        broker_options = ("--bootstrap", address)
        assert main(["group", "why", "billing", "--rebalance", "2", *broker_options]) == 0
        assert "the rebalance to epoch 2, because" in capsys.readouterr().out
        assert main(["group", "history", "billing", *broker_options]) == 0
        assert "--all shows them, too" in capsys.readouterr().out
        assert main(["group", "history", "billing", "--all", *broker_options]) == 0
        shown = capsys.readouterr().out
        assert shown.count(" joined from ") == 3 and "older rows" not in shown


def test_the_brokers_of_a_cluster_share_it_and_outlive_one_another() -> None:
    """Whoever coordinates the group then: what happened before is told by it, and stands in the topic."""
    with Cluster(3) as cluster, kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("orders", 2)
        read_once(cluster.bootstrap_servers)
        before = admin.group_history("billing").events
        until(lambda: len(written(cluster.bootstrap_servers)) == len(before), what="the rows in the topic")
        cluster.kill(cluster.coordinator("billing"))
        read_once(cluster.bootstrap_servers)
        found = admin.explain_group("billing")
        assert admin.group_history("billing").events[: len(before)] == before
        assert [each.triggers[0].trigger for each in found.rebalances] == ["member joined", "member left"] * 2
        until(lambda: len(written(cluster.bootstrap_servers)) > len(before), what="the rows that came since")


def sequences(address: str) -> list[int]:
    """Of the rows of "billing" in the topic, each once."""
    return sorted({int(str(row["sequence"])) for row in written(address)})


def test_a_broker_without_a_data_directory_says_why_what_is_old_is_gone(capsys: pytest.CaptureFixture[str]) -> None:
    with (
        kohort.Broker(config={"journal.ring.rows": 4}) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.create_topic("orders", 2)
        read_once(broker.bootstrap_servers)
        for action in ("why", "history"):
            assert main(["group", action, "billing", "--bootstrap", broker.bootstrap_servers]) == 0
            assert "without a data directory the broker keeps journal.ring.rows" in capsys.readouterr().out
