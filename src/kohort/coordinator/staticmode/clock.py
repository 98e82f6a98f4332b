"""The clock of one static group: who is offline since when, when new members are let in, and what is due next.

It runs while the broker does: `since_ms` and `window_opened_ms` are times of this clock, which is behind the broker's
by `lost_ms`. How far it has run is written again and again; a restart goes on from there, so that a member is never
taken for offline longer than the broker has seen it.

Laws: a clock is there while somebody is offline or new members wait, and has a deadline then. The earliest offline
member's timeout counts; whoever is offline for as long by then goes with it, and the others' time runs on.
Source: KIP-345's draft (registration and expansion timeout); requirement S1.
"""

from __future__ import annotations

from kohort.coordinator.settings import GroupSettings

#: How often it is written how far a clock has run: such a part of the shortest timeout that it measures, within these
#: bounds.
NOTES_PER_TIMEOUT = 20
SHORTEST_NOTE_MS = 1_000
LONGEST_NOTE_MS = 60_000
#: `window_opened_ms` of a clock by which no new members wait.
NO_WINDOW = -1


class StaticClock:
    """What a static group measures; only `apply` functions change it."""

    __slots__ = ("lost_ms", "noted_ms", "offline", "window_opened_ms")

    def __init__(self, noted_ms: int = 0) -> None:
        #: When the broker was last known to run, by its own clock.
        self.noted_ms = noted_ms
        #: By how much this clock is behind the broker's.
        self.lost_ms = 0
        #: When the first of the new members came that wait; `NO_WINDOW`: none wait.
        self.window_opened_ms = NO_WINDOW
        #: member id -> since when it is offline.
        self.offline: dict[str, int] = {}

    def copy(self) -> StaticClock:
        """Another one that shows the same."""
        made = StaticClock(self.noted_ms)
        made.lost_ms, made.window_opened_ms = self.lost_ms, self.window_opened_ms
        made.offline = dict(self.offline)
        return made

    @property
    def is_idle(self) -> bool:
        """Whether it measures nothing."""
        return not self.offline and self.window_opened_ms == NO_WINDOW

    @property
    def has_window(self) -> bool:
        """Whether new members wait."""
        return self.window_opened_ms != NO_WINDOW

    def offline_since(self, member_id: str) -> int | None:
        """Since when a member is offline, by the broker's clock less what does not count; `None`: it is not."""
        since_ms = self.offline.get(member_id)
        return None if since_ms is None else since_ms + self.lost_ms

    def expired(self, settings: GroupSettings, *, now_ms: int) -> list[str]:
        """Ids of the members that are offline for the registration timeout, or for longer."""
        latest_ms = now_ms - self.lost_ms - settings.group_registration_timeout_ms
        return sorted(member_id for member_id, since_ms in self.offline.items() if since_ms <= latest_ms)

    def is_window_over(self, settings: GroupSettings, *, now_ms: int) -> bool:
        """Whether the new members have waited for as long as they may."""
        return self.has_window and self.window_ends_ms(settings) <= now_ms

    def due_ms(self, settings: GroupSettings) -> int:
        """When it is to be looked at next: the earliest timeout, the window's end, or the next note."""
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
        """When those who wait are let in, by the broker's clock; somebody waits."""
        return self.window_opened_ms + self.lost_ms + settings.group_expansion_timeout_ms


def offline_since_ms(clock: StaticClock | None, member_id: str) -> int:
    """Since when a member is offline, as it is told to others: milliseconds since 1970, -1 for one that is online."""
    since_ms = None if clock is None else clock.offline_since(member_id)
    return -1 if since_ms is None else since_ms
