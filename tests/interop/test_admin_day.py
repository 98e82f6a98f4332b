"""Offsets and members of groups, administered at our own brokers."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest

import kohort
from kohort.errors import ConfigError
from kohort.testing import Cluster
from support.peers.cli import run_kohort
from support.scenarios import admin_calls
from support.scenarios.admin_day import play_day
from support.scenarios.many_groups import play_many_groups

CONFIG = {"group.consumer.heartbeat.interval.ms": 200}


def test_a_day_at_one_broker_and_at_three() -> None:
    """Whose coordinators and leaders are different ones."""
    with kohort.Broker(config=CONFIG) as broker:
        play_day({"bootstrap_servers": broker.bootstrap_servers}, "day")
    with Cluster(3, config=CONFIG) as cluster:
        play_day({"bootstrap_servers": cluster.bootstrap_servers}, "day")


def test_many_groups_at_one_broker_and_at_three() -> None:
    """One broker, one coordinator; and three, of which one goes away when it has been asked."""
    with kohort.Broker(config=CONFIG) as broker:
        play_many_groups({"bootstrap_servers": broker.bootstrap_servers}, "many", count=120, disturb=lambda: None)
    with Cluster(3, config=CONFIG) as cluster:
        play_many_groups(
            {"bootstrap_servers": cluster.bootstrap_servers}, "many", count=30, disturb=lambda: cluster.kill(2)
        )


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({}, "one of to and shift_by is expected"),
        ({"to": "earliest", "shift_by": 1}, "one of to and shift_by is expected"),
        ({"to": "newest"}, "to cannot be 'newest'"),
        ({"to": -1}, "offsets begin with 0"),
        ({"to": True}, "to cannot be True"),
        ({"to": datetime(2026, 1, 1)}, "without a time zone"),  # that is what is wrong
        ({"to": timedelta(seconds=-1)}, "how long ago"),
        ({"to": 1.5}, "to cannot be 1.5"),
        ({"to": {kohort.TopicPartition("t", 0): -1}}, "an offset cannot be -1"),
        ({"to": {"t": 1}}, "is no partition"),
    ],
    ids=str,
)
def test_reset_that_says_nothing_is_refused_before_anybody_is_asked(given: dict[str, Any], says: str) -> None:
    with kohort.Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises((ConfigError, TypeError), match=says):
        admin.reset_offsets("g", **given)


def test_texts_where_lists_are_expected_are_refused() -> None:
    """One of them would be taken for its letters."""
    with kohort.Admin(bootstrap_servers="127.0.0.1:1") as admin:
        with pytest.raises(TypeError, match=r"like \['ab'\]"):
            admin.remove_members("g", "ab")
        for call in (admin.delete_topics, admin.describe_topics, admin.delete_groups):
            with pytest.raises(TypeError, match=r"a list of names is expected, like \['ab'\]"):
                call("ab")
            with pytest.raises(TypeError, match="a name is text"):
                call([7])  # type: ignore[list-item]
        with pytest.raises(TypeError, match="a list of them is expected"):
            admin.delete_group_offsets("g", kohort.TopicPartition("t", 0))


def test_commands_show_first_and_do_with_execute() -> None:
    """`reset-offsets`, `delete-offsets` and `remove-members`."""
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("shown", 1)
        only = kohort.TopicPartition("shown", 0)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("shown", "x").result(10)
        admin.alter_group_offsets("shown-group", {only: 1})
        group = ("-b", broker.bootstrap_servers)
        shown = run_kohort("group", "reset-offsets", "shown-group", "--to-earliest", *group)
        assert shown.out.splitlines()[1].split() == ["shown", "0", "1", "0"]
        assert "nothing is changed yet: --execute does it" in shown.err
        assert admin.reset_offsets("shown-group", "current")[0].offset == 1
        words = ("group", "reset-offsets", "shown-group", "--from-file", "-", *group)
        done = run_kohort(*words, "--execute", stdin="shown,0,0\n")
        assert (done.code, done.err) == (0, "")
        assert admin.reset_offsets("shown-group", "current")[0].offset == 0
        wrong = run_kohort(*words, stdin="shown,0\n")
        assert wrong.code == 2
        assert "line 1: topic,partition,offset is expected" in wrong.err
        assert run_kohort("group", "delete-offsets", "shown-group", "--topic", "shown:0", "--execute", *group).code == 0
        assert admin.group_offsets("shown-group") == []
        nobody = run_kohort("group", "remove-members", "shown-group", *group)
        assert "name the members, or give --all" in nobody.err


def test_calls_that_our_broker_has_are_those_of_the_text() -> None:
    """docs/reference/admin.md has every call of the admin client, and whether our broker has what it takes."""
    table = admin_calls.table()
    assert table.keys() == admin_calls.public_calls(), (
        "a call came or went: change the table in docs/reference/admin.md with it"
    )
    software = f"kohort's broker {kohort.__version__}"
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("asked", 1)
        found = {call: admin_calls.has(admin, call, "asked", software) for call in table}
    assert found == {call: row["kohort's broker"] for call, row in table.items()}
