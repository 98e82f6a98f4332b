"""The classic group protocol as stock clients drive it, through a whole shard and the bytes of its log.

KIP-62 (join, sync, heartbeat), KIP-394 (member id required), KIP-429 (cooperative), KIP-559 (protocol in SyncGroup),
KIP-345 and KIP-571 (removal by an administrator); K848: nobody's commit is stuck behind the barrier.
"""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeClassicGroupReply
from kohort.errors import ErrorCode
from kohort.wire.embedded import decode_assignment, decode_subscription
from support.dialogues.classic_client import REBALANCE_MS, SESSION_MS, ClassicClient, rebalance
from support.dialogues.coordinator_dialogue import GroupDialogue


@pytest.fixture
def world() -> GroupDialogue:
    """A shard and a topic "t" of four partitions."""
    return GroupDialogue({"t": 4})


def test_two_eager_members_share_a_topic(world):
    """KIP-62: the first owns all until the second comes; the barrier holds both until the leader has spoken."""
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    assert a.owned == (0, 1, 2, 3)

    assert b.join().is_parked
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    a.join()
    leader, follower = a.learn_generation(), b.learn_generation()
    assert leader.leader == follower.leader == "a-id"
    assert [decode_subscription(m.metadata).topics for m in leader.members] == [("t",), ("t",)]
    assert b.sync().is_parked
    a.sync({"a-id": (0, 1), "b-id": (2, 3)})

    assert (a.learn_assignment(), b.learn_assignment()) == ((0, 1), (2, 3))
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)


def test_cooperative_members_move_only_what_they_must(world):
    """KIP-429: two rebalances; what stays is committed all the way through, what moves is given up in between."""
    a, b = ClassicClient(world, "a", cooperative=True), ClassicClient(world, "b", cooperative=True)
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    b.join()
    a.join()
    leader = a.learn_generation()
    b.learn_generation()
    owned = {m.member_id: decode_subscription(m.metadata).owned_partitions for m in leader.members}
    assert owned == {"a-id": {"t": (0, 1, 2, 3)}, "b-id": {}}
    assert a.commit(0, 10) == ErrorCode.NONE, "between join and sync it still owns everything"
    b.sync()
    a.sync({"a-id": (0, 1)})
    assert (a.learn_assignment(), b.learn_assignment()) == ((0, 1), ())

    # What a gave up is handed out in the rebalance that a's rejoining starts.
    a.join()
    assert b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.commit(0, 11) == ErrorCode.NONE, "while its join is parked"
    rebalance(a, b, plan={"a": (0, 1), "b": (2, 3)})

    assert (a.owned, b.owned) == ((0, 1), (2, 3))
    assert world.committed([0]) == {0: 11}


def test_member_that_is_stuck_holds_the_others_up_no_longer_than_the_rebalance_timeout(world):
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    b.join()
    a.join()
    a.learn_generation()
    b.learn_generation()
    b.sync()
    a.sync({"a-id": (0, 1), "b-id": (2, 3)})
    a.join()
    for _ in range(REBALANCE_MS // 5_000):
        assert b.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
        assert b.commit(2, 7) == ErrorCode.NONE, "its commit is not stuck behind the barrier"
        world.advance(5_000)

    assert [m.member_id for m in a.learn_generation().members] == ["a-id"]
    assert b.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    assert b.commit(2, 8) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.committed([2]) == {2: 7}


def test_members_go_on_after_the_broker_restarts(world):
    """Record type 2 is all that is needed: generation, assignment and sessions."""
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    b.join()
    rebalance(a, b, plan={"a": (0, 1), "b": (2, 3)})
    world.advance(SESSION_MS - 1)

    world.restart()
    world.advance(SESSION_MS - 1)

    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    assert b.commit(2, 5) == ErrorCode.NONE
    b.sync()
    assert b.learn_assignment() == (2, 3)
    described = world.describe_classic().body_as(DescribeClassicGroupReply)
    assert (described.state, described.protocol_name) == ("Stable", "range")
    assert [decode_assignment(m.assignment).partitions["t"] for m in described.members] == [(0, 1), (2, 3)]
    world.advance(SESSION_MS)
    assert world.list_groups() == [("g", "consumer", "Empty", "classic")]


def test_member_whose_group_is_gone_is_told_to_join_again(world):
    """Nothing that a live member asks is answered GROUP_ID_NOT_FOUND, which ends Java and librdkafka clients."""
    a = ClassicClient(world, "a")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    world.log.clear()
    world.restart()
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert (a.heartbeat(), a.commit(0, 1)) == (unknown, unknown)
    a.sync().is_refused(unknown)
    a.join().is_refused(unknown)
    leaving = commands.LeavingMember(member_id=a.member_id)
    answer = world.ask(
        commands.LeaveGroup(cause=world.cause(), request=world.request(), group_id="g", members=(leaving,))
    )
    assert answer.body_as(commands.LeaveGroupReply).members == ((leaving, unknown),)
    before_v9 = world.commit({0: 1}, member_id=a.member_id, epoch=1, is_member_epoch_aware=False)
    before_v9.is_refused(ErrorCode.ILLEGAL_GENERATION)


def test_administrator_takes_a_member_out(world):
    """KIP-571: LeaveGroup in another's name; the member learns of it by its next heartbeat."""
    a = ClassicClient(world, "a")
    rebalance(a, plan={"a": (0, 1, 2, 3)})

    leaving = commands.LeavingMember(member_id="a-id", reason="drained")
    answer = world.ask(
        commands.LeaveGroup(cause=world.cause(), request=world.request(), group_id="g", members=(leaving,))
    )

    assert answer.body_as(commands.LeaveGroupReply).members == ((leaving, ErrorCode.NONE),)
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    world.delete_group().is_done()
    assert world.list_groups() == []
