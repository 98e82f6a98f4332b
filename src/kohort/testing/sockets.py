"""The broker's end of a simulated connection: its held requests, answer order and unread input.

The queue of answers and the holds are the broker's own; what stands in for bytes is the number of each request.

Laws: answers leave in the order of their requests, but for heartbeats of clients that take them in any
(AnswersInOrder). An answer that is ready waits behind no heartbeat that is held, and at most half of what a connection
may have open is held (HeldInNobodysWay).
Source: `kohort.broker.connections.connection`; requirement H1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kohort.broker.connections.delayed_heartbeats import Holds
from kohort.broker.connections.output import WRITE_AT_BYTES
from kohort.broker.connections.replies import Buffer, ReplyQueue, SlotState
from kohort.broker.connections.request import Request
from kohort.coordinator.commands.base import Command
from kohort.coordinator.commands.replies import ReplyBody
from kohort.testing.loop import SimulatedLoop
from kohort.testing.network import Connection
from kohort.testing.trace import LawBroken

_NUMBER_BYTES: Final = 8


class SimulatedRoute:
    """The route of an answer: its frame is the request's number, and the answer itself is kept."""

    version = 1
    is_long = False
    is_flexible = True

    def __init__(self) -> None:
        #: Number of a request -> its answer, until that leaves.
        self.answers: dict[int, ReplyBody] = {}

    def frame(self, correlation_id: int, body: Any) -> list[Buffer]:
        """Keep the coordinator's reply, which is not encoded, and frame its number; see `Framing.frame`."""
        self.answers[correlation_id] = body
        return [correlation_id.to_bytes(_NUMBER_BYTES)]


class Socket:
    """The broker's end of a connection, as a `kohort.broker.connections.request.Peer`.

    Args:
        open_limit: `queued.max.requests`.
        on_request: carries out what was read.
    """

    def __init__(
        self,
        connection: Connection,
        loop: SimulatedLoop,
        *,
        open_limit: int,
        on_request: Callable[[Socket, Command], None],
    ) -> None:
        self.connection: Final = connection
        self.number = connection.number
        self.peer_host, self.local_host = "10.0.0.1", "10.0.0.2"
        self.software = connection.software
        self.told_intervals: dict[tuple[str, str], int] = {}
        self.cuts: dict[tuple[str, str], int] = {}
        self._loop: Final = loop
        self._on_request: Final = on_request
        self._route: Final = SimulatedRoute()
        self._replies: Final = ReplyQueue(open_limit)
        self._holds: Final = Holds(self._replies)
        #: Those that were read and are not answered, in their order.
        self._open: Final[deque[Request]] = deque()
        self._unread: Final[deque[Command]] = deque()
        self._has_turn = self._is_reading = self._is_closed = False

    def receive(self, command: Command) -> None:
        """Take a request, which is read when there is room for its answer."""
        self._unread.append(command)
        self._pump()

    def open_request(self, number: int, client_id: str) -> Request:
        """Open the slot of the answer to a request that is read now."""
        return Request(self, self._route, number, client_id)

    @property
    def awaited(self) -> list[int]:
        """Return the numbers of the requests without an answer so far."""
        return [request.correlation_id for request in self._open if request.is_open]

    def add(self, request: Request) -> None:
        """Add a request that is carried out; its answer is there, or follows."""
        self._replies.add(request)
        self._open.append(request)
        if request.beat is not None and request.is_open:
            self._holds.add(request)

    def on_reply(self) -> None:
        """Send the ready answers; see `Connection.on_reply`."""
        if self._is_reading:
            return
        if not self._has_turn:
            self._has_turn = True
            self._loop.call_soon(self._take_turn)
        self._holds.release_overtaken()

    def close(self) -> None:
        """Close the broker's end and abandon its answers."""
        self._is_closed = True
        self._unread.clear()
        self._open.clear()
        self._replies.abandon()

    def _take_turn(self) -> None:
        self._has_turn = False
        self._pump()

    def _pump(self) -> None:
        """Read requests while there is room, then write the answers that are ready; see `Connection._pump`."""
        if self._is_reading:
            return
        self._is_reading = True
        while self._unread and not self._replies.is_full:
            self._on_request(self, self._unread.popleft())
        self._is_reading = False
        self._holds.release_overtaken()
        self._check_holds()
        while parts := self._replies.take(WRITE_AT_BYTES):
            for part in parts:
                # The network may break with each.
                if not self._is_closed:
                    self._write(int.from_bytes(part))
        if self._unread and not self._replies.is_full:
            self._loop.call_soon(self._take_turn)

    def _write(self, number: int) -> None:
        place = next(at for at, request in enumerate(self._open) if request.correlation_id == number)
        ordered = next((each for each in self._open if not each.is_unordered), None)
        if ordered is not None and not self._open[place].is_unordered and ordered.correlation_id != number:
            why = f"{number} is answered, and {ordered.correlation_id} was asked first"
            raise LawBroken("AnswersInOrder", why, group_id="")
        del self._open[place]
        self.connection.send_back(self._route.answers.pop(number), place)

    def _check_holds(self) -> None:
        is_behind = False
        held = 0
        for request in reversed(self._open):
            if request.is_open and request.beat is not None:
                held += 1
                if is_behind and not request.is_unordered:
                    why = f"{request.correlation_id} is held, and what was asked behind it is ready"
                    raise LawBroken("HeldInNobodysWay", why, group_id="")
            is_behind = is_behind or request.state is SlotState.READY
        if held > self._replies.limit // 2:
            why = f"{held} requests of one connection are held, of {self._replies.limit} that it may have open"
            raise LawBroken("HeldInNobodysWay", why, group_id="")
