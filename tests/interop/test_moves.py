"""Partitions that an operator gives to members: real clients, and three brokers."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

import kohort
from kohort.client.admin.results.moves import SubmittedMove
from kohort.testing import Cluster
from support.peers.confluent_member import Member, settle
from support.peers.our_member import OurMember
from support.waiting import until

pytestmark = pytest.mark.interop

PARTITIONS = 4
QUICK = {"group.consumer.heartbeat.interval.ms": 200}


def member_id(admin: kohort.Admin, client_id: str) -> str:
    (found,) = [row.member_id for row in admin.describe_group("g").members if row.client_id == client_id]
    return found


def wait_while_polling(admin: kohort.Admin, moves: list[SubmittedMove], *members: Member | OurMember) -> None:
    """Wait for the moves in a thread, as the members that have to give something up are polled here."""
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(admin.wait_for_moves, "g", moves)
        until(waiting.done, what="the moves", step=lambda: [member.poll() for member in members])
        waiting.result()


def test_a_stock_member_gives_up_what_an_operator_gives_to_ours() -> None:
    """Requirement H9; librdkafka acknowledges by itself, and its callback has run before the other reads."""
    with kohort.Broker(config=QUICK) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", PARTITIONS)
        with (
            OurMember(broker.bootstrap_servers, client_id="ours") as ours,
            Member(broker, "consumer", **{"client.id": "theirs"}) as theirs,
        ):
            settle(ours, theirs, owned=[2, 2])
            theirs.revoked.clear()
            (given, _) = sorted(theirs.owned)
            move = admin.switch_partition("g", kohort.TopicPartition("t", given), member_id(admin, "ours"))
            wait_while_polling(admin, [move], ours, theirs)
            assert theirs.revoked == [given]
            settle(ours, theirs, owned=[1, 3])
            assert given in ours.owned


def test_moves_are_asked_of_whoever_coordinates_the_group() -> None:
    """Three brokers: the group's coordinator moves while a partition is on its way, and knows it from the log."""
    with Cluster(3) as cluster, kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("t", PARTITIONS)
        with OurMember(cluster.bootstrap_servers, client_id="ours") as ours:
            settle(ours, owned=[PARTITIONS])
            to = member_id(admin, "ours")
            for broker in cluster.brokers:
                cluster.move_coordinator("g", broker)
                moves = admin.submit_moves("g", {kohort.TopicPartition("t", 0): to})
                assert [(move.is_taken, move.move_id) for move in moves] == [(True, "")]
                assert admin.moves("g") == []
                wait_while_polling(admin, moves, ours)
