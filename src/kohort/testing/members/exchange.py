"""A request of a simulated client that is under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kohort.coordinator.commands import ConsumerGroupHeartbeatReply, GroupCommand, ReplyBody


@dataclass(slots=True, eq=False, kw_only=True)
class Exchange:
    """One request under way: what its member does with the answer, and what if the connection is given up before."""

    command: GroupCommand
    deliver: Callable[[ReplyBody], None]
    fail: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedReply(ConsumerGroupHeartbeatReply):
    """What a member is told, with a `number` that puts it in the order in which it was decided (requirement H10)."""

    number: int
