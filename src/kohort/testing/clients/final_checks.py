"""Final checks once faults have ended: every record is read, and new records are read at once.

Laws held here, by name:
- `EverythingIsRead`: once nothing goes wrong any more each group reads all that is there.
- `NobodyStarves`: then a partition that is not paused is read as soon as its broker can answer, whatever other
  partitions, brokers and applications do with theirs.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kohort.ids import TopicPartition
from kohort.testing.clients.ledger import LawBroken
from kohort.testing.clients.network import PROGRAM
from kohort.testing.clients.plan import FLEETING
from kohort.testing.clients.reader import Reader

if TYPE_CHECKING:
    from kohort.testing.clients.client_world import ClientWorld

#: After everything is healed all is read within this time: sessions end, callbacks return, connections are given up.
READ_WITHIN_S: Final = 60.0
#: How long a record that is there takes to a reader that waits for it: a few round trips.
PROMPT_S: Final = 0.4
#: Longer than a member may be silent without being missed.
PEACE_S: Final = 5.0
#: A buffer from here on has room for every fetch that there may be.
AMPLE_BYTES: Final = 1 << 20
#: How often the laws are looked at, s.
LOOK_EVERY_S: Final = 0.25


class Aftermath:
    """The final phase of a world, without faults."""

    def __init__(self, world: ClientWorld) -> None:
        self._world: Final = world

    async def follow(self) -> None:
        """Check that every record is read, groups come to rest, and new records are read at once."""
        await self._read_everything()
        await self._wait_for_peace()
        self._world.is_at_peace = True
        await self._read_everything()
        await self._be_prompt()

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
        return sum(reader.ownership.changes for reader in self._world.readers)

    def _unread(self) -> str | None:
        for party in self._world.plan.parties:
            readers = [each for each in self._world.readers if each.party is party]
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
                    return f"nobody of {party.group_id} owns {each}"
                handed = self._world.groups[party.group_id].handed.get(each, 0)
                if each.topic != FLEETING and handed < log.high_watermark:
                    return f"{party.group_id} has read {handed} of {log.high_watermark} of {each}"
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
        for reader in self._world.readers:
            if reader.consumer is not None:
                PROGRAM.set(reader.name)
                reader.consumer.resume(sorted(reader.consumer.paused()))
        await self._read_everything()
        await self._world.pass_time(self._world.plan.max_wait_ms / 1000 + 1.0)
        self._check_empty()

    async def _pause_some(self) -> None:
        """Pause some partitions, with more records than any buffer takes."""
        writer, backlog = self._world.writers[0], []
        for reader in self._world.readers:
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
        writer, waiting = self._world.writers[0], {}
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
        for reader in self._world.readers:
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
            for reader in self._world.readers
            if reader.consumer is not None
            and partition in reader.ownership.next
            and partition not in reader.consumer.paused()
        ]

    def _await(self, reader: Reader, partition: TopicPartition, offset: int) -> asyncio.Event:
        """Return an event set when the reader gets that record, at once if it has it."""
        event = asyncio.Event()
        if (reader.ownership.next.get(partition) or 0) > offset:
            event.set()
        else:
            self._world.awaited[reader.name, partition, offset] = event
        return event

    async def _all_within(self, waiting: dict[tuple[str, TopicPartition, int], Any], limit_s: float, what: str) -> None:
        until_s = self._world.loop.time() + limit_s
        while self._world.loop.time() < until_s and not all(event.is_set() for event in waiting.values()):
            await self._world.pass_time(0.02)
        for (name, partition, offset), event in waiting.items():
            if not event.is_set():
                why = f"{what} has not reached {name} within {limit_s:g} s: offset {offset} of {partition}"
                raise LawBroken("NobodyStarves", why)
        self._world.awaited.clear()

    def _check_empty(self) -> None:
        """Check that no record is left in a buffer, and none counted there but those of open fetches."""
        for reader in self._world.readers:
            if reader.consumer is None:
                continue
            buffer = reader.consumer._context.host._machine._sender.buffer
            for each in reader.ownership.next:
                if each.topic != FLEETING and buffer.held(each):
                    why = f"{reader.name} counts {buffer.held(each)} bytes of {each} that nobody has"
                    raise LawBroken("BufferWithinLimit", why)
