"""What members that wait for the rest of their groups take of a broker's memory."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kohort.broker.connections.request import ReplyQueue, ReplySlot
from kohort.broker.embedded import Broker
from kohort.broker.limits.memory import PART_OF_CONNECTION, ParkedBytes
from kohort.errors import ErrorCode
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.sync_group import SyncGroupRequest
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.waiting import until

MEBI = 1 << 20
LONG = 30_000
#: So many long joins are read of one connection, and of all.
OF_CONNECTION = -(-MEBI // PART_OF_CONNECTION // LONG)
OF_ALL = -(-MEBI // LONG)


@pytest.fixture
def broker_config() -> dict[str, object]:
    """Whoever joins waits for others that never come."""
    return {
        "queued.max.request.bytes": MEBI,
        "group.initial.rebalance.delay.ms": 60_000,
        "group.disconnect.grace.ms": 0,
    }


def join(group: str, size: int = LONG) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=bytes(size))],
    )


def groups(client: RawClient) -> int:
    return len(client.ask(ApiKey.LIST_GROUPS, 4, ListGroupsRequest()).groups)


def test_a_connection_holds_a_part_of_it(broker: Broker, client: RawClient) -> None:
    with RawClient(broker.port) as greedy:
        for number in range(OF_CONNECTION + 2):
            greedy.send(ApiKey.JOIN_GROUP, 3, join(f"g{number}"))
        until(lambda: groups(client) >= OF_CONNECTION, what="as many as may wait")
        assert groups(client) == OF_CONNECTION
        with RawClient(broker.port) as other:
            other.send(ApiKey.JOIN_GROUP, 3, join("other"))
            until(lambda: groups(client) == OF_CONNECTION + 1, what="one of another connection")


def test_what_waits_for_its_groups_is_bounded_over_all_connections(broker: Broker, client: RawClient) -> None:
    """What connections hold that are gone is given back."""
    sync = SyncGroupRequest(group_id="g0", generation_id=1, member_id="m", assignments=[])
    with ExitStack() as stack:
        for number in range(OF_ALL):
            if number % OF_CONNECTION == 0:
                greedy = stack.enter_context(RawClient(broker.port))
            greedy.send(ApiKey.JOIN_GROUP, 3, join(f"g{number}"))
        until(lambda: groups(client) == OF_ALL, what="as many as may wait")
        refused = client.ask(ApiKey.JOIN_GROUP, 3, join("further", 10))
        assert refused.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert client.ask(ApiKey.SYNC_GROUP, 3, sync).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    with RawClient(broker.port) as other:

        def is_heard() -> bool:
            return bool(client.ask(ApiKey.SYNC_GROUP, 3, sync).error_code != ErrorCode.REBALANCE_IN_PROGRESS)

        until(is_heard, what="room")
        before = groups(client)
        other.send(ApiKey.JOIN_GROUP, 3, join("further"))
        until(lambda: groups(client) == before + 1, what="a member that waits")


def test_each_request_is_counted_once_until_its_answer_leaves_or_nobody_waits() -> None:
    parked = ParkedBytes(160)
    sockets = [ReplyQueue(100, parked) for _ in range(2)]

    def read(queue: ReplyQueue, size: int) -> ReplySlot:
        slot = ReplySlot()
        slot.kept_bytes = size
        queue.add(slot)
        return slot

    first, second = read(sockets[0], 4), read(sockets[0], 6)
    assert (parked.used, sockets[0].is_full, sockets[1].is_full) == (10, True, False)
    second.fill([b"b"])
    assert sockets[0].take(100) == [] and parked.used == 10
    first.fill([b"a"])
    assert sockets[0].take(1) == [b"a"] and parked.used == 6
    assert not sockets[0].is_full
    read(sockets[1], 200)
    assert parked.refuses() and parked.refused == 1
    for queue in sockets * 2:
        queue.abandon()
    assert parked.used == 0 and not parked.refuses()
