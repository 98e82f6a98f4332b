"""Stock clients rolled one by one from the classic protocol to the consumer protocol and back, while records flow.

Each member closes cleanly with its offsets committed: nothing may be lost, and nothing processed twice.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from kohort import Broker, TopicPartition
from support.group_members import ConfluentMember, Ledger
from support.restarts import Worker

pytestmark = pytest.mark.interop

PARTITIONS = 6
CONFIG = {
    "group.consumer.heartbeat.interval.ms": 200,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.min.session.timeout.ms": 500,
}


class Stream:
    """A producer that goes on and on, and how many records each partition has."""

    def __init__(self, address: str) -> None:
        self._producer = Producer({"bootstrap.servers": address, "linger.ms": 1})
        self._numbers = itertools.count()
        self._pause = threading.Event()
        self.ends = dict.fromkeys((TopicPartition("t", number) for number in range(PARTITIONS)), 0)

    def turn(self) -> None:
        """A few records to every partition."""
        for partition in self.ends:
            self._producer.produce("t", value=b"%d" % next(self._numbers), partition=partition.partition)
            self.ends[partition] += 1
        self._producer.poll(0)
        self._pause.wait(0.02)

    def finish(self) -> dict[TopicPartition, int]:
        """Everything is acknowledged."""
        assert self._producer.flush(30) == 0
        return dict(self.ends)


def create(address: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("t", PARTITIONS, 1)])["t"].result(20)


def stock(ledger: Ledger, name: str, address: str, protocol: str, **config: Any) -> ConfluentMember:
    """A confluent-kafka member; `protocol` is "consumer" or the name of a classic assignor."""
    settings: dict[str, Any] = {"bootstrap_servers": address, "group_id": "g", **config}
    if protocol == "consumer":
        settings["group_protocol"] = "consumer"
    else:
        settings |= {
            "partition_assignment_strategy": protocol,
            "session_timeout_ms": 6_000,
            "heartbeat_interval_ms": 200,
        }
    return ConfluentMember(ledger, name, topic="t", **settings)


def group_type(address: str) -> str:
    with kohort.Admin(bootstrap_servers=address) as admin:
        (listed,) = admin.list_groups()
        return str(listed.group_type)


def roll(members: list[Any], fresh: Callable[[str, int], Any], kind: str, ledger: Ledger) -> list[Any]:
    """Replace members one by one by members of the other kind."""
    for number, member in enumerate(list(members)):
        member.leave()
        members[number] = fresh(kind, number).start()
        ledger.wait_for_shares(*(each.name for each in members), partitions=PARTITIONS)
    return members


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_confluent_members_are_rolled_there_and_back(assignor: str) -> None:
    """KIP-848, design goals: rolling the consumers is enough."""
    ledger = Ledger()
    with Broker(config=CONFIG) as broker, ExitStack() as stack:
        address = broker.bootstrap_servers
        create(address)
        stream = Stream(address)
        generations = itertools.count()

        def fresh(kind: str, number: int) -> ConfluentMember:
            return stock(ledger, f"{kind}-{number}-{next(generations)}", address, kind)

        with Worker(stream.turn):
            members = [fresh(assignor, number).start() for number in range(3)]
            stack.callback(lambda: [member.leave() for member in members])
            ledger.wait_for_shares(*(member.name for member in members), partitions=PARTITIONS)
            assert group_type(address) == "classic"
            roll(members, fresh, "consumer", ledger)
            assert group_type(address) == "consumer"
            roll(members, fresh, assignor, ledger)
            assert group_type(address) == "classic"
        ledger.wait_for_records(stream.finish())
    assert ledger.repeated() == {}
