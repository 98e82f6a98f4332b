"""Anything in any order, seeded: no record is left out or comes twice, no partition starves, no byte is miscounted."""

from __future__ import annotations

import random

import pytest

from kohort.client.consumer.application_events import ChunkTaken, GiveWay, PartitionsAssigned, Paused, Sought
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.core.requests import Failure
from kohort.ids import TopicPartition
from kohort.wire.messages.fetch import FetchRequest
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, orders
from support.dialogues.session_cluster import NODES, SessionCluster

PARTITIONS = 6
STEPS = 120


class Walk:
    """A consumer's machine and its application's half, two brokers, and chance."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.limit = self.random.choice([300, 1_000, 4_000, 1 << 20])
        self.consumer = ConsumerDialogue(group_id=None, fetch_buffer_bytes=self.limit)
        self.consumer.topics["orders"] = (ORDERS, PARTITIONS)
        self.consumer.brokers = dict(NODES)
        self.cluster = SessionCluster(self.consumer, seed)
        self.handler = FetchHandler()
        #: Partition -> offset of the record that comes next.
        self.expected: dict[TopicPartition, int] = {}
        self._seen = 0
        # Each walk leaves out some of what may happen, which would hide what the rest does.
        disturbing = [self.seek, self.pause, self.move, self.lose_session, self.disconnect, self.assign_some, self.take]
        self.actions = [self.append, self.answer, self.answer, self.pass_time]
        self.actions += [each for each in disturbing for _ in range(self.random.choice([0, 0, 1, 2]))]
        self.assign(range(PARTITIONS))

    def step(self) -> None:
        self.random.choice(self.actions)()
        self.hand_over()

    # -- the application ------------------------------------------------------------------------------------------

    def assign(self, indexes: range | list[int]) -> None:
        chosen = set(orders(*indexes))
        for gone in self.handler.assignment - chosen:
            del self.expected[gone]
        self.handler.forget(self.handler.assignment - chosen)
        fresh = chosen - self.handler.assignment
        self.handler.hold(sorted(fresh))
        for each in fresh:
            # As `seek` on what was just assigned: positions are known from the first.
            self.handler.seek(each, 0)
            self.expected[each] = 0
        self.consumer.take(PartitionsAssigned(starts=self.handler.starts(sorted(chosen))))
        self.report()

    def assign_some(self) -> None:
        self.assign(self.random.sample(range(PARTITIONS), self.random.randint(1, PARTITIONS)))

    def some(self) -> TopicPartition:
        return self.random.choice(sorted(self.handler.assignment))

    def seek(self) -> None:
        partition = self.some()
        offset = self.random.randint(0, self.cluster.ends[partition.partition])
        fence = self.handler.seek(partition, offset)
        self.expected[partition] = offset
        self.consumer.take(Sought(partition=partition, fence=fence, offset=offset))
        self.report()

    def pause(self) -> None:
        partition = self.some()
        self.set_paused(partition, is_paused=partition not in self.handler.paused())

    def set_paused(self, partition: TopicPartition, *, is_paused: bool) -> None:
        self.handler.pause([partition], is_paused=is_paused)
        self.consumer.take(Paused(partitions=(partition,), is_paused=is_paused))

    def take(self) -> None:
        for record in self.handler.take(self.random.choice([1, 3, 1_000])):
            partition = TopicPartition(record.topic, record.partition)
            assert record.offset == self.expected[partition], f"{partition} skips or repeats"
            assert partition not in self.handler.paused()
            self.expected[partition] += 1
        self.report()

    def hand_over(self) -> None:
        """What the machine has delivered reaches the application."""
        items = self.consumer.delivered(object)
        for item in items[self._seen :]:
            if isinstance(item, GiveWay):
                self.handler.give_way(item.partition, item.fence)
            elif hasattr(item, "records"):
                self.handler.add(item)
        self._seen = len(items)
        self.report()

    def report(self) -> None:
        for partition, start in self.handler.given_way().items():
            assert start.offset is not None
            self.consumer.take(Sought(partition=partition, fence=start.fence, offset=start.offset))
        released = self.handler.released_bytes()
        if released:
            self.consumer.take(ChunkTaken(sizes=released))

    # -- the brokers ----------------------------------------------------------------------------------------------

    def append(self) -> None:
        self.cluster.append(self.random.randrange(PARTITIONS))

    def answer(self) -> None:
        self.consumer.settle()
        fetches = self.consumer.find(FetchRequest)
        if fetches:
            self.cluster.answer(self.random.choice(fetches))

    def move(self) -> None:
        self.cluster.move(self.random.randrange(PARTITIONS))

    def lose_session(self) -> None:
        self.cluster.sessions.pop(self.random.choice(list(NODES.values())), None)

    def disconnect(self) -> None:
        fetches = self.consumer.find(FetchRequest)
        if fetches:
            self.consumer.fail(self.random.choice(fetches).request, Failure.DISCONNECTED)

    def pass_time(self) -> None:
        self.consumer.advance(self.random.choice([1, 50, 1_000]))

    # -- the end --------------------------------------------------------------------------------------------------

    def finish(self) -> None:
        """Nothing more happens: everything that may be read is read, beside what stays paused and after it."""
        self.read_to_the_end()
        for partition in self.handler.paused():
            self.set_paused(partition, is_paused=False)
        self.read_to_the_end()

    def read_to_the_end(self) -> None:
        rest = {each: self.cluster.ends[each.partition] for each in self.handler.assignment - self.handler.paused()}
        # Pauses after errors are 1.2 s at most; a small buffer takes one batch at a time.
        for _ in range(30 if self.limit > 4_000 else 400):
            if rest.items() <= self.expected.items():
                return
            for send in list(self.consumer.find(FetchRequest)):
                if send in self.consumer.open:
                    self.cluster.answer(send)
            self.hand_over()
            self.take()
            self.consumer.advance(100)
        assert {each: self.expected[each] for each in rest} == rest, "a partition starves"

    def give_up(self) -> None:
        """Nothing is read any more, so nothing is counted."""
        self.assign([])
        self.hand_over()
        assert self.consumer.find(FetchRequest) == [], "a fetch for nobody"
        buffer = self.consumer.machine._sender.buffer
        assert buffer.room == buffer.limit_bytes
        assert [buffer.used(node) for node in NODES.values()] == [0, 0]
        assert buffer.paused() == []


@pytest.mark.parametrize("seed", range(150))
def test_walk(seed: int) -> None:
    """C5, KIP-81, KIP-227: `SessionCluster` holds the client to the rules of sessions on the way."""
    walk = Walk(seed)
    for _ in range(STEPS):
        walk.step()
    walk.finish()
    walk.give_up()
