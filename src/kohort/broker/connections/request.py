"""One decoded request: its connection, and the slot of its response in the connection's reply order."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from enum import IntEnum
from typing import Final, Protocol

from kohort.broker.access.logins import Login
from kohort.broker.access.rights import Rights
from kohort.broker.limits.memory import MOST_LONG, AnswerMemory, ParkedBytes
from kohort.broker.options.listeners import ListenerSettings
from kohort.security.access_control import ANONYMOUS
from kohort.wire.registry import AnyApiKey
from kohort.wire.schema import Message

# The order of answers on one socket: requests are read ahead, and answers leave in request order.
#
# A `ReplySlot` stands for one request that was read. It is HELD while there is no answer (a parked JoinGroup, a long
# poll), UNSYNCED while the answer is known but must not be seen before the log is on disk, READY when it may leave. A
# `ReplyQueue` gives out the ready answers from its head only, and those that need no place in the order.
#
# Laws: each slot leaves exactly once, in the order in which the slots were added, unless it is unordered; a slot whose
# connection is gone discards answers that still come. Nothing here knows sockets or clocks.
# Source: Kafka's clients match answers to requests by order, librdkafka by the numbers of its requests
# (`rd_kafka_waitresp_find`); architecture: "keeps each socket's order".

#: The kinds of bytes that are written to a socket.
Buffer = bytes | bytearray | memoryview
#: Answers that are known and may not leave yet, above which nothing is read ahead.
MOST_KNOWN_BYTES: Final = 1024 * 1024
_NO_LIMIT: Final = (1 << 63) - 1


class SlotState(IntEnum):
    """The states of a reply."""

    HELD = 0
    UNSYNCED = 1
    READY = 2
    SENT = 3
    GONE = 4


class SlotEvent(IntEnum):
    """The events of a reply."""

    FILL = 0
    FILL_UNSYNCED = 1
    SYNC = 2
    SEND = 3
    ABANDON = 4


#: (state, event) -> next state; a pair that is missing is a bug.
TRANSITIONS: Final = {
    (SlotState.HELD, SlotEvent.FILL): SlotState.READY,
    (SlotState.HELD, SlotEvent.FILL_UNSYNCED): SlotState.UNSYNCED,
    (SlotState.HELD, SlotEvent.ABANDON): SlotState.GONE,
    (SlotState.UNSYNCED, SlotEvent.SYNC): SlotState.READY,
    (SlotState.UNSYNCED, SlotEvent.ABANDON): SlotState.GONE,
    (SlotState.READY, SlotEvent.SEND): SlotState.SENT,
    (SlotState.READY, SlotEvent.ABANDON): SlotState.GONE,
    (SlotState.GONE, SlotEvent.FILL): SlotState.GONE,
    (SlotState.GONE, SlotEvent.FILL_UNSYNCED): SlotState.GONE,
    (SlotState.GONE, SlotEvent.SYNC): SlotState.GONE,
    (SlotState.GONE, SlotEvent.ABANDON): SlotState.GONE,
}


class ReplySlot:
    """The slot of one response in the reply order of its connection."""

    __slots__ = ("is_long", "is_unordered", "kept_bytes", "known_bytes", "parts", "state")

    def __init__(self) -> None:
        #: Bytes of memory that its request takes until the answer leaves, if that is counted; set before it is queued.
        self.kept_bytes = 0
        #: Whether the answer may leave out of order; set before it is queued.
        self.is_unordered = False
        #: Whether the answer may be long; set before it is queued.
        self.is_long = False
        #: The length of an answer that was known when it was queued.
        self.known_bytes = 0
        #: HELD at first; moves along `TRANSITIONS` only.
        self.state: SlotState = SlotState.HELD
        #: The whole frame of the answer; empty for a request that gets none. Meaningful from UNSYNCED on.
        self.parts: Sequence[Buffer] = ()

    def fill(self, parts: list[Buffer]) -> None:
        """Fill in a response that may be sent as soon as all earlier ones are."""
        self.state = TRANSITIONS[self.state, SlotEvent.FILL]
        self._keep(parts)

    def fill_unsynced(self, parts: list[Buffer]) -> None:
        """Fill in a response that may only be sent after `sync`."""
        self.state = TRANSITIONS[self.state, SlotEvent.FILL_UNSYNCED]
        self._keep(parts)

    def sync(self) -> None:
        """Allow an unsynced response to be sent, since the log is on disk up to its records."""
        self.state = TRANSITIONS[self.state, SlotEvent.SYNC]

    def send(self) -> Sequence[Buffer]:
        """Mark the response as sent; return its parts, which the caller writes."""
        self.state = TRANSITIONS[self.state, SlotEvent.SEND]
        parts, self.parts = self.parts, ()
        return parts

    def abandon(self) -> None:
        """Discard the response, since its connection is closed."""
        self.state = TRANSITIONS[self.state, SlotEvent.ABANDON]
        self.parts = ()

    def _keep(self, parts: list[Buffer]) -> None:
        if self.state is not SlotState.GONE:
            self.parts = parts


class ReplyQueue:
    """The slots of one connection whose responses were not sent yet, oldest first."""

    __slots__ = ("_answers", "_kept_bytes", "_known_bytes", "_long", "_parked", "_slots", "_unordered", "limit")

    def __init__(self, limit: int, parked: ParkedBytes | None = None, answers: AnswerMemory | None = None) -> None:
        """Create an empty queue; at `limit` slots the owner stops reading requests.

        `parked` counts the bytes of waiting requests of all connections, `answers` those of long responses.
        """
        assert limit > 0
        self._answers: Final = answers
        #: Changes while a login is checked.
        self.limit = limit
        self._parked: Final = parked or ParkedBytes(_NO_LIMIT)
        self._kept_bytes = 0
        #: Of the slots that have a place in the order: bytes of answers that were known at once, and long ones.
        self._known_bytes = self._long = 0
        #: Every slot that was added, has its place in the order and has not left.
        self._slots: deque[ReplySlot] = deque()
        #: Slots without a place in the order, oldest first: mostly held heartbeats.
        self._unordered: list[ReplySlot] = []

    def __len__(self) -> int:
        return len(self._slots) + len(self._unordered)

    @property
    def is_full(self) -> bool:
        """Whether no further request should be read for now."""
        return (
            len(self._slots) + len(self._unordered) >= self.limit
            or self._long >= (MOST_LONG if self._answers is None else self._answers.most_long)
            or self._known_bytes >= MOST_KNOWN_BYTES
            or self._kept_bytes >= self._parked.limit_of_connection
        )

    @property
    def held_unordered(self) -> list[ReplySlot]:
        """Unordered slots without a response, oldest first."""
        return [slot for slot in self._unordered if slot.state is SlotState.HELD]

    @property
    def held(self) -> list[ReplySlot]:
        """Slots without a response, the ordered ones first."""
        return [slot for slot in self._slots if slot.state is SlotState.HELD] + self.held_unordered

    @property
    def unsent_bytes(self) -> int:
        """The bytes of all ordered responses that are known and not yet sent."""
        return sum(len(part) for slot in self._slots for part in slot.parts)

    def add(self, slot: ReplySlot) -> None:
        """Add the slot of the request that was read last."""
        if slot.is_unordered:
            self._unordered.append(slot)
        else:
            self._slots.append(slot)
            self._long += slot.is_long
            if slot.parts:
                slot.known_bytes = sum(map(len, slot.parts))
                self._known_bytes += slot.known_bytes
        if slot.kept_bytes:
            self._count(slot.kept_bytes)

    def latest_first(self) -> Iterator[ReplySlot]:
        """Return the ordered slots, latest request first."""
        return reversed(self._slots)

    def take(self, limit_bytes: int) -> list[Buffer]:
        """Remove the ready responses at the head, up to the one that reaches `limit_bytes`; return the parts.

        Unordered responses are short. All that are ready are returned first.
        """
        slots = self._slots
        taken: list[Buffer] = []
        if self._unordered:
            waiting, self._unordered = self._unordered, []
            for slot in waiting:
                if slot.state is SlotState.READY:
                    taken += slot.send()
                else:
                    self._unordered.append(slot)
        size = 0
        # Kafka's clients match answers to requests by their order, so only the head may leave.
        while slots and slots[0].state is SlotState.READY and size < limit_bytes:
            slot = slots.popleft()
            parts = slot.send()
            self._long -= slot.is_long
            self._known_bytes -= slot.known_bytes
            if slot.kept_bytes:
                self._count(-slot.kept_bytes)
            taken += parts
            size += sum(map(len, parts))
        return taken

    def abandon(self) -> None:
        """Discard all slots, since the connection is closed."""
        while self._unordered:
            self._unordered.pop().abandon()
        while self._slots:
            self._slots.popleft().abandon()
        self._count(-self._kept_bytes)

    def _count(self, size: int) -> None:
        self._kept_bytes += size
        self._parked.used += size


class Peer(Protocol):
    """The part of a request's connection that the API handlers use."""

    #: Rises with each connection that is accepted.
    number: int
    #: The client's address.
    peer_host: str
    #: The address of this host that the client connected to.
    local_host: str
    #: The name of the client's software (KIP-511); empty if the client sent none.
    software: str
    #: The listener that the client connected to.
    listener: ListenerSettings
    #: The client's principal, as Kafka writes it: `User:alice`.
    principal: str
    #: What the principal may do.
    rights: Rights
    #: Its login; `None` on a listener without logins.
    login: Login | None
    #: (group id, member id) -> the interval that was told last by this connection, ms.
    told_intervals: dict[tuple[str, str], int]
    #: (group id, member id) -> when another request on this connection last ended a hold of the member, ms.
    cuts: dict[tuple[str, str], int]

    def on_reply(self) -> None:
        """Schedule the sending of a response that has become ready."""

    def close(self) -> None:
        """Write the ready responses, then close the connection."""

    def mute(self, wait_ms: int) -> None:
        """Read and handle no requests of the client for `wait_ms` (KIP-219)."""


