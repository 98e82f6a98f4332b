"""Heartbeats of one connection that are held for news, and released when they block ready answers.

Laws: answers leave in the order of their requests, so what is held is answered as soon as something behind it is
ready, unless its client takes answers in any order. What is behind it cuts the hold, unless it is a heartbeat, too. A
held heartbeat holds up no answer. At most half of the requests that a connection may have open are held.
Source: requirement H1; Java's consumers commit and leave by the connection of their heartbeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final

from kohort.broker.connections.replies import ReplyQueue, ReplySlot, SlotState
from kohort.broker.connections.request import Request


class Holds:
    """The held heartbeats with a place in the order of answers, oldest first.

    The oldest is held; some of those behind it may be answered already.
    """

    __slots__ = ("_held", "_is_releasing", "_replies")

    def __init__(self, replies: ReplyQueue) -> None:
        self._replies: Final = replies
        self._held: Final[deque[Request]] = deque()
        self._is_releasing = False

    def add(self, request: Request) -> None:
        """Add a held heartbeat; release the oldest if too many are held."""
        held: Sequence[ReplySlot] = self._held
        if request.is_unordered:
            held = self._replies.held_unordered
        else:
            self._held.append(request)
            self._forget_answered()
        # The other half of a connection's open requests stays for those that are answered at once.
        if len(held) > self._replies.limit // 2:
            self._release(held[0], is_cut=False)

    def release_overtaken(self) -> None:
        """Release the heartbeats that stand before a ready answer."""
        # Each release calls this method again; the outer call has all the work.
        if self._is_releasing:
            return
        self._forget_answered()
        if not self._held:
            return
        self._is_releasing = True
        try:
            for request, is_cut in self._find_overtaken(self._held[0]):
                self._release(request, is_cut=is_cut)
        finally:
            self._is_releasing = False

    def _find_overtaken(self, oldest: Request) -> list[tuple[Request, bool]]:
        """Find the heartbeats held before a ready answer, oldest first, and whether that cuts the hold."""
        found: list[tuple[Request, bool]] = []
        is_overtaken = is_cut = False
        for slot in self._replies.latest_first():
            assert isinstance(slot, Request), "whatever was read may be held"
            if slot.state is SlotState.READY:
                is_overtaken = True
                is_cut = is_cut or slot.beat is None
            elif is_overtaken and slot.is_open and slot.beat is not None:
                found.append((slot, is_cut))
            if slot is oldest:
                break
        return found[::-1]

    def _forget_answered(self) -> None:
        while self._held and not self._held[0].is_open:
            self._held.popleft()

    def _release(self, request: ReplySlot, *, is_cut: bool) -> None:
        assert isinstance(request, Request), "whatever was read may be held"
        assert request.beat is not None, "only heartbeats are held"
        request.beat.release(is_cut)
