"""Final checks once faults have ended: every record is read, and new records are read at once.

Laws held here, by name:
- `EverythingIsRead`: once faults have ended, each group reads all records.
- `NobodyStarves`: then a partition that is not paused is read as soon as its broker can respond, regardless of other
  partitions, brokers and applications.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kohort.broker.groups.runtime import Runtime
from kohort.broker.groups.shard_log import ShardLog
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.journal_events.triggers import Stimulus
from kohort.coordinator.model import ConsumerGroup
from kohort.ids import TopicPartition
from kohort.simulation.clients.network import PROGRAM
from kohort.simulation.clients.plan import FLEETING
from kohort.simulation.clients.program_world import LOOK_EVERY_S, ProgramWorld
from kohort.simulation.clients.reader import Reader
from kohort.simulation.trace import LawBroken

if TYPE_CHECKING:
    from kohort.simulation.clients.progress import GroupProgress
    from kohort.simulation.clients.writer import Writer


#: After everything is healed all is read within this time: sessions end, callbacks return, connections are given up.
READ_WITHIN_S: Final = 60.0
#: How long a record that is there takes to a reader that waits for it: a few round trips.
PROMPT_S: Final = 0.4
#: Longer than a member may be silent without being missed.
PEACE_S: Final = 5.0
#: A buffer from here on has room for every fetch that there may be.
AMPLE_BYTES: Final = 1 << 20


class FinalChecks:
    """The final phase of a world, without faults."""

    def __init__(
        self,
        world: ProgramWorld,
        *,
        groups: Mapping[str, GroupProgress],
        readers: Sequence[Reader],
        writers: Sequence[Writer],
        awaited: dict[tuple[str, TopicPartition, int], asyncio.Event],
    ) -> None:
        self._world: Final = world
        self._groups: Final = groups
        self._readers: Final = readers
        self._writers: Final = writers
        #: (reader, partition, offset) that is awaited -> done.
        self._awaited: Final = awaited
        #: Every group is at rest, and no fault is active.
        self.is_at_peace = False

    async def follow(self) -> None:
        """Check that every record is read, groups come to rest, and new records are read at once."""
        await self._read_everything()
        await self._wait_for_peace()
        self.is_at_peace = True
        await self._read_everything()
        await self._be_prompt()
        self.is_at_peace = False

    async def _read_everything(self) -> None:
        began_s = self._world.loop.time()
        while (left := self._unread()) is not None:
            await self._world.pass_time(LOOK_EVERY_S)
            if self._world.loop.time() - began_s > READ_WITHIN_S:
                raise LawBroken("EverythingIsRead", f"{left}, {READ_WITHIN_S:g} s after everything was healed")

    async def _wait_for_peace(self) -> None:
        """Wait until no partition has moved for a while."""
        for _ in range(20):
            before = self._moves()
            await self._world.pass_time(PEACE_S)
            if self._moves() == before:
                return
        raise LawBroken("EverythingIsRead", "partitions go on moving although nothing happens")

    def _moves(self) -> int:
        return sum(reader.ownership.changes for reader in self._readers)

    def _unread(self) -> str | None:
        for planned in self._world.plan.groups:
            readers = [each for each in self._readers if each.planned is planned]
            wanted = {topic for each in readers for topic in each.topics}
            owned: dict[TopicPartition, Reader] = {}
            for reader in readers:
                for each in reader.ownership.next:
                    if each in owned:
                        return f"{each} is owned by {owned[each].name} and {reader.name}"
                    owned[each] = reader
            for each in self._world.partitions():
                log = self._world.log(each)
                if each.topic not in wanted or log is None:
                    continue
                if each not in owned:
                    return f"no member of {planned.group_id} owns {each}"
                handed = self._groups[planned.group_id].handed.get(each, 0)
                if each.topic != FLEETING and handed < log.high_watermark:
                    return f"{planned.group_id} has read {handed} of {log.high_watermark} of {each}"
                at = owned[each].ownership.next[each]
                if each.topic != FLEETING and log.high_watermark and at is not None and at < log.high_watermark:
                    return f"{owned[each].name} is at {at} of {log.high_watermark} in {each}"
        return None

    async def _be_prompt(self) -> None:
        """Check that records and seeks are served at once while other partitions are paused or idle."""
        for _ in range(3):
            await self._pause_some()
            await self._expect_records()
            await self._expect_seeks()
        for reader in self._readers:
            if reader.consumer is not None:
                PROGRAM.set(reader.name)
                reader.consumer.resume(sorted(reader.consumer.paused()))
        await self._read_everything()
        await self._world.pass_time(self._world.plan.max_wait_ms / 1000 + 1.0)
        self._check_empty()

    async def _pause_some(self) -> None:
        """Pause some partitions, with more records than any buffer takes."""
        writer, backlog = self._writers[0], []
        for reader in self._readers:
            held = sorted(each for each in reader.ownership.next if each.topic != FLEETING)
            if reader.consumer is not None and len(held) > 1:
                paused = self._world.random.sample(held, self._world.random.randint(0, len(held) - 1))
                PROGRAM.set(reader.name)
                reader.consumer.resume(held)
                reader.consumer.pause(paused)
                backlog += paused
        PROGRAM.set(writer.name)
        for each in sorted(set(backlog)):
            for _ in range(self._world.random.choice((0, 40))):
                writer.send(each.topic, each.partition)
        await writer.flush()
        await self._world.pass_time(1.0)

    async def _expect_records(self) -> None:
        writer, waiting = self._writers[0], {}
        PROGRAM.set(writer.name)
        for each in self._world.partitions():
            if each.topic == FLEETING or self._world.random.random() < 0.5:
                continue
            sent = writer.send(each.topic, each.partition)
            await writer.flush()
            if sent is None or sent.future.exception() is not None:
                continue
            offset = sent.future.result().offset
            for reader in self._readers_of(each):
                waiting[reader.name, each, offset] = self._await(reader, each, offset)
        limit_s = self._world.plan.max_wait_ms / 1000 + PROMPT_S
        await self._all_within(waiting, limit_s, "a record that was stored")

    async def _expect_seeks(self) -> None:
        waiting = {}
        for reader in self._readers:
            held = [each for each in sorted(reader.ownership.next) if self._may_seek(reader, each)]
            if held and reader.consumer is not None:
                each = self._world.random.choice(held)
                offset = (reader.ownership.next[each] or 1) - 1
                PROGRAM.set(reader.name)
                reader.consumer.seek(each, offset)
                reader.ownership.seek(each, offset)
                waiting[reader.name, each, offset] = self._await(reader, each, offset)
        limit_s = PROMPT_S
        if self._world.plan.fetch_buffer_bytes < AMPLE_BYTES:
            # One long fetch may have all of a broker's share, until it ends.
            limit_s += self._world.plan.max_wait_ms / 1000
        await self._all_within(waiting, limit_s, "what was sought")

    def _may_seek(self, reader: Reader, partition: TopicPartition) -> bool:
        assert reader.consumer is not None
        is_paused = partition in reader.consumer.paused()
        return partition.topic != FLEETING and not is_paused and bool(reader.ownership.next.get(partition))

    def _readers_of(self, partition: TopicPartition) -> list[Reader]:
        """List the readers that must receive a new record of a partition."""
        return [
            reader
            for reader in self._readers
            if reader.consumer is not None
            and partition in reader.ownership.next
            and partition not in reader.consumer.paused()
        ]

    def _await(self, reader: Reader, partition: TopicPartition, offset: int) -> asyncio.Event:
        """Return an event that is set once the reader has got the record at this offset."""
        event = asyncio.Event()
        if (reader.ownership.next.get(partition) or 0) > offset:
            event.set()
        else:
            self._awaited[reader.name, partition, offset] = event
        return event

    async def _all_within(self, waiting: dict[tuple[str, TopicPartition, int], Any], limit_s: float, what: str) -> None:
        until_s = self._world.loop.time() + limit_s
        while self._world.loop.time() < until_s and not all(event.is_set() for event in waiting.values()):
            await self._world.pass_time(0.02)
        for (name, partition, offset), event in waiting.items():
            if not event.is_set():
                why = f"{what} has not reached {name} within {limit_s:g} s: offset {offset} of {partition}"
                raise LawBroken("NobodyStarves", why)
        self._awaited.clear()

    def _check_empty(self) -> None:
        """Check that no fetched record is left in a buffer, nor counted as buffered."""
        for reader in self._readers:
            if reader.consumer is None:
                continue
            buffer = reader.consumer._context.host._machine._sender.buffer
            for each in reader.ownership.next:
                if each.topic != FLEETING and buffer.held(each):
                    why = f"{reader.name} counts {buffer.held(each)} bytes of {each} that no consumer has"
                    raise LawBroken("BufferWithinLimit", why)


# Brokers that delay heartbeats for a share of the interval, and the members' duties then.
#
# Laws held here, by name, of members of the consumer protocol where nothing goes wrong around them:
# - `HeartbeatsInTime`: a member is heard of within its interval, however its heartbeats are held.
# - `HeardAtOnce`: what it subscribes to is known to the coordinator at once, though a heartbeat of it is held.
# - `OneOwner`: what an application is told to be its own no other one of its group holds.

#: Time by which a heartbeat may exceed its interval: a round trip, and the steps of the world's looks, ms.
_GRACE_MS: Final = 100
#: Within this time a subscription is known: round trips, and an answer that is under way, s.
_AT_ONCE_S: Final = 0.1


class Members:
    """The coordinator's view of the readers of a world."""

    def __init__(self, world: ProgramWorld, readers: Sequence[Reader], group_ids: Collection[str]) -> None:
        self._world: Final = world
        self._readers: Final = readers
        self._group_ids: Final = group_ids

    def watch(self, runtime: Runtime) -> None:
        """Note each reader whose session ends, for `FreedIsLetGo`."""
        commit = runtime._commit

        def watched(shard_log: ShardLog, stimulus: Stimulus, decision: Decision, now_ms: int, **more: Any) -> bool:
            is_over = decision.due is not None and decision.due.kind == "session"
            found = self._reader_of(shard_log, decision.due) if is_over else None
            is_taken = commit(shard_log, stimulus, decision, now_ms, **more)
            if found is not None and is_taken:
                found.ownership.free("the coordinator has not heard of it for a session")
            return is_taken

        runtime._commit = watched  # type: ignore[method-assign]

    def _reader_of(self, home: ShardLog, ended: TimerKey | None) -> Reader | None:
        """Find the reader that is still the member of an ended session; `None`: no reader is."""
        assert ended is not None
        for reader in self._readers:
            if reader.consumer is not None and reader.planned.group_id == ended.group_id:
                identity = reader.consumer._context.deliveries.identity
                if identity.member_id == ended.member_id and identity.epoch >= 0:
                    return reader
        return None

    def check_heartbeats(self) -> None:
        """Check `HeartbeatsInTime` for every present member."""
        runtime = self._world.brokers.runtime
        now_ms = runtime._clock.now_ms()
        for group_id in self._group_ids:
            shard = runtime._shard_logs[runtime.index_of(group_id)].shard
            settings = shard.settings_for(group_id)
            group = shard.groups.consumer.get(group_id)
            for member in () if group is None else group.members.values():
                ends_ms = shard.timers.deadline(member.session_key)
                assert ends_ms is not None, "a member has a session"
                silent_ms = now_ms + settings.group_consumer_session_timeout_ms - ends_ms
                if silent_ms > settings.group_consumer_heartbeat_interval_ms + _GRACE_MS:
                    raise LawBroken("HeartbeatsInTime", f"{member.client_id} has been silent for {silent_ms} ms")

    def check_subscription(self, reader: Reader) -> None:
        """Check `HeardAtOnce` a moment from now, if the reader is a member now and then."""
        consumer, topics = reader.consumer, reader.topics
        assert consumer is not None
        before = self._find(reader)

        def look() -> None:
            group = self._find(reader)
            if before is None or group is None or reader.consumer is not consumer or reader.topics is not topics:
                return
            known = next(each for each in group.members.values() if each.client_id == reader.name)
            if set(known.subscribed_topic_names) != set(topics):
                why = f"{reader.name} subscribes to {topics}, not {known.subscribed_topic_names}"
                self._world.fail(LawBroken("HeardAtOnce", why))

        self._world.loop.call_later(_AT_ONCE_S, look)

    def check_taken(self, reader: Reader, partitions: Iterable[TopicPartition]) -> None:
        """Check `OneOwner` for partitions that were assigned to the reader."""
        for other in self._readers:
            doubled = other.ownership.next.keys() & set(partitions)
            if doubled and other is not reader and other.planned is reader.planned:
                raise LawBroken("OneOwner", f"{reader.name} takes {sorted(doubled)}, which {other.name} has")

    def _shard(self, reader: Reader) -> Any:
        runtime = self._world.brokers.runtime
        return runtime._shard_logs[runtime.index_of(reader.planned.group_id)].shard

    def _find(self, reader: Reader) -> ConsumerGroup | None:
        """Return the reader's group, if the reader is the only member of that name in it."""
        group: ConsumerGroup | None = self._shard(reader).groups.consumer.get(reader.planned.group_id)
        if group is None or [each.client_id for each in group.members.values()].count(reader.name) != 1:
            return None
        return group