class HeldHeartbeat(Protocol):
    """A heartbeat whose response may be held until the member has updates."""

    def release(self, is_cut: bool) -> None:
        """Answer the heartbeat if it is held; `is_cut`: another kind of request behind it ends the hold."""

    def abandon(self) -> None:
        """Drop the heartbeat; its connection is closed."""


class CachedRequest(Protocol):
    """A cached request: an equal one on the same connection is carried out without decoding."""

    @property
    def size(self) -> int:
        """The size of the request with its length prefix, bytes."""

    def carry_out(self, connection: Peer, received: memoryview, open_before: ReplyQueue) -> bytes | Request | None:
        """Carry out the first `size` received bytes without parsing if they equal the cached request.

        Returns:
            The whole response, or the request if its response waits; `None`: nothing was done.
        """


class Repeatable(Protocol):
    """The handling of a request that its client may send again."""

    def cache(self, frame: memoryview, request: Request) -> CachedRequest | None:
        """Return the cached form of `request`, `frame` without its length prefix; `None`: it is not cached."""


class RepeatableHeartbeat(Protocol):
    """A heartbeat that its client may repeat byte for byte; see `connections.heartbeats`."""

    def hold_ms(self) -> int:
        """Return how long the response may be held now, ms; below 0: not at all, call `renew` instead."""

    def hold(self, request: Request, hold_ms: int) -> bool:
        """Carry the heartbeat out again and hold its response; `False`: the request has to be parsed."""

    def renew(self) -> bytes | None:
        """Carry the heartbeat out again; return the body of its response.

        `None`: the request has to be parsed. Equal bodies are the same object.
        """


