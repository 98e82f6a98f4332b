"""The rebalances of a group, as its rows tell them one after the other.

Laws: at most the latest goes on; one that another overtakes does not come to its end.
Source: requirement J2.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from kohort.journal.why.followed import FollowedRebalance, HeldBack
from kohort.journal.why.holdings import OpenMove
from kohort.journal.why.telling import build_delay, build_pace
from kohort.journal.words import PAUSED, Partition, ToldRow, read_partitions

#: A config that a group has not set for itself.
_DEFAULT: Final = "(default)"


@dataclass(slots=True)
class FollowedRebalances:
    """All rebalances of a group, oldest first."""

    all: list[FollowedRebalance] = field(default_factory=list)

    @property
    def latest(self) -> FollowedRebalance | None:
        """The latest, be it over or not."""
        return self.all[-1] if self.all else None

    @property
    def open(self) -> FollowedRebalance | None:
        """The one that goes on."""
        latest = self.latest
        return latest if latest is not None and latest.ended_ms is None else None

    def begin(self, now_ms: int, protocol: str, loose: dict[Partition, OpenMove]) -> FollowedRebalance:
        """Another one begins; `loose`: what has no owner yet is this one's to give out."""
        before = None if self.open is None else self.open.held_back
        self.overtake(now_ms)
        begun = FollowedRebalance(protocol=protocol, began_ms=now_ms)
        begun.moves.update(loose)
        if before is not None and before.left:
            # They wait on, and no row says so once more.
            begun.held_back = HeldBack(
                since_ms=now_ms, pace=before.pace, partitions=set(before.left), left=set(before.left)
            )
        self.all.append(begun)
        return begun

    def overtake(self, now_ms: int) -> None:
        """Whatever goes on does not come to its end."""
        self.let_go(now_ms)
        latest = self.open
        if latest is not None:
            latest.is_overtaken, latest.ended_ms = True, now_ms

    def cut(self, now_ms: int) -> None:
        """What becomes of the one that goes on is not known."""
        latest = self.open
        if latest is not None:
            latest.held_back = None
            latest.is_cut, latest.ended_ms = True, max(now_ms, latest.began_ms)

    def compute(self, row: ToldRow) -> None:
        """It is known who shall own what."""
        latest = self.open
        # A group that waits for its first target begins with that of nobody, which is of an epoch before.
        if latest is None or latest.number is None or int(row.details.get("epoch", 0)) < latest.number:
            return
        latest.computed_ms = row.time_ms
        latest.changed = int(row.details.get("members_changed", 0))
        _end_assignor(latest, row.time_ms)

    def hold_back(self, row: ToldRow) -> None:
        """These moves wait for their turn, and no others."""
        latest = self.open
        if latest is None:
            return
        partitions = set(read_partitions(row.details.get("partitions", ""))[0])
        before, pace = latest.held_back, row.details.get("pace", "")
        if not partitions:
            self.let_go(row.time_ms)
        elif before is None:
            latest.held_back = HeldBack(since_ms=row.time_ms, pace=pace, partitions=partitions, left=set(partitions))
        else:
            before.pace, before.left = pace, partitions
            before.partitions |= partitions

    def let_begin(self, row: ToldRow) -> None:
        """Moves begin; who has to give up is told next."""
        latest = self.open
        if latest is None or latest.held_back is None:
            return
        latest.held_back.left -= set(read_partitions(row.details.get("partitions", ""))[0])
        if row.details.get("left") == "0":
            self.let_go(row.time_ms)

    def change_pace(self, row: ToldRow) -> None:
        """A config says how fast the moves begin that wait: who waited for the pace before waits for another."""
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
        if pace != before.pace:
            self.let_go(row.time_ms)
            left = before.left
            latest.held_back = HeldBack(since_ms=row.time_ms, pace=pace, partitions=set(left), left=left)

    def let_go(self, now_ms: int) -> None:
        """Nothing waits for its turn any more."""
        latest = self.open
        if latest is None or latest.held_back is None:
            return
        held_back, latest.held_back = latest.held_back, None
        if now_ms > held_back.since_ms:
            latest.delays.append(build_pace(held_back, held_back.partitions, now_ms))

    def ask_assignor(self, row: ToldRow) -> None:
        """An assignor of the user's own is at work, or has failed."""
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
