"""Our consumers hear of moves by their fetches (H10): no heartbeat is held, and heartbeats are far apart."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.client.consumer.membership.consumer_member import ConsumerMember
from kohort.testing import Cluster
from support.waiting import until

PARTITIONS = 4
#: Beyond all patience of a test: whoever hears of a move did not hear of it by a heartbeat.
INTERVAL_MS = 200_000
CONFIG = {
    "group.push.enable": False,
    "group.consumer.heartbeat.interval.ms": INTERVAL_MS,
    "group.consumer.max.heartbeat.interval.ms": INTERVAL_MS,
    "group.consumer.session.timeout.ms": 600_000,
    "group.consumer.max.session.timeout.ms": 600_000,
}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("t", PARTITIONS)
        yield running


def member(bootstrap: str, **options: object) -> Consumer:
    consumer = Consumer(bootstrap_servers=bootstrap, group_id="g", auto_offset_reset="earliest", **options)  # type: ignore[arg-type]
    consumer.subscribe(["t"])
    return consumer


def share(*members: Consumer) -> list[int]:
    """How many partitions each has, after a moment."""
    for each in members:
        each.poll(0.02)
    return [len(each.assignment()) for each in members]


def wait_for_share(expected: list[int], *members: Consumer) -> None:
    """Until the members share like this."""
    until(lambda: share(*members) == expected, what=lambda: f"they have {share(*members)}, not {expected}")


def rest(*members: Consumer) -> None:
    """Everybody has said what it owns, and fetches."""
    until_s = time.monotonic() + 1
    until(lambda: share(*members) and time.monotonic() > until_s, what="time passes")


def test_moves_are_heard_within_a_fetch(broker: Broker) -> None:
    """A loss, then a gain; none of the two waits for a heartbeat."""
    with ExitStack() as stack:
        first = stack.enter_context(member(broker.bootstrap_servers))
        wait_for_share([4], first)
        rest(first)
        second = member(broker.bootstrap_servers)
        wait_for_share([2, 2], first, second)
        rest(first, second)
        second.close()
        wait_for_share([4], first)


def test_member_that_reads_all_the_time_hears_as_soon(broker: Broker) -> None:
    """Its fetches do not wait: each of them is answered with records, and with news."""
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0))
        first = stack.enter_context(member(broker.bootstrap_servers))
        wait_for_share([4], first)
        rest(first)
        second = stack.enter_context(member(broker.bootstrap_servers))

        def step() -> None:
            for partition in range(PARTITIONS):
                producer.send("t", value=b"x" * 1_000, partition=partition)

        until(lambda: share(first, second) == [2, 2], what="they do not share", step=step)


def test_last_commit_alone_hands_partitions_over(broker: Broker, monkeypatch: pytest.MonkeyPatch) -> None:
    """No heartbeat says that they are free; the next owner begins behind that commit."""
    monkeypatch.setattr(ConsumerMember, "_after_revocation", lambda *_: None)
    with ExitStack() as stack:
        producer = stack.enter_context(Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=0))
        first = stack.enter_context(member(broker.bootstrap_servers))
        wait_for_share([4], first)
        for partition in range(PARTITIONS):
            producer.send("t", value=b"once", partition=partition).result(20)
        seen = 0
        while seen < PARTITIONS:
            seen += len(first.poll(0.1))
        second = stack.enter_context(member(broker.bootstrap_servers))
        again: list[object] = []
        until(lambda: (again.extend(second.poll(0.02)) or share(first, second)) == [2, 2], what="they do not share")
        moved = second.assignment()
        assert {each: first.committed([each])[each] for each in moved} == dict.fromkeys(moved, 1)
        assert not again
        assert {TopicPartition("t", number) for number in range(PARTITIONS)} == moved | first.assignment()


def test_members_of_a_cluster_share_whoever_coordinates() -> None:
    """Three brokers: fetches go to leaders, and words to the coordinator alone; it moves, is killed, and comes back."""
    config = {
        "group.consumer.heartbeat.interval.ms": 500,
        "group.consumer.min.heartbeat.interval.ms": 100,
        "group.consumer.session.timeout.ms": 5_000,
        "group.consumer.min.session.timeout.ms": 5_000,
    }
    with Cluster(3, config=config) as cluster, ExitStack() as stack:
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_topic("t", PARTITIONS)
        first = stack.enter_context(member(cluster.bootstrap_servers))
        wait_for_share([4], first)
        second = stack.enter_context(member(cluster.bootstrap_servers))
        wait_for_share([2, 2], first, second)
        former = cluster.coordinator("g")
        cluster.move_coordinator("g", to=former % 3 + 1)
        rest(first, second)
        third = stack.enter_context(member(cluster.bootstrap_servers))
        until(lambda: sorted(share(first, second, third)) == [1, 1, 2], what="three do not share")
        killed = cluster.coordinator("g")
        cluster.kill(killed)
        third.close()
        wait_for_share([2, 2], first, second)
        cluster.start(killed)
        rest(first, second)
        assert share(first, second) == [2, 2]
