"""Heartbeats of one connection: those held until there are updates, and a cache of the last one.

Laws: responses leave in request order. A held heartbeat is therefore answered as soon as a response behind it is ready,
unless its client takes responses in any order. A request other than a heartbeat cuts the hold when it is answered. A
held heartbeat delays no other response. At most half of the requests that a connection may have open are held.
Source: requirement H1; Java's consumers commit and leave by the connection of their heartbeats.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from struct import Struct
from typing import Final

from kohort.broker.connections.request import Peer, RepeatableHeartbeat, ReplyQueue, ReplySlot, Request, SlotState


class HeldHeartbeats:
    """The held heartbeats of one connection whose responses leave in request order, oldest first.

    The oldest is still held. Some of the later ones may be answered already.
    """

    __slots__ = ("_held", "_is_allowed", "_is_releasing", "_replies")

    def __init__(self, replies: ReplyQueue) -> None:
        self._replies: Final = replies
        self._held: Final[deque[Request]] = deque()
        self._is_releasing = False
        self._is_allowed = True

    def add(self, request: Request) -> None:
        """Add a held heartbeat; release the oldest if too many are held."""
        if not self._is_allowed:
            self._release(request, is_cut=False)
            return
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
        """Release the held heartbeats that precede a ready response."""
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

    def allow(self, is_allowed: bool) -> None:
        """Allow holding, or release all held heartbeats now and each later one at once."""
        self._is_allowed = is_allowed
        for request in [] if is_allowed else [*self._held, *self._replies.held_unordered]:
            assert isinstance(request, Request), "a request that was read may be delayed"
            if request.is_open and request.heartbeat is not None:
                self._release(request, is_cut=False)

    def _find_overtaken(self, oldest: Request) -> list[tuple[Request, bool]]:
        """Find the held heartbeats that precede a ready response, oldest first, and whether it cuts the hold."""
        found: list[tuple[Request, bool]] = []
        is_overtaken = is_cut = False
        for slot in self._replies.latest_first():
            assert isinstance(slot, Request), "a request that was read may be delayed"
            if slot.state is SlotState.READY:
                is_overtaken = True
                is_cut = is_cut or slot.heartbeat is None
            elif is_overtaken and slot.is_open and slot.heartbeat is not None:
                found.append((slot, is_cut))
            if slot is oldest:
                break
        return found[::-1]

    def _forget_answered(self) -> None:
        while self._held and not self._held[0].is_open:
            self._held.popleft()

    def _release(self, request: ReplySlot, *, is_cut: bool) -> None:
        assert isinstance(request, Request), "a request that was read may be delayed"
        assert request.heartbeat is not None, "only heartbeats are held"
        request.heartbeat.release(is_cut)


# Heartbeats of settled members that clients repeat byte for byte, answered without parsing.
#
# What was read of it once need not be read again, and its answer is there. A connection keeps its last heartbeat that
# names no partitions, whatever came of it; a read that brings this one, but for its correlation id, and nothing else is
# carried out by `RepeatableHeartbeat`: answered, or held if its client bears that.
#
# Laws: a repeat is carried out and answered exactly as if it were read anew, or not at all, and then it is read anew.
# That includes the rights of its client: after a change of rights it is read anew.
# Whether the answer still holds is asked each time: nothing has to be told that a repeat is kept. One is kept of a
# connection, of at most `LONGEST_REPEAT_BYTES`.

#: Longer ones are not kept: an ordinary heartbeat has about 120 bytes.
LONGEST_REPEAT_BYTES: Final = 1024
#: Where the correlation id stands in a request with its length in front, behind the API; and where in an answer.
_ID_AT: Final = 8
_ID_END: Final = 12
_ANSWER_ID_AT: Final = 4
_ANSWER_ID_END: Final = 8
_ID: Final = Struct(">i")


class CachedHeartbeat:
    """A connection's last plain heartbeat without its correlation id, and the cached response."""

    __slots__ = (
        "_answer_head",
        "_answer_tail",
        "_body",
        "_client_id",
        "_edition",
        "_head",
        "_repeated",
        "_route",
        "_tail",
        "size",
    )

    def __init__(self, frame: memoryview, request: Request, repeated: RepeatableHeartbeat) -> None:
        """Cache `frame`, the request without its length prefix."""
        #: Of the request with its length, bytes.
        self.size: Final = len(frame) + 4
        self._head: Final = len(frame).to_bytes(4) + frame[: _ID_AT - 4]
        self._tail: Final = bytes(frame[_ID_END - 4 :])
        self._route: Final = request.route
        self._client_id: Final = request.client_id
        self._repeated: Final = repeated
        #: The edition of the rights by which it was carried out.
        self._edition: Final = request.rights.edition
        #: The body of the last answer, and the bytes before and behind its correlation id.
        self._body: bytes | None = None
        self._answer_head = b""
        self._answer_tail = b""

    def carry_out(self, connection: Peer, received: memoryview, open_before: ReplyQueue) -> bytes | Request | None:
        """Carry out the first `size` received bytes without parsing if they equal the cached request.

        Returns:
            The whole response, or the request if its response is held; `None`: nothing was done.
        """
        # Everything but the correlation id has to be equal.
        if received[_ID_END : self.size] != self._tail or received[:_ID_AT] != self._head:
            return None
        if connection.rights.is_restricted and connection.rights.edition != self._edition:
            return None
        hold_ms = self._repeated.hold_ms()
        if hold_ms < 0:
            # With earlier requests unanswered, the answer would leave out of order.
            return None if len(open_before) else self._answer(received[_ID_AT:_ID_END])
        if open_before.is_full:
            return None
        request = Request(connection, self._route, _ID.unpack_from(received, _ID_AT)[0], self._client_id)
        return request if self._repeated.hold(request, hold_ms) else None

    def _answer(self, correlation_id: memoryview) -> bytes | None:
        body = self._repeated.renew()
        if body is None:
            return None
        if body is not self._body:
            self._body = body
            whole = b"".join(self._route.frame(0, body))
            self._answer_head, self._answer_tail = whole[:_ANSWER_ID_AT], whole[_ANSWER_ID_END:]
        return b"".join((self._answer_head, correlation_id, self._answer_tail))
