"""What the journal names as the cause of a change is what has caused it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kohort.coordinator.commands import LeaveGroup, LeavingMember
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.mixed_dialogue import MixedDialogue, subscription


def triggers(group: GroupDialogue) -> list[str]:
    """Why there were new epochs, rebalances and removals since this was asked last."""
    told, group.told = group.told, []
    named = {"epoch_bumped": "trigger", "rebalance_began": "trigger", "member_removed": "reason"}
    return [dict(entry.details)[named[entry.event]] for entry in told if entry.event in named]


def shares(group: GroupDialogue) -> list[tuple[str, str, str]]:
    """(member, gained, released) since this was asked last."""
    told, group.told = group.told, []
    rows = [(entry.member_id, dict(entry.details)) for entry in told if entry.event.startswith("assignment_")]
    return [(member, details.get("gained", ""), details.get("released", "")) for member, details in rows]


def leave(group: GroupDialogue, *members: LeavingMember, client_id: str | None = None) -> None:
    group.ask(
        LeaveGroup(
            cause=group.cause(), request=group.request(), group_id="g", members=tuple(members), client_id=client_id
        )
    )


def test_an_administrator_s_removal_is_no_leave(group: GroupDialogue) -> None:
    """A member of the consumer protocol never leaves by LeaveGroup."""
    group.stable(a=[0], b=[1])
    triggers(group)

    leave(group, LeavingMember(member_id="b"))

    assert triggers(group) == ["removed by an administrator"] * 2


@pytest.mark.parametrize(
    ("leaving", "client_id", "cause"),
    [
        (LeavingMember(member_id="x"), "client-x", "member left"),
        (LeavingMember(member_id="x", reason="the consumer is being closed"), "client-x", "member left"),
        (LeavingMember(member_id="x"), None, "member left"),
        (LeavingMember(member_id="x"), "adminclient-1", "removed by an administrator"),
        (LeavingMember(member_id="", instance_id="one"), "client-x", "removed by an administrator"),
        (
            LeavingMember(member_id="x", reason="member was removed by an admin: too slow"),
            "client-x",
            "removed by an administrator",
        ),
    ],
)
def test_a_classic_member_that_leaves_says_so_itself(leaving: LeavingMember, client_id: str | None, cause: str) -> None:
    group = MixedDialogue()
    group.rebalance(group.client("x", instance_id="one"), shares={"x": [0, 1]})
    triggers(group)

    leave(group, leaving, client_id=client_id)

    assert triggers(group) == [cause] * 2


def test_a_lifted_limit_is_the_cause_of_what_it_lets_move() -> None:
    group = GroupDialogue({"t": 8}, group_assignor_imbalance=100)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    triggers(group)

    group.alter_configs({"group.assignor.imbalance": "0"}).is_done()
    group.advance(ms=1_000)

    assert triggers(group) == ["limit on moves lifted"]


def test_another_assignor_of_the_group_is_the_cause_of_what_it_moves() -> None:
    group = GroupDialogue({"t": 8}, group_assignor="external")
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    triggers(group)

    group.alter_configs({"group.assignor": "uniform"}).is_done()
    group.advance(ms=0)

    assert triggers(group) == ["group's assignor changed"]


def test_a_step_that_was_due_anyway_is_a_step_again_after_a_lifted_limit() -> None:
    group = GroupDialogue({"t": 8}, group_assignor_max_moves=1)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    triggers(group)

    group.alter_configs({"group.assignor.max.moves": "2"}).is_done()
    group.advance(ms=1_000)
    group.settle()
    group.advance(ms=1_000)

    assert triggers(group) == ["limit on moves lifted", "next step to an even target"]


def test_a_lowered_limit_is_no_cause() -> None:
    group = GroupDialogue({"t": 8}, group_assignor_max_moves=2)
    group.alter_configs({"group.assignor.max.moves": "2"}).is_done()
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    triggers(group)

    group.alter_configs({"group.assignor.max.moves": "1"}).is_done()
    group.advance(ms=1_000)

    assert triggers(group) == ["next step to an even target"]


def test_a_lost_connection_is_told_apart_from_silence() -> None:
    group = GroupDialogue(group_disconnect_grace_ms=1_000)
    group.stable(a=[0], b=[1])
    triggers(group)

    group.disconnect("b")
    group.advance(ms=10_000)

    assert triggers(group) == ["connection lost"] * 2


def test_a_member_that_came_back_and_fell_silent_later_was_silent() -> None:
    group = GroupDialogue(group_disconnect_grace_ms=1_000)
    group.stable(a=[0], b=[1])
    triggers(group)

    group.disconnect("b")
    group.report(group.member("b"))
    for _ in range(45):
        group.report(group.member("a"))
        group.advance(ms=1_000)

    assert triggers(group) == ["session timeout"] * 2


def test_a_static_member_is_given_up_for_its_silence_alone() -> None:
    group = GroupDialogue(group_disconnect_grace_ms=1_000)
    group.heartbeat("a", epoch=0, instance_id="one")
    triggers(group)

    group.disconnect("a")
    group.advance(ms=45_000)

    assert triggers(group) == ["session timeout"] * 2


def test_a_classic_member_s_lost_connection_is_told_apart_from_silence() -> None:
    group = MixedDialogue(group_disconnect_grace_ms=1_000)
    group.classic_group(x=[0], y=[1])
    triggers(group)

    group.disconnect("y")
    group.advance(ms=1_000)

    assert triggers(group) == ["connection lost"] * 2


def test_the_lost_connection_of_a_classic_member_whose_join_waits_is_told_apart_from_silence() -> None:
    """Its join is answered by that, which is no refusal of anything that was asked for."""
    group = MixedDialogue(group_disconnect_grace_ms=1_000)
    clients = group.classic_group(x=[0], y=[1])
    clients["y"].send_join()
    triggers(group)

    group.disconnect("y")
    for _ in range(2):
        clients["x"].beat()
        group.advance(ms=1_000)

    assert triggers(group)[:1] == ["connection lost"]


def test_a_connection_is_lost_however_long_the_broker_stands_still_after_that() -> None:
    group = MixedDialogue(group_disconnect_grace_ms=1_000)
    group.classic_group(x=[0], y=[1])
    triggers(group)

    group.disconnect("y")
    group.stand_still(ms=60_000)
    group.advance(ms=1_000)

    assert triggers(group)[:1] == ["connection lost"]


def test_a_classic_member_that_came_back_and_fell_silent_later_was_silent() -> None:
    group = MixedDialogue(group_disconnect_grace_ms=1_000)
    clients = group.classic_group(x=[0], y=[1])
    triggers(group)

    group.disconnect("y")
    clients["y"].beat()
    for _ in range(10):
        clients["x"].beat()
        group.advance(ms=1_000)

    assert triggers(group) == ["session timeout"] * 2


def test_the_lost_connection_of_a_classic_member_of_a_consumer_group_is_told() -> None:
    group = MixedDialogue({"t": 4}, group_disconnect_grace_ms=1_000)
    clients = group.classic_group(x=[0, 1], y=[2, 3])
    group.heartbeat("a", epoch=0)
    group.settle_all(*clients.values())
    triggers(group)

    group.disconnect("y")
    group.advance(ms=1_000)

    assert triggers(group) == ["connection lost"] * 2


def test_a_lost_connection_is_told_and_given_up_soon_though_the_group_changes_its_protocol_meanwhile() -> None:
    """Seed 611: the upgrade gave it a whole session again."""
    group = MixedDialogue({"t": 4}, group_disconnect_grace_ms=1_000)
    clients = group.classic_group(x=[0, 1], y=[2, 3])
    group.disconnect("y")
    group.heartbeat("a", epoch=0)
    triggers(group)

    clients["x"].beat()
    group.advance(ms=1_000)

    assert triggers(group) == ["connection lost"] * 2


def test_another_assignor_is_no_other_subscription(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    triggers(group)

    group.heartbeat("a", epoch=1, server_assignor="range")
    group.heartbeat("a", epoch=1, topics=["t", "u"])

    assert triggers(group) == ["assignor changed", "subscription changed"]


@pytest.mark.parametrize(
    ("protocols", "cause"),
    [
        ([("roundrobin", subscription()), ("range", subscription())], "assignor changed"),
        ([("range", subscription(["t", "u"]))], "subscription changed"),
        ([("range", subscription(owned=[1], generation=1))], "member rejoined"),
    ],
)
def test_a_classic_member_that_joins_again_says_what_is_new(protocols: list[tuple[str, bytes]], cause: str) -> None:
    group = MixedDialogue()
    group.classic_group(x=[0], y=[1])
    triggers(group)

    group.join("y", protocols=protocols)

    assert triggers(group) == [cause]


def test_a_classic_static_member_returns() -> None:
    group = MixedDialogue()
    group.rebalance(group.client("x", instance_id="one"), group.client("y"), shares={"x": [0], "y": [1]})
    triggers(group)

    group.join(fresh="z", instance_id="one", protocols=[("range", subscription(["t", "u"]))])

    assert triggers(group) == ["static member returned"]


def test_who_is_turned_away_from_a_full_group_did_not_leave() -> None:
    group = MixedDialogue()
    group.classic_group(x=[0], y=[1])
    group.settings = replace(group.settings, group_max_size=1)
    group.restart()
    group.join("x")
    triggers(group)

    group.join("y")

    assert triggers(group) == ["group is full"]


def test_the_partitions_of_classic_members_are_named() -> None:
    """They are in what the leader sends."""
    group = MixedDialogue({"t": 3})
    x = group.client("x")
    group.rebalance(x, shares={"x": [0, 1, 2]})
    assert shares(group) == [("x", "t-0 t-1 t-2", "")]

    y = group.client("y")
    group.rebalance(x, y, shares={"x": [0, 1], "y": [2]})
    assert shares(group) == [("x", "", "t-2"), ("y", "t-2", "")]

    leave(group, LeavingMember(member_id="y"), client_id="client-y")
    assert shares(group) == [("y", "", "t-2")]
    group.rebalance(x, shares={"x": [0, 1, 2]})
    assert shares(group) == [("x", "t-2", "")]


def test_what_cannot_be_read_of_a_classic_assignment_names_nothing() -> None:
    group = MixedDialogue()
    group.join(fresh="x")
    group.sync("x", 1, {"x": b"mine"})

    assert shares(group) == []
