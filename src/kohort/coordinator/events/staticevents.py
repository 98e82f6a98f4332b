"""Journal entries of members of a static group that go offline or come back, in either protocol.

Laws: no decision is made here. `member_away` alone reports a member of a KIP-848 group that leaves for a while, or is
silent. A removed member, or one with a session again as its group is dynamic now, is not reported as back.
Source: requirements G4, J1 and S1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.classic import volatile as classic
from kohort.coordinator.events.decision_view import Scene
from kohort.coordinator.static_membership.clock import NO_WINDOW
from kohort.journal.rows import Entry

#: Records that end the offline times of members without a sign of life.
_OF_THE_GROUP: Final = (
    facts.GroupConfigsSet,
    facts.GroupConfigsForgotten,
    facts.ClassicGroupForgotten,
    facts.ConsumerGroupForgotten,
)


def _offline(scene: Scene, record: facts.OfflineMemberSet) -> Iterable[Entry]:
    if _is_told(scene, record.member_id):
        return ()
    # The record has the time of the group's clock, which is behind.
    since_ms = record.since_ms + (0 if scene.clock is None else scene.clock.lost_ms)
    name = _instance_of(scene, record.member_id)
    silent_ms = str(max(0, scene.now_ms - since_ms))
    return (scene.transition("member_offline", record.member_id, instance=name, silent_ms=silent_ms),)


def _back(scene: Scene, record: facts.OfflineMemberForgotten) -> Iterator[Entry]:
    since_ms = None if scene.clock is None else scene.clock.offline_since(record.member_id)
    if since_ms is None or not scene.kinds.isdisjoint(_OF_THE_GROUP):
        return
    member_id = _goes_on_as(scene, record.member_id)
    if member_id is not None:
        name = _instance_of(scene, record.member_id)
        away_ms = str(max(0, scene.now_ms - since_ms))
        yield scene.transition("member_back", member_id, instance=name, away_ms=away_ms)


def _clock_set(scene: Scene, record: facts.StaticClockSet) -> Iterable[Entry]:
    """Report that new members wait from now on, or do no longer; the clock's progress is not reported."""
    before = scene.clock is not None and scene.clock.has_window
    after = record.window_opened_ms != NO_WINDOW
    if before == after:
        return ()
    wait_ms = scene.settings.group_expansion_timeout_ms
    return (
        scene.decision("window_opened", ends_ms=str(scene.now_ms + wait_ms))
        if after
        else scene.decision("window_closed"),
    )


def _is_told(scene: Scene, member_id: str) -> bool:
    return any(
        isinstance(record, facts.CurrentAssignmentSet) and record.member_id == member_id and record.member_epoch < 0
        for record in scene.records
    )


def _goes_on_as(scene: Scene, member_id: str) -> str | None:
    """Return a member's id after the records, which another process may have; `None`: it is removed."""
    for record in scene.records:
        if isinstance(record, classic.StaticMemberReplaced) and record.replaced_id == member_id:
            return record.member.member_id
        if isinstance(record, classic.MemberRemoved) and record.member_id == member_id:
            return None
    if not any(
        isinstance(each, facts.ConsumerMemberForgotten) and each.member_id == member_id for each in scene.records
    ):
        return member_id
    return next((new_id for new_id, former_id in scene.former.items() if former_id == member_id), None)


def _instance_of(scene: Scene, member_id: str) -> str:
    hosted = scene.members.get(member_id)
    if hosted is not None:
        return hosted.instance_id or ""
    member = None if scene.classic is None else scene.classic.members.get(member_id)
    return "" if member is None else member.instance_id or ""


#: Record type -> function that builds its entries.
STATIC_EVENTS: Final[dict[type[facts.Record], Callable[..., Iterable[Entry]]]] = {
    facts.OfflineMemberSet: _offline,
    facts.OfflineMemberForgotten: _back,
    facts.StaticClockSet: _clock_set,
}
