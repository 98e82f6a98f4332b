"""The rebalances of a group, as its rows tell them one after the other.

Laws: at most the latest goes on; one that another overtakes does not come to its end.
Source: requirement J2.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.journal.followed import FollowedRebalance
from kohort.journal.holdings import OpenMove
from kohort.journal.telling import build_delay
from kohort.journal.words import Partition, ToldRow


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
        self.overtake(now_ms)
        begun = FollowedRebalance(protocol=protocol, began_ms=now_ms)
        begun.moves.update(loose)
        self.all.append(begun)
        return begun

    def overtake(self, now_ms: int) -> None:
        """Whatever goes on does not come to its end."""
        latest = self.open
        if latest is not None:
            latest.is_overtaken, latest.ended_ms = True, now_ms

    def compute(self, row: ToldRow) -> None:
        """It is known who shall own what."""
        latest = self.open
        # A group that waits for its first target begins with that of nobody, which is of an epoch before.
        if latest is None or latest.number is None or int(row.details.get("epoch", 0)) < latest.number:
            return
        latest.computed_ms = row.time_ms
        latest.changed = int(row.details.get("members_changed", 0))
        _end_assignor(latest, row.time_ms)

    def ask_assignor(self, row: ToldRow) -> None:
        """An assignor of the user's own is at work, or has failed."""
        latest = self.open
        if latest is None:
            return
        latest.assignor = row.details.get("assignor", "")
        if row.event == "assignor_asked":
            latest.assignor_asked_ms = latest.assignor_asked_ms or row.time_ms
        else:
            _end_assignor(latest, row.time_ms, f"failed: {row.details.get('why', '')}")


def _end_assignor(rebalance: FollowedRebalance, now_ms: int, end: str = "") -> None:
    asked_ms, rebalance.assignor_asked_ms = rebalance.assignor_asked_ms, None
    if asked_ms is not None:
        rebalance.delays.append(build_delay(f"assignor {rebalance.assignor}", "assign", asked_ms, now_ms, end=end))
