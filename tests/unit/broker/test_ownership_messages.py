"""Messages about owners from a coordinator to leaders: order, loss, delay, repetition, and brokers that come late."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from kohort.broker.fetch.ownership import Claim, OwnershipChange, OwnershipTable, Sender
from kohort.broker.groups.ownership_messages import OwnershipMessages, OwnLeader, alive_ms
from kohort.coordinator.commands import ConsumerGroupHeartbeatReply, Done, SyncGroupReply
from kohort.coordinator.decision import Decision, FencePartitions, OpenPartitions
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.testing.ownership_links import RESEND_MS, Faults, OwnershipLinks

T = TopicId(b"t" * 16)
LEASE_MS = 22_500


def fence(member_id: str, epoch: int, *partitions: int, **fields: Any) -> FencePartitions:
    return FencePartitions(
        group_id=fields.pop("group_id", "g"),
        member_id=member_id,
        epoch=epoch,
        places=tuple((T, each) for each in partitions),
        lease_ms=fields.pop("lease_ms", LEASE_MS),
        stock_lease_ms=60_000,
        **fields,
    )


def opening(member_id: str, epoch: int, *partitions: int, **fields: Any) -> OpenPartitions:
    places = tuple((T, each) for each in partitions)
    return OpenPartitions(group_id="g", member_id=member_id, epoch=epoch, places=places, lease_ms=LEASE_MS, **fields)


class Brokers:
    """A coordinator, and the tables of brokers behind links."""

    def __init__(self, loop: VirtualLoop, *numbers: int) -> None:
        self.loop = loop
        self.links = OwnershipLinks(loop)
        self.tables = {number: OwnershipTable() for number in numbers}
        for number, table in self.tables.items():
            self.links.joined(number, table)
        self.shard = Shard(GroupSettings())
        self.messages = OwnershipMessages(loop)
        self.messages.begin(self.links, [self.shard])

    def tell(self, *effects: FencePartitions | OpenPartitions) -> None:
        """A decision with these effects is committed."""
        self.shard.commit(Decision(effects=effects), now_ms=0)
        self.messages.tell(0, self.shard)

    def refused(self, broker: int, member_id: str, epoch: int, partition: int = 0) -> bool:
        claim = Claim("g", member_id, epoch)
        return self.tables[broker].refuses(claim, T, partition, int(self.loop.time() * 1000)) is not None

    def answer_to(self, member_id: str) -> list[float]:
        """Send a reply that tells the member its partitions; when it left, seconds, is put into what is returned."""
        left: list[float] = []
        body = ConsumerGroupHeartbeatReply(
            member_id=member_id, member_epoch=2, heartbeat_interval_ms=5_000, assignment={T: (0,)}
        )
        key = self.messages.owner_of("g", body, "")
        if key is None:
            left.append(self.loop.time())
        else:
            self.messages.hold_back(key, lambda: left.append(self.loop.time()))
        return left


def virtually(story: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    run_virtually(story, Random("owners"))


def test_one_broker_knows_before_the_reply_leaves() -> None:
    async def story(loop: VirtualLoop) -> None:
        table, shard = OwnershipTable(), Shard(GroupSettings())
        messages = OwnershipMessages(loop)
        messages.begin(OwnLeader(table, lambda: int(loop.time() * 1000)), [shard])
        shard.commit(Decision(effects=(fence("a", 1, 0),)), now_ms=0)
        messages.tell(0, shard)
        assert table.refuses(Claim("g", "a", 1), T, 0, 0) is ErrorCode.FENCED_MEMBER_EPOCH
        assert not messages.unknown

    virtually(story)


def test_reply_that_tells_a_move_waits_for_every_broker_and_no_other_reply_does() -> None:
    """users@kafka 2014-07-16, step 6: coordinator receives all broker acks and sends HeartbeatResponses."""

    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1, 2, 3)
        brokers.links.faults[3] = Faults(delay_ms=400)
        brokers.tell(fence("a", 1, 0))
        told, other = brokers.answer_to("a"), brokers.answer_to("b")
        settled = ConsumerGroupHeartbeatReply(
            member_id="a", member_epoch=1, heartbeat_interval_ms=5_000, assignment=None
        )
        assert brokers.messages.owner_of("g", settled, "") is None, "it tells no partitions"
        assert brokers.messages.owner_of("g", Done(), "") is None
        sync = SyncGroupReply(error=ErrorCode.NONE, protocol_type=None, protocol_name=None, assignment=b"x")
        assert brokers.messages.owner_of("g", sync, "a") == ("g", "a")
        assert brokers.messages.owner_of("g", sync, "b") is None
        assert other == [0.0] and told == []
        await asyncio.sleep(0.3)
        assert brokers.refused(1, "a", 1) and not brokers.refused(3, "a", 1)
        await asyncio.sleep(0.6)
        assert brokers.refused(3, "a", 1)
        # There and back.
        assert told == [pytest.approx(0.8, abs=0.11)]

    virtually(story)


def test_lost_message_is_sent_again_and_a_repeated_one_changes_nothing() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1, 2)
        brokers.links.faults[2] = Faults(lost=2)
        brokers.tell(fence("a", 1, 0))
        told = brokers.answer_to("a")
        await asyncio.sleep(RESEND_MS * 1.5 / 1000)
        assert not brokers.refused(2, "a", 1) and told == []
        await asyncio.sleep(RESEND_MS / 1000)
        assert brokers.refused(2, "a", 1)
        assert told == [pytest.approx(2 * RESEND_MS / 1000, abs=0.01)]
        brokers.links.faults[1] = Faults(repeated=5)
        brokers.tell(opening("b", 2, 0))
        await asyncio.sleep(0.01)
        edition = brokers.tables[1].edition
        await asyncio.sleep(1)
        assert brokers.tables[1].edition == edition
        assert brokers.refused(1, "a", 1) and not brokers.refused(1, "b", 2)

    virtually(story)


def test_messages_out_of_order_are_taken_in_order() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1)
        brokers.links.faults[1] = Faults(delay_ms=50)
        brokers.tell(fence("a", 7, 0))
        brokers.links.faults[1] = Faults()
        # At one epoch, as with moves at a pace, only the order tells which of them has the partition.
        brokers.tell(opening("b", 7, 0))
        await asyncio.sleep(0.01)
        assert not brokers.refused(1, "a", 7), "the second message alone is not taken"
        await asyncio.sleep(0.3)
        assert brokers.refused(1, "a", 7) and not brokers.refused(1, "b", 7)

    virtually(story)


def test_broker_that_does_not_acknowledge_is_waited_for_until_the_lease_is_over() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1, 2)
        brokers.links.faults[2] = Faults(lost=None)
        brokers.tell(fence("a", 1, 0, lease_ms=3_000))
        told = brokers.answer_to("a")
        # A tenth longer: by so much the other broker's clock may be behind.
        await asyncio.sleep(3.2)
        assert told == []
        await asyncio.sleep(0.2)
        assert told == [pytest.approx(3.3)]
        # It is there again, and learns of it.
        brokers.links.faults[2] = Faults()
        await asyncio.sleep(0.3)
        assert brokers.refused(2, "a", 1)

    virtually(story)


def test_broker_that_is_gone_is_not_waited_for_and_one_that_starts_gets_what_is_alive() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1, 2)
        brokers.links.faults[2] = Faults(lost=None)
        brokers.tell(fence("a", 1, 0))
        brokers.tell(opening("b", 2, 0))
        told = brokers.answer_to("b")
        await asyncio.sleep(1)
        assert told == []
        brokers.links.left(2)
        assert told == [pytest.approx(1.0)]
        brokers.links.faults[2] = Faults()
        brokers.tables[2] = OwnershipTable()
        brokers.links.joined(2, brokers.tables[2])
        await asyncio.sleep(0.3)
        assert brokers.refused(2, "a", 1) and not brokers.refused(2, "b", 2)
        # What no lease can need is not sent.
        await asyncio.sleep(61)
        brokers.tell(fence("z", 1, 1))
        brokers.tables[3] = OwnershipTable()
        brokers.links.joined(3, brokers.tables[3])
        await asyncio.sleep(0.3)
        assert not brokers.refused(3, "a", 1) and brokers.refused(3, "z", 1, 1)

    virtually(story)


def test_message_of_a_former_coordinator_is_not_taken() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1)
        brokers.links.faults[1] = Faults(delay_ms=500)
        brokers.tell(opening("a", 9, 0))
        told = brokers.answer_to("a")
        brokers.links.faults[1] = Faults()
        # Another coordinator has read the log.
        brokers.messages.loaded(0, Shard(GroupSettings()))
        assert told == [0.0], "the log that it has read knows of no such member"
        brokers.tell(fence("b", 3, 0))
        await asyncio.sleep(1)
        assert brokers.refused(1, "b", 3) and brokers.refused(1, "a", 9)

    virtually(story)


def test_openings_are_kept_for_a_lease_after_a_shard_was_loaded() -> None:
    """Leaders may not know of former owners then."""

    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1)
        brokers.tell(opening("b", 5, 0))
        await asyncio.sleep(alive_ms(LEASE_MS) / 1000 + 0.1)
        brokers.tell(opening("b", 5, 1))
        await asyncio.sleep(0.1)
        assert [brokers.refused(1, "a", 4, each) for each in (0, 1)] == [False, False]

    async def at_once(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1)
        brokers.tell(opening("b", 5, 0))
        await asyncio.sleep(0.1)
        assert brokers.refused(1, "a", 4) and not brokers.refused(1, "b", 5)

    virtually(story)
    virtually(at_once)


def test_group_that_is_made_again_counts_its_epochs_anew() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1)
        brokers.tell(fence("a", 57, 0))
        brokers.tell(opening("b", 1, 0))
        await asyncio.sleep(0.1)
        assert brokers.refused(1, "a", 57), "it is known by its name"
        assert not brokers.refused(1, "b", 1)
        # Within one life of a group an older epoch is a late one.
        table = brokers.tables[1]
        late = OwnershipChange("g", "c", 0, ((T, 0),), True, LEASE_MS, LEASE_MS)
        table.change(late, int(loop.time() * 1000))
        assert not brokers.refused(1, "b", 1)

    virtually(story)


def test_sender_is_unique_only_where_no_other_member_has_its_client() -> None:
    async def story(loop: VirtualLoop) -> None:
        heard: list[OwnershipChange] = []

        class Listening(OwnershipTable):
            def change(self, change: OwnershipChange, now_ms: int) -> None:
                heard.append(change)
                super().change(change, now_ms)

        shard = Shard(GroupSettings(group_ownership_enforce="all", group_ownership_refusal="strict"))
        messages = OwnershipMessages(loop)
        messages.principal_of = lambda group_id, member_id: f"Token:{group_id}-{member_id}"
        messages.begin(OwnLeader(Listening(), lambda: 0), [shard])
        shard.commit(Decision(effects=(fence("a", 1, 0, client=("c", "/h")),)), now_ms=0)
        messages.tell(0, shard)
        (change,) = heard
        assert change.sender == Sender("Token:g-a", "c", "/h", is_unique=True)
        assert (change.enforce, change.refusal) == ("all", "strict")

    virtually(story)


def test_stop_sends_what_waits() -> None:
    async def story(loop: VirtualLoop) -> None:
        brokers = Brokers(loop, 1)
        brokers.links.faults[1] = Faults(lost=None)
        brokers.tell(fence("a", 1, 0))
        told = brokers.answer_to("a")
        brokers.messages.stop()
        assert told == [0.0]

    virtually(story)
