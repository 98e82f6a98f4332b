"""The law that moves begin no faster than their group's pace, also across coordinators.

Laws: between any two times no more moves of a group begin than its burst and what its rate allows in between, for as
long as its pace is the same; while moves are paused none begins.
Source: requirement H4.
"""

from __future__ import annotations

from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun
from kohort.coordinator.decision import Decision
from kohort.coordinator.shard import Shard
from kohort.testing.trace import LawBroken

#: Rate, burst, whether none may begin.
_Pace = tuple[float, int, bool]


class PaceLaws:
    """The moves that have begun, of all shards."""

    def __init__(self) -> None:
        #: group -> its pace, and (time, moves) of each begin since it has that.
        self._begun: dict[str, tuple[_Pace, list[tuple[int, int]]]] = {}

    def before_step(self, shard: Shard, decision: Decision, *, now_ms: int) -> None:
        """MovesKeepThePace: check the moves that are about to begin."""
        for record in decision.records:
            if not isinstance(record, MovesBegun):
                continue
            settings = shard.settings_for(record.group_id)
            pace = settings.group_moves_per_second, settings.group_moves_burst, settings.group_moves_paused
            before, begun = self._begun.get(record.group_id, (pace, []))
            if before != pace:
                begun = []
            begun.append((now_ms, len(record.places)))
            self._begun[record.group_id] = pace, begun
            self._check(record.group_id, pace, begun, now_ms=now_ms)

    def on_restart(self) -> None:
        """Forget the moves that have begun."""
        # A new process remembers nothing of its pace.
        self._begun.clear()

    def _check(self, group_id: str, pace: _Pace, begun: list[tuple[int, int]], *, now_ms: int) -> None:
        rate, burst, is_paused = pace
        if is_paused:
            raise LawBroken("MovesKeepThePace", "a move begins while they are paused", group_id=group_id)
        count = 0
        for at_ms, moves in reversed(begun) if rate > 0 else ():
            count += moves
            # A clock counts whole milliseconds.
            allowed = burst + rate * (now_ms - at_ms + 1) / 1_000
            if count > allowed:
                why = f"{count} moves begin within {now_ms - at_ms} ms, where {allowed:.1f} may"
                raise LawBroken("MovesKeepThePace", why, group_id=group_id)
