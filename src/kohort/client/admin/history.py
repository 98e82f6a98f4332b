"""A group's history, read in pages: what the broker has in memory, and what is older in its topic `__group_journal`.

Laws: a row is there once, as it was told last. What the broker has in memory is newer than what it is asked for of the
topic, wherever they meet.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.client.admin.core import groups as shapes
from kohort.client.admin.results.groups import GroupHistory, HistoryEvent
from kohort.wire.messages.group_history import GroupHistoryRequest, GroupHistoryResponse

#: Pages of the topic that are read unless all of them are: a thousand rows of all groups each.
USUAL_PAGES: Final = 20
#: Rows that tell of the broker: in front of a group's first row they tell nothing of it.
_OF_BROKER: Final = frozenset({"broker_started", "broker_stopped", "journal_gap"})

Ask = Callable[[GroupHistoryRequest], GroupHistoryResponse]


def read_history(ask: Ask, group: str, *, after: int | None, whole: bool) -> GroupHistory:
    """All pages as one; see `Admin.group_history`."""
    events: list[HistoryEvent] = []
    while True:
        page = ask(GroupHistoryRequest(group_id=group, after_sequence=events[-1].sequence if events else after or 0))
        events += map(shapes.history_event, page.rows)
        if not page.has_more:
            break
    is_complete, older_offset = page.is_complete, page.older_offset
    if after is None:
        known = {event.sequence: event for event in events}
        pages = 0
        while older_offset >= 0 and (whole or pages < USUAL_PAGES):
            older = ask(GroupHistoryRequest(group_id=group, before_offset=older_offset))
            for row in older.rows:
                known.setdefault(row.sequence, shapes.history_event(row))
            is_complete, older_offset = older.is_complete, older.older_offset
            pages += 1
        events = [known[number] for number in sorted(known)]
        first = next((at for at, event in enumerate(events) if event.event not in _OF_BROKER), len(events))
        del events[:first]
    return GroupHistory(
        group_id=group,
        events=tuple(events),
        counts={row.name: row.count for row in page.counts},
        is_complete=is_complete,
        has_older=older_offset >= 0,
    )