class Asker(Protocol):
    """A receiver of a coordinator's response: a `Request`, or the watch for a member's updates."""

    #: The connection that gets the answer.
    connection: Peer

    @property
    def is_open(self) -> bool:
        """Whether the answer is still expected."""

    def answer(self, body: Message | bytes) -> None:
        """Answer with `body`, which may be sent at once."""

    def answer_unsynced(self, body: Message | bytes) -> None:
        """Answer with `body`, which has to wait for `release`."""

    def release(self) -> None:
        """Let the unsynced answer leave: the log is on disk up to its records."""


class Framing(Protocol):
    """The API and version of a request, and the encoding of its response; see `dispatch.Route`."""

    @property
    def api_key(self) -> AnyApiKey:
        """The API."""

    @property
    def version(self) -> int:
        """The version of the API that the client speaks."""

    @property
    def is_long(self) -> bool:
        """Whether a short request may cause a long or expensive response."""

    @property
    def is_flexible(self) -> bool:
        """Whether the response has tagged fields (KIP-482)."""

    def frame(self, correlation_id: int, body: Message | bytes) -> list[Buffer]:
        """Return the whole response frame, as buffers to be written one after another."""


class Request(ReplySlot):
    """One request, which is also the slot of its response in the connection's reply order."""

    __slots__ = (
        "client_id",
        "connection",
        "correlation_id",
        "heartbeat",
        "on_abandon",
        "on_rights",
        "repeatable",
        "route",
    )

    #: Whether its client has quotas; see `measured_request`.
    is_measured = False

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
        #: Called with the request if rights change before the answer; refuses what the client may not have any more.
        self.on_rights: Callable[[Request], None] | None = None
        #: Set for a heartbeat, before it is carried out.
        self.heartbeat: HeldHeartbeat | None = None
        #: Set for a request that its client may repeat.
        self.repeatable: Repeatable | None = None

    @property
    def version(self) -> int:
        """The version of the API that the client speaks."""
        return self.route.version

    @property
    def client_host(self) -> str:
        """The client's address as Kafka prints it."""
        return f"/{self.connection.peer_host}"

    @property
    def principal(self) -> str:
        """The client's principal, as the journal names it: empty for a client without a login.

        The label of a token stands behind its principal, which has no space.
        """
        principal = self.connection.principal
        capability = self.connection.rights.capability
        if capability is not None and capability.label is not None:
            return f"{principal} {capability.label}"
        return "" if principal == ANONYMOUS else principal

    @property
    def rights(self) -> Rights:
        """What the client's principal may do."""
        return self.connection.rights

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
        """Complete a request that gets no response (Produce with acks=0)."""
        self.fill([])
        self.connection.on_reply()

    def take_mutations(self, count: int) -> None:
        """Count the partitions that the request creates or deletes (KIP-599), if the client has a quota."""

    def abandon(self) -> None:
        """Drop the request, since its connection is closed."""
        super().abandon()
        if self.heartbeat is not None:
            self.heartbeat.abandon()
        if self.on_abandon is not None:
            self.on_abandon()
            self.on_abandon = None
