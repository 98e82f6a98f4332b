"""Faults around the clients, drawn from the seed."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Final

from kohort.testing.clients.plan import FLEETING, QUALITIES

if TYPE_CHECKING:
    from kohort.testing.clients.client_world import ClientWorld


class Mishaps:
    """All faults of the clients' world; their names are those of `plan.WEIGHTS`."""

    def __init__(self, world: ClientWorld) -> None:
        self._world: Final = world
        self._random: Final = Random(world.random.random())

    async def happen(self) -> None:
        """Cause a fault drawn at random."""
        weights = self._world.plan.weights
        if weights:
            await getattr(self, self._random.choices(list(weights), list(weights.values()))[0])()

    async def heal(self) -> None:
        """End every fault."""
        world = self._world
        world.loop.internet.heal()
        for node_id in world.brokers.nodes:
            if node_id not in world.brokers.leaders.running:
                await world.start_broker(node_id)
        for reader in world.readers:
            world.loop.internet.restore(reader.name)

    def _running(self) -> list[int]:
        return sorted(self._world.brokers.leaders.running)

    async def move_leader(self) -> None:
        world = self._world
        if not self._running():
            return
        partition = self._random.choice(world.partitions())
        log, to = world.log(partition), self._random.choice(self._running())
        assert log is not None
        world.tell("world", f"broker {to} leads {partition} from {log.log_end_offset} on")
        world.brokers.move(log, to)

    async def move_coordinator(self) -> None:
        world = self._world
        if not self._running():
            return
        group_id, to = self._random.choice(sorted(world.groups)), self._random.choice(self._running())
        world.tell("world", f"broker {to} coordinates {group_id}")
        world.brokers.move(world.brokers.offsets_log(group_id), to)

    async def stop_broker(self) -> None:
        await self._lose_broker("stops", self._world.brokers.stop)

    async def kill_broker(self) -> None:
        async def kill(node_id: int, *, hand_over: bool) -> None:
            self._world.brokers.kill(node_id, hand_over=hand_over)

        await self._lose_broker("dies", kill)

    async def _lose_broker(self, how: str, lose: object) -> None:
        world, running = self._world, self._running()
        if len(running) < len(world.brokers.nodes) or not running:
            return
        node_id, hand_over = self._random.choice(running), self._random.random() < 0.7
        world.tell("world", f"broker {node_id} {how}{'' if hand_over else ', and nobody takes over'}")
        await lose(node_id, hand_over=hand_over)  # type: ignore[operator]
        # One of the addresses to start from stays true.
        port = self._random.choice((None, None, 0)) if node_id > 1 else None
        seconds = self._random.choice((0.2, 1.5, 4.0))

        async def come_back() -> None:
            if node_id not in world.brokers.leaders.running:
                world.tell("world", f"broker {node_id} is back{'' if port is None else ' elsewhere'}")
                await world.start_broker(node_id, port)

        world.loop.call_later(seconds, lambda: world.keep(world.loop.create_task(come_back())))

    async def stall_broker(self) -> None:
        node_id, seconds = self._random.choice(sorted(self._world.brokers.nodes)), self._random.choice((0.5, 2.0, 5.0))
        self._world.tell("world", f"broker {node_id} stands still for {seconds:g} s")
        self._world.loop.internet.stall(f"broker-{node_id}", seconds)

    async def change_network(self) -> None:
        self._world.loop.internet.quality = self._random.choice(QUALITIES)

    async def break_connection(self) -> None:
        wires = [wire for wire in self._world.loop.internet.wires if wire.is_whole]
        if wires:
            wire = self._random.choice(wires)
            self._world.tell("world", f"a connection of {wire.ends[0].name} to {wire.ends[1].name} breaks")
            wire.cut()

    async def cut_off(self) -> None:
        world = self._world
        reader, seconds = self._random.choice(world.readers), self._random.choice((0.5, 2.0, 6.0))
        world.tell("world", f"{reader.name} reaches nobody for {seconds:g} s")
        world.loop.internet.cut_off(reader.name)
        world.loop.call_later(seconds, world.loop.internet.restore, reader.name)

    async def lose_coordinator(self) -> None:
        world = self._world
        reader, seconds = self._random.choice(world.readers), self._random.choice((1.0, 3.5, 8.0))
        world.tell("world", f"no word of membership of {reader.name} arrives for {seconds:g} s")
        world.loop.internet.unheard.add(reader.name)
        world.loop.call_later(seconds, world.loop.internet.unheard.discard, reader.name)

    async def grow_topic(self) -> None:
        world = self._world
        name = self._random.choice(sorted(world.plan.topics))
        topic = world.brokers.shared.cluster.topic(name)
        if topic is not None and len(topic.partitions) < 8:
            world.tell("world", f"topic {name} grows")
            world.brokers.shared.cluster.grow_topic(name, len(topic.partitions) + 1)

    async def remake_topic(self) -> None:
        world, topics = self._world, self._world.brokers.shared.cluster
        if FLEETING not in world.plan.topics:
            return
        if topics.topic(FLEETING) is not None:
            world.tell("world", f"topic {FLEETING} is deleted")
            world.note_fleeting()
            topics.delete_topic(FLEETING)
        if self._random.random() < 0.7:
            world.tell("world", f"topic {FLEETING} is made again")
            topics.create_topic(FLEETING, self._random.randint(1, 3), {})

    async def crash_reader(self) -> None:
        self._random.choice(self._world.readers).crash()

    async def add_reader(self) -> None:
        world = self._world
        if len(world.readers) < 5:
            world.add_reader(self._random.choice(sorted(world.groups))).start()
