"""KIP-345, static membership, on the side of the classic protocol: the draft's sentences, as far as they were shipped.

As shipped the draft's member name is group.instance.id, its registration timeout is the session timeout, its expansion
timeout is the initial rebalance delay, and its administrator's APIs became the removal of members by LeaveGroup.
"""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.errors import ErrorCode
from support.dialogues.classic_client import REBALANCE_MS, SESSION_MS, ClassicClient, rebalance
from support.dialogues.coordinator_dialogue import GroupDialogue


@pytest.fixture
def world() -> GroupDialogue:
    """A shard and a topic "t" of four partitions."""
    return GroupDialogue({"t": 4, "u": 1})


@pytest.fixture
def pair(world: GroupDialogue) -> tuple[ClassicClient, ClassicClient]:
    """Two static members, the first leads; they have two partitions each."""
    a, b = (ClassicClient(world, name, instance_id=name) for name in "ab")
    a.join()
    b.join()
    rebalance(a, b, plan={"a": (0, 1), "b": (2, 3)})
    return a, b


def remove(world: GroupDialogue, *members: commands.LeavingMember) -> list[ErrorCode]:
    """LeaveGroup by an administrator."""
    answer = world.ask(commands.LeaveGroup(cause=world.cause(), request=world.request(), group_id="g", members=members))
    return [code for _, code in answer.body_as(commands.LeaveGroupReply).members]


def test_members_that_restart_in_turn_cost_no_rebalance(pair: tuple[ClassicClient, ClassicClient]) -> None:
    """Draft, on JoinGroup: a member gives a name of its own. A rolling restart, the leader included, moves nothing."""
    for member in (*pair, *pair):
        generation, owned = member.generation, member.owned
        member.start_again()
        member.join()
        assert member.learn_generation().generation_id == generation
        member.sync()
        assert member.learn_assignment() == owned
        for other in pair:
            assert other.heartbeat() == ErrorCode.NONE


def test_leader_that_restarts_leads_on_and_is_told_to_assign_nothing(
    world: GroupDialogue, pair: tuple[ClassicClient, ClassicClient]
) -> None:
    """KIP-814: it knows the members, so that it notices when their topics grow; then it rejoins, and all rebalance."""
    leader, follower = pair
    leader.start_again()
    leader.join()
    reply = leader.learn_generation()
    assert (reply.leader, reply.skip_assignment, len(reply.members)) == (leader.member_id, True, 2)
    leader.sync()
    leader.learn_assignment()

    world.set_topics({"t": 6, "u": 1})
    leader.join()
    assert follower.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_commit_names_the_member_and_the_one_that_was_replaced_is_fenced(
    world: GroupDialogue, pair: tuple[ClassicClient, ClassicClient]
) -> None:
    """Draft, on OffsetCommit: the name is part of the commit, so that two processes of one name are told apart."""
    _, b = pair
    old_id = b.member_id
    assert b.commit(2, 5) == ErrorCode.NONE
    b.start_again()
    b.join()
    b.learn_generation()
    new_id, b.member_id = b.member_id, old_id
    assert b.commit(2, 9) == ErrorCode.FENCED_INSTANCE_ID
    assert b.heartbeat() == ErrorCode.FENCED_INSTANCE_ID
    b.member_id = new_id
    assert b.commit(2, 6) == ErrorCode.NONE
    assert world.committed([2]) == {2: 6}


def test_member_that_stays_away_is_given_up_once_and_in_the_end(world: GroupDialogue) -> None:
    """Draft, on the registration timeout: it is monitored through heartbeats, and is longer than a restart takes."""
    patient = 20 * SESSION_MS
    a = ClassicClient(world, "a", instance_id="a")
    b = ClassicClient(world, "b", instance_id="b", session_timeout_ms=patient)
    a.join()
    b.join()
    rebalance(a, b, plan={"a": (0, 1), "b": (2, 3)})
    for _ in range(patient // (SESSION_MS // 2) - 1):
        world.advance(SESSION_MS // 2)
        assert a.heartbeat() == ErrorCode.NONE
    world.advance(SESSION_MS // 2)
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    assert a.heartbeat() == ErrorCode.NONE


def test_member_that_is_away_while_others_rebalance_keeps_its_place(world: GroupDialogue) -> None:
    """Draft: loosely tracked; nobody but its session gives it up, not even a rebalance that it slept through."""
    a = ClassicClient(world, "a")
    b = ClassicClient(world, "b", instance_id="b", session_timeout_ms=20 * SESSION_MS)
    a.join()
    b.join()
    rebalance(a, b, plan={"a": (0, 1), "b": (2, 3)})
    c = ClassicClient(world, "c")
    c.join()
    a.join()
    world.advance(REBALANCE_MS)
    a.learn_generation()
    c.learn_generation()
    c.sync()
    a.sync({"a-id": (0,), "b-id": (2, 3), "c-id": (1,)})
    b.start_again()
    b.join()
    b.learn_generation()
    b.sync()
    assert b.learn_assignment() == (2, 3)
    a.learn_assignment()
    c.learn_assignment()
    assert [member.heartbeat() for member in (a, b, c)] == [ErrorCode.NONE] * 3


def test_members_that_are_started_together_cost_one_rebalance() -> None:
    """Draft, on the expansion timeout: shipped as group.initial.rebalance.delay.ms."""
    world = GroupDialogue({"t": 4}, group_initial_rebalance_delay_ms=3_000)
    members = [ClassicClient(world, name, instance_id=name) for name in "abcd"]
    for member in members:
        member.join()
        world.advance(500)
    world.advance(2 * 3_000)
    assert {member.learn_generation().generation_id for member in members} == {1}


def test_falling_back_to_dynamic_membership_takes_nothing_but_a_restart_without_the_name(
    world: GroupDialogue, pair: tuple[ClassicClient, ClassicClient]
) -> None:
    """Draft, on the fallback: named and nameless members live in one group; the names' last sessions run out."""
    a, b = pair
    b.instance_id = None
    b.start_again()
    assert b.join().is_parked
    a.join()
    world.advance(SESSION_MS)
    assert [m.member_id for m in a.learn_generation().members] == ["a-id", "b-id-2"]
    assert b.learn_generation().generation_id == a.generation


def test_administrator_removes_members_by_name_and_starts_one_rebalance(
    world: GroupDialogue, pair: tuple[ClassicClient, ClassicClient]
) -> None:
    """Draft, on the administrator's APIs: shipped as LeaveGroup of several, with an outcome for each."""
    a, b = pair
    outcomes = remove(
        world,
        commands.LeavingMember(member_id="", instance_id="b"),
        commands.LeavingMember(member_id="", instance_id="nobody"),
        commands.LeavingMember(member_id=a.member_id, instance_id="b"),
    )
    assert outcomes == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.UNKNOWN_MEMBER_ID]
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID


def test_names_survive_the_coordinator(world: GroupDialogue, pair: tuple[ClassicClient, ClassicClient]) -> None:
    """The mapping from name to member is in the log with each change of it."""
    a, b = pair
    b.start_again()
    b.join()
    b.learn_generation()
    world.restart()
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    a.start_again()
    a.join()
    a.learn_generation()
    a.sync()
    assert a.learn_assignment() == (0, 1)
    assert b.heartbeat() == ErrorCode.NONE


def test_member_that_comes_back_for_other_topics_gets_them(
    world: GroupDialogue, pair: tuple[ClassicClient, ClassicClient]
) -> None:
    """KAFKA-12759: Kafka lets the new topic wait for somebody else's rebalance."""
    a, b = pair
    b.topics = ("t", "u")
    b.start_again()
    assert b.join().is_parked
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
