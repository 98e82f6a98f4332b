"""How often a KIP-848 member is told to heartbeat.

A settled member is told the group's interval, or the one that it proposes, within the broker's limits. A member on its
way to its target is told a short one, so that a hand-over does not wait for the next ordinary heartbeat. Both grow with
the number of members, so that the heartbeats of a group stay below `group.heartbeat.rate.max`.

Laws: the answer is a function of settings, counts and the heartbeat itself. What a member proposes is not remembered:
it proposes with every heartbeat, so a restart forgets nothing. No member is told an interval longer than a third of its
session, unless the group's own interval is longer; where the rate and the session want opposite things, the session
wins: nobody is fenced because others heartbeat.
Source: users@kafka 2014 (heartbeats must not flood the servers); KIP-848 (the coordinator says how often); G3.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.settings import GroupSettings

#: What a member is told at least that is on its way to its target and whose heartbeats are held: some clients take the
#: interval for the time in which the answer has to be there.
HELD_STEP_MS: Final = 500
#: When a member shall come again after its own request has ended a hold: until then it cannot be told of news. From
#: then on a part of the time since: between the end of a short hold and a long interval it cannot be told either.
SOON_MS: Final = 1_000
CUT_PARTS: Final = 4
#: So many heartbeats fit into a session at least, whoever asked for longer pauses: two may get lost.
HEARTBEATS_PER_SESSION: Final = 3


def longest_interval_ms(settings: GroupSettings) -> int:
    """The longest interval that a member of a group is ever told."""
    safe_ms = settings.group_consumer_session_timeout_ms // HEARTBEATS_PER_SESSION
    within_ms = min(safe_ms, settings.group_consumer_max_heartbeat_interval_ms)
    return max(settings.group_consumer_heartbeat_interval_ms, within_ms)


def settled_interval_ms(settings: GroupSettings, member_count: int, proposed_ms: int, *, since_cut_ms: int = -1) -> int:
    """What a member is told that is at its target.

    Args:
        settings: of the group.
        member_count: members of the group, all of which heartbeat.
        proposed_ms: what the member would like; 0 and less: nothing.
        since_cut_ms: how long ago a request of its own ended the hold of a heartbeat; below 0: none did.
    """
    interval_ms = settings.group_consumer_heartbeat_interval_ms
    # The common case first: this is asked with every heartbeat.
    if since_cut_ms < 0 and proposed_ms <= 0 and member_count * 1000 <= settings.group_heartbeat_rate_max * interval_ms:
        return interval_ms
    wanted_ms = interval_ms
    if proposed_ms > 0:
        wanted_ms = max(proposed_ms, settings.group_consumer_min_heartbeat_interval_ms)
    if since_cut_ms >= 0:
        wanted_ms = min(wanted_ms, max(SOON_MS, since_cut_ms // CUT_PARTS))
    # The time in which all of them may heartbeat once.
    round_ms = -(-member_count * 1000 // settings.group_heartbeat_rate_max)
    wanted_ms = max(wanted_ms, round_ms)
    return wanted_ms if wanted_ms <= interval_ms else min(wanted_ms, longest_interval_ms(settings))


def pending_interval_ms(
    settings: GroupSettings, group: ConsumerGroup, proposed_ms: int, *, is_pushed: bool = False
) -> int:
    """What a member is told that is on its way to its target, or whose target is yet to be computed.

    The rate that the settled members leave is shared by those who are on their way. `is_pushed`: its next heartbeat
    may be held.
    """
    members = len(group.members)
    settled_ms = settled_interval_ms(settings, members, proposed_ms)
    short_ms = settings.group_consumer_rebalance_heartbeat_interval_ms
    # While an assignor fails there is no saying when the target comes.
    if not short_ms or group.failure is not None:
        return settled_ms
    if is_pushed:
        short_ms = max(short_ms, HELD_STEP_MS)
    settled = settled_count(group)
    pending = max(1, members - settled)
    ordinary_ms = settled_interval_ms(settings, members, -1)
    left = max(1, settings.group_heartbeat_rate_max - settled * 1000 // ordinary_ms)
    return min(settled_ms, max(short_ms, -(-pending * 1000 // left)))


def waiting_interval_ms(settings: GroupSettings, member_count: int, proposed_ms: int, *, left_ms: int) -> int:
    """What a new member of a static group is told whose next heartbeat may be held.

    It is held when the window ends, `left_ms` from now: one that ends before cannot be told then, until its next one.
    A hold is shorter than the interval, but longer than half of it.
    """
    settled_ms = settled_interval_ms(settings, member_count, proposed_ms)
    return min(settled_ms, max(HELD_STEP_MS, left_ms - HELD_STEP_MS, 2 * left_ms // 3))


def settled_count(group: ConsumerGroup) -> int:
    """How many members have what they shall have by a target that is as new as the group."""
    return len(group.members) - len(group.behind) if group.target_epoch == group.epoch else 0
