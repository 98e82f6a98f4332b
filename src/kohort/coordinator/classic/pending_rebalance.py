"""Record of an open rebalance of a static group, by which a restart begins it again.

In a dynamic group the session timeout removes a member again that was removed before a restart. In a static group that
would take the registration timeout, and new members would wait for a window that is closed.

Laws: the record is in the log from the beginning of the rebalance until its result is written.
Source: requirement S1.
"""

from __future__ import annotations

from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.records import ClassicRebalanceDone, ClassicRebalanceDue


def note_due(draft: Draft, reason: str) -> None:
    """Record the open rebalance: its reason, and the members of the stored group that are gone for good."""
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
    """Remove the record of the open rebalance, as its result is written."""
    if draft.group.due is not None:
        draft.record(ClassicRebalanceDone(group_id=draft.group_id))
