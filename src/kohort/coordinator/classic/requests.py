"""Decision functions of all requests to a classic group, in one place for the shard.

Laws: `decide_*` and `check_*` read a group and never change it; a refusal is raised as `Refused`.
"""

from __future__ import annotations

from kohort.coordinator.classic import heartbeat, sync
from kohort.coordinator.classic.commits import check_commit, decide_sign, former_share
from kohort.coordinator.classic.describe import describe
from kohort.coordinator.classic.expiry import decide_expiry, decide_loaded
from kohort.coordinator.classic.join import decide_join
from kohort.coordinator.classic.leave import decide_leave
from kohort.coordinator.classic.modes import decide_fallback, decide_mode
from kohort.coordinator.classic.presence import decide_back, decide_connection_closed
from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.commands import Heartbeat, SyncGroup
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicImage

__all__ = [
    "decide_join",
    "decide_sync",
    "decide_heartbeat",
    "decide_leave",
    "decide_fallback",
    "decide_expiry",
    "decide_loaded",
    "decide_connection_closed",
    "decide_mode",
    "decide_sign",
    "describe",
    "check_commit",
    "former_share",
]


def decide_sync(
    group: ClassicGroup | None,
    command: SyncGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
    image: TopicImage | None,
    groups: GroupsState | None = None,
) -> Decision:
    """Decide a SyncGroup, and bring its member back in a static group."""

    def decide(found: ClassicGroup | None) -> Decision:
        return sync.decide_sync(found, command, settings, now_ms=now_ms, image=image, groups=groups)

    return decide_back(group, command.member_id, groups, decide, now_ms=now_ms)


def decide_heartbeat(
    group: ClassicGroup | None, command: Heartbeat, *, now_ms: int, groups: GroupsState | None = None
) -> Decision:
    """Decide a Heartbeat, and bring its member back in a static group."""

    def decide(found: ClassicGroup | None) -> Decision:
        return heartbeat.decide_heartbeat(found, command, now_ms=now_ms)

    return decide_back(group, command.member_id, groups, decide, now_ms=now_ms)
