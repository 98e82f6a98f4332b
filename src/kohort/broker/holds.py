"""Requests of one connection whose answers wait for news: none of them is in the way of an answer that is there.

Laws: answers leave in the order of their requests, so what is held is answered as soon as something behind it is
ready. A heartbeat that is itself held is in nobody's way. At most half of the requests that a connection may have open
are held.
Source: requirement H1; Java's consumers commit and leave by the connection of their heartbeats.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.replies import ReplyQueue
from kohort.broker.request import Request


class Holds:
    """What waits, oldest first; some of it is answered by now."""

    __slots__ = ("_held", "_is_releasing", "_replies")

    def __init__(self, replies: ReplyQueue) -> None:
        self._replies: Final = replies
        self._held: list[Request] = []
        self._is_releasing = False

    def add(self, request: Request) -> None:
        """A request waits for news; of too many the oldest is answered."""
        self._held = [each for each in self._held if each.is_open]
        self._held.append(request)
        if len(self._held) > self._replies.limit // 2:
            self._release(self._held[0], is_cut=False)

    def release_overtaken(self) -> None:
        """Have answered what stands before an answer that is ready."""
        # Each that is answered comes here again, and there is nothing left for it to do.
        if not self._held or self._is_releasing:
            return
        self._is_releasing = True
        try:
            self._held = [each for each in self._held if each.is_open]
            for request in self._replies.find_overtaken(self._held):
                self._release(request, is_cut=True)
        finally:
            self._is_releasing = False

    def _release(self, request: Request, *, is_cut: bool) -> None:
        assert request.on_overtaken is not None, "only what may be released is held"
        request.on_overtaken(is_cut)
