"""One shard of the coordinator and the log that it is kept in.

Laws: of a log that is not known whole no group is served, since an answer out of what is left would be wrong: a commit
that is not known begins a group anew, perhaps behind records that nobody has read.
"""

from __future__ import annotations

import logging
from typing import Final

from kohort.coordinator.commands import Command, GroupCommand, Refusal
from kohort.coordinator.decision import ComputeTarget, Decision, Reply
from kohort.coordinator.model import AssignorFailure
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode
from kohort.storage.partitions.partition import PartitionLog

log = logging.getLogger("kohort.broker")


class UnservedShard(Shard):
    """Knows of no group, and tells so whoever asks for one."""

    def __init__(self, settings: GroupSettings, text: str) -> None:
        super().__init__(settings)
        self._refusal: Final = Refusal(code=ErrorCode.NOT_COORDINATOR, message=text)

    def handle(self, command: Command, *, now_ms: int) -> Decision:
        """Decide what one command leads to: nothing, where it is about a group."""
        if isinstance(command, GroupCommand):
            return Decision(effects=(Reply(command.request, self._refusal),))
        return super().handle(command, now_ms=now_ms)


class Home:
    """Where the groups of one partition of `__consumer_offsets` are."""

    __slots__ = ("counted", "log", "shard", "tells_news")

    def __init__(self, shard: Shard, partition: PartitionLog) -> None:
        self.shard: Final = shard
        self.log: Final = partition
        #: Held heartbeats are about to be answered.
        self.tells_news = False
        #: How many entries of each kind the shard had when its groups were counted last, and the groups they were.
        self.counted: tuple[tuple[int, ...], int] = (), 0

    def failure_of(self, group_id: str) -> AssignorFailure | None:
        """How the assignor of a group fails; `None` if it does not."""
        group = self.shard.groups.consumer.get(group_id)
        return None if group is None else group.failure

    def log_failure(self, order: ComputeTarget, before: AssignorFailure | None) -> None:
        """Say how an assignor has failed just now, or that it does no longer; `before`: how it did."""
        after = self.failure_of(order.group_id)
        if after is not None and after != before:
            told = after.assignor, order.group_id, after.count, after.error
            log.warning("event=assignor_failed assignor=%s group=%r failures=%d why=%r action=target_kept", *told)
        elif before is not None and after is None:
            log.info("event=assignor_recovered assignor=%s group=%r", order.assignor, order.group_id)
