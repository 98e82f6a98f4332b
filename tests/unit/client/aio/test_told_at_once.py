"""Our own members beside a broker that holds their heartbeats, in virtual time: no move waits for an interval (H1)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import pytest

from kohort.aio import Consumer
from kohort.ids import TopicPartition
from kohort.simulation.clients.network import PROGRAM, VirtualLoop
from support.dialogues.virtual_broker import beside_a_broker

#: The interval is what it is by default: without push a move waits for up to 5 s.
CONFIG = {"group.consumer.heartbeat.interval.ms": 5_000, "group.consumer.session.timeout.ms": 10_000}
#: Round trips of 20 ms, the window in which changes are gathered, and the interval of who waits, s.
PROMPT_S = 0.3
PARTITIONS = 12


class Members:
    """Consumers of one group, each polling in a task of its own."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._consumers: dict[str, Consumer] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        #: member -> what it has by its callbacks.
        self.owned: dict[str, set[TopicPartition]] = {}
        self.lost: list[TopicPartition] = []
        self._has_changed = asyncio.Event()

    async def join(self, *names: str, commits: bool = False) -> None:
        for name in names:
            PROGRAM.set(name)
            consumer = Consumer(
                bootstrap_servers=self._address, group_id="g", group_protocol="consumer", enable_auto_commit=False
            )
            owned = self.owned[name] = set()
            consumer.subscribe(
                ["t"],
                on_assigned=partial(self._note, owned.update),
                on_revoked=partial(self._note, owned.difference_update),
                on_lost=partial(self._note, self.lost.extend),
            )
            self._consumers[name] = consumer
            self._tasks[name] = asyncio.create_task(self._read(consumer, owned, commits=commits))

    def _note(
        self, take: Callable[[list[TopicPartition]], None], _: Consumer, partitions: list[TopicPartition]
    ) -> None:
        take(partitions)
        self._has_changed.set()

    async def _read(self, consumer: Consumer, owned: set[TopicPartition], *, commits: bool) -> None:
        while True:
            await consumer.poll(0.1)
            if commits and owned:
                await consumer.commit({min(owned): 0})

    async def leave(self, name: str) -> None:
        """Stop polling and close."""
        task = self._tasks.pop(name)
        task.cancel()
        await asyncio.wait([task])
        await self._consumers.pop(name).close()
        del self.owned[name]

    async def settle(self) -> float:
        """Wait until everybody has its share; how long that took, s."""
        began_s = asyncio.get_running_loop().time()
        share = PARTITIONS // len(self.owned)
        while any(len(owned) != share for owned in self.owned.values()):
            self._has_changed.clear()
            await self._has_changed.wait()
        return asyncio.get_running_loop().time() - began_s

    async def end(self) -> None:
        for name in list(self._tasks):
            await self.leave(name)


def played(dialogue: Callable[[Members], Awaitable[Any]]) -> Any:
    """What comes of a dialogue; nobody has lost anything in it."""

    async def application(address: str) -> Any:
        members = Members(address)
        try:
            return await dialogue(members)
        finally:
            await members.end()
            assert members.lost == []

    return beside_a_broker(application, topics={"t": PARTITIONS}, config=CONFIG)


@pytest.mark.parametrize("later_s", [0.3, 2.0, 4.2, 4.9])
def test_move_is_told_at_once(later_s: float) -> None:
    """A heartbeat that was held to its end is followed at once: there is no moment at which nobody can be told."""

    async def dialogue(members: Members) -> tuple[float, float]:
        await members.join("a", "b")
        await members.settle()
        await asyncio.sleep(later_s)
        await members.join("c")
        joined_s = await members.settle()
        await asyncio.sleep(later_s)
        await members.leave("a")
        return joined_s, await members.settle()

    joined_s, left_s = played(dialogue)
    assert max(joined_s, left_s) <= PROMPT_S


def test_member_that_commits_all_the_time_hears_of_a_move_within_a_second() -> None:
    """Each commit has the heartbeat before it answered: the next comes at once, and then once a second."""

    async def dialogue(members: Members) -> float:
        await members.join("a", "b", commits=True)
        await members.settle()
        await asyncio.sleep(7.0)
        await members.join("c")
        return await members.settle()

    assert played(dialogue) <= 1.0 + PROMPT_S


def test_leaving_waits_for_no_hold() -> None:
    async def dialogue(members: Members) -> float:
        await members.join("a", "b")
        await members.settle()
        await asyncio.sleep(1.0)
        began_s = asyncio.get_running_loop().time()
        await members.leave("a")
        return asyncio.get_running_loop().time() - began_s

    assert played(dialogue) <= PROMPT_S


@pytest.mark.parametrize("who", ["a", "broker"])
@pytest.mark.parametrize("begins_s", [0.5, 3.9, 4.8])
def test_who_stands_still_for_less_than_a_session_keeps_what_it_has(who: str, begins_s: float) -> None:
    """SIGSTOP for 4 s, and SIGCONT: a hold, an interval and such a pause are not added up."""

    async def dialogue(members: Members) -> float:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        await members.join("a", "b")
        await members.settle()
        for _ in range(2):
            await asyncio.sleep(begins_s)
            loop.network.stall(who, 4.0)
            await asyncio.sleep(10.0)
        await members.join("c")
        return await members.settle()

    assert played(dialogue) <= PROMPT_S
