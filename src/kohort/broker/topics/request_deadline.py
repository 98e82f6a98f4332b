"""Topic changes with a time limit: the `timeout_ms` of their request.

Laws: each is told once: that it is in force, why it never will be, or REQUEST_TIMED_OUT when the time is over. What has
not begun by then is never done, so that without any time nothing is; what has begun goes on.
Source: Apache Kafka's QuorumController, for which `timeout_ms` is the time until which a change is begun (before it,
ZooKeeper's began whatever the time was).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kohort.broker.topics.topic_operations import Outcome, TopicWork, Wanted
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.storage.topics.topicchanges import TopicPlan


def ask_within(
    loop: asyncio.AbstractEventLoop,
    work: TopicWork,
    wanted: Iterable[Wanted],
    *,
    timeout_ms: int,
    on_refusal: Callable[[str, StorageError], None],
) -> None:
    """Carry out changes by `work`, and report each within `timeout_ms`.

    `on_refusal` is called with the disk error of a change whose time was over.
    """
    timed = [_Timed(each, timeout_ms, on_refusal) for each in wanted]
    # Without any time no change is begun, as in Apache Kafka.
    if timeout_ms <= 0 or not timed:
        _expire(timed)
        return
    open_now = _Open(loop.call_later(timeout_ms / 1000, _expire, timed), len(timed))
    for each in timed:
        each.open = open_now
    work.ask(Wanted(each.wanted.concern, each.plan, each.done) for each in timed)


def _expire(timed: Iterable[_Timed]) -> None:
    for each in timed:
        each.expire()


class _Open:
    """The number of a request's unreported changes, and the timer that ends their time."""

    def __init__(self, timer: asyncio.TimerHandle, count: int) -> None:
        self._timer: Final = timer
        self._count = count

    def tell(self) -> None:
        """Count one reported change."""
        self._count -= 1
        if not self._count:
            self._timer.cancel()


class _Timed:
    """One change with a time limit."""

    def __init__(self, wanted: Wanted, timeout_ms: int, on_refusal: Callable[[str, StorageError], None]) -> None:
        self.wanted: Final = wanted
        self._on_refusal: Final = on_refusal
        self._timeout_ms: Final = timeout_ms
        self.open: _Open | None = None
        self._has_begun = self._is_told = False

    def plan(self) -> TopicPlan:
        """Plan the change; raise REQUEST_TIMED_OUT if its time is over."""
        if self._is_told:
            raise self._late()
        self._has_begun = True
        return self.wanted.plan()

    def done(self, why: Outcome) -> None:
        """Report the outcome of the change, unless it has timed out."""
        if not self._is_told:
            self._is_told = True
            if self.open is not None:
                self.open.tell()
            self.wanted.done(why)
        elif isinstance(why, StorageError):
            self._on_refusal(f"topic-{self.wanted.concern}", why)

    def expire(self) -> None:
        """Report REQUEST_TIMED_OUT, unless the change was reported before."""
        self.done(self._late())

    def _late(self) -> Refused:
        state = "it has begun, and goes on" if self._has_begun else "it had not begun, and is not done"
        return Refused(ErrorCode.REQUEST_TIMED_OUT, f"the change is not in force after {self._timeout_ms} ms; {state}")
