"""Which connection a member was heard of by: its end is told, and late requests are kept out.

The first half asks `MemberConnections`, the second a broker over two sockets.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

import kohort
from kohort.broker.access.capabilities import Capabilities, CapabilityRights
from kohort.broker.access.rights import EVERYTHING, Rights
from kohort.broker.apis import leave_group
from kohort.broker.connections import memberconnections
from kohort.broker.connections.memberconnections import MemberConnections
from kohort.capabilities import RootKeys, attenuate, label
from kohort.coordinator.commands import LeaveGroupReply, LeavingMember
from kohort.errors import ErrorCode, RemoteProtocolError
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, TopicPartitions
from kohort.wire.messages.describe_groups import DescribeGroupsRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.restarts import wait_until


@dataclass(frozen=True)
class Wire:
    """A connection, as far as it matters here."""

    number: int
    principal: str = "User:ANONYMOUS"
    rights: Rights = EVERYTHING


@dataclass(frozen=True)
class Asked:
    """A request, likewise."""

    version: int


OLD, NEW = Wire(1), Wire(2)


class Noted:
    """The mapping, and who was told to be disconnected."""

    def __init__(self) -> None:
        self.gone: list[str] = []
        self.connections = MemberConnections(lambda group_id, member_id: self.gone.append(f"{group_id}/{member_id}"))


def by_token(number: int, name: str, *labels: str) -> Wire:
    """A connection with a token, on which its holder has put labels."""
    own = Capabilities(None, lambda: 0)
    own._keys = RootKeys.of(bytes(32))
    token = own.mint(label(name), token_id=name.encode() * 16)
    capability = own.verify(attenuate(token, *map(label, labels)))
    return Wire(number, f"Token:{capability.id}", CapabilityRights(capability, "127.0.0.1", None, lambda: 0))


def test_member_of_a_token_is_known_while_it_is_connected_and_alone() -> None:
    noted = Noted()
    connections, first, second = noted.connections, by_token(1, "a"), by_token(2, "a")
    connections.heartbeat(first, "g", "a")
    connections.joined(second, "g", "a")
    assert connections.member_of_token(first) == ("g", "a")
    connections.heartbeat(by_token(3, "b"), "g", "b")
    connections.heartbeat(Wire(4), "g", "c")
    assert connections.member_of_token(by_token(5, "b")) == ("g", "b")
    assert connections.member_of_token(Wire(6)) is None
    connections.closed(first)
    assert connections.member_of_token(first) == ("g", "a")
    connections.joined(second, "h", "a")
    assert connections.member_of_token(first) is None
    connections.closed(second)
    assert connections.member_of_token(first) is None
    assert len(connections._by_token) == 1


def test_member_is_known_by_its_first_token_and_by_each_that_was_made_of_it() -> None:
    """Unless another member has logged in with that one, or with the first as well."""
    connections = Noted().connections
    wide, narrow, narrower = by_token(1, "a"), by_token(2, "a", "x"), by_token(3, "a", "x", "y")
    connections.heartbeat(wide, "g", "a")
    assert connections.member_of_token(narrower) == ("g", "a")
    connections.heartbeat(narrow, "g", "a")
    assert connections.principal_of("g", "a") == wide.principal
    other = by_token(4, "a", "z")
    connections.heartbeat(other, "g", "b")
    assert connections.member_of_token(by_token(5, "a", "z", "y")) == ("g", "b")
    assert connections.member_of_token(narrower) == ("g", "a")
    assert (connections.principal_of("g", "a"), connections.principal_of("g", "b")) == (wide.principal, other.principal)
    connections.heartbeat(wide, "h", "c")
    assert connections.member_of_token(narrower) is None
    assert connections.principal_of("g", "a") == ""
    for each in (wide, narrow, other):
        connections.closed(each)
    assert not connections._by_token


def test_wider_token_is_not_known_by_a_narrower_one() -> None:
    connections = Noted().connections
    connections.heartbeat(by_token(1, "a", "x"), "g", "a")
    assert connections.member_of_token(by_token(2, "a")) is None


def test_the_end_of_a_connection_is_the_end_of_its_members() -> None:
    noted = Noted()
    for member_id in ("b", "a"):
        noted.connections.heartbeat(OLD, "g", member_id)
    noted.connections.joined(OLD, "h", "c")
    noted.connections.heartbeat(NEW, "g", "d")
    noted.connections.closed(OLD)
    assert noted.gone == ["g/a", "g/b", "h/c"]
    assert len(noted.connections) == 1
    noted.connections.closed(OLD)
    assert len(noted.gone) == 3


@pytest.mark.parametrize("comes_back_by", ["heartbeat", "joined"])
def test_a_member_that_was_heard_of_by_a_newer_connection_is_not_disconnected(comes_back_by: str) -> None:
    noted = Noted()
    noted.connections.heartbeat(OLD, "g", "a")
    getattr(noted.connections, comes_back_by)(NEW, "g", "a")
    noted.connections.closed(OLD)
    assert noted.gone == []
    noted.connections.closed(NEW)
    assert noted.gone == ["g/a"]
    assert len(noted.connections) == 0


def test_a_member_that_left_is_not_disconnected() -> None:
    noted = Noted()
    noted.connections.heartbeat(OLD, "g", "a")
    noted.connections.left("g", "a")
    noted.connections.closed(OLD)
    assert noted.gone == []


@pytest.mark.parametrize("error", [ErrorCode.NONE, ErrorCode.FENCED_INSTANCE_ID])
def test_a_member_that_an_administrator_has_removed_is_not_disconnected(error: ErrorCode) -> None:
    """Its connections need not be remembered; those of a member that stays are."""
    noted = Noted()
    noted.connections.joined(OLD, "g", "a")
    reply = LeaveGroupReply(members=((LeavingMember(member_id="a"), error),))
    request: Any = Asked(version=5)
    leave_group._translate(noted.connections, "g", request, reply)
    noted.connections.closed(OLD)
    assert noted.gone == ([] if error is ErrorCode.NONE else ["g/a"])


def test_late_requests_are_those_of_a_connection_older_than_the_heartbeats() -> None:
    connections = Noted().connections
    connections.check(OLD, "g", "a")
    connections.heartbeat(OLD, "g", "a")
    connections.check(OLD, "g", "a")
    connections.check(NEW, "g", "a")
    connections.heartbeat(NEW, "g", "a")
    connections.check(NEW, "g", "a")
    connections.check(OLD, "other", "a")
    with pytest.raises(RemoteProtocolError, match="late request of the member a"):
        connections.check(OLD, "g", "a")
    # A heartbeat that was let through does not make the older one the youngest.
    connections.heartbeat(OLD, "g", "a")
    with pytest.raises(RemoteProtocolError):
        connections.check(OLD, "g", "a")


def test_joins_by_a_connection_of_their_own_make_no_heartbeat_late() -> None:
    """franz-go joins by one connection and heartbeats by another, which may be the older one."""
    noted = Noted()
    noted.connections.joined(NEW, "g", "a")
    noted.connections.check(OLD, "g", "a")
    noted.connections.heartbeat(OLD, "g", "a")
    noted.connections.check(OLD, "g", "a")
    noted.connections.closed(NEW)
    assert noted.gone == []


def test_a_member_is_disconnected_when_the_last_of_its_connections_is_closed() -> None:
    """A pool of connections is nothing that we know of in a client, and nobody is to be given up for it."""
    noted = Noted()
    for connection in (OLD, NEW, OLD, NEW, OLD):
        noted.connections.heartbeat(connection, "g", "a")
    noted.connections.closed(NEW)
    assert noted.gone == []
    with pytest.raises(RemoteProtocolError):
        noted.connections.check(OLD, "g", "a")
    noted.connections.closed(OLD)
    assert noted.gone == ["g/a"]


def test_what_is_remembered_of_one_connection_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memberconnections, "MEMBERS_PER_CONNECTION", 3)
    noted = Noted()
    for number in range(10):
        noted.connections.heartbeat(OLD, "g", str(number))
        noted.connections.joined(OLD, "g", f"j{number}")
    assert len(noted.connections) == 3
    noted.connections.closed(OLD)
    assert len(noted.connections) == 0


# ---- a broker


@pytest.fixture
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker(
        config={
            "group.disconnect.grace.ms": 100,
            "group.consumer.heartbeat.interval.ms": 100,
            # Each join is assigned in its own answer: nothing here waits for a window to close.
            "group.consumer.assignment.window.ms": 0,
        }
    ) as broker:
        yield broker


@pytest.fixture
def client(broker: kohort.Broker) -> Iterator[RawClient]:
    with RawClient(broker.port) as client:
        yield client


def beat(client: RawClient, epoch: int, member_id: str = "m", **fields: Any) -> Any:
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id=member_id, member_epoch=epoch, **fields)
    return client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


def join(client: RawClient, member_id: str = "m") -> Any:
    answer = beat(client, 0, member_id, rebalance_timeout_ms=1_000, subscribed_topic_names=["t"], topic_partitions=[])
    assert answer.error_code == 0
    return answer


def commit(offset: int, epoch: int) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata=None)
    return OffsetCommitRequest(
        group_id="g",
        member_id="m",
        generation_id_or_member_epoch=epoch,
        topics=[OffsetCommitRequestTopic(name="t", partitions=[part])],
    )


def committed(client: RawClient) -> int:
    group = OffsetFetchRequestGroup(group_id="g", topics=None)
    answer = client.ask(ApiKey.OFFSET_FETCH, 9, OffsetFetchRequest(groups=[group]))
    offset: int = answer.groups[0].topics[0].partitions[0].committed_offset
    return offset


def members(client: RawClient) -> list[str]:
    request = ConsumerGroupDescribeRequest(group_ids=["g"])
    return [row.member_id for row in client.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, request).groups[0].members]


def test_a_member_whose_connection_closes_is_given_up_after_the_grace(broker: kohort.Broker, client: RawClient) -> None:
    client.create_topic("t")
    with RawClient(broker.port) as other:
        join(other)
        assert members(client) == ["m"]
    wait_until(lambda: members(client) == [], "the member to be given up")


@pytest.mark.parametrize("comes_by", ["younger", "older"])
def test_a_member_that_comes_by_another_connection_stays(
    broker: kohort.Broker, client: RawClient, comes_by: str
) -> None:
    client.create_topic("t")
    with RawClient(broker.port) as one, RawClient(broker.port) as two:
        first, second = (one, two) if comes_by == "younger" else (two, one)
        # A connection has its number when the broker has accepted it.
        for each in (one, two):
            members(each)
        epoch = join(first).member_epoch
        assert beat(second, epoch).error_code == 0
        first.socket.close()
        # One who joined later and is given up shows that the grace of the first connection is over as well.
        with RawClient(broker.port) as third:
            join(third, "late")
        wait_until(lambda: members(client) == ["m"], "the later member to be given up")


def test_a_late_commit_does_not_move_offsets_back(broker: kohort.Broker, client: RawClient) -> None:
    """It was sent before the member changed its connection, and arrives after a commit by the new one."""
    client.create_topic("t")
    with RawClient(broker.port) as old, RawClient(broker.port) as new:
        epoch = join(old).member_epoch
        assert beat(new, epoch).error_code == 0
        assert new.ask(ApiKey.OFFSET_COMMIT, 9, commit(10, epoch)).topics[0].partitions[0].error_code == 0
        old.send(ApiKey.OFFSET_COMMIT, 9, commit(5, epoch))
        assert old.is_closed_by_broker()
        assert committed(client) == 10
        # Nothing happened to the member.
        assert beat(new, epoch).error_code == 0


@pytest.mark.parametrize("epoch", ["current", "leave"])
def test_a_late_heartbeat_acknowledges_nothing_and_takes_nobody_out(
    broker: kohort.Broker, client: RawClient, epoch: str
) -> None:
    topic_id = client.create_topic("t", partitions=2)
    with RawClient(broker.port) as old, RawClient(broker.port) as new, RawClient(broker.port) as other:
        current = join(old).member_epoch
        rows = [TopicPartitions(topic_id=topic_id, partitions=[0, 1])]
        assert beat(new, current, topic_partitions=rows).error_code == 0
        join(other, "other")
        # The member is to give up one partition and has not heard of it when this is on its way.
        late = ConsumerGroupHeartbeatRequest(
            group_id="g",
            member_id="m",
            member_epoch=-1 if epoch == "leave" else current,
            topic_partitions=None if epoch == "leave" else [],
        )
        old.send(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, late)
        assert old.is_closed_by_broker()
        asked = beat(new, current)
        assert (asked.error_code, asked.member_epoch) == (0, current)
        assert len(asked.assignment.topic_partitions[0].partitions) == 1
        assert sorted(members(client)) == ["m", "other"]


def test_a_late_heartbeat_that_says_nothing_is_harmless(broker: kohort.Broker, client: RawClient) -> None:
    client.create_topic("t")
    with RawClient(broker.port) as old, RawClient(broker.port) as new:
        epoch = join(old).member_epoch
        assert beat(new, epoch).error_code == 0
        assert beat(old, epoch).error_code == 0
        assert beat(new, epoch, topic_partitions=[]).error_code == 0


def test_a_parked_first_join_whose_connection_closes_holds_nobody_up(client: RawClient, broker: kohort.Broker) -> None:
    """Apache Kafka waits for five minutes for a member whose first JoinGroup is parked."""

    def request(member_id: str = "") -> JoinGroupRequest:
        return JoinGroupRequest(
            group_id="c",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            member_id=member_id,
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
        )

    leader = client.ask(ApiKey.JOIN_GROUP, 3, request())
    with RawClient(broker.port) as other:
        other.send(ApiKey.JOIN_GROUP, 3, request())
        alive = HeartbeatRequest(group_id="c", generation_id=leader.generation_id, member_id=leader.member_id)
        wait_until(
            lambda: client.ask(ApiKey.HEARTBEAT, 4, alive).error_code == ErrorCode.REBALANCE_IN_PROGRESS,
            "the join to be parked",
        )
    described = DescribeGroupsRequest(groups=["c"])
    wait_until(
        lambda: len(client.ask(ApiKey.DESCRIBE_GROUPS, 5, described).groups[0].members) == 1, "it to be given up"
    )
    again = client.ask(ApiKey.JOIN_GROUP, 3, request(leader.member_id))
    assert (again.error_code, [row.member_id for row in again.members]) == (0, [leader.member_id])
