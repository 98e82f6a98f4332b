"""One request that was read: who asked, and where its answer goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from kohort.broker.connections.replies import Buffer, ReplySlot, SlotState

if TYPE_CHECKING:
    from kohort.wire.schema import Message


class Peer(Protocol):
    """The connection of a request, as the APIs see it."""

    #: Rises with each connection that is accepted.
    number: int
    #: The client's address.
    peer_host: str
    #: The address of this host that the client connected to.
    local_host: str
    #: What the client's software calls itself (KIP-511); empty if it does not.
    software: str
    #: (group id, member id) -> the interval that was told last by this connection, ms.
    told_intervals: dict[tuple[str, str], int]
    #: (group id, member id) -> when something else by this connection ended a hold of it last, ms.
    cuts: dict[tuple[str, str], int]

    def on_reply(self) -> None:
        """A slot of this connection has become ready."""
        ...

    def close(self) -> None:
        """Write what is ready, then close."""
        ...


class Beat(Protocol):
    """A heartbeat: its answer may wait."""

    def release(self, is_cut: bool) -> None:
        """Have it answered if it waits for news; `is_cut`: something else of its client is behind it."""
        ...

    def abandon(self) -> None:
        """Its connection is gone."""
        ...


class Standing(Protocol):
    """A heartbeat that may come again word for word; see `repeat`."""

    def hold_ms(self) -> int:
        """For how long its answer may wait now; below 0: its client never waits, and `renew` answers."""
        ...

    def hold(self, request: Request, hold_ms: int) -> bool:
        """Carry it out once more and hold it; `False` if it has to be read anew."""
        ...

    def renew(self) -> bytes | None:
        """Carry it out once more: the body of the answer, `None` if it has to be read anew. The same object is the
        same body."""
        ...


class Asker(Protocol):
    """Who waits for an answer of a group's coordinator: a `Request`, or who tells a member its news."""

    #: Where the answer goes.
    connection: Peer

    @property
    def is_open(self) -> bool:
        """Whether the answer is still waited for."""
        ...

    def answer(self, body: Message | bytes) -> None:
        """The answer, which may be told at once."""
        ...

    def answer_unsynced(self, body: Message | bytes) -> None:
        """The answer, which waits for `release`."""
        ...

    def release(self) -> None:
        """What the answer tells is on disk now."""
        ...


class Framing(Protocol):
    """The API and version of a request, as far as its answer needs them; see `dispatch.Route`."""

    @property
    def version(self) -> int:
        """The version of the API that the client speaks."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether a short request may have a long answer, or one that is much work."""
        ...

    @property
    def is_flexible(self) -> bool:
        """Whether tagged fields stand in the answer (KIP-482)."""
        ...

    def frame(self, correlation_id: int, body: Message | bytes) -> list[Buffer]:
        """The whole answer as buffers to be written one after another."""
        ...


class Request(ReplySlot):
    """One request, and the place of its answer in the order of its connection."""

    __slots__ = ("beat", "client_id", "connection", "correlation_id", "on_abandon", "route", "standing")

    def __init__(self, connection: Peer, route: Framing, correlation_id: int, client_id: str) -> None:
        super().__init__()
        self.is_long = route.is_long
        self.connection = connection
        #: Encodes the answer.
        self.route = route
        self.correlation_id = correlation_id
        #: What the client calls itself; empty if it does not.
        self.client_id = client_id
        #: Called if the connection goes before the answer: takes the request out of whatever it waits in.
        self.on_abandon: Callable[[], None] | None = None
        #: Set for a heartbeat, before it is carried out.
        self.beat: Beat | None = None
        #: Set for a request that may come again word for word.
        self.standing: Standing | None = None

    @property
    def version(self) -> int:
        """The version of the API that the client speaks."""
        return self.route.version

    @property
    def client_host(self) -> str:
        """The client's address as Kafka prints it."""
        return f"/{self.connection.peer_host}"

    @property
    def is_open(self) -> bool:
        """Whether the answer is still waited for."""
        return self.state is SlotState.HELD

    def answer(self, body: Message | bytes) -> None:
        """The answer, which may leave at once."""
        self.fill(self.route.frame(self.correlation_id, body))
        self.connection.on_reply()

    def answer_unsynced(self, body: Message | bytes) -> None:
        """The answer, which waits for `release`."""
        self.fill_unsynced(self.route.frame(self.correlation_id, body))

    def release(self) -> None:
        """What the answer tells is on disk now."""
        self.sync()
        self.connection.on_reply()

    def skip(self) -> None:
        """There is no answer (Produce with acks=0)."""
        self.fill([])
        self.connection.on_reply()

    def abandon(self) -> None:
        """The connection is gone."""
        super().abandon()
        if self.beat is not None:
            self.beat.abandon()
        if self.on_abandon is not None:
            self.on_abandon()
            self.on_abandon = None
