"""The limit of groups on one broker.

Laws: what would make a group beyond `max.groups` is refused with POLICY_VIOLATION and a sentence that names the
option, and leaves nothing behind; groups that are there never notice. A group is whatever has members or offsets.
Source: requirement B4. Clients take that code for final, as they do for topics. Apache Kafka has no such limit.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Final

from kohort.broker.groups.shard_log import Home
from kohort.coordinator.commands.base import Command, Refusal
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, JoinGroup
from kohort.coordinator.commands.offsets import CommitOffsets, CommitTransactionOffsets
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import GroupsState
from kohort.errors import ErrorCode

log = logging.getLogger("kohort.broker")

#: Commands that may make a group.
_Founding = JoinGroup | ConsumerGroupHeartbeat | CommitOffsets | CommitTransactionOffsets


class GroupRoom:
    """Counts the groups of one broker when a command would make one more."""

    def __init__(self, homes: Sequence[Home]) -> None:
        self._homes: Final = homes
        #: `max.groups`; `None`: as many as come.
        self.most: int | None = None
        #: Refusals since the start.
        self.refused = 0
        #: Whether the latest new group was refused, which is logged once.
        self._is_full = False

    def count(self) -> int:
        """Return the number of groups."""
        return sum(map(_count, self._homes))

    def let_in(self, home: Home, command: Command, decision: Decision) -> Decision:
        """Return the decision, or a refusal if it would make one group too many."""
        if self.most is None or not decision.records or not isinstance(command, _Founding):
            return decision
        # Existing groups are never refused.
        if _knows(home.shard.groups, command.group_id):
            return decision
        # Groups that have both members and offsets are seen twice at first, which costs no look at each.
        if sum(sum(_sizes(each.shard.groups)) for each in self._homes) < self.most or self.count() < self.most:
            self._is_full = False
            return decision
        self.refused += 1
        text = f"this broker has {self.most} groups, as many as max.groups allows; delete some, or allow more"
        if not self._is_full:
            self._is_full = True
            log.warning("event=group_refused group=%r reason=%r", command.group_id, text)
        return Decision(effects=(Reply(command.request, Refusal(code=ErrorCode.POLICY_VIOLATION, message=text)),))


def _count(home: Home) -> int:
    """Count the groups of one shard; recount only if the number of entries of some kind has changed."""
    groups = home.shard.groups
    sizes = _sizes(groups)
    if home.counted[0] != sizes:
        home.counted = sizes, len({*groups.consumer, *groups.classic, *groups.offsets, *groups.pending_offsets})
    return home.counted[1]


def _knows(groups: GroupsState, group_id: str) -> bool:
    return group_id in groups.consumer or group_id in groups.classic or groups.has_offsets(group_id)


def _sizes(groups: GroupsState) -> tuple[int, ...]:
    return len(groups.consumer), len(groups.classic), len(groups.offsets), len(groups.pending_offsets)
