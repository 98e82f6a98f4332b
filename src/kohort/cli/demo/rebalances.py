"""Each rebalance of a group, read from its history: what set it off, and how long it took.

Laws: nothing is measured here: every cause and every time is of a row that the coordinator wrote. Each new group epoch
is a rebalance; it ends when every member is at that epoch or a later one's and waits for no partition.
Source: docs/groups.md, "Why did that happen?".
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kohort.client.admin.results import HistoryEvent

_SILENT: Final = "session timeout"


@dataclass(frozen=True, kw_only=True)
class Rebalance:
    """One rebalance: `seconds` from the row that raised the epoch to the one after which the group was at rest.

    `silent_seconds`: how long a member had been silent before that; `None` if nobody was.
    """

    epoch: int
    cause: str
    seconds: float
    silent_seconds: float | None = None

    @property
    def duration(self) -> str:
        """For a person: behind a silence stands what came after it."""
        return f"{self.seconds:.2f} s" if self.silent_seconds is None else f"then {self.seconds:.2f} s"


def rebalances_of(
    events: Iterable[HistoryEvent], *, session_timeout_ms: int, default_session_timeout_ms: int
) -> list[Rebalance]:
    """The rebalances that came to their end, in order.

    Args:
        events: the history of a KIP-848 group, oldest first, from its beginning.
        session_timeout_ms: after which silence a member of this group is given up.
        default_session_timeout_ms: what that is where nobody sets it.
    """
    reader = _Reader(session_timeout_ms, default_session_timeout_ms)
    for event in events:
        reader.read(event)
    return reader.rebalances


class _Reader:
    """Follows the members' epochs through the rows."""

    def __init__(self, session_timeout_ms: int, default_session_timeout_ms: int) -> None:
        self._silent_seconds: Final = session_timeout_ms / 1000
        self._usual_seconds: Final = default_session_timeout_ms / 1000
        self._names: dict[str, str] = {}
        #: Member -> the epoch at which it waits for nothing, -1 while it does.
        self._settled: dict[str, int] = {}
        self._epoch = 0
        #: (when it began in milliseconds, without its duration) of each that has not come to its end.
        self._open: list[tuple[int, Rebalance]] = []
        #: What the next epoch comes from, and whether it is a silence.
        self._causes: list[str] = []
        self._is_after_silence = False
        self.rebalances: list[Rebalance] = []

    def read(self, event: HistoryEvent) -> None:
        """Take one row in."""
        name = self._names.get(event.member_id, event.member_id)
        match event.event:
            case "member_joined":
                name = self._names[event.member_id] = event.details.get("client") or event.member_id
                self._settled[event.member_id] = -1
                self._causes.append(f"{name} joined")
            case "member_removed":
                self._settled.pop(event.member_id, None)
                self._causes.append(self._farewell(name, event.details.get("reason", "")))
            case "epoch_bumped":
                self._begin(event)
            case "assignment_changed":
                is_waiting = event.details["state"] != "STABLE"
                self._settled[event.member_id] = -1 if is_waiting else int(event.details["epoch"])
            case _:
                return
        self._close_if_at_rest(event.time_ms)

    def _begin(self, event: HistoryEvent) -> None:
        self._epoch = int(event.details["epoch"])
        rebalance = Rebalance(
            epoch=self._epoch,
            cause=", ".join(self._causes) or event.details["trigger"],
            seconds=0.0,
            silent_seconds=self._silent_seconds if self._is_after_silence else None,
        )
        self._open.append((event.time_ms, rebalance))
        self._causes, self._is_after_silence = [], False

    def _farewell(self, name: str, reason: str) -> str:
        if reason == _SILENT:
            self._is_after_silence = True
            usual = f"{self._usual_seconds:g} by default, here set to {self._silent_seconds:g}"
            is_usual = self._usual_seconds == self._silent_seconds
            return f"{name} silent {self._silent_seconds:.1f} s" + ("" if is_usual else f" ({usual})")
        return f"{name} left" if reason == "member left" else f"{name} removed: {reason}"

    def _close_if_at_rest(self, now_ms: int) -> None:
        if all(epoch == self._epoch for epoch in self._settled.values()):
            self.rebalances += [replace(row, seconds=(now_ms - began_ms) / 1000) for began_ms, row in self._open]
            self._open = []
