"""How often a KIP-848 member is told to heartbeat.

A settled member is told the group's interval, or the one that it proposes, within the broker's limits. A member on its
way to its target is told a short one, so that a hand-over does not wait for the next ordinary heartbeat. Both grow with
the group, so that its heartbeats stay below a rate.

Laws: the answer is a function of settings, sizes and the heartbeat itself: nothing is remembered, so a restart changes
nothing. No member is told an interval longer than a third of its session, unless the group's own interval is longer.
Source: users@kafka 2014 (heartbeats must not flood the servers); KIP-848 (the coordinator says how often); G3.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.settings import GroupSettings

#: So many heartbeats fit into a session at least, whoever asked for longer pauses: two may get lost.
HEARTBEATS_PER_SESSION: Final = 3


def longest_interval_ms(settings: GroupSettings) -> int:
    """The longest interval that a member of a group is ever told."""
    safe_ms = settings.group_consumer_session_timeout_ms // HEARTBEATS_PER_SESSION
    within_ms = min(safe_ms, settings.group_consumer_max_heartbeat_interval_ms)
    return max(settings.group_consumer_heartbeat_interval_ms, within_ms)
