"""The observer of every step of a simulated broker."""

from __future__ import annotations

from typing import Protocol

from kohort.coordinator.commands import Command, GroupCommand, ReplyBody
from kohort.coordinator.decision import Decision
from kohort.coordinator.events.triggers import Stimulus
from kohort.journal.rows import Entry
from kohort.testing.home import Home


class Observer(Protocol):
    """The observer of every step of a simulated broker."""

    def before_step(self, home: Home, command: Command | None, decision: Decision) -> None:
        """Observe a decision that is made and not yet applied."""
        ...

    def on_told(self, home: Home, entry: Entry, stimulus: Stimulus, decision: Decision) -> None:
        """A row of the group's history tells of a decision that is not applied."""
        ...

    def on_decided(self, home: Home, command: GroupCommand, body: ReplyBody) -> None:
        """A request will be answered like that, once the records are on disk."""
        ...

    def after_step(self, home: Home, decision: Decision) -> None:
        """It is applied."""
        ...

    def on_answer(self, command: GroupCommand, body: ReplyBody) -> None:
        """An answer leaves the broker."""
        ...

    def on_restart(self, home: Home) -> None:
        """A shard was rebuilt from its log."""
        ...

    def on_loaded(self, home: Home) -> None:
        """Its deadlines are set."""
        ...

    def on_shift(self, home: Home, gap_ms: int) -> None:
        """Every deadline is later by that, because the loop stood still."""
        ...

    def on_go_on(self) -> None:
        """The loop stood still until now."""
        ...

    def tells_news(self, is_on: bool) -> bool:
        """From now on held heartbeats are answered because of news, or no longer."""
        ...
