"""KIP-345's draft on the side of the classic protocol: the sentences that the shipped KIP left out, as static mode.

The draft's example times are those of `unit/coordinator/classic/test_static_mode.py`.
"""

from __future__ import annotations

import pytest

from kohort.errors import ErrorCode
from support.dialogues.classic_fleet import Fleet


@pytest.fixture
def fleet() -> Fleet:
    """Four named consumers at work; x leads."""
    made = Fleet()
    made.start("x", "a", "b", "c")
    return made


def test_registration_timeout_replaces_the_session_timeout(fleet: Fleet) -> None:
    """Draft: "will replace the session timeout in a static membership", which is monitored "the same way"."""
    fleet.off("a", is_silent=True)
    fleet.until("14:50")
    assert (fleet.names, fleet.rebalances) == (["a", "b", "c", "x"], [])


def test_eventually_the_member_is_kicked_out_and_a_final_rebalance_is_triggered(fleet: Fleet) -> None:
    """Draft: "we should not wait forever for the member to back online"."""
    fleet.off("a")
    fleet.until("15:10")
    assert fleet.names == ["b", "c", "x"]
    assert len(fleet.rebalances) == 1


def test_the_earliest_offline_member_is_compared_with_the_registration_timeout(fleet: Fleet) -> None:
    """Draft: "we are tracking the earliest offline member and compare with the registration timeout"."""
    fleet.off("b")
    fleet.until("5:00")
    fleet.off("a")
    fleet.until("10:00")
    fleet.join("b")
    fleet.until("19:50")
    assert fleet.rebalances == []
    fleet.until("20:10")
    assert [at for at, _ in fleet.rebalances] == ["20:00"]


def test_exactly_one_rebalance_since_the_first_joined_members_request(fleet: Fleet) -> None:
    """Draft, on the expansion timeout: "when you 2X or 3X your stream job"."""
    for number in range(8):
        fleet.until(f"0:{number * 10:02}" if number < 6 else f"1:{number * 10 - 60:02}")
        fleet.join(f"new-{number}")
    fleet.until("10:00")
    assert [at for at, _ in fleet.rebalances] == ["05:00"]
    assert sorted(map(len, fleet.shares().values())) == [1] * 12


def test_after_the_switch_all_joining_members_are_required_to_have_a_name() -> None:
    """Draft, on enableStaticMembership: "all the joining members are required to set the member name field"."""
    fleet = Fleet(group_membership="dynamic")
    fleet.start("x", "a")
    before = fleet.shares()
    fleet.dialogue.alter_configs({"group.membership": "static"}).is_done()
    refused = fleet.dialogue.join(fresh="nobody")
    assert refused.body is not None and fleet.names == ["a", "x"]
    assert fleet.shares() == before


def test_the_switch_is_refused_while_somebody_has_no_name() -> None:
    fleet = Fleet(group_membership="dynamic")
    fleet.join("n", instance_id=None)
    answer = fleet.dialogue.alter_configs({"group.membership": "static"})
    answer.is_refused(ErrorCode.INVALID_CONFIG, saying="n-1")


def test_falling_back_needs_no_change_but_that_of_the_mode(fleet: Fleet) -> None:
    """Draft: session and registration timeout are separate, "so user doesn't have to change any setting"."""
    before = fleet.shares()
    fleet.dialogue.alter_configs({"group.membership": "dynamic"}).is_done()
    fleet.until("1:00")
    assert (fleet.shares(), fleet.rebalances) == (before, [])
    fleet.off("a")
    fleet.until("1:20")
    assert fleet.names == ["b", "c", "x"], "liveness is the session timeout again"


def test_force_rebalance_triggers_one_rebalance_immediately(fleet: Fleet) -> None:
    """Draft: "forceRebalance will trigger one rebalance immediately on static membership"."""
    fleet.dialogue.alter_configs({"group.rebalance.token": "1"}).is_done()
    fleet.until("5:00")
    assert [at for at, _ in fleet.rebalances] == ["00:00"]
