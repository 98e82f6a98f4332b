"""Effects of changed configs on a classic group: membership mode, forced rebalance, timeouts.

Laws: a change of the mode alone moves no partition; it only admits waiting new members. Instance ids stay.
Source: KIP-345's draft (enableStaticMembership, enableDynamicMembership, forceRebalance); requirements S3 and S4.
"""

from __future__ import annotations

from kohort.coordinator.classic.join import decide_join
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.rebalance import begin_rebalance
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands.groups import JoinGroup
from kohort.coordinator.decision import Arm, Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import clock_key, forces_rebalance, has_window, stop_clock


def decide_mode(
    group: ClassicGroup, old: GroupSettings, new: GroupSettings, groups: GroupsState, *, now_ms: int
) -> Decision:
    """Decide the effects of a change of a group's settings from `old` to `new` on its members."""
    draft = Draft(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    _change(draft, old, new, groups)
    return draft.decision()


def decide_fallback(
    group: ClassicGroup, command: JoinGroup, old: GroupSettings, new: GroupSettings, groups: GroupsState, *, now_ms: int
) -> Decision:
    """Decide a join that makes a static group dynamic.

    Raises:
        Refused: what `decide_join` refuses.
    """
    draft = Draft(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    _change(draft, old, new, groups)
    changed, joined = draft.decision(), decide_join(draft.group, command, new, now_ms=now_ms, image=groups.image)
    return Decision((*changed.records, *joined.records), (*changed.effects, *joined.effects))


def _change(draft: Draft, old: GroupSettings, new: GroupSettings, groups: GroupsState) -> None:
    group = draft.group
    is_at_work = group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
    if old.is_static and not new.is_static:
        had_window = has_window(groups, group.group_id)
        draft.add(*stop_clock(groups, group.group_id))
        for member in group.members.values():
            if member.member_id not in group.new_members:
                # Silence counts from now on: the time before is held against no member.
                draft.arm("session", member.session_timeout_ms, member.member_id)
        if had_window and is_at_work:
            begin_rebalance(draft, new, reason="the group is dynamic now, and new members have waited")
        return
    clock = groups.clocks.get(group.group_id)
    if clock is not None:
        draft.add((), [Arm(clock_key(group.group_id), max(draft.now_ms, clock.due_ms(new)))])
    if forces_rebalance(old, new) and is_at_work:
        begin_rebalance(draft, new, reason=f"an administrator has asked for it ({new.group_rebalance_token})")
