"""A pace of moves, as stock members see it."""

from __future__ import annotations

from itertools import pairwise

import pytest

import kohort
from support.peers.confluent_member import Member, settle
from support.waiting import until

pytestmark = pytest.mark.interop

PER_SECOND = 10
CONFIG = {"group.consumer.heartbeat.interval.ms": 200, "group.moves.per.second": PER_SECOND}


def test_moves_begin_one_by_one_and_nobody_stops_for_another_s() -> None:
    """Requirement H4, with librdkafka: load creeps to its new owner, and each member keeps what does not move."""
    with kohort.Broker(config=CONFIG) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 12)
        with (
            Member(broker, "consumer", **{"client.id": "one"}) as one,
            Member(broker, "consumer", **{"client.id": "two"}) as two,
        ):
            settle(one, two, owned=[6, 6], total=12)
            before = len(one.revoked), len(two.revoked)
            (taker,) = [row.member_id for row in admin.describe_group("g").members if row.client_id == "two"]
            given = sorted(one.owned)[:4]
            submitted = admin.submit_moves("g", {kohort.TopicPartition("t", number): taker for number in given})
            settle(one, two, owned=[2, 10], total=12)
            assert (len(one.revoked), len(two.revoked)) == (before[0] + 4, before[1])
            until(lambda: all(row.granted_ms is not None for row in admin.moves("g")), what="the moves")
            begun = {row.move_id: row.begun_ms for row in admin.moves("g")}
            times = sorted(begun[move.move_id] or 0 for move in submitted)
            assert all(later - earlier >= 1_000 / PER_SECOND - 1 for earlier, later in pairwise(times))


def test_a_newcomer_gets_its_share_bit_by_bit_and_the_others_keep_the_rest() -> None:
    """Requirement H4, the thread's example at twice its pace: three stock members, twelve partitions."""
    config = {**CONFIG, "group.moves.per.second": 2}
    with kohort.Broker(config=config) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 12)
        with Member(broker, "consumer") as one, Member(broker, "consumer") as two:
            settle(one, two, owned=[6, 6], total=12)
            before = one.owned, two.owned
            taken = len(one.revoked), len(two.revoked)
            told = admin.group_history("g").events[-1].sequence

            def step() -> None:
                for member in (one, two, three):
                    member.poll()

            with Member(broker, "consumer") as three:
                until(lambda: len(three.owned) == 4, what="the share of the third", step=step)
            lost = set(one.revoked[taken[0] :]), set(two.revoked[taken[1] :])
            assert lost[0] <= before[0] and lost[1] <= before[1]
            assert [len(each) for each in lost] == [2, 2], "nobody stops for what it keeps"
            # The second member may have come late enough to be a newcomer itself: its moves stand in front of these.
            events = admin.group_history("g", after=told).events
            begun = [
                row.time_ms for row in events if row.event == "moves_begun" for _ in range(int(row.details["moves"]))
            ]
            assert len(begun) == 4
            assert all(later - earlier >= 499 for earlier, later in pairwise(begun))
