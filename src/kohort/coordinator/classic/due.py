"""A rebalance of a static group is written down when it begins, so that a restart begins it again.

In a dynamic group whoever was given up is given up again by its session; here that would take the registration timeout,
and new members would wait for a window that is closed.

Laws: it is in the log from the beginning of the rebalance until what comes of it is.
Source: requirement S1.
"""

from __future__ import annotations

from kohort.coordinator.classic.draft import Draft
from kohort.coordinator.records import ClassicRebalanceDone, ClassicRebalanceDue


def note_due(draft: Draft, reason: str) -> None:
    """The group rebalances: why, and who of those that a restart would find is gone for good."""
    group = draft.group
    stored = () if group.stored is None else group.stored.members
    removed = tuple(
        member.member_id
        for member in stored
        if member.member_id not in group.members
        and (member.instance_id is None or member.instance_id not in group.instance_ids)
    )
    due = ClassicRebalanceDue(group_id=draft.group_id, reason=reason, removed=removed)
    if due != group.due:
        draft.record(due)


def note_done(draft: Draft) -> None:
    """What came of it is written."""
    if draft.group.due is not None:
        draft.record(ClassicRebalanceDone(group_id=draft.group_id))
