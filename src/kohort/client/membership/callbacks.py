"""The rebalance callback that the application has to answer before a member may go on.

Laws: one callback at a time. An answer to an older one has no effect. While the application runs a callback,
max.poll.interval.ms does not run.
Source: the consumer threading refactor (CTR): awaiting callbacks, and what to do when a revocation times out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.client.application_events import CallbackKind, CallbackWanted
from kohort.client.requests import Requests
from kohort.ids import TopicPartition


@dataclass(slots=True, kw_only=True)
class _Open:
    wanted: CallbackWanted
    is_running: bool
    deadline_ms: int
    #: How often the deadline has passed.
    overdue: int


class Callbacks:
    """Asks the application to run a callback, and waits for its answer.

    Args:
        requests: takes the callback to the application.
        timeout_ms: how long a revocation may take.
        policy: `leave`, `retry` (wait for ever) or `retry_then_leave` (wait once more).
    """

    def __init__(self, requests: Requests, *, timeout_ms: int, policy: str) -> None:
        self._requests = requests
        self._timeout_ms: Final = timeout_ms
        self._policy: Final = policy
        self._open: _Open | None = None
        self._next_number = 1

    @property
    def open(self) -> CallbackWanted | None:
        """The callback that the application has to answer; `None`: there is none."""
        return None if self._open is None else self._open.wanted

    @property
    def is_running(self) -> bool:
        """Whether the application runs that callback now."""
        return self._open is not None and self._open.is_running

    def ask(self, kind: CallbackKind, partitions: set[TopicPartition], reason: str, now_ms: int) -> None:
        """Ask for a callback; one that was open before is dropped."""
        wanted = CallbackWanted(
            number=self._next_number, kind=kind, partitions=tuple(sorted(partitions)), reason=reason
        )
        self._next_number += 1
        self._open = _Open(wanted=wanted, is_running=False, deadline_ms=now_ms + self._timeout_ms, overdue=0)
        self._requests.deliver(wanted)

    def on_started(self, number: int, now_ms: int) -> CallbackWanted | None:
        """Note that the application runs the callback, and start its time; `None`: it is not the open one."""
        if self._open is None or self._open.wanted.number != number:
            return None
        self._open.is_running = True
        self._open.deadline_ms = now_ms + self._timeout_ms
        return self._open.wanted

    def on_done(self, number: int) -> CallbackWanted | None:
        """Close the callback that the application has answered, and return it; `None`: it is not the open one."""
        if self._open is None or self._open.wanted.number != number:
            return None
        wanted, self._open = self._open.wanted, None
        return wanted

    def drop(self) -> None:
        """Drop the open callback: its answer will have no effect."""
        self._open = None

    def next_deadline(self) -> int | None:
        """Return when the time of a running revocation callback ends; `None`: none runs."""
        is_timed = self.is_running and self._open is not None and self._open.wanted.kind is CallbackKind.REVOKED
        return self._open.deadline_ms if is_timed and self._open is not None else None

    def must_leave(self, now_ms: int) -> bool:
        """Return whether the revocation callback has run for so long that the member has to leave."""
        deadline = self.next_deadline()
        if deadline is None or now_ms < deadline or self._open is None:
            return False
        self._open.overdue += 1
        if self._policy == "leave" or (self._policy == "retry_then_leave" and self._open.overdue > 1):
            return True
        self._open.deadline_ms = now_ms + self._timeout_ms
        self._requests.warn(
            f"the revocation callback has been running for {self._timeout_ms * self._open.overdue} ms, "
            "which is as long as the group waits (max.poll.interval.ms); its partitions may go to others meanwhile"
        )
        return False
