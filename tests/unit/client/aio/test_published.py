"""What members publish reaches those who watch within 0.2 s and moves nothing, beside a real broker in virtual time."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kohort.aio import Admin, Consumer
from kohort.simulation.clients.network import PROGRAM
from support.dialogues.virtual_broker import beside_a_broker

#: The interval is what it is by default: without a push what is published would wait for up to 5 s.
CONFIG = {"group.consumer.heartbeat.interval.ms": 5_000, "group.consumer.session.timeout.ms": 10_000}
WITHIN_S = 0.2


class Group:
    """Consumers of one group, each polling in a task of its own."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.consumers: dict[str, Consumer] = {}
        self._tasks: list[asyncio.Task[None]] = []
        #: What the watchers' callbacks were told, with the time.
        self.told: list[tuple[float, dict[str, bytes]]] = []
        self.moved = 0
        self._has_news = asyncio.Event()

    async def join(self, *names: str, **options: Any) -> None:
        for name in names:
            PROGRAM.set(name)
            consumer = Consumer(
                bootstrap_servers=self.address,
                group_id="g",
                group_instance_id=name,
                enable_auto_commit=False,
                **options,
            )
            consumer.subscribe(["t"], on_assigned=self._note_move, on_revoked=self._note_move)
            self.consumers[name] = consumer
            self._tasks.append(asyncio.create_task(self._read(consumer)))

    async def _read(self, consumer: Consumer) -> None:
        while True:
            await consumer.poll(0.5)

    def _note_move(self, _: Consumer, __: object) -> None:
        self.moved += 1

    async def watch(self, name: str) -> None:
        async def note(_: Consumer, published: dict[str, bytes]) -> None:
            self.told.append((asyncio.get_running_loop().time(), published))
            self._has_news.set()

        self.consumers[name].watch_published(note)

    async def until_told(self, published: dict[str, bytes]) -> None:
        """Until a watcher was told exactly this."""
        while not self.told or self.told[-1][1] != published:
            self._has_news.clear()
            await asyncio.wait_for(self._has_news.wait(), 30)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        for consumer in self.consumers.values():
            await consumer.close()


async def at_rest(address: str, *names: str, **options: Any) -> Group:
    group = Group(address)
    await group.join(*names, **options)
    await asyncio.sleep(8)
    group.moved = 0
    return group


def test_a_watcher_has_it_within_a_fifth_of_a_second_and_nothing_moves() -> None:
    async def play(address: str) -> None:
        group = await at_rest(address, "a", "b", "c")
        await group.watch("c")
        await asyncio.sleep(1)
        epochs = {consumer.group_epoch for consumer in group.consumers.values()}
        for step in range(5):
            group.consumers["a"].publish(b"lag=%d" % step)
            await asyncio.wait_for(group.until_told({"a": b"lag=%d" % step}), WITHIN_S)
            # At any time of an interval.
            await asyncio.sleep(1.3)
        assert group.consumers["c"].published() == {"a": b"lag=4"} and not group.consumers["b"].published()
        assert group.moved == 0 and {consumer.group_epoch for consumer in group.consumers.values()} == epochs
        await group.close()

    beside_a_broker(play, topics={"t": 6}, config=CONFIG)


def test_who_publishes_all_the_time_is_told_of_at_most_every_fifty_milliseconds() -> None:
    async def play(address: str) -> None:
        group = await at_rest(address, "a", "b")
        await group.watch("b")
        for step in range(500):
            group.consumers["a"].publish(b"%d" % step)
            await asyncio.sleep(0.002)
        await group.until_told({"a": b"499"})
        gaps = [after - before for (before, _), (after, _) in zip(group.told, group.told[1:], strict=False)]
        # What is told is on its way for 1 to 20 ms.
        assert len(group.told) <= 22 and min(gaps) >= 0.03
        assert max(gaps) <= WITHIN_S
        await group.close()

    beside_a_broker(play, topics={"t": 2}, config=CONFIG)


def test_what_is_published_before_joining_is_told_with_the_join_and_goes_with_the_member() -> None:
    async def play(address: str) -> None:
        group = Group(address)
        await group.join("b")
        await group.watch("b")
        PROGRAM.set("early")
        early = Consumer("t", bootstrap_servers=address, group_id="g")
        early.publish(b"before")
        await early.poll(0.1)
        await group.until_told({early.member_id: b"before"})
        async with Admin(bootstrap_servers=address) as admin:
            described = await admin.describe_group("g")
        assert {each.member_id: (each.metadata, each.metadata_size) for each in described.members} == {
            early.member_id: (b"before", 6),
            group.consumers["b"].member_id: (None, -1),
        }
        await early.close()
        await group.until_told({})
        await group.close()

    beside_a_broker(play, topics={"t": 2}, config=CONFIG)


@pytest.mark.parametrize("is_pushed", [True, False])
def test_with_and_without_pushed_answers_a_watcher_ends_up_with_all_of_it(is_pushed: bool) -> None:
    async def play(address: str) -> None:
        group = await at_rest(address, *(f"m{number}" for number in range(8)))
        await group.watch("m0")
        await group.watch("m1")
        for number in range(8):
            group.consumers[f"m{number}"].publish(b"x" * (8_000 * number + 1))
        await group.until_told({f"m{number}": b"x" * (8_000 * number + 1) for number in range(8)})
        group.consumers["m3"].publish(b"")
        await group.until_told({f"m{number}": b"x" * (8_000 * number + 1) for number in range(8) if number != 3})
        await group.close()

    beside_a_broker(play, topics={"t": 8}, config={**CONFIG, "group.push.enable": is_pushed})
