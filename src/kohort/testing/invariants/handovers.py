"""Limits on the length of hand-overs and rebalances: no slow or dead member delays the others longer.

Laws: a member that is told to give partitions up has done so, or is fenced, within its rebalance timeout. A classic
join or sync phase lasts no longer than its members' rebalance timeout. A restart begins anew, and a broker that stood
still gives the time back.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.testing.trace import LawBroken

#: Deadlines fire late by as much as a stall that is too short to shift them.
SLACK_MS: Final = 1_000

_PHASES: Final = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE)
#: (group, member or "" for the group as a whole)
_Who = tuple[str, str]


class HandOvers:
    """The hand-overs and rebalances under way in every group of one shard."""

    def __init__(self) -> None:
        #: Member or group with a pending duty -> (the duty, since when, its deadline).
        self._open: dict[_Who, tuple[object, int, int]] = {}

    def check(self, groups: GroupsState, *, now_ms: int) -> None:
        """Check the hand-overs and rebalances under way; raise `LawBroken` for one that takes too long."""
        found: dict[_Who, tuple[object, int, int]] = {}
        for who, what, limit_ms in _under_way(groups):
            known = self._open.get(who)
            if known is None or not _is_same_or_less(what, known[0]):
                known = (what, now_ms, now_ms + limit_ms + SLACK_MS)
            found[who] = (what, known[1], known[2])
            if now_ms > known[2]:
                name = who[1] or "the rebalance"
                raise LawBroken(
                    "HandOverEndsInTime",
                    f"{name} takes {now_ms - known[1]} ms, {limit_ms} ms are allowed",
                    group_id=who[0],
                )
        self._open = found

    def on_shift(self, gap_ms: int) -> None:
        """Shift the deadlines by the time that the broker stood still."""
        self._open = {who: (what, since + gap_ms, by + gap_ms) for who, (what, since, by) in self._open.items()}


def _under_way(groups: GroupsState) -> Iterator[tuple[_Who, object, int]]:
    for consumer in groups.consumer.values():
        yield from _revocations(consumer)
    for classic in groups.classic.values():
        # A phase without waiting members delays none: offline static members may prolong it.
        if classic.state in _PHASES and (classic.awaiting_join or classic.awaiting_sync):
            yield (classic.group_id, ""), _phase(classic), classic.rebalance_timeout_ms


def _revocations(group: ConsumerGroup) -> Iterator[tuple[_Who, object, int]]:
    for member in group.members.values():
        if member.pending_revocation:
            pending = {(topic_id, p) for topic_id, grants in member.pending_revocation.items() for p in grants}
            # A classic member learns of it by a heartbeat, for which it has the time of its session.
            notice_ms = 0 if member.classic is None else member.classic.session_timeout_ms
            yield (group.group_id, member.member_id), frozenset(pending), member.rebalance_timeout_ms + notice_ms


def _phase(group: ClassicGroup) -> object:
    return group.state, group.generation, group.state_timestamp_ms


def _is_same_or_less(what: object, known: object) -> bool:
    """Whether a pending duty is the known one or a part of it."""
    # Giving up some of the partitions does not prolong the rest.
    if isinstance(what, frozenset) and isinstance(known, frozenset):
        return what <= known
    return what == known
