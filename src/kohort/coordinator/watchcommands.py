"""What a coordinator is asked by whoever tells members their news beside their heartbeats.

Source: requirement H10.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.stimulus import GroupCommand, Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMember(GroupCommand):
    """Whether there is news for a member that knows this; answered by a `ConsumerGroupHeartbeatReply` or a `Refusal`.

    `member_epoch`, `assigned`: as it was told last. `is_look`: the answer does not wait for news.
    """

    member_id: str
    member_epoch: int
    assigned: Partitions
    is_look: bool = False
