"""The clients' world of a seed: real brokers, consumers and producers, virtual time and faults.

A run: brokers and applications start. For a while faults occur. Then all faults end, and every group must read every
record within bounded time. Then new records must arrive at once, even if other partitions are paused or idle. Finally
all clients close, and nothing may be left open.

Laws, beside those of `progress`, `reader`, `writer` and `invariants`:
- `BufferWithinLimit`: what is fetched ahead stays within fetch.buffer.bytes, but for one batch a fetch; and when all of
  it has been handed out nothing is counted any more.
- `NothingIsLeft`: after its close a client has no connection and no task.
A seed says everything; nothing reads a clock or draws from elsewhere, so that a failure happens again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Any, Final

from kohort.broker.topics.revocations import RevokedKind
from kohort.coordinator.records.types import OffsetCommitted
from kohort.ids import TopicId, TopicPartition
from kohort.records.columns import gather_columns
from kohort.records.scan import scan_batches
from kohort.simulation.clients.invariants import FinalChecks, Members
from kohort.simulation.clients.leader_reads import LeaderReads
from kohort.simulation.clients.network import PROGRAM
from kohort.simulation.clients.plan import FLEETING, HOLD_SHARES, QUALITIES, Plan, draw_plan
from kohort.simulation.clients.program_world import ProgramWorld, Report
from kohort.simulation.clients.progress import GroupProgress, ReadingTimes
from kohort.simulation.clients.reader import Reader
from kohort.simulation.clients.writer import MOST_BATCH_BYTES, Writer, is_checked
from kohort.simulation.trace import LawBroken
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.ownership_links import Faults

#: Longer than any lease in these worlds, ms.
REVOKED_MS: Final = 3_600_000


class ClientWorld(ProgramWorld):
    """The clients' world of one seed.

    >>> ClientWorld(1).run().handed_out > 0
    True
    """

    name = "clients"

    def __init__(self, seed: int, *, plan: Plan | None = None) -> None:
        random = Random(f"clients {seed}")
        if plan is None:
            share = HOLD_SHARES[seed % len(HOLD_SHARES)]
            drawn = replace(draw_plan(random), hold_share=share)
            tell, count, compute = seed % 4 != 1, seed % 3 == 0, seed % 5 == 2
            plan = replace(drawn, fetches_tell=tell, fetches_count=count, members_compute=compute)
            plan = replace(plan, messages_fail=seed % 4 == 2)
        super().__init__(seed, random=random, plan=plan)
        self.groups: Final = {each.group_id: GroupProgress(each.group_id) for each in self.plan.groups}
        self.readers: Final[list[Reader]] = []
        self.writers: Final[list[Writer]] = []
        self.times: Final = ReadingTimes()
        self.reads: Final = LeaderReads(self.fail)
        #: (reader, partition, offset) that is awaited -> done.
        self._awaited: Final[dict[tuple[str, TopicPartition, int], asyncio.Event]] = {}
        self._members: Final = Members(self, self.readers, self.groups.keys())
        self._final_checks: Final = FinalChecks(
            self, groups=self.groups, readers=self.readers, writers=self.writers, awaited=self._awaited
        )
        #: (topic id, partition) -> values of its log, of each topic that had the name of the one that is made again.
        self._fleeting: Final[dict[tuple[TopicId, int], list[bytes]]] = {}

    # -- what applications and faults use ---------------------------------------------------------------------------

    def draw_topics(self, random: Random) -> tuple[str, ...]:
        """Draw the topics that a reader subscribes to: mostly all of them."""
        names = sorted(self.plan.topics)
        return tuple(names) if random.random() < 0.8 else tuple(sorted(random.sample(names, random.randint(1, 2))))

    def on_handed_out(self, reader: Reader, record: Any) -> None:
        """Note a record that a reader was handed, and check the laws about it."""
        if record.topic == FLEETING:
            self.note_fleeting()
            for topic_id in self._topics_of(record):
                reader.group.note_handed(topic_id, record.partition, record.offset)
        assert reader.consumer is not None
        partition = TopicPartition(record.topic, record.partition)
        self.times.hand_out(reader.consumer.member_id, partition, self.brokers.shared.clock.now_ms())
        key = (reader.name, TopicPartition(record.topic, record.partition), record.offset)
        awaited = self._awaited.pop(key, None)
        if awaited is not None:
            awaited.set()

    def on_killed(self, member_id: str) -> None:
        """Note the time at which a member's process died."""
        self.times.die(member_id, self.brokers.shared.clock.now_ms())

    def on_told(self, reader: Reader, partitions: Sequence[TopicPartition]) -> None:
        """Check `ToldAfterLeaders` as a reader is told of partitions."""
        for each in partitions if reader.consumer is not None else ():
            assert reader.consumer is not None
            topic = self.brokers.shared.cluster.topic(each.topic)
            if topic is not None:
                self.reads.check_told(
                    reader.planned.group_id, reader.consumer.member_id, topic.topic_id, each.partition
                )

    def on_taken(self, reader: Reader, partitions: Sequence[TopicPartition]) -> None:
        """Check `OneOwner` after a reader was assigned partitions."""
        self._members.check_taken(reader, partitions)

    def on_subscribed(self, reader: Reader) -> None:
        """Check `HeardAtOnce` after a reader has changed its subscription."""
        self._members.check_subscription(reader)

    def note_fleeting(self) -> None:
        """Note the records of the recreated topic before it is deleted."""
        topic = self.brokers.shared.cluster.topic(FLEETING)
        for each in self.partitions() if topic is not None else ():
            # Some of its records may be on their way to readers when it is deleted.
            log = self.log(each) if each.topic == FLEETING else None
            if topic is not None and log is not None:
                known = self._fleeting.setdefault((topic.topic_id, each.partition), [])
                known += _values(log, start=len(known))

    def _topics_of(self, record: Any) -> list[TopicId]:
        """Return the topics that have the record at its offset."""
        offset, value = record.offset, record.value
        # A batch that was sent again may stand in two topics.
        return [
            topic_id
            for (topic_id, partition), values in self._fleeting.items()
            if partition == record.partition and values[offset : offset + 1] == [value]
        ]

    # -- the run ----------------------------------------------------------------------------------------------------

    async def _play(self) -> Report:
        with self.reads.watching(self.brokers):
            return await self._play_programs()

    async def _play_programs(self) -> Report:
        loop = self.loop
        self._members.watch(self.brokers.runtime)
        loop.network.quality = self.plan.quality
        messages = MessageFaults(self)
        messages.begin()
        for planned in self.plan.groups:
            for _ in range(planned.readers):
                self.add_reader(planned.group_id)
        for number in range(self.plan.writers):
            self.writers.append(Writer(self, f"writer-{number + 1}"))
        programs: list[Reader | Writer] = [*self.readers, *self.writers]
        for program in programs:
            loop.call_later(self.random.random() * 2, program.start)
        faults = ClientFaults(self)
        while loop.time() < self.plan.perturbed_s:
            await self.pass_time(self.plan.every_s)
            await faults.happen()
        messages.end()
        await self._come_to_rest(faults)
        await self._final_checks.follow()
        await self._end()
        self._check_logs()
        self._check_told()
        return self.report(handed_out=sum(group.count for group in self.groups.values()))

    def add_reader(self, group_id: str) -> Reader:
        """Add a member to a group without starting it."""
        planned = next(each for each in self.plan.groups if each.group_id == group_id)
        reader = Reader(self, f"{group_id}-{len(self.readers) + 1}", planned, self.groups[group_id], self)
        self.readers.append(reader)
        return reader

    def _look(self) -> None:
        super()._look()
        for group in self.groups.values():
            group.check_committed(self.committed(group.group_id))
            group.check_fleeting(self._stored(group.group_id).get(FLEETING, {}).values())
        for reader in self.readers:
            self._check_buffer(reader)
        if self._final_checks.is_at_peace:
            self._members.check_heartbeats()

    def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """Return a group's committed offsets from the coordinator's state."""
        return {
            TopicPartition(topic, number): stored.offset
            for topic, rows in self._stored(group_id).items()
            for number, stored in rows.items()
        }

    def _stored(self, group_id: str) -> Mapping[str, Mapping[int, OffsetCommitted]]:
        runtime = self.brokers.runtime
        return runtime._shard_logs[runtime.index_of(group_id)].shard.groups.offsets.get(group_id, {})

    def _check_buffer(self, reader: Reader) -> None:
        if reader.consumer is None:
            return
        held = reader.consumer._context.handler.held_bytes
        # One batch a fetch beyond the limit, on two lanes of each broker.
        most = self.plan.fetch_buffer_bytes + 2 * self.plan.brokers * MOST_BATCH_BYTES
        if held > most:
            why = f"{reader.name} holds {held} bytes; its limit is {self.plan.fetch_buffer_bytes}"
            raise LawBroken("BufferWithinLimit", why)

    async def _come_to_rest(self, faults: ClientFaults) -> None:
        await faults.heal()
        self.is_healed = True
        self.tell("world", "everything is healed")
        for reader in self.readers:
            if reader.consumer is not None:
                PROGRAM.set(reader.name)
                reader.consumer.resume(sorted(reader.consumer.paused()))
        for writer in self.writers:
            PROGRAM.set(writer.name)
            await writer.settle()

    async def _end(self) -> None:
        programs: list[Reader | Writer] = [*self.readers, *self.writers]
        for program in programs:
            PROGRAM.set(program.name)
            await program.end()
        await self.pass_time(1.0)

    def _check_told(self) -> None:
        # A broker that stands still, or is cut off, sees late that a connection has ended.
        slack_ms = 10_000 if {"stall_broker", "cut_off"} & self.plan.weights.keys() else 1_000
        for group_id in self.groups:
            history = self.brokers.runtime.journal.history(group_id, limit=1_000_000)
            self.times.check(history.rows, slack_ms=slack_ms, parked_ms=self.plan.max_wait_ms + 100)

    def _check_logs(self) -> None:
        for each in self.partitions():
            log = self.log(each)
            if log is None or not is_checked(each.topic):
                continue
            values = _values(log)
            for writer in self.writers:
                writer.check_log(each.topic, each.partition, values)
            for planned in self.plan.groups:
                committed = self.committed(planned.group_id).get(each, 0)
                if committed > log.log_end_offset:
                    raise LawBroken("NoCommitBeyondDone", f"{planned.group_id} has committed {committed} of {each}")


