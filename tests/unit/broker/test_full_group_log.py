"""A disk that takes nothing under groups: what cannot be written is refused or comes again, and nobody is fenced.

Whole programs beside a whole broker in virtual time; the disk is full for longer than any timeout of theirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kohort.aio import Consumer
from kohort.errors import KohortError
from kohort.ids import OFFSETS_TOPIC, TopicPartition
from kohort.simulation.clients.network import PROGRAM
from kohort.testing import Fault, FaultyFileSystem
from kohort.testing.disks import MemoryFileSystem
from support.dialogues.virtual_broker import beside_a_broker

pytestmark = pytest.mark.large

PARTITIONS = 4
#: Sessions are 3 s in these worlds, but for one.
OUTAGE_S = 60.0
#: A member whose acknowledgements are refused for its whole session gives its share up by itself.
LONG_SESSION_MS = 45_000
PATIENCE_S = 40.0
#: After an outage clients ask again within their longest pause, and the broker within a second.
SOON_S = 5.0


class Group:
    """Consumers of one group beside a broker whose disk may be full, each polling in a task of its own."""

    def __init__(self, address: str, disk: FaultyFileSystem, protocol: str) -> None:
        self.address, self.disk, self.protocol = address, disk, protocol
        self.consumers: dict[str, Consumer] = {}
        self.owned: dict[str, set[TopicPartition]] = {}
        self.lost: list[TopicPartition] = []
        self.moves = 0
        self._has_changed = asyncio.Event()
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def fill(self) -> None:
        """From now on no group can write anything."""
        self.disk.inject(Fault.NO_SPACE, where=lambda operation: OFFSETS_TOPIC in operation.path)

    def join(self, name: str) -> None:
        PROGRAM.set(name)
        consumer = self.consumers[name] = Consumer(
            bootstrap_servers=self.address,
            group_id="g",
            group_protocol=self.protocol,
            enable_auto_commit=False,
            **({} if self.protocol == "consumer" else {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500}),
        )
        owned = self.owned[name] = set()
        consumer.subscribe(
            ["t"],
            on_assigned=partial(self._note, owned.update),
            on_revoked=partial(self._note, owned.difference_update),
            on_lost=partial(self._note, self.lost.extend),
        )
        self._tasks[name] = asyncio.create_task(self._poll(consumer))

    def _note(
        self, take: Callable[[list[TopicPartition]], None], _: Consumer, partitions: list[TopicPartition]
    ) -> None:
        take(partitions)
        self.moves += 1
        self._has_changed.set()

    async def _poll(self, consumer: Consumer) -> None:
        while True:
            await consumer.poll(0.1)

    async def settled(self, within_s: float) -> None:
        """Everybody has its share."""
        share = PARTITIONS // len(self.owned)
        async with asyncio.timeout(within_s):
            while any(len(owned) != share for owned in self.owned.values()):
                self._has_changed.clear()
                await self._has_changed.wait()

    async def stop(self, name: str) -> None:
        """Poll no more, and close."""
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait([task])
        await self.consumers.pop(name).close()
        del self.owned[name]

    async def end(self) -> None:
        for name in list(self._tasks):
            await self.stop(name)


@pytest.fixture(params=["consumer", "classic"])
def played(request: pytest.FixtureRequest) -> Callable[..., Any]:
    """What comes of a dialogue with a group; nobody has lost anything in it."""

    def play(dialogue: Callable[[Group], Awaitable[Any]], **config: object) -> Any:
        disk = FaultyFileSystem(MemoryFileSystem(volatile=True))

        async def application(address: str) -> Any:
            group = Group(address, disk, request.param)
            try:
                return await dialogue(group)
            finally:
                await group.end()
                assert group.lost == []
                assert disk.health.failure is None

        return beside_a_broker(application, topics={"t": PARTITIONS}, config=config, disk=disk)

    return play


Played = Callable[..., Any]


def test_group_at_rest_does_not_notice_a_full_disk(played: Played) -> None:
    async def dialogue(group: Group) -> None:
        group.join("a")
        group.join("b")
        await group.settled(30)
        moves = group.moves
        group.fill()
        await asyncio.sleep(OUTAGE_S)
        group.disk.heal()
        await asyncio.sleep(OUTAGE_S)
        assert group.moves == moves

    played(dialogue)


def test_commit_on_a_full_disk_fails_as_one_that_may_be_tried_again_and_changes_nothing(played: Played) -> None:
    place = TopicPartition("t", 0)

    async def dialogue(group: Group) -> None:
        group.join("a")
        await group.settled(30)
        consumer = group.consumers["a"]
        await consumer.commit({place: 1})
        group.fill()
        with pytest.raises(KohortError) as error:
            await consumer.commit({place: 2}, timeout=OUTAGE_S)
        assert error.value.retriable
        assert (await consumer.committed([place]))[place] == 1

        waiting = asyncio.create_task(consumer.commit({place: 3}, timeout=OUTAGE_S))
        await asyncio.sleep(OUTAGE_S / 2)
        group.disk.heal()
        await asyncio.wait_for(waiting, SOON_S)
        assert (await consumer.committed([place]))[place] == 3

    played(dialogue)


def test_member_that_comes_on_a_full_disk_is_taken_in_once_there_is_room(played: Played) -> None:
    async def dialogue(group: Group) -> None:
        group.join("a")
        await group.settled(30)
        group.fill()
        group.join("b")
        await asyncio.sleep(OUTAGE_S)
        assert group.owned["b"] == set()
        group.disk.heal()
        await group.settled(SOON_S * 4)

    played(dialogue)


def test_member_that_left_on_a_full_disk_is_gone_once_there_is_room(played: Played) -> None:
    async def dialogue(group: Group) -> None:
        group.join("a")
        group.join("b")
        await group.settled(30)
        group.fill()
        await group.stop("b")
        await asyncio.sleep(OUTAGE_S)
        group.disk.heal()
        await group.settled(SOON_S * 4)

    played(dialogue)


def test_group_in_a_rebalance_when_the_disk_fills_goes_on_with_it(played: Played) -> None:
    """At any moment of it: the newcomer is in and has no share, one has been asked to give up, one has given up."""

    def at(moment_ms: int) -> Callable[[Group], Awaitable[None]]:
        async def dialogue(group: Group) -> None:
            group.join("a")
            await group.settled(30)
            group.join("b")
            await asyncio.sleep(moment_ms / 1000)
            group.fill()
            await asyncio.sleep(PATIENCE_S)
            group.disk.heal()
            await group.settled(SOON_S * 4)

        return dialogue

    for moment_ms in (20, 60, 100, 140, 180, 300, 600):
        played(at(moment_ms), **{"group.consumer.session.timeout.ms": LONG_SESSION_MS})
