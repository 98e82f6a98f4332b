"""Classic groups in static mode: who is offline, who comes back, who is new, and when the group rebalances.

The times are those of KIP-345's draft and of requirement S1: registration 15 minutes, expansion 5.
"""

from __future__ import annotations

import pytest

from kohort.coordinator.commands import JoinGroup, JoinGroupReply, LeavingMember
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records.types import StaticMemberFenced
from kohort.coordinator.static_membership.clock_updates import MOST_FENCED, apply_fenced
from kohort.coordinator.static_membership.mode import NAMELESS_ERRORS
from kohort.errors import ErrorCode
from support.dialogues.classic_fleet import Fleet
from support.dialogues.mixed_dialogue import subscription


@pytest.fixture
def fleet() -> Fleet:
    """Members x, who leads, a, b and c, at work since 00:00."""
    made = Fleet()
    made.start("x", "a", "b", "c")
    assert [len(share) for share in made.shares().values()] == [3, 3, 3, 3]
    return made


def test_registrations_end_one_after_the_other(fleet: Fleet) -> None:
    """A off 00:00, B off 00:10, A back 00:14: B's 00:10 counts; C off 00:18; at 00:25 B goes, C's runs to 00:33."""
    fleet.off("a")
    fleet.until("10:00")
    fleet.off("b")
    fleet.until("14:00")
    fleet.join("a")
    fleet.until("18:00")
    fleet.off("c")
    fleet.until("24:59")
    assert fleet.rebalances == []
    assert fleet.names == ["a", "b", "c", "x"]
    fleet.until("32:59")
    assert fleet.rebalances == [("25:00", "the registration of b-3 ended")]
    assert fleet.names == ["a", "c", "x"]
    fleet.until("40:00")
    assert fleet.rebalances[1:] == [("33:00", "the registration of c-4 ended")]
    assert fleet.names == ["a", "x"]
    assert [len(share) for share in fleet.shares().values()] == [6, 6]


def test_members_that_are_offline_for_as_long_go_together(fleet: Fleet) -> None:
    fleet.off("a")
    fleet.off("b")
    fleet.until("15:01")
    assert fleet.rebalances == [("15:00", "the registration of a-2, b-3 ended")]
    assert fleet.names == ["c", "x"]


def test_silence_counts_from_the_last_word(fleet: Fleet) -> None:
    """The session is over ten seconds after it; offline it is since then."""
    fleet.until("1:00")
    fleet.off("a", is_silent=True)
    fleet.until("1:09")
    assert fleet.offline == []
    fleet.until("1:11")
    assert fleet.offline == ["a"]
    fleet.until("16:02")
    assert fleet.rebalances == [("16:00", "the registration of a-2 ended")]


def test_who_comes_back_has_what_it_had_and_nobody_notices(fleet: Fleet) -> None:
    before = fleet.shares()
    for name in ("x", "a", "b", "c"):
        fleet.off(name)
        fleet.until(f"{len(fleet.living)}:{fleet.lives:02}")
        assert fleet.join(name).owned == before[name]
        assert fleet.offline == []
    fleet.until("30:00")
    assert (fleet.rebalances, fleet.shares()) == ([], before)


def test_a_process_that_was_only_silent_is_back_with_its_next_heartbeat(fleet: Fleet) -> None:
    sailor = fleet.living["a"]
    fleet.off("a", is_silent=True)
    fleet.until("5:00")
    assert fleet.offline == ["a"]
    fleet.living["a"] = sailor
    fleet.step()
    assert fleet.offline == []
    assert sailor.errors == []
    fleet.until("40:00")
    assert fleet.rebalances == []


def test_a_commit_is_a_word_too(fleet: Fleet) -> None:
    sailor = fleet.living["a"]
    fleet.off("a")
    assert fleet.offline == ["a"]
    fleet.dialogue.commit({0: 1}, member_id=sailor.member_id, epoch=sailor.generation, instance_id="a")
    assert fleet.offline == []


