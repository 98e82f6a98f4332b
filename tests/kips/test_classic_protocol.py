"""The classic group protocol as stock clients drive it, through a whole shard and the bytes of its log.

KIP-62 (join, sync, heartbeat), KIP-394 (member id required), KIP-429 (cooperative), KIP-559 (protocol in SyncGroup),
KIP-345 and KIP-571 (removal by an administrator); K848: nobody's commit is stuck behind the barrier.
"""

from __future__ import annotations

import pytest

from kohort.coordinator import commands as asked
from kohort.errors import ErrorCode
from kohort.wire.embedded import decode_assignment, decode_subscription, encode_assignment, encode_subscription
from support.coordinator_dialogue import Answer, GroupDialogue

REBALANCE_MS = 30_000
SESSION_MS = 10_000


class ClassicClient:
    """A member that speaks as kafka-python, librdkafka and Java do; "cooperative" keeps what it owns while it joins."""

    def __init__(self, world: GroupDialogue, name: str, *, cooperative: bool = False) -> None:
        self.world = world
        self.name = name
        self.cooperative = cooperative
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.joining: Answer | None = None
        self.syncing: Answer | None = None

    def join(self) -> Answer:
        """JoinGroup, twice where the first answer only hands out the id."""
        owned = {"t": self.owned} if self.cooperative and self.owned else None
        self.joining = self.world.ask(
            asked.JoinGroup(
                cause=self.world.cause(),
                request=self.world.request(),
                group_id="g",
                member_id=self.member_id,
                fresh_member_id=f"{self.name}-id",
                client_id=self.name,
                client_host="/127.0.0.1",
                session_timeout_ms=SESSION_MS,
                rebalance_timeout_ms=REBALANCE_MS,
                protocol_type="consumer",
                protocols=(("range", encode_subscription(["t"], owned_partitions=owned)),),
                requires_known_member_id=True,
                reason="the test says so",
            )
        )
        body = self.joining.body
        if isinstance(body, asked.JoinGroupReply) and body.error == ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = body.member_id
            return self.join()
        return self.joining

    def learn_generation(self) -> asked.JoinGroupReply:
        """Read the answer to the join."""
        assert self.joining is not None
        reply = self.joining.body_as(asked.JoinGroupReply)
        assert reply.error == ErrorCode.NONE
        self.generation = reply.generation_id
        return reply

    def sync(self, plan: dict[str, tuple[int, ...]] | None = None) -> Answer:
        """SyncGroup; the leader's carries what each member id shall own."""
        self.syncing = self.world.ask(
            asked.SyncGroup(
                cause=self.world.cause(),
                request=self.world.request(),
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
                protocol_type="consumer",
                protocol_name="range",
                assignments={name: encode_assignment({"t": found}) for name, found in (plan or {}).items()},
            )
        )
        return self.syncing

    def learn_assignment(self) -> tuple[int, ...]:
        """Read the answer to the sync."""
        assert self.syncing is not None
        reply = self.syncing.body_as(asked.SyncGroupReply)
        assert (reply.error, reply.protocol_name) == (ErrorCode.NONE, "range")
        self.owned = decode_assignment(reply.assignment).partitions.get("t", ())
        return self.owned

    def heartbeat(self) -> ErrorCode:
        """Heartbeat; the error code of its answer."""
        answer = self.world.ask(
            asked.Heartbeat(
                cause=self.world.cause(),
                request=self.world.request(),
                group_id="g",
                generation_id=self.generation,
                member_id=self.member_id,
            )
        )
        return answer.body.code if isinstance(answer.body, asked.Refusal) else ErrorCode.NONE

    def commit(self, partition: int, offset: int) -> ErrorCode:
        """OffsetCommit of one partition; the error code of its answer."""
        answer = self.world.commit({partition: offset}, member_id=self.member_id, epoch=self.generation)
        return answer.body.code if isinstance(answer.body, asked.Refusal) else answer.errors()[0]


@pytest.fixture
def world() -> GroupDialogue:
    """A shard and a topic "t" of four partitions."""
    return GroupDialogue({"t": 4})


def rebalance(*members: ClassicClient, plan: dict[str, tuple[int, ...]]) -> None:
    """Everybody rejoins, the first one leads and hands out `plan` (by client name)."""
    for member in members:
        member.join()
    for member in members:
        member.learn_generation()
    for member in reversed(members):
        member.sync({f"{name}-id": found for name, found in plan.items()})
    for member in members:
        member.learn_assignment()


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
    described = world.describe_classic().body_as(asked.DescribeClassicGroupReply)
    assert (described.state, described.protocol_name) == ("Stable", "range")
    assert [decode_assignment(m.assignment).partitions["t"] for m in described.members] == [(0, 1), (2, 3)]
    world.advance(SESSION_MS)
    assert world.list_groups() == [("g", "consumer", "Empty", "classic")]


def test_administrator_takes_a_member_out(world):
    """KIP-571: LeaveGroup in another's name; the member learns of it by its next heartbeat."""
    a = ClassicClient(world, "a")
    rebalance(a, plan={"a": (0, 1, 2, 3)})

    leaving = asked.LeavingMember(member_id="a-id", reason="drained")
    answer = world.ask(asked.LeaveGroup(cause=world.cause(), request=world.request(), group_id="g", members=(leaving,)))

    assert answer.body_as(asked.LeaveGroupReply).members == ((leaving, ErrorCode.NONE),)
    assert a.heartbeat() == ErrorCode.UNKNOWN_MEMBER_ID
    world.delete_group().is_done()
    assert world.list_groups() == []
