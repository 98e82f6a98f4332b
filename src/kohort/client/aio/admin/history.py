"""The same as `client/admin/history.py`, awaited.

Made of it by `python tools/aio_admin.py`: change it there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from kohort.client.admin.core import groups as shapes
from kohort.client.admin.history import _OF_BROKER, USUAL_PAGES
from kohort.client.admin.results.groups import GroupHistory, HistoryEvent
from kohort.wire.messages.group_history import GroupHistoryRequest, GroupHistoryResponse

Ask = Callable[[GroupHistoryRequest], Awaitable[GroupHistoryResponse]]


async def read_history(ask: Ask, group: str, *, after: int | None, whole: bool) -> GroupHistory:
    """All pages as one; see `Admin.group_history`."""
    events: list[HistoryEvent] = []
    while True:
        page = await ask(
            GroupHistoryRequest(group_id=group, after_sequence=events[-1].sequence if events else after or 0)
        )
        events += map(shapes.history_event, page.rows)
        if not page.has_more:
            break
    is_complete, older_offset = page.is_complete, page.older_offset
    if after is None:
        known = {event.sequence: event for event in events}
        pages = 0
        while older_offset >= 0 and (whole or pages < USUAL_PAGES):
            older = await ask(GroupHistoryRequest(group_id=group, before_offset=older_offset))
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
