"""Heartbeat intervals of members.

A reconciled member gets the group's interval, or the one that it proposes, within the broker's limits. A member that is
still reconciling gets a short one, so that moves do not wait for the next ordinary heartbeat. Both grow with the
number of members, so that the heartbeats of a group stay below `group.heartbeat.rate.max`.

Laws: the result is a function of settings, counts and the heartbeat itself. A proposed interval is not stored: the
member proposes it with every heartbeat, so a restart loses nothing. No member gets an interval longer than a third of
its session, unless the group's own interval is longer. Where the rate and the session timeout conflict, the session
timeout wins: no member is fenced because others heartbeat.
Source: users@kafka 2014 (heartbeats must not flood the servers); KIP-848 (the coordinator says how often); G3.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator import model
from kohort.coordinator.commands import ConsumerGroupHeartbeat
from kohort.coordinator.settings import GroupSettings

#: Least interval of a member that is on its way to its target with held heartbeats: some clients take the interval for
#: the time limit of the response.
HELD_STEP_MS: Final = 500
#: Least interval after a request of the member's own client ended a hold: until its next heartbeat the member gets no
#: news. Later, a fraction of the time since then: after a short hold in a long interval there is such a
#: gap, too.
SOON_MS: Final = 1_000
CUT_PARTS: Final = 4
#: Number of heartbeat intervals after a new target for which a group counts as moving.
MOVING_PARTS: Final = 2
#: Least number of heartbeats in a session, also for a member that asked for longer intervals: two may get lost.
HEARTBEATS_PER_SESSION: Final = 3


def longest_interval_ms(settings: GroupSettings) -> int:
    """Return the longest heartbeat interval that a member of a group may get."""
    safe_ms = settings.group_consumer_session_timeout_ms // HEARTBEATS_PER_SESSION
    within_ms = min(safe_ms, settings.group_consumer_max_heartbeat_interval_ms)
    return max(settings.group_consumer_heartbeat_interval_ms, within_ms)


def settled_interval_ms(settings: GroupSettings, member_count: int, proposed_ms: int, *, since_cut_ms: int = -1) -> int:
    """Return the heartbeat interval of a reconciled member.

    `proposed_ms`: the interval that the member proposes; 0 or less: none. `since_cut_ms`: time since a request of its
    client ended the hold of a heartbeat; below 0: none did.
    """
    interval_ms = settings.group_consumer_heartbeat_interval_ms
    # The common case first: every heartbeat comes here.
    if since_cut_ms < 0 and proposed_ms <= 0 and member_count * 1000 <= settings.group_heartbeat_rate_max * interval_ms:
        return interval_ms
    wanted_ms = interval_ms
    if proposed_ms > 0:
        wanted_ms = max(proposed_ms, settings.group_consumer_min_heartbeat_interval_ms)
    if since_cut_ms >= 0:
        wanted_ms = min(wanted_ms, max(SOON_MS, since_cut_ms // CUT_PARTS))
    # The time in which all members may heartbeat once.
    round_ms = -(-member_count * 1000 // settings.group_heartbeat_rate_max)
    wanted_ms = max(wanted_ms, round_ms)
    return wanted_ms if wanted_ms <= interval_ms else min(wanted_ms, longest_interval_ms(settings))


def told_interval_ms(
    settings: GroupSettings, group: model.ConsumerGroup, command: ConsumerGroupHeartbeat, *, now_ms: int
) -> int:
    """Return the heartbeat interval for the response to a reconciled member.

    A member without held heartbeats that proposes no interval gets a short one while its group moves partitions:
    another move is likely then.
    """
    proposed_ms, since_cut_ms = command.proposed_heartbeat_interval_ms, command.since_cut_ms
    if command.hold_ms < 0 and proposed_ms <= 0 and _is_moving(settings, group, now_ms=now_ms):
        since_cut_ms = 0
    return settled_interval_ms(settings, len(group.members), proposed_ms, since_cut_ms=since_cut_ms)


def _is_moving(settings: GroupSettings, group: model.ConsumerGroup, *, now_ms: int) -> bool:
    """Return whether members are reconciling, or the target is younger than `MOVING_PARTS` intervals."""
    if not settings.group_consumer_rebalance_heartbeat_interval_ms or group.failure is not None:
        return False
    if group.behind:
        return True
    return now_ms - group.target_timestamp_ms < MOVING_PARTS * settings.group_consumer_heartbeat_interval_ms


def pending_interval_ms(
    settings: GroupSettings, group: model.ConsumerGroup, proposed_ms: int, *, is_pushed: bool = False
) -> int:
    """Return the heartbeat interval of a member that is reconciling, or waits for a target.

    Such members share the part of the maximal rate that reconciled members leave. `is_pushed`: the member's next
    heartbeat may be held.
    """
    members = len(group.members)
    settled_ms = settled_interval_ms(settings, members, proposed_ms)
    short_ms = settings.group_consumer_rebalance_heartbeat_interval_ms
    # While an assignor fails, the time of the next target is unknown.
    if not short_ms or group.failure is not None:
        return settled_ms
    if is_pushed:
        short_ms = max(short_ms, HELD_STEP_MS)
    # Members have their whole target only by one that is as new as the group.
    settled = members - len(group.behind) if group.target_epoch == group.epoch else 0
    pending = max(1, members - settled)
    ordinary_ms = settled_interval_ms(settings, members, -1)
    left = max(1, settings.group_heartbeat_rate_max - settled * 1000 // ordinary_ms)
    return min(settled_ms, max(short_ms, -(-pending * 1000 // left)))


def waiting_interval_ms(settings: GroupSettings, member_count: int, proposed_ms: int, *, left_ms: int) -> int:
    """Return the heartbeat interval of a new member that waits for the expansion window.

    The window ends `left_ms` from now. A heartbeat that is held at that time gets the news at once, so its hold must
    not end before. A hold is shorter than the interval, but longer than half of it.
    """
    settled_ms = settled_interval_ms(settings, member_count, proposed_ms)
    return min(settled_ms, max(HELD_STEP_MS, left_ms - HELD_STEP_MS, 2 * left_ms // 3))
