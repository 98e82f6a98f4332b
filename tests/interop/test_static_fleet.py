"""A fleet of named confluent-kafka members is restarted one after the other, and nothing moves (KIP-345)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest
from confluent_kafka import Consumer

from kohort import Admin, Broker
from support.waiting import until

pytestmark = pytest.mark.interop

NAMES: Final = tuple(f"worker-{number:02}" for number in range(20))
#: Beyond the patience of a test: whoever waits for the end of a session has failed.
SESSION_MS: Final = 55_000
#: Rows of a group's history that say that its partitions were shared out.
SHARED_OUT: Final = ("target_computed", "generation_began")


class Fleet:
    """The members of group "g" by name."""

    def __init__(self, broker: Broker, protocol: str) -> None:
        self._config: dict[str, object] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "enable.auto.commit": False,
            "topic.metadata.refresh.interval.ms": 300_000,
        }
        if protocol == "classic":
            self._config |= {"session.timeout.ms": SESSION_MS, "heartbeat.interval.ms": 200}
        self._members: dict[str, Consumer] = {}

    def start(self, name: str) -> None:
        consumer = Consumer({**self._config, "group.instance.id": name})
        consumer.subscribe(["t"])
        self._members[name] = consumer

    def end(self, name: str) -> None:
        """It closes: a classic member says nothing then, another one that it comes back."""
        self._members.pop(name).close()

    def poll(self) -> None:
        for consumer in self._members.values():
            consumer.poll(0.001)

    def shares(self) -> dict[str, frozenset[int]]:
        """What each owns."""
        return {
            name: frozenset(each.partition for each in consumer.assignment())
            for name, consumer in self._members.items()
        }

    def is_whole(self) -> bool:
        return sorted(number for share in self.shares().values() for number in share) == list(range(len(NAMES)))

    def close(self) -> None:
        while self._members:
            self.end(next(iter(self._members)))


@pytest.fixture(params=["classic", "consumer"])
def fleet(request: pytest.FixtureRequest, broker: Broker) -> Iterator[Fleet]:
    made = Fleet(broker, request.param)
    yield made
    made.close()


@pytest.fixture
def broker() -> Iterator[Broker]:
    config = {"group.membership": "static", "group.consumer.session.timeout.ms": SESSION_MS}
    with Broker(config=config) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


def rebalances(admin: Admin) -> int:
    return sum(row.times for row in admin.group_history("g").events if row.event in SHARED_OUT)


def test_twenty_members_that_restart_one_after_the_other_move_nothing(fleet: Fleet, admin: Admin) -> None:
    """Each is away for a moment, and finds what it had."""
    admin.create_topic("t", partitions=len(NAMES))
    for name in NAMES:
        fleet.start(name)
    until(lambda: any(row.group_id == "g" for row in admin.list_groups()), what="a member", step=fleet.poll)
    until(lambda: len(admin.describe_group("g").members) == len(NAMES), what="20 members", step=fleet.poll)
    # All but the first wait for the window of new members; an administrator need not.
    admin.alter_group_configs("g", {"group.rebalance.token": "all are here"})
    until(lambda: fleet.is_whole() and all(fleet.shares().values()), what="a partition for each", step=fleet.poll)
    before, shared_out = fleet.shares(), rebalances(admin)

    for name in NAMES:
        fleet.end(name)
        fleet.start(name)
        until(lambda name=name: fleet.shares()[name] == before[name], what=f"{name}'s share", step=fleet.poll)

    assert fleet.shares() == before
    assert rebalances(admin) == shared_out
