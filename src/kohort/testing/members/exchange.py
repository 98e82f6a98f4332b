"""A request of a simulated client that is under way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kohort.coordinator.commands.base import GroupCommand
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeatReply
from kohort.coordinator.commands.replies import ReplyBody


@dataclass(slots=True, eq=False, kw_only=True)
class Exchange:
    """A request under way, with the callbacks for its answer and for a lost connection."""

    command: GroupCommand
    deliver: Callable[[ReplyBody], None]
    fail: Callable[[], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedReply(ConsumerGroupHeartbeatReply):
    """A heartbeat reply with a `number` that gives the order of the decisions (requirement H10)."""

    number: int
