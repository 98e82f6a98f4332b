"""The command for news of a member beside its heartbeats.

Source: requirement H10.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.stimulus import GroupCommand, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMember(GroupCommand):
    """Ask for the news of a member since a known state.

    Answered by a `ConsumerGroupHeartbeatReply` or a `Refusal`. `member_epoch`, `assigned`: the state that the member
    was told last. `is_look`: the reply does not wait for news.
    """

    member_id: str
    member_epoch: int
    assigned: Partitions
    is_look: bool = False
