"""A pace of moves, as stock members see it."""

from __future__ import annotations

from itertools import pairwise

import pytest

import kohort
from support.confluent_member import Member, settle
from support.waiting import until

pytestmark = pytest.mark.interop

PER_SECOND = 10
CONFIG = {"group.consumer.heartbeat.interval.ms": 200, "group.moves.per.second": PER_SECOND}


def test_moves_begin_one_by_one_and_nobody_stops_for_another_s() -> None:
    """Requirement H4, with librdkafka: load creeps to the newcomer, and each member gives up its own share alone."""
    with kohort.Broker(config=CONFIG) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 12)
        with Member(broker, "consumer") as one, Member(broker, "consumer") as two:
            settle(one, two, owned=[6, 6], total=12)
            revoked = len(one.revoked) + len(two.revoked)
            begun: dict[str, int] = {}
            least = 6
            with Member(broker, "consumer") as newcomer:

                def step() -> None:
                    nonlocal least
                    for member in (one, two, newcomer):
                        member.poll()
                    least = min(least, len(one.owned), len(two.owned))
                    begun.update((row.move_id, row.begun_ms) for row in admin.moves("g") if row.begun_ms is not None)

                until(lambda: len(newcomer.owned) == 4, what="a third of all", step=step)
                settle(one, two, newcomer, owned=[4, 4, 4], total=12)
            assert least == 4
            assert len(one.revoked) + len(two.revoked) == revoked + 4
            assert len(begun) == 4
            assert all(later - earlier >= 1_000 / PER_SECOND - 1 for earlier, later in pairwise(sorted(begun.values())))