def _values(log: PartitionLog, *, start: int = 0) -> list[bytes]:
    """Return the values of a log, by offset."""
    found: list[bytes] = []
    while (at := start + len(found)) < log.log_end_offset:
        for view in log.read(at, 1 << 20, at_least_one=True, up_to=log.log_end_offset):
            scanned = scan_batches(memoryview(view), start_offset=start + len(found))
            columns = gather_columns([(scanned, 0, len(scanned))])
            assert columns.values is not None
            found += [bytes(value or b"") for value in columns.values.to_list(0, len(columns))]
    return found


# Faults around the clients, drawn from the seed.


class MessageFaults:
    """Faults of messages about owners to partition leaders; otherwise each takes one event loop turn."""

    def __init__(self, world: ClientWorld) -> None:
        self._world: Final = world
        # Of its own, so that a plan plays the same with these faults and without.
        self._random: Final = Random(f"owners {world.seed}")
        self._is_over = False

    def begin(self) -> None:
        """Disturb messages from now on, if the plan says so."""
        if self._world.plan.messages_fail:
            self._disturb()

    def end(self) -> None:
        """End every fault."""
        self._is_over = True
        self._world.brokers.ownership.faults.clear()

    def _disturb(self) -> None:
        if self._is_over:
            return
        for node_id in self._world.brokers.nodes:
            faults = Faults(
                delay_ms=self._random.choice((0, 0, 20, 400)),
                lost=self._random.choice((0, 0, 3, None)),
                repeated=self._random.choice((0, 1)),
            )
            self._world.brokers.ownership.faults[node_id] = faults
        self._world.loop.call_later(self._random.choice((0.3, 1.0, 3.0)), self._disturb)


