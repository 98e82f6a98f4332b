"""The handling of decisions with records that the group log did not take.

Laws: nothing of it is applied. The requesting client is told NOT_COORDINATOR, upon which every client looks
up the coordinator and then asks again; the broker's own commands, and deadlines, are repeated. No member is fenced
meanwhile: a refused request counts as heard all the same.
Source: Apache Kafka's `CoordinatorOperationExceptionHelper`, which makes NOT_COORDINATOR of KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kohort.broker.groups.shard_log import Home
from kohort.broker.writes.durability import Durability
from kohort.coordinator import delayed_heartbeats
from kohort.coordinator.commands.base import Command, GroupCommand, Refusal
from kohort.coordinator.commands.groups import AnyHeartbeat, TopicsChanged, WatchMember
from kohort.coordinator.commands.offsets import ExpireOffsets
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.logbatch import build_log_batch
from kohort.errors import ErrorCode, StorageError
from kohort.ids import RequestToken
from kohort.storage.partitions.partition import PartitionLog

#: After so long the broker repeats decisions for which no client waits.
RETRY_MS: Final = 1000
#: The answer to the client; the broker's own log has the reason.
NOT_TAKEN: Final = Refusal(
    code=ErrorCode.NOT_COORDINATOR, message="the disk of the groups' log takes nothing at present; ask again"
)


def append_decision(durability: Durability, partition: PartitionLog, decision: Decision, now_ms: int) -> bool:
    """Append the records of a decision as one batch; return whether the disk took it."""
    # A disk that fails for good is raised.
    batch = build_log_batch(decision.records, now_ms=now_ms)
    if batch is not None:
        try:
            durability.append(partition, batch, now_ms=now_ms, validate=False)
        except StorageError as why:
            if why.fatal:
                raise
            return False
    return True


class RefusedWrites:
    """Answers, postpones and repeats refused decisions; belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        carry_out: Callable[[Home, Command], None],
        tell_topics: Callable[[Home], None],
        reply: Callable[[PartitionLog, RequestToken, ReplyBody], None],
    ) -> None:
        """Create the handler.

        `carry_out` and `tell_topics` repeat a command; its home may be gone by then.
        """
        self._loop: Final = loop
        self._carry_out: Final = carry_out
        self._tell_topics: Final = tell_topics
        self._reply: Final = reply

    def of_command(self, home: Home, command: Command, now_ms: int) -> None:
        """Refuse or postpone a command after its decision was not written."""
        if isinstance(command, GroupCommand | ExpireOffsets):
            if isinstance(command, GroupCommand):
                # The refused request still proves that its member is alive.
                home.shard.spare(command, now_ms=now_ms)
            self._reply(home.log, command.request, NOT_TAKEN)
        elif isinstance(command, TopicsChanged):
            # The topics may have changed again by then.
            self._loop.call_later(RETRY_MS / 1000, self._tell_topics, home)
        else:
            self._loop.call_later(RETRY_MS / 1000, self._carry_out, home, command)

    def of_held(self, home: Home, held: AnyHeartbeat | WatchMember, now_ms: int) -> None:
        """Refuse a held heartbeat after its answer was not written; the client asks again for news."""
        home.shard.abandon(held, now_ms=now_ms)
        self.of_command(home, held, now_ms)

    def of_deadline(self, home: Home, key: TimerKey, now_ms: int) -> None:
        """Postpone a deadline after its decision was not written."""
        held = home.shard.held(key.group_id, key.member_id) if delayed_heartbeats.is_hold(key) else None
        if held is not None:
            # The held heartbeat has to be answered by now.
            self.of_held(home, held, now_ms)
        else:
            home.shard.timers.arm(key, now_ms + RETRY_MS)