def test_new_members_come_in_with_one_rebalance_at_the_end_of_the_window(fleet: Fleet) -> None:
    """D joins 00:00, E 00:02, F 00:04:59: one rebalance at 00:05; G at 00:05:01 opens the next window."""
    before = fleet.shares()
    for at, name in (("0:00", "d"), ("2:00", "e"), ("4:59", "f")):
        fleet.until(at)
        newcomer = fleet.join(name)
        assert (newcomer.owned, newcomer.errors, newcomer.waiting) == ([], [], None), "a member, and with nothing"
        assert fleet.rebalances == []
        assert fleet.shares() == before | {other: [] for other in "def" if other <= name}
    fleet.until("5:00")
    assert fleet.rebalances == [("05:00", "the expansion timeout ended, and 3 members have nothing")]
    fleet.until("5:01")
    fleet.step()
    fleet.join("g")
    fleet.until("10:00")
    assert len(fleet.rebalances) == 1
    assert sorted(map(len, fleet.shares().values())) == [0, 1, 1, 2, 2, 2, 2, 2]
    fleet.until("10:30")
    assert [at for at, _ in fleet.rebalances] == ["05:00", "10:01"]
    assert sorted(map(len, fleet.shares().values())) == [1, 1, 1, 1, 2, 2, 2, 2]


def test_any_rebalance_lets_in_who_waits_and_closes_the_window(fleet: Fleet) -> None:
    fleet.join("d")
    fleet.until("1:00")
    fleet.dialogue.alter_configs({"group.rebalance.token": "now"}).is_done()
    fleet.until("1:10")
    assert fleet.rebalances == [("01:00", "an administrator has asked for it (now)")]
    assert len(fleet.shares()["d"]) == 2
    fleet.until("20:00")
    assert len(fleet.rebalances) == 1


def test_no_rebalance_waits_for_who_is_offline(fleet: Fleet) -> None:
    """It is over as soon as those who are there have joined; who is away keeps what it has, as far as it stays even."""
    before = fleet.shares()
    fleet.off("b")
    fleet.until("1:00")
    fleet.dialogue.alter_configs({"group.rebalance.token": "now"}).is_done()
    fleet.until("1:10")
    assert (fleet.state, fleet.shares()["b"]) == ("Stable", before["b"])
    fleet.until("2:00")
    assert fleet.join("b").owned == before["b"]
    assert len(fleet.rebalances) == 1


def test_a_rebalance_under_way_goes_on_without_who_goes_offline(fleet: Fleet) -> None:
    fleet.off("b", is_silent=True)
    fleet.dialogue.alter_configs({"group.rebalance.token": "now"}).is_done()
    fleet.until("0:06")
    assert fleet.state == "PreparingRebalance"
    fleet.until("0:16")
    assert (fleet.state, fleet.offline) == ("Stable", ["b"])


def test_a_leader_that_goes_offline_before_it_has_shared_out_hands_on_the_lead(fleet: Fleet) -> None:
    fleet.dialogue.alter_configs({"group.rebalance.token": "now"}).is_done()
    leader = fleet.living["x"]
    for sailor in fleet.living.values():
        code = fleet.dialogue.beat(sailor.member_id, sailor.generation, instance_id=sailor.name)
        fleet._on_error(sailor, code)
    assert fleet.state == "CompletingRebalance"
    fleet.off("x")
    assert leader.name not in fleet.living
    fleet.until("0:12")
    assert fleet.state == "Stable"
    assert [reason for _, reason in fleet.rebalances][1:] == ["x-1, the leader, is offline"]
    assert sorted(map(len, fleet.shares().values())) == [3, 3, 3, 3]


@pytest.mark.parametrize("name", ["x", "b"])
def test_who_comes_back_while_the_others_sync_has_its_part_without_another_rebalance(fleet: Fleet, name: str) -> None:
    """The leader gives to the id that it knows; if it is the leader that comes back, it is told of all and gives."""
    fleet.dialogue.alter_configs({"group.rebalance.token": "now"}).is_done()
    for sailor in fleet.living.values():
        code = fleet.dialogue.beat(sailor.member_id, sailor.generation, instance_id=sailor.name)
        fleet._on_error(sailor, code)
    assert fleet.state == "CompletingRebalance"
    back = fleet.join(name)
    fleet.until("0:09")
    assert fleet.state == "Stable"
    assert len(fleet.rebalances) == 1
    assert back.owned == fleet.shares()[name]
    assert [len(share) for share in fleet.shares().values()] == [3, 3, 3, 3]


