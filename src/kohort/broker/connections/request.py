"""One request that was read: its connection, and the place of its answer."""

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
    #: The name of the client's software (KIP-511); empty if the client sent none.
    software: str
    #: (group id, member id) -> the interval that was told last by this connection, ms.
    told_intervals: dict[tuple[str, str], int]
    #: (group id, member id) -> when another request on this connection last ended a hold of the member, ms.
    cuts: dict[tuple[str, str], int]

    def on_reply(self) -> None:
        """Schedule a turn for a reply slot that has become ready."""
        ...

    def close(self) -> None:
        """Write the ready answers, then close."""
        ...


class Beat(Protocol):
    """A heartbeat whose answer may be held."""

    def release(self, is_cut: bool) -> None:
        """Answer the heartbeat if it is held; `is_cut`: another request of its client waits behind it."""
        ...

    def abandon(self) -> None:
        """Drop the heartbeat; its connection is closed."""
        ...


class Standing(Protocol):
    """A heartbeat that its client may repeat byte for byte; see `heartbeat_cache`."""

    def hold_ms(self) -> int:
        """Return how long its answer may be held now, ms; below 0: never, and `renew` answers."""
        ...

    def hold(self, request: Request, hold_ms: int) -> bool:
        """Carry the heartbeat out again and hold it; `False` if the request has to be parsed anew."""
        ...

    def renew(self) -> bytes | None:
        """Carry the heartbeat out again; return the body of its answer.

        `None` if the request has to be parsed anew. Equal bodies are the same object.
        """
        ...


class Asker(Protocol):
    """A party that the coordinator answers: a `Request`, or the watch of a member's news."""

    #: The connection that gets the answer.
    connection: Peer

    @property
    def is_open(self) -> bool:
        """Whether the answer is still expected."""
        ...

    def answer(self, body: Message | bytes) -> None:
        """Answer with `body`, which may be sent at once."""
        ...

    def answer_unsynced(self, body: Message | bytes) -> None:
        """Answer with `body`, which has to wait for `release`."""
        ...

    def release(self) -> None:
        """Let the unsynced answer leave: the log is on disk up to its records."""
        ...


class Framing(Protocol):
    """The API and version of a request, as far as its answer needs them; see `dispatch.Route`."""

    @property
    def version(self) -> int:
        """The version of the API that the client speaks."""
        ...

    @property
    def is_long(self) -> bool:
        """Whether a short request may have an answer that is long or much work."""
        ...

    @property
    def is_flexible(self) -> bool:
        """Whether the answer has tagged fields (KIP-482)."""
        ...

    def frame(self, correlation_id: int, body: Message | bytes) -> list[Buffer]:
        """Return the whole answer, as buffers to be written one after another."""
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
        #: The client id; empty if the client sent none.
        self.client_id = client_id
        #: Called if the connection closes before the answer; removes the request from the queue in which it waits.
        self.on_abandon: Callable[[], None] | None = None
        #: Set for a heartbeat, before it is carried out.
        self.beat: Beat | None = None
        #: Set for a request that its client may repeat byte for byte.
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
        """Whether the answer is still expected."""
        return self.state is SlotState.HELD

    def answer(self, body: Message | bytes) -> None:
        """Answer with `body`, which may be sent at once."""
        self.fill(self.route.frame(self.correlation_id, body))
        self.connection.on_reply()

    def answer_unsynced(self, body: Message | bytes) -> None:
        """Answer with `body`, which has to wait for `release`."""
        self.fill_unsynced(self.route.frame(self.correlation_id, body))

    def release(self) -> None:
        """Let the unsynced answer leave: the log is on disk up to its records."""
        self.sync()
        self.connection.on_reply()

    def skip(self) -> None:
        """Complete a request without an answer (Produce with acks=0)."""
        self.fill([])
        self.connection.on_reply()

    def abandon(self) -> None:
        """Drop the request; its connection is closed."""
        super().abandon()
        if self.beat is not None:
            self.beat.abandon()
        if self.on_abandon is not None:
            self.on_abandon()
            self.on_abandon = None