class ClientFaults:
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
        world.loop.network.heal()
        for node_id in world.brokers.nodes:
            if node_id not in world.brokers.leaders.running:
                await world.start_broker(node_id)
        for reader in world.readers:
            world.loop.network.restore(reader.name)

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
        world.tell("world", f"broker {node_id} {how}{'' if hand_over else ', and no broker takes over'}")
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
        self._world.loop.network.stall(f"broker-{node_id}", seconds)

    async def change_network(self) -> None:
        self._world.loop.network.quality = self._random.choice(QUALITIES)

    async def break_connection(self) -> None:
        wires = [wire for wire in self._world.loop.network.wires if wire.is_whole]
        if wires:
            wire = self._random.choice(wires)
            self._world.tell("world", f"a connection of {wire.ends[0].name} to {wire.ends[1].name} breaks")
            wire.cut()

    async def cut_off(self) -> None:
        world = self._world
        reader, seconds = self._random.choice(world.readers), self._random.choice((0.5, 2.0, 6.0))
        world.tell("world", f"{reader.name} reaches no broker for {seconds:g} s")
        world.loop.network.cut_off(reader.name)
        world.loop.call_later(seconds, world.loop.network.restore, reader.name)

    async def lose_coordinator(self) -> None:
        world = self._world
        reader, seconds = self._random.choice(world.readers), self._random.choice((1.0, 3.5, 8.0))
        world.tell("world", f"no word of membership of {reader.name} arrives for {seconds:g} s")
        world.loop.network.unheard.add(reader.name)
        world.loop.call_later(seconds, world.loop.network.unheard.discard, reader.name)

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

    async def revoke_reader(self) -> None:
        """Revoke a member's grants, and end its process later: it would stay a member but read nothing."""
        world = self._world
        shown = world.reads.shown
        granted = [each for each in world.readers if each.consumer is not None and each.consumer.member_id in shown]
        if not granted:
            return
        reader = self._random.choice(granted)
        assert reader.consumer is not None
        capability = shown[reader.consumer.member_id]
        world.tell("world", f"the grants of {reader.name} are revoked")
        shared = world.brokers.shared
        name: tuple[int, str] = (RevokedKind.ID, capability.chain[0])
        ends_ms = {name: shared.clock.now_ms() + REVOKED_MS}
        shared.cluster.work.ask([shared.revocations.revocation(ends_ms, lambda _: None)])
        world.loop.call_later(self._random.choice((0.5, 2.0)), reader.crash)

    async def add_reader(self) -> None:
        world = self._world
        if len(world.readers) < 5:
            world.add_reader(self._random.choice(sorted(world.groups))).start()
