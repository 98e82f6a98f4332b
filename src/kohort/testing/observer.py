"""The observer of every step of a simulated broker."""

from __future__ import annotations

from typing import Protocol

from kohort.coordinator.commands.base import Command, GroupCommand
from kohort.coordinator.commands.replies import ReplyBody
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
        """Observe a history row of a decision that is not applied yet."""
        ...

    def on_decided(self, home: Home, command: GroupCommand, body: ReplyBody) -> None:
        """Observe the answer of a request, which leaves once the records are on disk."""
        ...

    def after_step(self, home: Home, decision: Decision) -> None:
        """Observe a decision that is applied."""
        ...

    def on_answer(self, command: GroupCommand, body: ReplyBody) -> None:
        """Observe an answer that leaves the broker."""
        ...

    def on_restart(self, home: Home) -> None:
        """Observe a shard that was rebuilt from its log."""
        ...

    def on_loaded(self, home: Home) -> None:
        """Observe a loaded shard, after its deadlines are set."""
        ...

    def on_shift(self, home: Home, gap_ms: int) -> None:
        """Observe a shift of every deadline after the loop stood still."""
        ...

    def on_go_on(self) -> None:
        """Observe the end of a stall of the loop."""
        ...

    def tells_news(self, is_on: bool) -> bool:
        """Set whether held heartbeats are answered because of updates from now on."""
        ...