def test_what_a_cooperative_leader_takes_from_who_is_away_is_given_out_at_once() -> None:
    """KIP-429 gives it to nobody before its owner has joined without it, which it cannot."""
    fleet = Fleet(is_cooperative=True)
    fleet.start("x", "a", "b")
    fleet.until("0:20")
    assert sorted(map(len, fleet.shares().values())) == [4, 4, 4]
    fleet.rebalances.clear()
    fleet.off("a")
    fleet.join("d")
    fleet.until("6:00")
    assert [reason for _, reason in fleet.rebalances][:2] == [
        "the expansion timeout ended, and 1 members have nothing",
        "a-2 is away and cannot give up what it has to",
    ]
    assert sorted(map(len, fleet.shares().values())) == [3, 3, 3, 3]
    kept = fleet.shares()["a"]
    assert fleet.join("a").owned == kept


def test_the_younger_of_two_holders_of_a_name_has_it_at_once(fleet: Fleet) -> None:
    older = fleet.living["a"]
    held = older.owned
    younger = fleet.join("a")
    assert younger.owned == held
    code = fleet.dialogue.beat(older.member_id, older.generation, instance_id="a")
    assert code == ErrorCode.FENCED_INSTANCE_ID
    fleet.until("1:00")
    assert fleet.rebalances == []


def test_who_lost_its_name_is_fenced_though_it_does_not_say_it(fleet: Fleet) -> None:
    """aiokafka's heartbeats have no name, and by UNKNOWN_MEMBER_ID it would join again and take the name back."""
    older = fleet.living["a"]
    younger = fleet.join("a")
    assert fleet.dialogue.beat(older.member_id, older.generation) == ErrorCode.FENCED_INSTANCE_ID
    fleet.dialogue.join(older.member_id, instance_id="a").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert fleet.dialogue.beat(younger.member_id, younger.generation) == ErrorCode.NONE


def test_what_is_remembered_of_lost_names_is_bounded() -> None:
    groups = GroupsState()
    for number in range(MOST_FENCED + 1):
        apply_fenced(groups, StaticMemberFenced(group_id="g", member_id=f"a-{number}"))
    assert list(groups.fenced_instances)[0::999] == [("g", "a-1"), ("g", "a-1000")]


def test_other_timeouts_count_at_once(fleet: Fleet) -> None:
    """Of who is offline already, and of new members who wait."""
    fleet.off("a")
    fleet.join("d")
    fleet.until("1:00")
    fleet.dialogue.alter_configs({"group.expansion.timeout.ms": "90000"}).is_done()
    fleet.until("1:31")
    assert [when for when, _ in fleet.rebalances] == ["01:30"]
    fleet.dialogue.alter_configs({"group.registration.timeout.ms": "120000"}).is_done()
    fleet.until("2:01")
    assert [when for when, _ in fleet.rebalances] == ["01:30", "02:00"]


def test_an_empty_groups_first_assignment_waits_for_nobody() -> None:
    fleet = Fleet()
    assert len(fleet.join("a").owned) == 12


def test_a_newcomer_that_restarts_waits_on_and_one_that_wants_something_else_too(fleet: Fleet) -> None:
    fleet.join("d")
    fleet.until("1:00")
    fleet.off("d")
    fleet.until("2:00")
    assert fleet.join("d").owned == []
    fleet.join("d", protocols=[("range", subscription(["u"]))])
    fleet.until("4:59")
    assert fleet.rebalances == []
    fleet.until("5:10")
    assert [at for at, _ in fleet.rebalances] == ["05:00"]


