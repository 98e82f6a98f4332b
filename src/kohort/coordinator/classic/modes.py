"""A classic group whose configs change: it becomes static or dynamic, is made to rebalance, or gets other timeouts.

Laws: a change of the mode alone moves nothing, but that new members who wait are let in. Names stay.
Source: KIP-345's draft (enableStaticMembership, enableDynamicMembership, forceRebalance); requirements S3 and S4.
"""

from __future__ import annotations

from kohort.coordinator.classic.draft import Draft
from kohort.coordinator.classic.join import decide_join
from kohort.coordinator.classic.rebalance import begin_rebalance
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import JoinGroup
from kohort.coordinator.decision import Arm, Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.staticmode.mode import clock_key, forces_rebalance, has_window, stop_clock


def decide_mode(
    group: ClassicGroup, old: GroupSettings, new: GroupSettings, groups: GroupsState, *, now_ms: int
) -> Decision:
    """What a change of a group's settings from `old` to `new` means for its members."""
    draft = Draft(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    _change(draft, old, new, groups)
    return draft.decision()


def decide_fallback(
    group: ClassicGroup, command: JoinGroup, old: GroupSettings, new: GroupSettings, groups: GroupsState, *, now_ms: int
) -> Decision:
    """A join that makes a static group dynamic, and what it leads to then.

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
                # Silence counts from now on: what was borne until now is held against nobody.
                draft.arm("session", member.session_timeout_ms, member.member_id)
        if had_window and is_at_work:
            begin_rebalance(draft, new, reason="the group is dynamic now, and new members have waited")
        return
    clock = groups.clocks.get(group.group_id)
    if clock is not None:
        draft.add((), [Arm(clock_key(group.group_id), max(draft.now_ms, clock.due_ms(new)))])
    if forces_rebalance(old, new) and is_at_work:
        begin_rebalance(draft, new, reason=f"an administrator has asked for it ({new.group_rebalance_token})")
