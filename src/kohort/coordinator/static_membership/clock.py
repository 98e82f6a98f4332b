"""Clock of one static group: offline times of members, expansion window, and the next deadline.

The clock runs only while the broker does: `since_ms` and `window_opened_ms` are its times, and it is behind the
broker's clock by `lost_ms`. Its progress is written repeatedly; a restart continues from there, so that a member never
counts as offline for longer than the broker has observed.

Laws: a group has a clock, with a deadline, while a member is offline or new members wait. The deadline is the earliest
timeout. All members whose timeout has ended by then are removed together; the others' time runs on.
Source: KIP-345's draft (registration and expansion timeout); requirement S1.
"""

from __future__ import annotations

from kohort.coordinator.settings import GroupSettings

#: How often the progress of a clock is written: after this fraction of its shortest timeout, within these bounds.
NOTES_PER_TIMEOUT = 20
SHORTEST_NOTE_MS = 1_000
LONGEST_NOTE_MS = 60_000
#: `window_opened_ms` of a clock without waiting new members.
NO_WINDOW = -1


class StaticClock:
    """Measured times of a static group; only `apply` functions change it."""

    __slots__ = ("lost_ms", "noted_ms", "offline", "window_opened_ms")

    def __init__(self, noted_ms: int = 0) -> None:
        #: When the broker was last known to run, by its own clock, ms.
        self.noted_ms = noted_ms
        #: How far this clock is behind the broker's, ms.
        self.lost_ms = 0
        #: When the first of the waiting new members joined; `NO_WINDOW`: none wait.
        self.window_opened_ms = NO_WINDOW
        #: member id -> time since which it is offline.
        self.offline: dict[str, int] = {}

    def copy(self) -> StaticClock:
        """Return an independent copy."""
        made = StaticClock(self.noted_ms)
        made.lost_ms, made.window_opened_ms = self.lost_ms, self.window_opened_ms
        made.offline = dict(self.offline)
        return made

    @property
    def is_idle(self) -> bool:
        """Whether no member is offline and no new member waits, so that the clock measures nothing."""
        return not self.offline and self.window_opened_ms == NO_WINDOW

    @property
    def has_window(self) -> bool:
        """Whether an expansion window is open, for which new members wait."""
        return self.window_opened_ms != NO_WINDOW

    def offline_since(self, member_id: str) -> int | None:
        """Return since when a member is offline, by the broker's clock without downtimes; `None`: online."""
        since_ms = self.offline.get(member_id)
        return None if since_ms is None else since_ms + self.lost_ms

    def expired(self, settings: GroupSettings, *, now_ms: int) -> list[str]:
        """Return the ids of members that are offline for the registration timeout or longer."""
        latest_ms = now_ms - self.lost_ms - settings.group_registration_timeout_ms
        return sorted(member_id for member_id, since_ms in self.offline.items() if since_ms <= latest_ms)

    def is_window_over(self, settings: GroupSettings, *, now_ms: int) -> bool:
        """Return whether the expansion timeout of the waiting new members is over."""
        return self.has_window and self.window_ends_ms(settings) <= now_ms

    def due_ms(self, settings: GroupSettings) -> int:
        """Return the next deadline: the earliest timeout, the window's end, or the next note."""
        due_ms = self.noted_ms + self._note_ms(settings)
        if self.offline:
            due_ms = min(due_ms, min(self.offline.values()) + self.lost_ms + settings.group_registration_timeout_ms)
        return min(due_ms, self.window_ends_ms(settings)) if self.has_window else due_ms

    def _note_ms(self, settings: GroupSettings) -> int:
        shortest_ms = settings.group_registration_timeout_ms
        if self.has_window:
            shortest_ms = min(shortest_ms, settings.group_expansion_timeout_ms)
        return max(SHORTEST_NOTE_MS, min(shortest_ms // NOTES_PER_TIMEOUT, LONGEST_NOTE_MS))

    def window_ends_ms(self, settings: GroupSettings) -> int:
        """Return the end of the open expansion window, by the broker's clock."""
        return self.window_opened_ms + self.lost_ms + settings.group_expansion_timeout_ms