def test_other_types_of_members_are_sent_back_before_their_clients_give_up(fleet: Fleet) -> None:
    """Nobody but a Connect leader can write an empty assignment; aiokafka gives a JoinGroup 40 s."""
    fleet = Fleet()
    protocols = [("v1", b"url")]
    connect = {"protocol_type": "connect", "protocols": protocols}
    first = fleet.dialogue.join(fresh="w-1", instance_id="w1", **connect)
    generation = first.body_as(JoinGroupReply).generation_id
    fleet.dialogue.sync("w-1", generation, {"w-1": b"tasks"}, instance_id="w1", protocol_type="connect")
    newcomer = fleet.dialogue.join(fresh="w-2", instance_id="w2", **connect)
    for _ in range(2):
        fleet.dialogue.advance(24_999)
        fleet.dialogue.beat("w-1", generation, instance_id="w1")
        assert newcomer.is_parked
        fleet.dialogue.advance(1)
        assert newcomer.body_as(JoinGroupReply).error == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        newcomer = fleet.dialogue.join(fresh="w-2", instance_id="w2", **connect)
    again = fleet.dialogue.join(fresh="w-3", instance_id="w2", **connect)
    assert newcomer.body_as(JoinGroupReply).error == ErrorCode.FENCED_INSTANCE_ID
    assert fleet.state == "Stable"
    fleet.dialogue.alter_configs({"group.rebalance.token": "now"}).is_done()
    assert fleet.state == "PreparingRebalance"
    fleet.dialogue.join("w-1", instance_id="w1", **connect).body_as(JoinGroupReply)
    assert again.body_as(JoinGroupReply).generation_id == generation + 1


def test_who_is_parked_is_let_in_at_the_end_of_the_window() -> None:
    fleet = Fleet(group_expansion_timeout_ms=60_000)
    connect = {"protocol_type": "connect", "protocols": [("v1", b"url")]}
    fleet.dialogue.join(fresh="w-1", instance_id="w1", session_timeout_ms=120_000, **connect)
    fleet.dialogue.sync("w-1", 1, {"w-1": b"tasks"}, instance_id="w1")
    for _ in range(3):
        newcomer = fleet.dialogue.join(fresh="w-2", instance_id="w2", session_timeout_ms=120_000, **connect)
        fleet.dialogue.advance(25_000)
    assert fleet.state == "PreparingRebalance"
    assert newcomer.is_parked
    fleet.dialogue.join("w-1", instance_id="w1", session_timeout_ms=120_000, **connect)
    assert newcomer.body_as(JoinGroupReply).generation_id == 2


def test_a_window_in_which_whoever_came_has_given_up_ends_without_a_rebalance() -> None:
    fleet = Fleet(group_expansion_timeout_ms=60_000)
    connect = {"protocol_type": "connect", "protocols": [("v1", b"url")], "session_timeout_ms": 120_000}
    fleet.dialogue.join(fresh="w-1", instance_id="w1", **connect)
    fleet.dialogue.sync("w-1", 1, {"w-1": b"tasks"}, instance_id="w1")
    fleet.dialogue.join(fresh="w-2", instance_id="w2", **connect)
    fleet.dialogue.advance(70_000)
    assert fleet.state == "Stable"
    assert not fleet.dialogue.shard.groups.clocks


def test_an_administrator_removes_a_member_at_once(fleet: Fleet) -> None:
    fleet.off("a")
    outcome = fleet.dialogue.leave_group(LeavingMember(member_id="", instance_id="a"))
    assert outcome == [ErrorCode.NONE]
    fleet.until("0:10")
    assert fleet.names == ["b", "c", "x"]
    assert len(fleet.rebalances) == 1
    assert fleet.offline == []


def test_back_to_dynamic_sessions_run_anew_and_names_stay(fleet: Fleet) -> None:
    fleet.off("a")
    fleet.until("10:00")
    fleet.dialogue.alter_configs({"group.membership": "dynamic"}).is_done()
    fleet.until("10:09")
    assert (fleet.names, fleet.rebalances) == (["a", "b", "c", "x"], [])
    fleet.until("10:20")
    assert fleet.names == ["b", "c", "x"]
    assert fleet.rebalances == [("10:10", "the session of member a-2 ended")]


def test_back_to_dynamic_lets_in_who_waits(fleet: Fleet) -> None:
    fleet.join("d")
    fleet.dialogue.alter_configs({"group.membership": "dynamic"}).is_done()
    fleet.until("0:10")
    assert len(fleet.rebalances) == 1
    assert fleet.shares()["d"]


