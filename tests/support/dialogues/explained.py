"""What the journal of a coordinator in a test comes to, explained as an admin client would explain it."""

from __future__ import annotations

from kohort.client.admin.results.groups import HistoryEvent
from kohort.journal.explain.explaining import explain
from kohort.journal.explain.explanation import GroupExplanation, GroupRebalance
from kohort.journal.rows import Row
from support.dialogues.coordinator_dialogue import GroupDialogue


def event_of(row: Row) -> HistoryEvent:
    """A row as clients see it."""
    entry = row.entry
    return HistoryEvent(
        sequence=row.sequence,
        time_ms=row.time_ms,
        last_time_ms=row.last_time_ms,
        times=row.times,
        cause=row.cause,
        origin=row.origin,
        kind=entry.kind.value,
        event=entry.event,
        member_id=entry.member_id,
        details=dict(entry.details),
    )


def explained(group: GroupDialogue) -> GroupExplanation:
    """The dialogue's group, as it stands now."""
    history = group.journal.history(group.group_id)
    return explain(group.group_id, map(event_of, history.rows), now_ms=group.now_ms, is_complete=history.is_complete)


def last(group: GroupDialogue) -> GroupRebalance:
    """Its latest rebalance."""
    found = explained(group).last
    assert found is not None, "there was one"
    return found
