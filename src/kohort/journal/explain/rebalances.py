"""Rebalances of a group, built row by row.

Laws: only the latest rebalance may be open. If another one begins before its end, it counts as overtaken.
Source: requirement J2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.journal.explain.group_state import FollowedRebalance, HeldBack, OpenMove
from kohort.journal.explain.sentences import build_delay, build_pace
from kohort.journal.words import PAUSED, Partition, ToldRow, read_partitions

#: Value of a config that the group has not set.
_DEFAULT: Final = "(default)"


@dataclass(slots=True)
class FollowedRebalances:
    """All rebalances of a group, oldest first."""

    all: list[FollowedRebalance] = field(default_factory=list)

    @property
    def latest(self) -> FollowedRebalance | None:
        """Return the latest rebalance, open or ended."""
        return self.all[-1] if self.all else None

    @property
    def open(self) -> FollowedRebalance | None:
        """Return the open rebalance, `None` if there is none."""
        latest = self.latest
        return latest if latest is not None and latest.ended_ms is None else None

    def begin(self, now_ms: int, protocol: str, loose: dict[Partition, OpenMove]) -> FollowedRebalance:
        """Begin a rebalance; `loose`: partitions without an owner, which the rebalance has to assign."""
        # Moves of the overtaken rebalance may still wait for the pace.
        before = None if self.open is None else self.open.held_back
        self.overtake(now_ms)
        begun = FollowedRebalance(protocol=protocol, began_ms=now_ms)
        begun.moves.update(loose)
        if before is not None and before.left:
            # These moves wait on, without another row about it.
            begun.held_back = HeldBack(
                since_ms=now_ms, pace=before.pace, partitions=set(before.left), left=set(before.left)
            )
        self.all.append(begun)
        return begun

    def overtake(self, now_ms: int) -> None:
        """End the open rebalance early, because another one begins."""
        self.let_go(now_ms)
        latest = self.open
        if latest is not None:
            latest.is_overtaken, latest.ended_ms = True, now_ms

    def cut(self, now_ms: int) -> None:
        """End the open rebalance at a crash of the broker, because its outcome is unknown."""
        latest = self.open
        if latest is not None:
            # What the moves waited for at the crash is unknown.
            latest.held_back = None
            latest.is_cut, latest.ended_ms = True, max(now_ms, latest.began_ms)

    def compute(self, row: ToldRow) -> None:
        """Note that the target assignment has been computed."""
        latest = self.open
        # A group that waits for its first target begins with an empty one, of an earlier epoch.
        if latest is None or latest.number is None or int(row.details.get("epoch", 0)) < latest.number:
            return
        latest.computed_ms = row.time_ms
        latest.changed = int(row.details.get("members_changed", 0))
        _end_assignor(latest, row.time_ms)

    def hold_back(self, row: ToldRow) -> None:
        """Set the moves that the move throttle defers."""
        latest = self.open
        if latest is None:
            return
        partitions = set(read_partitions(row.details.get("partitions", ""))[0])
        before, pace = latest.held_back, row.details.get("pace", "")
        # An empty list says that no move waits any more.
        if not partitions:
            self.let_go(row.time_ms)
        elif before is None:
            latest.held_back = HeldBack(since_ms=row.time_ms, pace=pace, partitions=partitions, left=set(partitions))
        else:
            before.pace, before.left = pace, partitions
            before.partitions |= partitions

    def let_begin(self, row: ToldRow) -> None:
        """Note that deferred moves begin; later rows name the members that have to revoke partitions."""
        latest = self.open
        if latest is None or latest.held_back is None:
            return
        latest.held_back.left -= set(read_partitions(row.details.get("partitions", ""))[0])
        if row.details.get("left") == "0":
            self.let_go(row.time_ms)

    def change_pace(self, row: ToldRow) -> None:
        """Note that the throttle of deferred moves has changed: a new wait begins, with the new pace."""
        latest = self.open
        if latest is None or latest.held_back is None:
            return
        before = latest.held_back
        paused, rate = row.details.get("group.moves.paused"), row.details.get("group.moves.per.second")
        pace = before.pace
        if paused is not None:
            pace = PAUSED if paused == "true" else ""
        if rate is not None and pace != PAUSED:
            pace = f"{rate} per second" if rate != _DEFAULT else ""
        # Each wait names the pace that caused it.
        if pace != before.pace:
            self.let_go(row.time_ms)
            left = before.left
            latest.held_back = HeldBack(since_ms=row.time_ms, pace=pace, partitions=set(left), left=left)

    def let_go(self, now_ms: int) -> None:
        """End the wait of all deferred moves."""
        latest = self.open
        if latest is None or latest.held_back is None:
            return
        held_back, latest.held_back = latest.held_back, None
        # Moves that begin with their own target waited for nothing.
        if now_ms > held_back.since_ms:
            latest.delays.append(build_pace(held_back, held_back.partitions, now_ms))

    def ask_assignor(self, row: ToldRow) -> None:
        """Note that a custom assignor has started, or has failed."""
        latest = self.open
        if latest is None:
            return
        latest.assignor = row.details.get("assignor", "")
        if row.event == "assignor_asked":
            latest.assignor_asked_ms = latest.assignor_asked_ms or row.time_ms
            latest.computing_ms = latest.computing_ms or row.time_ms
        else:
            _end_assignor(latest, row.time_ms, f"failed: {row.details.get('why', '')}")


def _end_assignor(rebalance: FollowedRebalance, now_ms: int, end: str = "") -> None:
    asked_ms, rebalance.assignor_asked_ms = rebalance.assignor_asked_ms, None
    if asked_ms is not None:
        rebalance.delays.append(build_delay(f"assignor {rebalance.assignor}", "assign", asked_ms, now_ms, end=end))