def test_a_dynamic_group_becomes_static_and_nothing_moves() -> None:
    fleet = Fleet(group_membership="dynamic")
    fleet.start("x", "a", "b")
    before = fleet.shares()
    fleet.dialogue.alter_configs({"group.membership": "static"}).is_done()
    fleet.off("a")
    fleet.until("14:00")
    assert (fleet.rebalances, fleet.shares()) == ([], before)
    assert fleet.join("a").owned == before["a"]


def test_force_is_for_static_groups_and_needs_a_new_token(fleet: Fleet) -> None:
    """K345: an error, if the group is on dynamic membership."""
    for token in ("one", "one", "two"):
        fleet.dialogue.alter_configs({"group.rebalance.token": token}).is_done()
        fleet.until({"one": "0:10", "two": "0:20"}[token])
    assert [reason for _, reason in fleet.rebalances] == [
        "an administrator has asked for it (one)",
        "an administrator has asked for it (two)",
    ]
    fleet.dialogue.alter_configs({"group.membership": "dynamic"}).is_done()
    fleet.dialogue.alter_configs({"group.rebalance.token": "three"}).is_refused(ErrorCode.INVALID_CONFIG)


def test_the_first_join_without_a_name_decides_where_it_may(fleet: Fleet) -> None:
    """K345: "when the membership becomes stable, the first join group request will decide"."""
    fleet.dialogue.join(fresh="n-1").is_refused(NAMELESS_ERRORS[JoinGroup])
    fleet.dialogue.alter_configs({"group.static.fallback": "join"}).is_done()
    fleet.off("a")
    fleet.until("9:00")
    fleet.join("n", instance_id=None)
    assert fleet.dialogue.configs()["group.membership"] == "dynamic"
    fleet.until("9:09")
    assert fleet.state == "PreparingRebalance", "a's session has run anew from the switch"
    fleet.until("9:20")
    assert fleet.names == ["b", "c", "n-5", "x"]
    assert fleet.shares().keys() == {"b", "c", "", "x"}


def test_a_shorter_registration_timeout_counts_at_once(fleet: Fleet) -> None:
    fleet.off("a")
    fleet.until("10:00")
    fleet.dialogue.alter_configs({"group.registration.timeout.ms": "660000"}).is_done()
    fleet.until("11:10")
    assert [at for at, _ in fleet.rebalances] == ["11:00"]


@pytest.mark.parametrize("seconds", range(8))
def test_a_restart_in_the_rebalance_of_a_registration_begins_it_again(fleet: Fleet, seconds: int) -> None:
    """Whoever went is gone for good, whatever the group's record says; what it had is given out."""
    fleet.off("a")
    fleet.until("14:55")
    fleet.until(f"15:0{seconds}")
    fleet.restart()
    fleet.until("16:00")
    assert fleet.names == ["b", "c", "x"]
    assert sorted(map(len, fleet.shares().values())) == [4, 4, 4]
    assert {reason for _, reason in fleet.rebalances} == {"the registration of a-2 ended"}


@pytest.mark.parametrize("seconds", range(8))
def test_a_restart_in_the_rebalance_of_a_window_begins_it_again(fleet: Fleet, seconds: int) -> None:
    fleet.join("d")
    fleet.until("4:55")
    fleet.until(f"5:0{seconds}")
    fleet.restart()
    fleet.until("6:30")
    assert sorted(map(len, fleet.shares().values())) == [2, 2, 2, 3, 3]


def test_the_time_in_which_the_broker_is_down_does_not_count(fleet: Fleet) -> None:
    fleet.off("a")
    fleet.until("10:00")
    fleet.restart(down_ms=60 * 60_000)
    assert fleet.offline == ["a"]
    fleet.until("74:00")
    assert fleet.rebalances == []
    fleet.until("76:10")
    ((at, reason),) = fleet.rebalances
    assert "75:00" <= at <= "76:00", "how far the clock has run is noted every 45 s"
    assert reason == "the registration of a-2 ended"


def test_a_window_goes_on_after_a_restart(fleet: Fleet) -> None:
    fleet.join("d")
    fleet.until("2:00")
    fleet.restart()
    fleet.join("e")
    fleet.until("4:50")
    assert fleet.rebalances == []
    fleet.until("6:00")
    assert len(fleet.rebalances) == 1
    assert all(fleet.shares().values())
