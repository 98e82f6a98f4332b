"""One shard of the coordinator and the log that it is kept in."""

from __future__ import annotations

from typing import Final

from kohort.coordinator.model import AssignorFailure
from kohort.coordinator.shard import Shard
from kohort.storage.partition import PartitionLog


class Home:
    """Where the groups of one partition of `__consumer_offsets` are."""

    __slots__ = ("log", "shard", "tells_news")

    def __init__(self, shard: Shard, partition: PartitionLog) -> None:
        self.shard: Final = shard
        self.log: Final = partition
        #: Held heartbeats are about to be answered.
        self.tells_news = False

    def failure_of(self, group_id: str) -> AssignorFailure | None:
        """How the assignor of a group fails; `None` if it does not."""
        group = self.shard.groups.consumer.get(group_id)
        return None if group is None else group.failure
