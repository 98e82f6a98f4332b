"""A coordinator on the running loop with a log, as in a broker, and nothing else of one."""

from __future__ import annotations

import asyncio
from typing import Any

from kohort.base.clock import SystemClock
from kohort.broker.durability import DiskFull, Durability
from kohort.broker.groups.runtime import Runtime
from kohort.coordinator import commands
from kohort.coordinator.commands import GroupCommand
from kohort.coordinator.decision import ReplyBody
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.ids import CauseId, TopicId
from kohort.storage.partitions.partition import PartitionLog


class RunningCoordinator:
    """A runtime over a log of one partition that outlives it; there is a topic "t" of one partition."""

    def __init__(self, log: PartitionLog, settings: GroupSettings | None = None) -> None:
        def fail(error: Exception) -> None:
            raise AssertionError(f"the coordinator failed: {error}")

        loop, clock = asyncio.get_running_loop(), SystemClock()
        self.durability = Durability(loop, on_readable=lambda _: None, on_failure=fail, disk_full=DiskFull(clock))
        self.runtime = Runtime(loop, clock, self.durability, on_failure=fail)
        topic = TopicFacts(name="t", topic_id=TopicId(bytes(16)), partition_count=1)
        self.runtime.start(settings or GroupSettings(), [log], TopicImage.of([topic], version=1))

    def ids(self) -> dict[str, Any]:
        """What every command has: its cause and the request that it answers, both new."""
        token = self.runtime.next_token()
        return {"cause": CauseId(token), "request": token}

    def ask(self, command: GroupCommand | commands.CompleteTransaction) -> asyncio.Future[ReplyBody]:
        """Carry out a command; its reply comes once it is durable."""
        done: asyncio.Future[ReplyBody] = asyncio.get_running_loop().create_future()
        if isinstance(command, GroupCommand):
            self.runtime.ask(command, done.set_result)
        else:
            self.runtime.ask_shard(0, command.request, command, done.set_result)
        return done

    async def stop(self) -> None:
        self.runtime.stop()
        await self.durability.drain()
        self.durability.stop()
