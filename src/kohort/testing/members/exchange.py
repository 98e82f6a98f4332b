"""A request of a simulated client that is under way."""

from __future__ import annotations

from collections.abc import Callable

from kohort.coordinator.commands import GroupCommand, ReplyBody


class Exchange:
    """One request under way and what to do with its answer."""

    __slots__ = ("command", "on_failure", "on_reply", "timeout_ms")

    def __init__(
        self,
        command: GroupCommand,
        on_reply: Callable[[ReplyBody], None],
        on_failure: Callable[[], None],
        *,
        timeout_ms: int,
    ) -> None:
        self.command = command
        self.on_reply = on_reply
        self.on_failure = on_failure
        self.timeout_ms = timeout_ms
