"""users@kafka, "New Consumer Design", 14 to 22 July 2014: brokers that know a new assignment before its consumers do.

A coordinator with real members' requests, and three brokers behind links: what they refuse is asked of their tables.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

from kohort.broker.fetch.ownership import Claim, OwnershipTable
from kohort.broker.groups.ownership_messages import OwnershipMessages
from kohort.coordinator.decision import Decision, Reply
from kohort.errors import ErrorCode
from kohort.simulation.clients.network import VirtualLoop, run_virtually
from kohort.testing.ownership_links import Faults, OwnershipLinks
from support.dialogues.hold_dialogue import HoldDialogue


class Brokered(HoldDialogue):
    """A group with a topic "t", and brokers 1 to 3 that may lead its partitions."""

    def __init__(self, loop: VirtualLoop, partitions: int) -> None:
        self.loop = loop
        self.links = OwnershipLinks(loop)
        self.tables = {number: OwnershipTable() for number in (1, 2, 3)}
        self.messages = OwnershipMessages(loop)
        super().__init__({"t": partitions})
        for number, table in self.tables.items():
            self.links.joined(number, table)
        self.messages.begin(self.links, [self.shard])

    def _tell_leaders(self) -> None:
        effects = self.shard.take_ownership()
        self._ownership += effects
        self.shard.commit(Decision(effects=tuple(effects)), now_ms=self.now_ms)
        self.messages.tell(0, self.shard)

    def _deliver(self, reply: Reply) -> None:
        key = self.messages.owner_of(self.group_id, reply.body, "")
        if key is None:
            super()._deliver(reply)
        else:
            deliver = super()._deliver
            self.messages.hold_back(key, lambda: deliver(reply))

    def readers(self, partition: int) -> list[set[str]]:
        """Of each broker: the members that it would serve, each by the epoch and the partitions that it knows."""
        now_ms, place = int(self.loop.time() * 1000), self.topic_id("t")
        claims = [Claim(self.group_id, each.member_id, each.member_epoch) for each in self.group.members.values()]
        return [
            {claim.member_id for claim in claims if table.refuses(claim, place, partition, now_ms) is None}
            for table in self.tables.values()
        ]

    def moving(self) -> tuple[str, int]:
        """A partition that is to be given up, and its member."""
        return next(
            (member.member_id, partition)
            for member in self.group.members.values()
            for partition in member.pending_revocation.get(self.topic_id("t"), ())
        )


def virtually(story: Callable[[VirtualLoop], Coroutine[Any, Any, None]]) -> None:
    run_virtually(story, Random("2014"))


def test_nine_steps_of_a_move() -> None:
    """Rob Withers, 16 July 2014: the nine steps, a line or two each."""

    async def story(loop: VirtualLoop) -> None:
        # 1. 3 consumers running with 12 partitions balanced, 4 each.
        group = Brokered(loop, 12)
        for each in ("c1", "c2", "c3"):
            group.heartbeat(each, epoch=0)
            await asyncio.sleep(0.01)
        group.settle()
        await asyncio.sleep(0.01)
        group.settle()
        assert sorted(len(found) for found in group.holders().values()) == [4, 4, 4]
        group.take_effects()
        epoch = group.group.epoch
        # 2. New consumer starts and sends JoinGroupRequest to coordinator.
        group.links.faults[3] = Faults(delay_ms=100)
        fourth = group.heartbeat("c4", epoch=0)
        # 3. Coordinator computes rebalance with 4 consumers: each existing consumer will lose a partition.
        assert group.group.target_epoch == epoch + 1
        assert sorted(sum(map(len, each.values())) for each in group.group.targets.values()) == [3, 3, 3, 3]
        fourth.replies(epoch=epoch + 1, assigned=[])
        # 4. Coordinator informs all live brokers of partition reassignments.
        asked = {each: group.report(group.member(each)) for each in ("c1", "c2", "c3")}
        assert [kind for kind, _, _ in group.new_ownership()] == ["fence"] * 3
        loser, moved = group.moving()
        # 5. Brokers receive reassignments, start failing unauthorized fetch requests and ack back.
        await asyncio.sleep(0.05)
        assert group.readers(moved)[:2] == [set(), set()], "the third one has not heard of it"
        assert all(answer.is_parked for answer in asked.values())
        # 6. Coordinator receives all broker acks and sends HeartbeatResponses with partition removals.
        await asyncio.sleep(0.2)
        assert group.readers(moved) == [set(), set(), set()]
        kept = asked[loser].body_as(object).assignment
        assert moved not in kept[group.topic_id("t")] and len(kept[group.topic_id("t")]) == 3
        # 7. Existing consumers can continue to fetch messages from correctly assigned partitions.
        for partition in kept[group.topic_id("t")]:
            assert all(loser in readers for readers in group.readers(partition))
        # 8. It would commitOffsets for that partition and then send a PartitionCommittedNotification.
        waiting = group.watch("c4", epoch=epoch + 1, knows=[])
        told = group.commit(
            {moved: 7}, member_id=loser, epoch=group.member(loser).member_epoch, released=group.partitions([moved])
        )
        assert told.errors() == (ErrorCode.NONE,)
        # 9. As the coordinator receives it, it sends the addPartition to consumer 4, which can start fetching.
        group.links.faults.clear()
        group.tell_news()
        assert waiting.is_parked, "the brokers hear of it first"
        await asyncio.sleep(0.01)
        waiting.replies(epoch=epoch + 1, assigned=[moved])
        assert all("c4" in readers and loser not in readers for readers in group.readers(moved))
        assert group.committed([moved]) == {moved: 7}

    virtually(story)


def test_consumer_that_drops_its_heartbeats_is_failed_by_the_brokers_and_the_partition_goes_on() -> None:
    """Rob Withers, 16 July 2014: no removal can be sent; the addPartitions could be, and the offset is what it is."""

    async def story(loop: VirtualLoop) -> None:
        group = Brokered(loop, 2)
        group.heartbeat("a", epoch=0)
        group.heartbeat("b", epoch=0)
        for _ in range(3):
            group.settle()
            await asyncio.sleep(0.01)
        (lost,) = (number for _, number in group.holders()["a"])
        group.commit({lost: 3}, member_id="a", epoch=group.member("a").member_epoch)
        for _ in range(2):
            group.advance(30_000)
            if "b" in group.group.members:
                group.report(group.member("b"))
        await asyncio.sleep(0.01)
        assert "a" not in group.group.members
        now_ms = int(loop.time() * 1000)
        assert all(
            table.refuses(Claim("g", "a", 2), group.topic_id("t"), lost, now_ms) is ErrorCode.FENCED_MEMBER_EPOCH
            for table in group.tables.values()
        )
        gained = group.report(group.member("b"))
        assert gained.is_parked or group.holders()["b"] == {("t", 0), ("t", 1)}
        await asyncio.sleep(0.01)
        assert all(readers == {"b"} for readers in group.readers(lost))
        assert group.committed([lost]) == {lost: 3}

    virtually(story)


def test_untouched_consumers_wait_for_no_broker() -> None:
    """Rob Withers, 16 July 2014: none of the other consumers would be paused on any other partitions."""

    async def story(loop: VirtualLoop) -> None:
        group = Brokered(loop, 4)
        for each in ("a", "b"):
            group.heartbeat(each, epoch=0)
        for _ in range(3):
            group.settle()
            await asyncio.sleep(0.01)
        kept = group.holders()
        group.links.faults[2] = Faults(lost=None)
        group.leave("b")
        # "a" did not move: it is answered at once, and reads what it has at every broker.
        mine = [number for _, number in kept["a"]]
        group.heartbeat("a", epoch=group.member("a").member_epoch, full=True, owned=mine, topics=["t"])
        assert all(any("a" in readers for readers in group.readers(each)) for each in mine)
        assert all("a" in readers for each in mine for readers in group.readers(each))
        other = [number for _, number in kept["b"]]
        assert group.commit({mine[0]: 1}, member_id="a", epoch=group.member("a").member_epoch).errors() == (0,)
        assert group.messages.unknown and other

    virtually(story)


def test_brokers_store_no_assignment() -> None:
    """Rob Withers, 18 July 2014: no domain specific info needs to be stored at the brokers."""

    async def story(loop: VirtualLoop) -> None:
        group = Brokered(loop, 6)
        group.heartbeat("a", epoch=0)
        # A coordinator that has just read its log has to tell all owners; from then on moves alone are kept.
        await asyncio.sleep(25)
        for table in group.tables.values():
            table.forget(int(loop.time() * 1000))
            assert len(table) == 0
        group.heartbeat("b", epoch=0)
        group.settle()
        await asyncio.sleep(0.01)
        assert {len(table) for table in group.tables.values()} == {3}, "as many as there were moves"
        await asyncio.sleep(61)
        for table in group.tables.values():
            table.forget(int(loop.time() * 1000))
            assert len(table) == 0

    virtually(story)
