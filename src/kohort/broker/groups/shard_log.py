"""One shard of the coordinator and the log in which it is kept.

Laws: of a log that is not known whole no group is served, since an answer out of what is left would be wrong: a commit
that is not known begins a group anew, perhaps behind unread records.
"""

from __future__ import annotations

import logging
from typing import Final

from kohort.coordinator.commands.base import Command, GroupCommand, Refusal
from kohort.coordinator.decision import ComputeTarget, Decision, Reply
from kohort.coordinator.model import AssignorFailure
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode
from kohort.storage.partitions.partition import PartitionLog

log = logging.getLogger("kohort.broker")


class UnservedShard(Shard):
    """The shard of a log that could not be read whole: refuses every command about a group."""

    def __init__(self, settings: GroupSettings, text: str) -> None:
        super().__init__(settings)
        self._refusal: Final = Refusal(code=ErrorCode.NOT_COORDINATOR, message=text)

    def handle(self, command: Command, *, now_ms: int) -> Decision:
        """Decide on one command; refuse one that is about a group."""
        if isinstance(command, GroupCommand):
            return Decision(effects=(Reply(command.request, self._refusal),))
        return super().handle(command, now_ms=now_ms)


class Home:
    """The shard of one partition of `__consumer_offsets`, with its log."""

    __slots__ = ("counted", "log", "shard", "tells_news")

    def __init__(self, shard: Shard, partition: PartitionLog) -> None:
        self.shard: Final = shard
        self.log: Final = partition
        #: Whether held heartbeats are about to be answered.
        self.tells_news = False
        #: How many entries of each kind the shard had when its groups were counted last, and the groups they were.
        self.counted: tuple[tuple[int, ...], int] = (), 0

    def failure_of(self, group_id: str) -> AssignorFailure | None:
        """Return the present failure of a group's assignor; `None` if it works."""
        group = self.shard.groups.consumer.get(group_id)
        return None if group is None else group.failure

    def log_failure(self, order: ComputeTarget, before: AssignorFailure | None) -> None:
        """Log that an assignor has failed or recovered; `before` is its failure before this order."""
        after = self.failure_of(order.group_id)
        if after is not None and after != before:
            told = after.assignor, order.group_id, after.count, after.error
            log.warning("event=assignor_failed assignor=%s group=%r failures=%d why=%r action=target_kept", *told)
        elif before is not None and after is None:
            log.info("event=assignor_recovered assignor=%s group=%r", order.assignor, order.group_id)
